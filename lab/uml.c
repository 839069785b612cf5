/* Booting and ending User-Mode Linux.  Its consoles are wired to pipes: con0 is the command's
 * stdout, con1 its stderr, con2 the kernel's own messages, kept in a file for when it fails. */
#include "lab/uml.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/uml_kernel.h"
#include "lab/uml_script.h"

enum { DEFAULT_MIB = 1024, MIN_MIB = 64, POLL_MS = 100, LINE_MAX_BYTES = 8192 };
static const double default_timeout_s = 3600;
/* The command is over but somebody still holds its output open: how long to wait for more. */
static const double linger_s = 5;

typedef struct stream {
  int fd; /* read end; -1 once at its end */
  int to; /* where it goes when there is no line function */
  bool is_error;
  size_t held;
  char line[LINE_MAX_BYTES];
} stream;

typedef struct machine {
  pid_t pid;       /* of the machine, also its process group */
  pid_t warden;    /* ends the machine should we be killed */
  int warden_pipe; /* whose other end it reads */
  weir_uml_folder folder;
  const weir_uml_config *config;
  stream out, err;
} machine;

static volatile sig_atomic_t interrupted;
static void on_signal(int signal_number) { interrupted = signal_number; }

/* UML keeps its memory in a file it must map executable: tmpfs when that works and has the room. */
static const char *memory_folder(size_t mib) {
  static const char shm[] = "/dev/shm";
  struct statvfs info;
  if (statvfs(shm, &info) || (info.f_flag & ST_NOEXEC) || access(shm, W_OK)) return NULL;
  return (double)info.f_bavail * (double)info.f_frsize > (double)mib * 1048576.0 ? shm : NULL;
}

static void put_lines(const machine *m, stream *s, const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (bytes[i] == '\n' || s->held == sizeof s->line - 1) {
      s->line[s->held] = 0;
      s->held = 0;
      m->config->line(m->config->user, s->is_error, s->line);
    }
    if (bytes[i] != '\n') s->line[s->held++] = bytes[i] ? bytes[i] : ' ';
  }
}

static void pass_on(int to, const char *bytes, size_t count) {
  while (count) {
    const ssize_t n = write(to, bytes, count);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return; /* nobody reads our output any more: the run goes on */
    bytes += n;
    count -= (size_t)n;
  }
}

/* Take what is there now, and no more: a command that prints without end must not keep us from its
 * time-out and from signals.  True when there was something. */
static bool drain(const machine *m, stream *s) {
  char bytes[16384];
  bool any = false;
  int left = 0;
  if (s->fd < 0 || ioctl(s->fd, FIONREAD, &left)) return false;
  do {
    const ssize_t n = read(s->fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      close(s->fd);
      s->fd = -1;
      break;
    }
    any = true;
    if (m->config->line)
      put_lines(m, s, bytes, (size_t)n);
    else
      pass_on(s->to, bytes, (size_t)n);
    left -= (int)n;
  } while (left > 0);
  return any;
}

static void end_stream(const machine *m, stream *s) {
  (void)drain(m, s);
  if (m->config->line && s->held) put_lines(m, s, "\n", 1);
  if (s->fd >= 0) close(s->fd);
  s->fd = -1;
}

/* In the child: wire fds as the command line below names them, then become the machine. */
static void become_machine(const machine *m, const char *program, char *const argv[], int out,
                           int err, int log, pid_t parent) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int wanted[9] = {null, log, log, null, out, null, err, null, log};
  int high[9];
  if (null < 0 || setpgid(0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
    _exit(127);
  for (int i = 0; i < 9; i++)
    if ((high[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, 32)) < 0) _exit(127);
  for (int i = 0; i < 9; i++)
    if (dup2(high[i], i) != i) _exit(127);
  for (int fd = 9; fd < 32; fd++) close(fd);
  const char *memory = memory_folder(m->config->memory_mib ? m->config->memory_mib : DEFAULT_MIB);
  if (setenv("HOME", m->folder.path, 1) || setenv("TMPDIR", memory ? memory : m->folder.path, 1))
    _exit(127);
  (void)signal(SIGINT, SIG_DFL);
  (void)signal(SIGTERM, SIG_DFL);
  execv(program, argv);
  _exit(127);
}

/* The machine is several host processes, and those that only run its programs outlive the one that
 * is its kernel.  So a process of ours waits for the caller's end of a pipe to close: a byte before
 * that means that all is well. */
static weir_status post_warden(machine *m) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC))
    return weir_fail(WEIR_E_IO, "cannot make a pipe: %s", strerror(errno));
  m->warden = fork();
  if (m->warden == 0) {
    char byte;
    ssize_t n;
    (void)setsid();
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    close(ends[1]);
    close(m->out.fd);
    close(m->err.fd);
    while ((n = read(ends[0], &byte, 1)) < 0 && errno == EINTR) continue;
    if (n == 0) {
      (void)kill(-m->pid, SIGKILL);
      weir_uml_folder_remove(&m->folder);
    }
    _exit(0);
  }
  close(ends[0]);
  m->warden_pipe = ends[1];
  return m->warden > 0 ? WEIR_OK : weir_fail(WEIR_E_IO, "cannot fork: %s", strerror(errno));
}

