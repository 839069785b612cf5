/* Ranks as machines of their own: each has a network namespace with a shaped link, a host name, an
 * own /dev/shm and System V IPC, so that there is no way from one to another but over the links.
 * All are in a namespace of processes whose process 1 is the runner: whatever they leave ends with
 * it, however it ends. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/emulate_private.h"
#include "lab/stage.h"

#define MASTER_PORT 29500
#define NAMESPACES \
  "WEIR_EMULATE_NAMESPACES" /* for weir_emulate_enter: their numbers in process 1 */

/* --- what all of them see --------------------------------------------------------------------- */

static weir_status refused(const char *what) {
  return weir_fail(WEIR_E_UNSUPPORTED, "%s: %s", what, strerror(errno));
}

/* Names of the workers, and of none that are not there. */
static weir_status name_hosts(uint32_t workers) {
  g_autofree char *path = NULL;
  g_autoptr(GString) text = g_string_new("127.0.0.1 localhost\n");
  for (uint32_t r = 0; r < workers; r++) {
    char address[WEIR_ADDRESS_MAX];
    weir_topology_address((int)r, address);
    g_string_append_printf(text, "%s w%" PRIu32 "\n", address, r);
  }
  const int file = g_file_open_tmp("weir-hosts-XXXXXX", &path, NULL);
  if (file < 0) return weir_fail(WEIR_E_IO, "a file of hosts' names cannot be written");
  const bool written = write(file, text->str, text->len) == (ssize_t)text->len;
  (void)fchmod(file, 0644);
  (void)close(file);
  weir_status status = WEIR_OK;
  if (!written)
    status = weir_fail(WEIR_E_IO, "%s cannot be written", path);
  else if (mount(path, "/etc/hosts", NULL, MS_BIND, NULL))
    status = refused("/etc/hosts of our own");
  (void)unlink(path);
  return status;
}

static weir_status see_own_world(uint32_t workers) {
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return refused("mounts of our own");
  /* Where it cannot be had, as in some containers, programs see their outer numbers in /proc. */
  (void)mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  return name_hosts(workers);
}

