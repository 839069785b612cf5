/* Sessions and the helper program: made in a process that has threads already, ended with the
 * session, done without where it is missing, and gone when its owner is. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include "../held.h"
#include "../ports.h"
#include "netmon/netmon.h"
#include "session_ranks.h"

enum { THREADS = 8, RANKS = 2, STEPS = 6, ELEMENTS = 5000 };

/* --- processes, from /proc ------------------------------------------------------------------- */

/* The parent of a process of this name; 0: it has another, or is gone. */
static pid_t parent_of(pid_t pid, const char *name) {
  char path[64], its_name[64] = "";
  int parent = 0;
  (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  if (fscanf(file, "%*d (%63[^)]) %*c %d", its_name, &parent) != 2 || strcmp(its_name, name) != 0)
    parent = 0;
  (void)fclose(file);
  return parent;
}

/* Processes of this name whose parent is `parent`; *last is one of them. */
static int children_named(const char *name, pid_t parent, pid_t *last) {
  int count = 0;
  DIR *folder = opendir("/proc");
  for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
    const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
    if (pid <= 0 || parent_of(pid, name) != parent) continue;
    count++;
    *last = pid;
  }
  if (folder) (void)closedir(folder);
  return count;
}

/* iperf3's servers of this process's helpers: their children, which bear the same name. */
static int servers(void) {
  int count = 0;
  DIR *folder = opendir("/proc");
  for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
    const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
    const pid_t parent = pid > 0 ? parent_of(pid, "weir-netprobe") : 0;
    count += parent > 0 && parent_of(parent, "weir-netprobe") == getpid();
  }
  if (folder) (void)closedir(folder);
  return count;
}

static int helpers(void) {
  pid_t unused;
  return children_named("weir-netprobe", getpid(), &unused);
}

/* --- a short training of two ranks, threads of this process ----------------------------------- */

typedef struct rank {
  int number, port;
  int helpers; /* of this process, once both ranks have started */
  int servers; /* of those, then */
  bool good;
  char why[256];
} rank;

static bool train(rank *r) {
  static float gradients[RANKS][ELEMENTS];
  float *gradient = gradients[r->number];
  char place[32];
  (void)snprintf(place, sizeof place, "127.0.0.1:%d", r->port);
  weir_options options;
  weir_options_init(&options);
  options.rank = r->number;
  options.world_size = RANKS;
  options.rendezvous = place;
  options.policy = "fixed:none:1:dense-ring";
  weir_session *session = NULL;
  bool good = session_open(&session, &options, ELEMENTS) == WEIR_OK;
  for (int step = 0; step < STEPS && good; step++) {
    if (step == 1) r->helpers = helpers(), r->servers = servers();
    for (int i = 0; i < ELEMENTS; i++) gradient[i] = (float)(r->number + 2 * step);
    good = weir_step_begin(session, NULL) == WEIR_OK &&
           weir_submit(session, 0, gradient) == WEIR_OK && weir_step_end(session, NULL) == WEIR_OK;
    /* The mean of 0 + 2 step and 1 + 2 step. */
    for (int i = 0; i < ELEMENTS && good; i++) good = gradient[i] == 0.5f + 2 * (float)step;
  }
  if (!good) (void)snprintf(r->why, sizeof r->why, "%s", weir_last_error());
  weir_session_free(session);
  return good;
}

static void *run(void *argument) {
  rank *r = argument;
  r->good = train(r);
  return NULL;
}

static void train_two_ranks(int with_helpers) {
  rank ranks[RANKS];
  const int port = free_port();
  for (int i = 0; i < RANKS; i++) ranks[i] = (rank){.number = i, .port = port};
  session_threads(ranks, sizeof *ranks, RANKS, run);
  for (int i = 0; i < RANKS; i++) {
    cr_assert(ranks[i].good, "rank %d: %s", i, ranks[i].why);
    cr_assert_eq(ranks[i].helpers, with_helpers);
    cr_assert_eq(ranks[i].servers, 0, "iperf3 is open to strangers");
  }
}

/* --- threads that were there before ----------------------------------------------------------- */

static atomic_bool over;
static atomic_uint turns[THREADS];

static void *work(void *argument) {
  atomic_uint *count = argument;
  while (!atomic_load(&over)) {
    FREED void *memory = malloc(1000); /* a lock that a fork would have copied as it was */
    atomic_fetch_add(count, memory != NULL);
    (void)usleep(200);
  }
  return NULL;
}