static weir_status boot(machine *m) {
  char program[WEIR_UML_PATH], memory[32], init[300], log_path[300], parameter[32];
  bool modules;
  weir_status status = weir_uml_find_kernel(m->config->clock, program, &modules);
  if (status != WEIR_OK) return status;
  (void)snprintf(memory, sizeof memory, "mem=%zuM",
                 m->config->memory_mib ? m->config->memory_mib : (size_t)DEFAULT_MIB);
  (void)snprintf(init, sizeof init, "init=%s/init", m->folder.path);
  (void)snprintf(log_path, sizeof log_path, "%s/kernel.log", m->folder.path);
  char *argv[] = {"linux.uml",
                  memory,
                  "rootfstype=hostfs",
                  "root=/dev/root",
                  "ro",
                  "hostfs=/",
                  init,
                  "con=null",
                  "con0=fd:3,fd:4",
                  "con1=fd:5,fd:6",
                  "con2=fd:7,fd:8",
                  "console=tty2",
                  "loglevel=4",
                  "panic=-1",
                  NULL,
                  NULL};
  const char *clock = weir_uml_clock_parameter(m->config->clock);
  if (clock) {
    (void)snprintf(parameter, sizeof parameter, "%s", clock);
    argv[sizeof argv / sizeof *argv - 2] = parameter;
  }
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  const int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0 || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
    status = weir_fail(WEIR_E_IO, "cannot make the consoles: %s", strerror(errno));
    goto close_all;
  }
  const pid_t parent = getpid();
  m->pid = fork();
  if (m->pid == 0) become_machine(m, program, argv, out[1], err[1], log, parent);
  if (m->pid < 0) {
    status = weir_fail(WEIR_E_IO, "cannot fork: %s", strerror(errno));
    goto close_all;
  }
  (void)setpgid(m->pid, m->pid); /* whichever of the two is first */
  m->out.fd = out[0];
  m->err.fd = err[0];
  out[0] = err[0] = -1;
  (void)fcntl(m->out.fd, F_SETFL, O_NONBLOCK);
  (void)fcntl(m->err.fd, F_SETFL, O_NONBLOCK);
close_all:
  for (int i = 0; i < 2; i++) {
    if (out[i] >= 0) close(out[i]);
    if (err[i] >= 0) close(err[i]);
  }
  if (log >= 0) close(log);
  return status;
}

/* Why the kernel panicked, else the last thing it said, for the error message. */
static void kernel_said(const machine *m, char text[160]) {
  char path[300], line[512];
  (void)snprintf(path, sizeof path, "%s/kernel.log", m->folder.path);
  (void)snprintf(text, 160, "nothing");
  FILE *file = fopen(path, "re");
  bool panicked = false; /* what follows is a trace of its stack */
  while (file && !panicked && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\r\n")] = 0;
    panicked = strstr(line, "Kernel panic") != NULL;
    if (strspn(line, " \t") != strlen(line) && !strstr(line, "System halted"))
      (void)snprintf(text, 160, "%.159s", line);
  }
  if (file) fclose(file);
}

/* Pass output on until the machine has halted, time is up, a signal came, or the command is over
 * and silent. */
