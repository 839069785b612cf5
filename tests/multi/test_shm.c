/* How groups come together over shared memory, who must stay outside, and what is left behind. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "collectives/transports/shm.h"
#include "crossing.h"
#include "ranks.h"
#include "stalls.h"

static bool has_name(const char *where) {
  char name[SHM_NAME_MAX];
  shm_segment_name(where, name);
  const int fd = shm_open(name, O_RDWR, 0);
  if (fd >= 0) (void)close(fd);
  return fd >= 0;
}

static void start_ranks(group *g, int first, int last, long apart_ms) {
  for (int r = last; r >= first; r--) {
    g->pid[r] = fork();
    if (g->pid[r] == 0) {
      (void)alarm(GROUP_WATCHDOG_S);
      group_nap(1e-3 * (double)(apart_ms * (g->size - 1 - r)));
      group_rank(g, r);
      _exit(0);
    }
  }
}

/* Rank 0 comes last; afterwards there is no name. */
Test(shm, ranks_start_in_any_order) {
  ENDED group g = group_new(GROUP_SHM, 4, group_talk, NULL);
  start_ranks(&g, 0, 3, 60);
  group_join(&g);
  group_well(&g);
  cr_assert(!has_name(g.where));
}

Test(shm, leaves_no_descriptor_and_no_name) {
  const int before = group_descriptors();
  ENDED group g = group_new(GROUP_SHM_THREADS, 3, group_talk, NULL);
  group_run(&g);
  group_well(&g);
  cr_assert_eq(group_descriptors(), before);
  weir_transport *t = NULL;
  for (int rank = 0; rank < 2; rank++) {
    cr_assert_eq(weir_transport_shm(&t, g.where, 1, rank, 2, 0.2), WEIR_E_TIMEOUT);
    cr_assert_null(t);
    cr_assert(strstr(weir_last_error(), rank == 0 ? "rank 1 did" : "rank 0 did") != NULL, "%s",
              weir_last_error());
    cr_assert(!has_name(g.where));
  }
  cr_assert_eq(group_descriptors(), before);
}

Test(shm, a_group_of_one) {
  weir_transport *t = NULL;
  cr_assert_eq(weir_transport_shm(&t, "alone", 1, 0, 1, 1.0), WEIR_OK);
  cr_assert_eq(group_talk(t, NULL), WEIR_OK);
  unsigned char byte = 0;
  const weir_tag tag = {1, 1, 1, 0};
  const weir_send send = {0, &byte, 1, 0};
  cr_assert_eq(t->ops->transfer(t, &tag, &send, 1, NULL, 0, weir_now_s() + 1.0), WEIR_E_INVALID);
  t->ops->destroy(t);
}

Test(shm, bad_arguments) {
  weir_transport *t = NULL;
  cr_assert_eq(weir_transport_shm(&t, NULL, 1, 0, 2, 0.2), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_shm(&t, "", 1, 0, 2, 0.2), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_shm(&t, "g", 1, 2, 2, 0.2), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_shm(&t, "g", 1, 0, 0, 0.2), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_shm(&t, "g", 1, 0, SHM_RANKS_MAX + 1, 0.2), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_shm(&t, "g", 1, 0, 2, 0.0), WEIR_E_INVALID);
}

/* A rank of another job, of another size, and a second rank 1: refused with the reason; the others
 * are not disturbed. */
Test(shm, those_who_do_not_belong_are_told) {
  ENDED group g = group_new(GROUP_SHM, 3, group_talk, NULL);
  start_ranks(&g, 0, 1, 0);
  group_nap(0.3); /* rank 1 has its place */
  weir_transport *t = NULL;
  cr_assert_eq(weir_transport_shm(&t, g.where, g.job + 1, 2, 3, 5.0), WEIR_E_MISMATCH);
  cr_assert(strstr(weir_last_error(), "another job") != NULL, "%s", weir_last_error());
  cr_assert_eq(weir_transport_shm(&t, g.where, g.job, 2, 4, 5.0), WEIR_E_MISMATCH);
  cr_assert(strstr(weir_last_error(), "number of ranks") != NULL, "%s", weir_last_error());
  cr_assert_eq(weir_transport_shm(&t, g.where, g.job, 1, 3, 5.0), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "rank is taken") != NULL, "%s", weir_last_error());
  start_ranks(&g, 2, 2, 0);
  group_join(&g);
  group_well(&g);
}