Test(session_helper, a_process_with_threads_makes_a_session_and_goes_on) {
  pthread_t threads[THREADS];
  unsigned before[THREADS];
  for (int i = 0; i < THREADS; i++)
    cr_assert_eq(pthread_create(&threads[i], NULL, work, &turns[i]), 0);
  for (int i = 0; i < THREADS; i++)
    while (atomic_load(&turns[i]) == 0) (void)usleep(1000);
  train_two_ranks(RANKS);
  cr_assert_eq(helpers(), 0, "helpers end with their sessions");
  for (int i = 0; i < THREADS; i++) before[i] = atomic_load(&turns[i]);
  for (int i = 0; i < THREADS; i++)
    while (atomic_load(&turns[i]) == before[i]) (void)usleep(1000);
  atomic_store(&over, true);
  for (int i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
}

/* --- without it ------------------------------------------------------------------------------ */

/* How often the file contains the text. */
static int count_in(const char *path, const char *text) {
  char line[512];
  int count = 0;
  FILE *file = fopen(path, "re");
  cr_assert_not_null(file);
  while (fgets(line, sizeof line, file)) count += strstr(line, text) != NULL;
  (void)fclose(file);
  return count;
}

Test(session_helper, a_missing_helper_is_said_once_and_done_without) {
  char path[] = "/tmp/weir-helper-XXXXXX";
  const int file = mkstemp(path), saved = dup(2);
  cr_assert(file >= 0 && saved >= 0 && dup2(file, 2) == 2);
  cr_assert_eq(setenv("WEIR_HELPER", "/nowhere/weir-netprobe", 1), 0);
  train_two_ranks(0);
  cr_assert_eq(dup2(saved, 2), 2);
  cr_assert_eq(count_in(path, "no helper program /nowhere/weir-netprobe"), RANKS);
  cr_assert_eq(count_in(path, "rank 0:"), 1);
  (void)unlink(path);
}

static void expect_refused(const char *program, const char *why) {
  weir_helper *helper = NULL;
  cr_assert_eq(setenv("WEIR_HELPER", program, 1), 0);
  cr_assert_neq(weir_helper_start(&helper), WEIR_OK);
  cr_assert_null(helper);
  cr_assert(strstr(weir_last_error(), why), "%s: %s", program, weir_last_error());
}

Test(session_helper, what_should_not_be_started_is_refused) {
  char path[] = "/tmp/weir-helper-XXXXXX";
  const int file = mkstemp(path);
  cr_assert(file >= 0);
  expect_refused("weir-netprobe", "absolute path");
  expect_refused("/tmp", "not a program");
  expect_refused(path, "not a program");
  cr_assert_eq(fchmod(file, 0757), 0);
  expect_refused(path, "changed by everybody");
  cr_assert_eq(fchmod(file, 0700), 0);
  expect_refused(path, "cannot start"); /* it is empty: no format that runs */
  (void)close(file);
  (void)unlink(path);
}

/* Something that says nothing of ours, and something that ends at once. */
Test(session_helper, another_program_is_found_out) {
  weir_helper *helper = NULL;
  uint64_t sent = 7;
  cr_assert_eq(setenv("WEIR_HELPER", "/bin/true", 1), 0);
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK, "%s", weir_last_error());
  weir_status status = WEIR_E_TIMEOUT;
  for (int i = 0; i < 100 && status == WEIR_E_TIMEOUT; i++)
    status = weir_link_bytes(helper, "lo", &sent);
  cr_assert_eq(status, WEIR_E_IO, "%s", weir_last_error());
  cr_assert_eq(sent, 7);
  weir_helper_free(helper);
}

/* --- its end --------------------------------------------------------------------------------- */

/* The owner is killed while a fork of it holds its end of the socket: the helper ends all the same.
 */
Test(session_helper, ends_with_the_process_that_started_it) {
  int told[2], held[2]; /* the helper's number to the test; nothing, but that the test still runs */
  pid_t helper = 0;
  char byte = 0;
  cr_assert(pipe(told) == 0 && pipe(held) == 0);
  const pid_t owner = fork();
  if (owner == 0) {
    weir_helper *own = NULL;
    pid_t child = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    close(held[1]);
    if (weir_helper_start(&own) != WEIR_OK) _exit(1);
    const pid_t heir = fork();
    if (heir == 0) { /* until the test's end of the pipe is closed */
      (void)!read(held[0], &byte, 1);
      _exit(0);
    }
    while (children_named("weir-netprobe", getpid(), &child) == 0) (void)usleep(1000);
    (void)!write(told[1], &child, sizeof child);
    for (;;) (void)pause();
  }
  cr_assert_eq(read(told[0], &helper, sizeof helper), (ssize_t)sizeof helper);
  cr_assert_eq(kill(helper, 0), 0);
  cr_assert_eq(kill(owner, SIGKILL), 0);
  cr_assert_eq(waitpid(owner, NULL, 0), owner);
  while (kill(helper, 0) == 0) { /* gone, or waiting for init to take note of its end */
    char path[64], state = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)helper);
    FILE *file = fopen(path, "re");
    if (!file || (fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && state == 'Z')) state = 'Z';
    if (file) (void)fclose(file);
    if (state == 'Z') break;
    (void)usleep(1000);
  }
  close(held[1]);
}
