/* Sessions of several processes on one machine whose devices read each other's memory: they have
 * the bits of those whose messages go over the host, and where a rank cannot, or dies, messages go
 * there. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#include "../ports.h"
#include "../sampled.h"
#include "base/base.h"
#include "device.h"
#include "session_ranks.h"

#define RANKS_MOST 4
#define RANKS_USUAL 3
#define N 40000
#define STEPS 5
/* Whoever has not ended by then is killed, and its test fails. */
#define WATCHDOG_S 200

/* What a rank has to say; in memory that processes share. */
typedef struct told {
  weir_status status;
  char message[512];
  uint64_t average[STEPS], residual[STEPS]; /* digests */
  uint64_t wire_bytes;                      /* of the last step */
  double free_s;                            /* that weir_session_free took */
  atomic_bool freed;
} told;

typedef struct scene {
  const char *transport, *policy, *where;
  const char *ipc[RANKS_MOST];  /* a rank's WEIR_DEVICE_IPC; NULL: not set */
  const char *host[RANKS_MOST]; /* its WEIR_HOST, likewise */
  int ranks;
  uint64_t limit; /* weir_options.memory_limit of rank 0 */
  int dies;       /* rank that is killed in step 2; 0: none */
  bool waits;     /* rank 1 frees its session once rank 0 has */
  told *tell;
} scene;

static void gradient(float *g, int rank, int step) {
  for (size_t i = 0; i < N; i++) {
    const int x = (int)((i * 7919 + (size_t)rank * 31 + (size_t)step * 101) % 9973) - 4986;
    g[i] = (float)(x * x % 8191 * (x < 0 ? -1 : 1)) / 1024;
  }
}

static weir_status one_step(weir_session *session, const test_device *d, float *g, int step,
                            const scene *s, int rank, weir_step_info *info) {
  static float mine[N];
  gradient(mine, rank, step);
  weir_status status = weir_step_begin(session, NULL);
  d->put(g, mine, sizeof mine);
  if (status == WEIR_OK) status = weir_submit(session, 0, g);
  if (rank > 0 && rank == s->dies && step == 2) (void)raise(SIGKILL);
  if (status == WEIR_OK) status = weir_submit(session, 1, g + N / 4);
  return status == WEIR_OK ? weir_step_end(session, info) : status;
}

/* A step that a loss has ended is made again by those who are left. */
static weir_status train(weir_session *session, const scene *s, told *t, int rank) {
  const test_device d = test_device_open();
  float *const g = d.memory(N * sizeof *g);
  static float mine[N];
  weir_step_info info = {.struct_size = sizeof info};
  weir_status status = WEIR_OK;
  bool lost = false;
  for (int step = 0; step < STEPS && status == WEIR_OK; step++) {
    status = one_step(session, &d, g, step, s, rank, &info);
    if (s->dies > 0 && !lost && step == 2) {
      lost = true;
      if (status != WEIR_E_PEER && status != WEIR_E_TIMEOUT)
        return weir_fail(WEIR_E_INTERNAL, "step %d with a dead rank: %d", step, (int)status);
      status = weir_shrink(session, NULL);
      step--;
      continue;
    }
    if (status != WEIR_OK) break;
    d.get(mine, g, sizeof mine);
    t->average[step] = weir_hash(WEIR_HASH_INIT, mine, sizeof mine);
    status = weir_residual_digest(session, &t->residual[step]);
  }
  t->wire_bytes = info.wire_bytes;
  d.forget(g);
  return status;
}

static void await_freed(const told *other) {
  const struct timespec pause = {0, 2000000};
  while (!atomic_load(&other->freed)) (void)nanosleep(&pause, NULL);
}