/* A rank that gave up gives its place back. */
Test(shm, a_place_given_back_can_be_taken) {
  ENDED group g = group_new(GROUP_SHM, 3, group_talk, NULL);
  start_ranks(&g, 0, 0, 0);
  weir_transport *t = NULL;
  cr_assert_eq(weir_transport_shm(&t, g.where, g.job, 1, 3, 0.5), WEIR_E_TIMEOUT);
  cr_assert(strstr(weir_last_error(), "rank 2 did") != NULL, "%s", weir_last_error());
  start_ranks(&g, 1, 2, 0);
  group_join(&g);
  group_well(&g);
}

/* Rank 0 is killed while it waits: those who joined it learn it at once, and a new group of the
 * same name is not disturbed by what it left. */
Test(shm, what_a_dead_rank_0_left_is_replaced) {
  ENDED group g = group_new(GROUP_SHM, 3, group_talk, NULL);
  start_ranks(&g, 0, 1, 0);
  group_nap(0.3);
  const double since_s = weir_now_s();
  cr_assert(has_name(g.where));
  (void)kill(g.pid[0], SIGKILL);
  (void)waitpid(g.pid[0], NULL, 0);
  (void)waitpid(g.pid[1], NULL, 0);
  cr_assert_eq(g.result[1].status, WEIR_E_PEER, "%s", g.result[1].message);
  cr_assert(strstr(g.result[1].message, "rank 0 is gone") != NULL, "%s", g.result[1].message);
  cr_assert_leq(g.result[1].ended_s - since_s, 15.0);
  cr_assert(has_name(g.where));
  start_ranks(&g, 0, 2, 50); /* rank 2 first: it must not take the old one for its group */
  group_join(&g);
  group_well(&g);
  cr_assert(!has_name(g.where));
}

/* Segments that rank 0 of ours would not have made. */
typedef struct forgery {
  uint32_t magic, version;
  long extra; /* bytes more than there should be */
  uint64_t pid_space;
  weir_status due;
  pid_t founder; /* 0: none is named */
} forgery;

static void forge(const char *where, const forgery *f) {
  char name[SHM_NAME_MAX];
  shm_segment_name(where, name);
  const size_t bytes = shm_segment_size(2) + (size_t)f->extra;
  (void)shm_unlink(name); /* a test that failed may have left one */
  const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  cr_assert_geq(fd, 0);
  cr_assert_eq(flock(fd, LOCK_EX), 0);
  cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
  shm_header *h = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  cr_assert_neq(h, MAP_FAILED);
  struct stat own;
  cr_assert_eq(stat("/proc/self/ns/pid", &own), 0);
  *h = (shm_header){.magic = f->magic,
                    .version = f->version,
                    .job = 9,
                    .bytes = bytes,
                    .ring_bytes = shm_ring_size(2),
                    .size = 2};
  h->pid_space = (uint64_t)own.st_ino + f->pid_space;
  shm_member *members = (shm_member *)(h + 1);
  atomic_store(&members[0].pid, (int32_t)f->founder);
  atomic_store(&members[1].state, f->founder > 0 ? SHM_CLAIMED : SHM_FREE);
  atomic_store(&h->open, 1);
  weir_transport *t = NULL;
  cr_assert_eq(weir_transport_shm(&t, where, 9, 1, 2, 1.0), f->due, "%s", weir_last_error());
  cr_assert_null(t);
  (void)munmap(h, bytes);
  (void)close(fd);
  (void)shm_unlink(name);
}

