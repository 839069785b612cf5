/* The helper program's life, seen from the process that needs it: found, started, asked, ended.
 *
 * It is started by posix_spawn: nothing of the caller's image runs in it, so that a process may
 * have threads, a CUDA context and MPI by then. */
#include "netmon/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/installed.h"

#define PROGRAM "weir-netprobe"
enum { GRACE_MS = 2000 };

struct weir_helper {
  pid_t pid;
  int process; /* a descriptor of it: numbers of processes are given to others again */
  int socket;
  uint32_t serial;
  bool gone;
};

/* --- finding it ------------------------------------------------------------------------------ */

static weir_status check_program(const char *path) {
  struct stat found;
  if (path[0] != '/')
    return weir_fail(WEIR_E_INVALID, "WEIR_HELPER is '%s'; it must be an absolute path", path);
  if (stat(path, &found) != 0)
    return weir_fail(WEIR_E_UNSUPPORTED, "no helper program %s: %s", path, strerror(errno));
  if (!S_ISREG(found.st_mode) || access(path, X_OK) != 0)
    return weir_fail(WEIR_E_UNSUPPORTED, "the helper %s is not a program", path);
  if ((found.st_mode & S_IWOTH) != 0)
    return weir_fail(WEIR_E_UNSUPPORTED, "the helper program %s can be changed by everybody", path);
  return WEIR_OK;
}

static weir_status find_program(char path[PATH_MAX]) {
  const char *named = secure_getenv("WEIR_HELPER");
  if (named != NULL && named[0] != 0) {
    if (strlen(named) >= PATH_MAX) return weir_fail(WEIR_E_INVALID, "WEIR_HELPER is too long");
    memcpy(path, named, strlen(named) + 1);
    return check_program(path);
  }
  if (!weir_installed_find(WEIR_INSTALLED_PROGRAM, PROGRAM, path, PATH_MAX))
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "the helper program " PROGRAM
                     " is not installed with libweir, and WEIR_HELPER does not name it");
  return check_program(path);
}

/* --- starting it ----------------------------------------------------------------------------- */

/* Of the environment it gets what finds its libraries and where it may write; not the job's secret,
 * nor anything else. */
static void choose_environment(char *chosen[], char *(*all)) {
  static const char *const names[] = {
      "LD_LIBRARY_PATH=", "TMPDIR=", "LANG=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS="};
  size_t count = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    for (char **entry = all; entry != NULL && *entry != NULL; entry++)
      if (strncmp(*entry, names[i], strlen(names[i])) == 0) {
        chosen[count++] = *entry;
        break;
      }
  chosen[count] = NULL;
}

/* It begins with no descriptor but its end, an open nowhere and the standard error, with no signal
 * blocked and none handled. */
static int prepare(posix_spawn_file_actions_t *files, posix_spawnattr_t *how, int end) {
  sigset_t none, every;
  (void)sigemptyset(&none);
  (void)sigfillset(&every);
  int error = posix_spawn_file_actions_adddup2(files, end, WEIR_HELPER_FD);
  if (!error) error = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDWR, 0);
  if (!error) error = posix_spawn_file_actions_addopen(files, 1, "/dev/null", O_RDWR, 0);
  if (!error) error = posix_spawn_file_actions_addclosefrom_np(files, WEIR_HELPER_FD + 1);
  if (!error) error = posix_spawnattr_setsigmask(how, &none);
  if (!error) error = posix_spawnattr_setsigdefault(how, &every);
  if (!error) error = posix_spawnattr_setflags(how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  return error;
}

static int spawn(pid_t *pid, char *path, int end) {
  char owner[16], *arguments[] = {path, owner, NULL}, *environment[8];
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  (void)snprintf(owner, sizeof owner, "%d", (int)getpid());
  choose_environment(environment, environ);
  int error = posix_spawn_file_actions_init(&files);
  if (error) return error;
  error = posix_spawnattr_init(&how);
  if (!error) {
    error = prepare(&files, &how, end);
    if (!error) error = posix_spawn(pid, path, &files, &how, arguments, environment);
    (void)posix_spawnattr_destroy(&how);
  }
  (void)posix_spawn_file_actions_destroy(&files);
  return error;
}

static void reap(pid_t pid) {
  int state;
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
}