/* In a process of the worker's alone. */
static weir_status become_machine(uint32_t rank) {
  char name[16];
  (void)snprintf(name, sizeof name, "w%" PRIu32, rank);
  if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC)) return refused("a machine of its own");
  if (sethostname(name, strlen(name))) return refused("a host name");
  if (!access("/dev/shm", F_OK) &&
      mount("none", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"))
    return refused("a /dev/shm of its own");
  return WEIR_OK;
}

/* --- commands --------------------------------------------------------------------------------- */

static void add(GPtrArray *argv, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void add(GPtrArray *argv, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_ptr_array_add(argv, g_strdup_vprintf(format, args));
  va_end(args);
}

static void add_torchrun(GPtrArray *argv, uint32_t workers, uint32_t rank) {
  char first[WEIR_ADDRESS_MAX];
  weir_topology_address(0, first);
  add(argv, "torchrun");
  add(argv, "--nnodes=%" PRIu32, workers);
  add(argv, "--nproc-per-node=1");
  add(argv, "--node-rank=%" PRIu32, rank);
  add(argv, "--master-addr=%s", first);
  add(argv, "--master-port=%d", MASTER_PORT);
}

/* One mpirun starts the ranks: its daemons on the other machines through weir_emulate_enter. */
static void add_mpirun(GPtrArray *argv, const weir_emulate *e) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  g_autoptr(GString) hosts = g_string_new(NULL);
  for (uint32_t r = 0; r < e->scenario.workers; r++) {
    char address[WEIR_ADDRESS_MAX];
    weir_topology_address((int)r, address);
    g_string_append_printf(hosts, "%s%s", r ? "," : "", address);
  }
  add(argv, "mpirun");
  if (!geteuid()) add(argv, "--allow-run-as-root");
  add(argv, "--tag-output");
  add(argv, "-np");
  add(argv, "%" PRIu32, e->scenario.workers);
  add(argv, "--host");
  add(argv, "%s", hosts->str);
  for (const char *const *mca =
           (const char *const[]){"oob_tcp_if_include", "btl_tcp_if_include", NULL};
       *mca; mca++) {
    add(argv, "--mca");
    add(argv, "%s", *mca);
    add(argv, WEIR_TOPOLOGY_LINK);
  }
  add(argv, "--mca");
  add(argv, "plm_rsh_agent");
  add(argv, "%.*s emulate --enter", (int)(length > 0 ? length : 0), self);
}

static char **command(const weir_emulation *run, uint32_t rank) {
  const weir_emulate *e = run->emulate;
  GPtrArray *argv = g_ptr_array_new();
  if (e->launcher == WEIR_LAUNCHER_TORCHRUN) add_torchrun(argv, e->scenario.workers, rank);
  if (e->launcher == WEIR_LAUNCHER_MPIRUN) add_mpirun(argv, e);
  for (char **word = e->options.command; *word; word++) add(argv, "%s", *word);
  g_ptr_array_add(argv, NULL);
  return (char **)g_ptr_array_free(argv, FALSE);
}

static void set_number(const char *name, uint32_t value) {
  char text[16];
  (void)snprintf(text, sizeof text, "%" PRIu32, value);
  (void)setenv(name, text, 1);
}

/* Sessions of Weir's that meet beyond the loopback want one.  Nobody listens on the way, and those
 * they are compared with do not encrypt either. */
static weir_status share_secret(void) {
  unsigned char drawn[16];
  char text[33];
  if (getenv("WEIR_SECRET") || getenv("WEIR_SECRET_FILE")) return WEIR_OK;
  if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
    return refused("random numbers for a secret");
  for (size_t i = 0; i < sizeof drawn; i++) (void)snprintf(text + 2 * i, 3, "%02x", drawn[i]);
  return setenv("WEIR_SECRET", text, 1) || setenv("WEIR_TLS", "off", 0) ? refused("a secret")
                                                                        : WEIR_OK;
}

/* Where this command is a process of an MPI job itself, nothing of that is for its ranks: Open
 * MPI's mpirun would refuse to start within another one, and programs would take themselves for
 * that one's.  Whether the user may run it as root stays. */
static void forget_outer_job(void) {
  static const char *const prefixes[] = {"OMPI_", "PMIX_", "PMI_", "PRTE_"};
  static const char kept[] = "OMPI_ALLOW_RUN_AS_ROOT";
  if (!getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMIX_RANK") && !getenv("PMI_RANK")) return;
  g_auto(GStrv) names = g_listenv();
  for (char **name = names; *name; name++)
    for (size_t i = 0; i < G_N_ELEMENTS(prefixes); i++)
      if (g_str_has_prefix(*name, prefixes[i]) && !g_str_has_prefix(*name, kept))
        (void)unsetenv(*name);
}

/* mpirun and torchrun tell their ranks who they are. */
static void set_environment(const weir_emulation *run, uint32_t rank) {
  static const char *const interfaces[] = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
                                           "TP_SOCKET_IFNAME"};
  const weir_emulate *e = run->emulate;
  char first[WEIR_ADDRESS_MAX];
  forget_outer_job();
  weir_topology_address(0, first);
  (void)setenv("MASTER_ADDR", first, 1);
  set_number("MASTER_PORT", MASTER_PORT);
  for (size_t i = 0; i < G_N_ELEMENTS(interfaces); i++)
    (void)setenv(interfaces[i], WEIR_TOPOLOGY_LINK, 1);
  if (e->out) (void)setenv("WEIR_OUT", e->out, 1);
  if (e->launcher == WEIR_LAUNCHER_NONE) {
    set_number("RANK", rank);
    set_number("WORLD_SIZE", e->scenario.workers);
    set_number("LOCAL_RANK", 0);
    set_number("LOCAL_WORLD_SIZE", 1);
  }
  if (e->launcher != WEIR_LAUNCHER_MPIRUN) return;
  g_autoptr(GString) numbers = g_string_new(NULL);
  for (uint32_t r = 0; r < e->scenario.workers; r++)
    g_string_append_printf(numbers, "%d ", weir_topology_descriptor(run->topology, (int)r));
  (void)setenv(NAMESPACES, numbers->str, 1);
}

/* --- processes -------------------------------------------------------------------------------- */

static void complain(uint32_t rank, const char *what, int code) {
  (void)dprintf(STDERR_FILENO, "weir: rank %" PRIu32 ": %s\n", rank, what);
  _exit(code);
}

static void become_rank(const weir_emulation *run, uint32_t rank, int output) {
  weir_stage_die_with_parent();
  (void)setsid(); /* signals are the runner's to send */
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
      dup2(output, STDERR_FILENO) < 0)
    _exit(126);
  weir_status status = weir_topology_join(run->topology, (int)rank);
  if (!status) status = weir_topology_segments(run->emulate->scenario.segments);
  if (!status) status = become_machine(rank);
  if (status) complain(rank, weir_last_error(), 126);
  set_environment(run, rank);
  char **argv = command(run, rank);
  (void)signal(SIGPIPE, SIG_DFL);
  weir_stage_open_signals();
  (void)execvp(argv[0], argv);
  g_autofree char *why = g_strdup_printf("%s: %s", argv[0], strerror(errno));
  complain(rank, why, errno == ENOENT ? 127 : 126);
}

static weir_status open_log(const weir_emulation *run, uint32_t rank, int *log) {
  *log = -1;
  if (!run->emulate->out) return WEIR_OK;
  g_autofree char *name = g_strdup_printf("rank-%" PRIu32 ".log", rank);
  if (run->emulate->launcher == WEIR_LAUNCHER_MPIRUN)
    (void)g_strlcpy(name, "mpirun.log", strlen(name) + 1);
  g_autofree char *path = g_build_filename(run->emulate->out, name, NULL);
  *log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return *log >= 0 ? WEIR_OK : weir_fail(WEIR_E_IO, "%s: %s", path, strerror(errno));
}