static void attend(machine *m, double deadline, bool *timed_out) {
  double quiet_since = weir_now_s(); /* no output, or the command not over, until then */
  bool ended = false;
  for (;;) {
    struct pollfd fds[2] = {{.fd = m->out.fd, .events = POLLIN},
                            {.fd = m->err.fd, .events = POLLIN}};
    const bool over = m->out.fd < 0 && m->err.fd < 0;
    (void)poll(fds, 2, over ? 5 : POLL_MS);
    const bool any_out = drain(m, &m->out), any_err = drain(m, &m->err);
    siginfo_t state = {0};
    /* Not reaped yet: the number of its group stays ours. */
    if (!waitid(P_PID, (id_t)m->pid, &state, WEXITED | WNOHANG | WNOWAIT) && state.si_pid) return;
    const double now = weir_now_s();
    if (any_out || any_err || !ended) quiet_since = now;
    if (!ended) ended = weir_uml_read_exit(&m->folder) >= 0;
    if (interrupted) return;
    if (now > deadline) {
      *timed_out = true;
      return;
    }
    if (ended && now - quiet_since > linger_s) return;
  }
}

static void reap(pid_t pid) {
  int state;
  while (pid > 0 && waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
}

static void end_machine(machine *m) {
  (void)kill(-m->pid, SIGKILL);
  if (m->warden_pipe >= 0) {
    pass_on(m->warden_pipe, "", 1);
    close(m->warden_pipe);
  }
  reap(m->warden);
  reap(m->pid);
  end_stream(m, &m->out);
  end_stream(m, &m->err);
}

static weir_status verdict(const machine *m, bool timed_out, double timeout_s, int *exit_code) {
  char said[160];
  const int code = weir_uml_read_exit(&m->folder);
  if (interrupted) {
    *exit_code = 128 + (int)interrupted;
    return weir_fail(WEIR_E_STATE, "interrupted");
  }
  if (code >= 0) {
    *exit_code = code;
    return WEIR_OK;
  }
  kernel_said(m, said);
  if (timed_out)
    return weir_fail(WEIR_E_TIMEOUT, "User-Mode Linux was ended after %.0f s; its kernel said: %s",
                     timeout_s, said);
  return weir_fail(WEIR_E_IO, "User-Mode Linux ended before the command did; its kernel said: %s",
                   said);
}

weir_status weir_uml_run(const weir_uml_config *config, int *exit_code) {
  char why[512];
  *exit_code = -1;
  if (!config->argv || !config->argv[0] || !(config->timeout_s >= 0))
    return weir_fail(WEIR_E_INVALID, "User-Mode Linux needs a command and a time-out");
  if (config->memory_mib && config->memory_mib < MIN_MIB)
    return weir_fail(WEIR_E_INVALID, "User-Mode Linux needs at least %d MiB", MIN_MIB);
  if (config->out && access(config->out, W_OK | X_OK))
    return weir_fail(WEIR_E_IO, "cannot write in %s: %s", config->out, strerror(errno));
  if (!weir_uml_available(config->clock, why)) return weir_fail(WEIR_E_UNSUPPORTED, "%s", why);
  const double timeout_s = config->timeout_s > 0 ? config->timeout_s : default_timeout_s;
  const double deadline = weir_now_s() + timeout_s;

  machine *m = calloc(1, sizeof *m);
  if (!m) return weir_fail(WEIR_E_NOMEM, "no memory for User-Mode Linux");
  m->config = config;
  m->warden_pipe = -1;
  m->out = (stream){.fd = -1, .to = STDOUT_FILENO};
  m->err = (stream){.fd = -1, .to = STDERR_FILENO, .is_error = true};
  weir_status status = weir_uml_folder_make(&m->folder);
  if (status != WEIR_OK) goto free_machine;
  status = weir_uml_write_init(&m->folder, config, !config->line && isatty(STDOUT_FILENO));
  if (status != WEIR_OK) goto remove_folder;

  struct sigaction action = {.sa_handler = on_signal}, old_int, old_term;
  (void)sigemptyset(&action.sa_mask);
  interrupted = 0;
  (void)sigaction(SIGINT, &action, &old_int);
  (void)sigaction(SIGTERM, &action, &old_term);
  status = boot(m);
  if (status == WEIR_OK) {
    bool timed_out = false;
    status = post_warden(m);
    if (status == WEIR_OK) attend(m, deadline, &timed_out);
    end_machine(m);
    if (status == WEIR_OK) status = verdict(m, timed_out, timeout_s, exit_code);
  }
  (void)sigaction(SIGINT, &old_int, NULL);
  (void)sigaction(SIGTERM, &old_term, NULL);
remove_folder:
  weir_uml_folder_remove(&m->folder);
free_machine:
  free(m);
  return status;
}