Test(shm, forged_segments_are_refused) {
  const forgery cases[] = {{SHM_MAGIC + 1, SHM_VERSION, 0, 0, WEIR_E_PROTOCOL, 0},
                           {SHM_MAGIC, SHM_VERSION + 1, 0, 0, WEIR_E_MISMATCH, 0},
                           {SHM_MAGIC, SHM_VERSION, 4096, 0, WEIR_E_PROTOCOL, 0},
                           {SHM_MAGIC, SHM_VERSION, -4096, 0, WEIR_E_PROTOCOL, 0},
                           {SHM_MAGIC, SHM_VERSION, 0, 1, WEIR_E_UNSUPPORTED, 0},
                           /* the right one: rank 0 just does not go on */
                           {SHM_MAGIC, SHM_VERSION, 0, 0, WEIR_E_TIMEOUT, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) forge("forged", &cases[i]);
}

/* What a rank 0 that died has left is no group to join while who clears it away has the lock. */
Test(shm, what_is_being_cleared_away_is_no_group) {
  for (int reaped = 0; reaped < 2; reaped++) {
    const pid_t founder = fork();
    if (founder == 0) _exit(0);
    siginfo_t ended;
    cr_assert_eq(waitid(P_PID, (id_t)founder, &ended, WEXITED | (reaped ? 0 : WNOWAIT)), 0);
    forge("cleared", &(forgery){SHM_MAGIC, SHM_VERSION, 0, 0, WEIR_E_TIMEOUT, founder});
    if (!reaped) (void)waitpid(founder, NULL, 0);
  }
  forge("cleared", &(forgery){SHM_MAGIC, SHM_VERSION, 0, 0, WEIR_E_INVALID, getpid()});
}

/* One that others may write to is not used, by whatever rank. */
Test(shm, a_segment_open_to_others_is_refused) {
  char name[SHM_NAME_MAX];
  shm_segment_name("open to all", name);
  const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  cr_assert_geq(fd, 0);
  cr_assert_eq(fchmod(fd, 0666), 0);
  weir_transport *t = NULL;
  for (int rank = 0; rank < 2; rank++)
    cr_assert_eq(weir_transport_shm(&t, "open to all", 1, rank, 2, 0.5), WEIR_E_INVALID);
  (void)close(fd);
  cr_assert_eq(shm_unlink(name), 0);
}

/* What a peer writes into the segment can end the group and nothing else: positions outside of the
 * ring, a frame that is none. */
static weir_status spoil_body(weir_transport *t, void *user) {
  const int what = *(const int *)user;
  shm *self = (shm *)t;
  unsigned char byte = 0;
  const weir_tag tag = {1, 1, 1, 0};
  const weir_send send = {1 - t->rank, &byte, 1, 0};
  weir_recv recv = {1 - t->rank, &byte, 1, 0, 0};
  if (t->rank == 0) {
    shm_peer *p = &self->peer[1];
    if (what == 0) atomic_store(&p->out->head, UINT64_C(1) << 40);
    if (what == 1) atomic_store(&p->in->tail, UINT64_C(1) << 40);
    if (what == 2) {
      memset(p->out_bytes, 0xa5, sizeof(weir_frame));
      atomic_store(&p->out->head, sizeof(weir_frame));
    }
    shm_ring_bell(self, 1);
    return t->ops->transfer(t, &tag, NULL, 0, &recv, 1, weir_now_s() + 5.0);
  }
  group_nap(0.1);
  if (what == 1) return t->ops->transfer(t, &tag, &send, 1, NULL, 0, weir_now_s() + 5.0);
  return t->ops->transfer(t, &tag, NULL, 0, &recv, 1, weir_now_s() + 5.0);
}

Test(shm, a_spoilt_ring_ends_the_group) {
  for (int what = 0; what < 3; what++) {
    ENDED group g = group_new(GROUP_SHM, 2, spoil_body, &what);
    group_run(&g);
    for (int r = 0; r < 2; r++) {
      cr_assert_eq(g.result[r].status, WEIR_E_PROTOCOL, "%d: %s", what, g.result[r].message);
      cr_assert(strstr(g.result[r].message, "rank 0") != NULL, "%s", g.result[r].message);
    }
  }
}

/* Much longer than a ring, some of them empty. */
static weir_status crossing_body(weir_transport *t, void *user) {
  static const size_t length[] = {3000001, 0, 17, 700000, 1};
  uint64_t due;
  const weir_status status = crossing(t, 1, length, sizeof length / sizeof *length, 20, &due);
  (void)user;
  if (status == WEIR_OK && t->bytes_sent != due)
    return weir_fail(WEIR_E_INTERNAL, "%llu bytes counted", (unsigned long long)t->bytes_sent);
  return status;
}

Test(shm, long_messages_cross) {
  for (int kind = GROUP_SHM; kind <= GROUP_SHM_THREADS; kind++)
    group_passes((enum group_kind)kind, 4, crossing_body, NULL);
}

/* A rank may leave as soon as its messages are in the rings: they are still read. */
static weir_status early_body(weir_transport *t, void *user) {
  (void)user;
  unsigned char bytes[1000] = {42};
  const weir_tag tag = {1, 1, 1, 0};
  const weir_send send = {0, bytes, sizeof bytes, 0};
  weir_recv recv = {1, bytes, sizeof bytes, 0, 0};
  if (t->rank == 1) return t->ops->transfer(t, &tag, &send, 1, NULL, 0, weir_now_s() + 5.0);
  group_nap(0.3);
  bytes[0] = 0;
  const weir_status status = t->ops->transfer(t, &tag, NULL, 0, &recv, 1, weir_now_s() + 5.0);
  return status == WEIR_OK && bytes[0] != 42 ? weir_fail(WEIR_E_INTERNAL, "other bytes") : status;
}

Test(shm, what_was_sent_before_leaving_arrives) { group_passes(GROUP_SHM, 2, early_body, NULL); }

/* --- two processes of two threads each ------------------------------------------------------ */

static void start_pairs(group *g) {
  for (int p = 0; p < 2; p++) {
    g->pid[p] = fork();
    if (g->pid[p] != 0) continue;
    pthread_t thread[2];
    group_thread argument[2];
    (void)alarm(GROUP_WATCHDOG_S);
    for (int i = 0; i < 2; i++) {
      argument[i] = (group_thread){g, 2 * p + i};
      if (pthread_create(&thread[i], NULL, group_thread_main, &argument[i]) != 0) abort();
    }
    for (int i = 0; i < 2; i++) (void)pthread_join(thread[i], NULL);
    _exit(0);
  }
}

static weir_status pairs_body(weir_transport *t, void *user) {
  const int steps = *(const int *)user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 10.0);
  if (status != WEIR_OK) return status;
  for (int step = 0; status == WEIR_OK && (steps < 0 || step < steps); step++) {
    float x[1000];
    for (int i = 0; i < 1000; i++) x[i] = (float)(t->rank + i);
    weir_comm_step(comm, 1, (uint64_t)step);
    status = weir_allreduces[step % WEIR_ALLREDUCE_COUNT].run(comm, x, 1000, WEIR_VALUE_FP32, NULL,
                                                              NULL);
    for (int i = 0; status == WEIR_OK && i < 1000; i++)
      if (x[i] != (float)(6 + 4 * i)) status = weir_fail(WEIR_E_INTERNAL, "element %d", i);
  }
  return status;
}