static weir_status start(weir_emulation *run, uint32_t rank) {
  weir_emulated *process = &run->process[rank];
  int ends[2];
  weir_status status = open_log(run, rank, &process->log);
  if (status) return status;
  if (pipe2(ends, O_CLOEXEC)) return refused("a pipe for a rank's output");
  (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
  process->output = ends[0];
  process->pid = fork();
  if (process->pid == 0) become_rank(run, rank, ends[1]);
  (void)close(ends[1]);
  return process->pid > 0 ? WEIR_OK : refused("a process for a rank");
}

static weir_status run_all(weir_emulation *run) {
  run->begin = weir_now_s();
  run->schedule_begin_s = run->emulate->options.await_traffic ? INFINITY : 0;
  weir_status status = weir_emulate_set(run, 0);
  if (!status) status = weir_emulate_sample(run, 0);
  for (uint32_t p = 0; !status && p < run->processes; p++) status = start(run, p);
  return status ? status : weir_emulate_supervise(run);
}

/* The highest of what ended by itself; 1 when somebody ended it. */
static int worst(const weir_emulation *run) {
  int code = 0;
  if (run->interrupted) return 1;
  for (uint32_t p = 0; p < run->processes; p++)
    if (!run->process[p].put_down) code = MAX(code, run->process[p].code);
  return run->timed_out ? 124 : code;
}

/* --- the run ---------------------------------------------------------------------------------- */

static weir_status conclude(const weir_emulation *run) {
  weir_emulate *e = run->emulate;
  e->result->exit_code = worst(run);
  weir_progress_end(&e->progress);
  const weir_status status = e->out ? weir_emulate_write(run, e->result->exit_code) : WEIR_OK;
  if (status) return status;
  return run->interrupted ? weir_fail(WEIR_E_STATE, "interrupted") : WEIR_OK;
}

static weir_status inside(void *user) {
  weir_emulate *e = user;
  const weir_schedule schedule = {&e->scenario, &e->trace};
  const uint32_t workers = e->scenario.workers;
  weir_emulation run = {.emulate = e,
                        .processes = e->launcher == WEIR_LAUNCHER_MPIRUN ? 1 : workers,
                        .settings = g_array_new(FALSE, FALSE, sizeof(weir_emulate_setting)),
                        .sample_s = g_array_new(FALSE, FALSE, sizeof(double)),
                        .counters = g_array_new(FALSE, FALSE, sizeof(weir_shaper_counters))};
  run.process = g_new0(weir_emulated, run.processes);
  for (uint32_t p = 0; p < run.processes; p++) run.process[p].output = run.process[p].log = -1;
  weir_status status = see_own_world(workers);
  if (!status) status = share_secret();
  if (!status)
    status = weir_topology_create(&run.topology, (int)workers, weir_schedule_window(&schedule));
  if (!status) status = run_all(&run);
  if (!status) status = conclude(&run);
  weir_topology_free(run.topology);
  g_array_unref(run.settings);
  g_array_unref(run.sample_s);
  g_array_unref(run.counters);
  g_free(run.process);
  return status;
}

weir_status weir_emulate_tc(void *user) {
  const weir_status status = weir_topology_enter();
  if (status) return status;
  if (unshare(CLONE_NEWNS | CLONE_NEWPID)) return refused("namespaces of our own");
  return weir_stage_run(inside, user);
}

/* --- between machines ------------------------------------------------------------------------- */

/* Which worker has this address; -1: none. */
static int worker_at(const char *host) {
  for (int r = 0; r < WEIR_SCENARIO_WORKERS_MAX; r++) {
    char address[WEIR_ADDRESS_MAX];
    weir_topology_address(r, address);
    if (!strcmp(address, host)) return r;
  }
  return -1;
}

static weir_status enter_network(int worker) {
  const char *text = getenv(NAMESPACES);
  g_auto(GStrv) number = g_strsplit(text ? text : "", " ", -1);
  if (worker < 0 || (guint)worker >= g_strv_length(number) || !*number[worker])
    return weir_fail(WEIR_E_INVALID,
                     "this is not for users: `weir emulate --launcher mpirun` has it called");
  g_autofree char *path = g_strdup_printf("/proc/1/fd/%s", number[worker]);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET)) return refused(path);
  (void)close(file);
  return WEIR_OK;
}

weir_status weir_emulate_enter(char **argv) {
  if (!argv || !argv[0] || !argv[1])
    return weir_fail(WEIR_E_INVALID, "expected an address and a command");
  const int worker = worker_at(argv[0]);
  weir_status status = enter_network(worker);
  if (!status) status = become_machine((uint32_t)worker);
  if (status) return status;
  g_autofree char *line = g_strjoinv(" ", argv + 1);
  (void)execl("/bin/sh", "sh", "-c", line, (char *)NULL);
  return refused("/bin/sh");
}