static void be_rank(const scene *s, int rank) {
  told *t = &s->tell[rank];
  weir_options options = session_options(rank, s->ranks, s->where, s->policy);
  weir_session *session = NULL;
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  if (s->ipc[rank] != NULL) (void)setenv("WEIR_DEVICE_IPC", s->ipc[rank], 1);
  if (s->host[rank] != NULL) (void)setenv("WEIR_HOST", s->host[rank], 1);
  options.transport = s->transport;
  options.device = rank % test_device_open().devices();
  if (rank == 0) options.memory_limit = s->limit;
  t->status = weir_session_create(&session, &options);
  if (t->status == WEIR_OK) t->status = weir_register_tensor(session, "a", N / 4, NULL);
  if (t->status == WEIR_OK) t->status = weir_register_tensor(session, "b", N - N / 4, NULL);
  if (t->status == WEIR_OK) t->status = weir_session_start(session);
  if (t->status == WEIR_OK) t->status = train(session, s, t, rank);
  if (t->status != WEIR_OK) (void)snprintf(t->message, sizeof t->message, "%s", weir_last_error());
  if (s->waits && rank == 1) await_freed(&s->tell[0]);
  const double begin_s = weir_now_s();
  weir_session_free(session);
  t->free_s = weir_now_s() - begin_s;
  atomic_store(&t->freed, true);
}