Test(shm, threads_of_several_processes_form_a_group) {
  int steps = 60;
  ENDED group g = group_new(GROUP_SHM, 4, pairs_body, &steps);
  start_pairs(&g);
  for (int p = 0; p < 2; p++) (void)waitpid(g.pid[p], NULL, 0);
  group_well(&g);
}

/* Both ranks of the process that is killed are gone; the others name one of them long before the
 * time-out. */
Test(shm, a_process_of_several_ranks_that_dies_is_noticed) {
  int steps = -1;
  ENDED group g = group_new(GROUP_SHM, 4, pairs_body, &steps);
  start_pairs(&g);
  group_nap(0.3);
  const double since_s = weir_now_s();
  cr_assert_eq(kill(g.pid[1], SIGKILL), 0);
  for (int p = 0; p < 2; p++) (void)waitpid(g.pid[p], NULL, 0);
  for (int r = 0; r < 2; r++) {
    const char *said = g.result[r].message;
    cr_assert_eq(g.result[r].status, WEIR_E_PEER, "rank %d: %s", r, said);
    cr_assert(strncmp(said, "rank 2 is gone", 14) == 0 || strncmp(said, "rank 3 is gone", 14) == 0,
              "rank %d: %s", r, said);
    cr_assert_leq(g.result[r].ended_s - since_s, 15.0);
  }
}