static weir_status start(weir_helper *helper, char *path) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
    return weir_fail(WEIR_E_IO, "no socket pair for the helper: %s", strerror(errno));
  const int error = spawn(&helper->pid, path, ends[1]);
  (void)close(ends[1]);
  if (error) {
    (void)close(ends[0]);
    return weir_fail(WEIR_E_IO, "cannot start the helper %s: %s", path, strerror(error));
  }
  helper->socket = ends[0];
  helper->process = pidfd_open(helper->pid, 0);
  if (helper->process >= 0) return WEIR_OK;
  const int reason = errno;
  (void)close(ends[0]); /* which ends it */
  reap(helper->pid);
  return weir_fail(WEIR_E_IO, "no descriptor of the helper's process: %s", strerror(reason));
}

weir_status weir_helper_start(weir_helper **out) {
  char path[PATH_MAX];
  *out = NULL;
  weir_status status = find_program(path);
  if (status != WEIR_OK) return status;
  weir_helper *helper = calloc(1, sizeof *helper);
  if (helper == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for the helper");
  status = start(helper, path);
  if (status != WEIR_OK) {
    free(helper);
    return status;
  }
  *out = helper;
  return WEIR_OK;
}

void weir_helper_free(weir_helper *helper) {
  siginfo_t ended;
  if (helper == NULL) return;
  /* Tells it to end its children and itself, even where a fork of this process holds the socket. */
  (void)shutdown(helper->socket, SHUT_RDWR);
  (void)close(helper->socket);
  struct pollfd wait = {.fd = helper->process, .events = POLLIN};
  const double deadline_s = weir_now_s() + GRACE_MS / 1000.0;
  int ready;
  do {
    ready = poll(&wait, 1, (int)fmax(0, ceil(1000 * (deadline_s - weir_now_s()))));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) (void)pidfd_send_signal(helper->process, SIGKILL, NULL, 0);
  while (waitid(P_PIDFD, (id_t)helper->process, &ended, WEXITED) < 0 && errno == EINTR) continue;
  (void)close(helper->process);
  free(helper);
}

/* --- asking it ------------------------------------------------------------------------------- */

static weir_status is_gone(weir_helper *helper) {
  helper->gone = true;
  return weir_fail(WEIR_E_IO, "the helper " PROGRAM " is gone");
}

/* The next message, or WEIR_E_TIMEOUT. */
static weir_status take(weir_helper *helper, double deadline_s, weir_helper_reply *reply) {
  struct pollfd wait = {.fd = helper->socket, .events = POLLIN};
  int ready;
  do {
    ready = poll(&wait, 1, (int)fmax(0, ceil(1000 * (deadline_s - weir_now_s()))));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return weir_fail(WEIR_E_TIMEOUT, "the helper " PROGRAM " did not answer");
  const ssize_t got = recv(helper->socket, reply, sizeof *reply, MSG_TRUNC);
  if (got <= 0) return is_gone(helper);
  if ((size_t)got < offsetof(weir_helper_reply, serial) || reply->magic != WEIR_HELPER_MAGIC ||
      reply->version != WEIR_HELPER_VERSION || (size_t)got != sizeof *reply) {
    helper->gone = true;
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "the helper " PROGRAM " is of another version of Weir than libweir");
  }
  reply->name[sizeof reply->name - 1] = reply->text[sizeof reply->text - 1] = 0;
  return WEIR_OK;
}

weir_status weir_helper_ask(weir_helper *helper, weir_helper_request *request, double grace_s,
                            weir_helper_reply *reply) {
  if (helper->gone) return is_gone(helper);
  request->magic = WEIR_HELPER_MAGIC;
  request->version = WEIR_HELPER_VERSION;
  request->serial = ++helper->serial;
  if (send(helper->socket, request, sizeof *request, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      (ssize_t)sizeof *request)
    return is_gone(helper);
  const double deadline_s = weir_now_s() + request->timeout_s + grace_s;
  weir_status status;
  do { /* an answer that came too late may lie in front */
    status = take(helper, deadline_s, reply);
  } while (status == WEIR_OK && reply->serial != request->serial);
  if (status != WEIR_OK) return status;
  if (reply->status > WEIR_E_INTERNAL)
    return weir_fail(WEIR_E_PROTOCOL, "the helper answered %u", reply->status);
  return reply->status == WEIR_OK ? WEIR_OK
                                  : weir_fail((weir_status)reply->status, "%s", reply->text);
}