/* Every rank in a process of its own. */
static void run(scene *s) {
  static int serial;
  static char where[64];
  pid_t pid[RANKS_MOST];
  if (strcmp(s->transport, "tcp") == 0)
    (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  else
    (void)snprintf(where, sizeof where, "session rooms %d %d", (int)getpid(), serial++);
  s->where = where;
  s->tell = mmap(NULL, RANKS_MOST * sizeof *s->tell, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq((void *)s->tell, MAP_FAILED);
  (void)fflush(NULL);
  for (int r = 0; r < s->ranks; r++) {
    s->tell[r].status = WEIR_E_INTERNAL;
    pid[r] = fork();
    if (pid[r] < 0) abort();
    if (pid[r] > 0) continue;
    (void)alarm(WATCHDOG_S);
    be_rank(s, r);
    _exit(0);
  }
  for (int r = 0; r < s->ranks; r++) (void)waitpid(pid[r], NULL, 0);
}

static void forget(scene *s) { (void)munmap(s->tell, RANKS_MOST * sizeof *s->tell); }

/* Of 5000 floats and their places, or 40000 quarter bytes, a rank sends more than this over the
 * host, and of lengths and headers less. */
enum { OVER_THE_HOST = 8000 };

/* All ranks of both are well and have the same bits; in `a` messages stayed on devices, or did
 * not. */
static void compare(const scene *a, bool stayed, const scene *b) {
  for (int r = 0; r < a->ranks; r++) {
    if (a->dies > 0 && r == a->dies) continue;
    const told *t = &a->tell[r], *o = &b->tell[r];
    cr_assert_eq(t->status, WEIR_OK, "%s: rank %d: %s", a->policy, r, t->message);
    cr_assert_eq(o->status, WEIR_OK, "%s: rank %d: %s", b->policy, r, o->message);
    cr_assert_eq(memcmp(t->average, a->tell[0].average, sizeof t->average), 0, "%s", a->policy);
    cr_assert_eq(memcmp(t->average, o->average, sizeof t->average), 0, "%s", a->policy);
    cr_assert_eq(memcmp(t->residual, o->residual, sizeof t->residual), 0, "%s", a->policy);
    cr_assert_eq(t->wire_bytes < OVER_THE_HOST, stayed, "%s: rank %d sends %llu bytes", a->policy,
                 r, (unsigned long long)t->wire_bytes);
    cr_assert_gt(o->wire_bytes, OVER_THE_HOST);
  }
}

/* A scene, and the same where nobody uses rooms. */
static void try_scene(scene *rooms, bool stayed) {
  scene host = *rooms;
  for (int r = 0; r < RANKS_MOST; r++) host.ipc[r] = "off";
  run(rooms);
  run(&host);
  compare(rooms, stayed, &host);
  forget(rooms);
  forget(&host);
}

Test(session_rooms, processes_have_the_bits_that_they_have_over_the_host) {
  static const char *const policies[] = {"fixed:topk:0.125:ag",
                                         "fixed:qsgd:0.125:ag",
                                         "fixed:qsgd-l2:0.25:ag:bucket=1024",
                                         "fixed:fp16:0.5:ag",
                                         "fixed:qsgd:0.125:sra",
                                         "fixed:minifloat:0.25:sra",
                                         "fixed:companded:0.125:sra",
                                         "fixed:fp16:0.5:sra",
                                         "fixed:qsgd:0.125:compressed-ring",
                                         "fixed:qsgd:0.125:compressed-tree"};
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    for (int ranks = 2; ranks <= RANKS_USUAL; ranks++)
      if (sampled_of_dear(4))
        try_scene(&(scene){.transport = "shm", .policy = policies[p], .ranks = ranks}, true);
}

/* The list of 5000 indices is not sent, which the last step's root told the host's others
 * otherwise. */
Test(session_rooms, lists_have_the_bits_that_they_have_over_the_host) {
  static const char *const policies[] = {"fixed:star:0.125:art-tree", "fixed:var:0.125:art-ring"};
  for (size_t p = 0; p < 2; p++) {
    scene rooms = {.transport = "shm", .policy = policies[p], .ranks = 3};
    scene host = rooms;
    uint64_t saved = 0;
    for (int r = 0; r < RANKS_MOST; r++) host.ipc[r] = "off";
    run(&rooms);
    run(&host);
    compare(&rooms, false, &host);
    for (int r = 0; r < 3; r++) saved += host.tell[r].wire_bytes - rooms.tell[r].wire_bytes;
    cr_assert_geq(saved, 4 * 5000);
    forget(&rooms);
    forget(&host);
  }
}

/* A message to the other machine instead of three: of 16 bytes and 5000 elements, or of half a byte
 * an element. */
Test(session_rooms, processes_of_two_machines_have_the_bits_that_they_have_over_the_host) {
  static const char *const policies[] = {"fixed:topk:0.125:ag", "fixed:qsgd:0.125:ag"};
  for (size_t p = 0; p < 2; p++) {
    scene rooms = {.transport = "tcp",
                   .policy = policies[p],
                   .host = {"one", "two", "two", "one"},
                   .ranks = 4};
    scene host = rooms;
    for (int r = 0; r < RANKS_MOST; r++) host.ipc[r] = "off";
    run(&rooms);
    run(&host);
    compare(&rooms, false, &host);
    for (int r = 0; r < 4; r++)
      cr_assert_lt(rooms.tell[r].wire_bytes, (p == 0 ? 40016 : 20000) + OVER_THE_HOST);
    forget(&rooms);
    forget(&host);
  }
}

/* Of three ranks on two machines no two read each other's rooms, nor where one is asked not to. */
Test(session_rooms, machines_that_differ_go_over_the_host) {
  try_scene(&(scene){.transport = "tcp",
                     .policy = "fixed:topk:0.125:ag",
                     .host = {"one", "two", "two"},
                     .ranks = 3},
            false);
  try_scene(&(scene){.transport = "tcp",
                     .policy = "fixed:topk:0.125:ag",
                     .host = {"one", "two", "two", "one"},
                     .ipc = {NULL, NULL, "off"},
                     .ranks = 4},
            false);
}

Test(session_rooms, those_of_two_machines_are_left_by_a_dead_rank) {
  try_scene(&(scene){.transport = "tcp",
                     .policy = "fixed:topk:0.125:ag",
                     .host = {"one", "one", "two", "two"},
                     .ranks = 4,
                     .dies = 2},
            false);
}

Test(session_rooms, the_transport_is_of_no_matter) {
  try_scene(&(scene){.transport = "tcp", .policy = "fixed:topk:0.125:ag", .ranks = 2}, true);
}

Test(session_rooms, one_that_is_asked_not_to_keeps_all_out) {
  try_scene(&(scene){.transport = "shm",
                     .policy = "fixed:topk:0.125:ag",
                     .ipc = {NULL, "off", "auto"},
                     .ranks = 3},
            false);
}

/* Nobody hangs on a room that is gone, and the others go on over the host. */
Test(session_rooms, those_who_are_left_by_a_dead_rank_go_on_over_the_host) {
  try_scene(&(scene){.transport = "shm", .policy = "fixed:topk:0.125:ag", .ranks = 3, .dies = 2},
            false);
}

/* Who frees its room waits for those who may still read it, and not for ever. */
Test(session_rooms, a_room_outlives_its_readers_or_two_seconds) {
  scene s = {.transport = "shm", .policy = "fixed:topk:0.125:ag", .ranks = 2, .waits = true};
  run(&s);
  for (int r = 0; r < 2; r++) cr_assert_eq(s.tell[r].status, WEIR_OK, "%s", s.tell[r].message);
  cr_assert_geq(s.tell[0].free_s, WEIR_ROOM_LINGER_S);
  cr_assert_lt(s.tell[1].free_s, WEIR_ROOM_LINGER_S, "the other has closed it already");
  forget(&s);
}

Test(session_rooms, what_is_asked_for_is_checked) {
  scene s = {.transport = "shm", .policy = "fixed:topk:0.125:ag", .ranks = 2, .ipc = {"of"}};
  run(&s);
  cr_assert_eq(s.tell[0].status, WEIR_E_INVALID);
  cr_assert_not_null(strstr(s.tell[0].message, "WEIR_DEVICE_IPC"), "%s", s.tell[0].message);
  cr_assert_neq(s.tell[1].status, WEIR_OK);
  forget(&s);
}

static void expect_refusal(scene *s, const char *takes, const char *limit) {
  run(s);
  for (int r = 0; r < s->ranks; r++) {
    cr_assert_eq(s->tell[r].status, WEIR_E_UNSUPPORTED, "rank %d: %s", r, s->tell[r].message);
    cr_assert_not_null(strstr(s->tell[r].message, takes), "%s", s->tell[r].message);
    cr_assert_not_null(strstr(s->tell[r].message, limit), "%s", s->tell[r].message);
  }
  forget(s);
}

/* Residual, e and the sum, a list of 5000 indices and values, two messages of 16 bytes and 8 an
 * element, up to a multiple of 16 and 32 more, a bit an element; and a page of the device for the
 * room. */
Test(session_rooms, memory_limit_counts_rooms) {
  const uint64_t bytes = 3 * 4 * N + 8 * 5000 + 2 * (40016 + 32) + N / 8, page = 2097152;
  scene s = {
      .transport = "shm", .policy = "fixed:topk:0.125:ag", .ranks = 2, .limit = bytes + page};
  scene host = s;
  try_scene(&s, true);
  s.limit--;
  expect_refusal(&s, "takes 2702248 bytes", "memory_limit is 2702247");
  host.ipc[1] = "off"; /* and then nothing is in a room */
  host.limit = bytes;
  run(&host);
  for (int r = 0; r < 2; r++)
    cr_assert_eq(host.tell[r].status, WEIR_OK, "%s", host.tell[r].message);
  forget(&host);
}

/* A sum and a gradient that comes in, and beside them the next stage's room, which is there once
 * both have been run. */
Test(session_rooms, memory_limit_counts_the_largest_room_of_a_schedule) {
  scene s = {.transport = "shm",
             .policy = "schedule:none:1:dense-tree;step=3:topk:0.125:ag",
             .ranks = 2,
             .limit = 2 * 4 * N + 2097151};
  expect_refusal(&s, "plan none:1:dense-tree, which takes 2417152 bytes", "leaves 2417151");
}
