/* One rank of the MPI transport's tests: mpirun -n N mpi_ranks CASE [PER_MACHINE [nccl]].  With
 * PER_MACHINE neighbouring ranks share memory, as if they were of one machine (transport shm+mpi),
 * or have NCCL between them (nccl+mpi).  Prints "rank R: ok", or what is wrong and exits with 1.
 * test_transport.sh and test_nccl.sh run the cases. */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>

#include <sys/resource.h>

#include "../held.h"
#include "../multi/crossing.h"
#include "../multi/every_row.h"
#include "../multi/random_ops.h"
#include "collectives/transports/common.h"
#include "mpi_check.h"

#define RANKS 4 /* of every case but those that say otherwise */
#define RANKS_MOST 8
static int per_machine; /* 0: MPI alone */
static bool nccl;       /* inside of machines; else memory */
static bool ends_badly; /* without MPI_Finalize */

static void nap(double seconds) { (void)usleep((useconds_t)(seconds * 1e6)); }

static weir_transport *open_transport(double timeout_s) {
  weir_transport *t = NULL;
  const weir_status status = weir_transport_mpi(&t, 42, launch.rank, launch.world_size, timeout_s);
  CHECK(status == WEIR_OK, "status %d", (int)status);
  CHECK(t->rank == launch.rank && t->size == launch.world_size, "rank %d of %d", t->rank, t->size);
  if (per_machine > 0) join_machines(&t, per_machine, nccl);
  return t;
}

/* --- messages -------------------------------------------------------------------------------- */

/* In and around the sizes at which the transport changes its ways. */
static void cross(weir_transport *t, uint64_t step) {
  static const size_t length[] = {3840, 3841, 0, 1, 65537, 131071, 131072, 700001, 17};
  const uint64_t before = t->bytes_sent;
  uint64_t due;
  const weir_status status = crossing(t, step, length, sizeof length / sizeof *length, 30, &due);
  CHECK(status == WEIR_OK, "status %d: %s", (int)status, weir_last_error());
  CHECK(nccl || t->bytes_sent - before == due, "%llu bytes",
        (unsigned long long)(t->bytes_sent - before));
}

static void messages(void) {
  weir_transport *t = open_transport(20);
  for (uint64_t step = 0; step < 20; step++) cross(t, step);
  unsigned char byte = 0;
  const weir_tag tag = {1, 99, 1, 0};
  const weir_send self = {t->rank, &byte, 1, 0};
  CHECK(t->ops->transfer(t, &tag, &self, 1, NULL, 0, weir_now_s() + 1) == WEIR_E_INVALID, "self");
  CHECK(t->ops->transfer(t, &tag, NULL, 0, NULL, 0, weir_now_s() + 1) == WEIR_OK, "nothing");
  t->ops->destroy(t);
}

/* Groups one after another, and two at a time. */
static void groups(void) {
  for (int i = 0; i < 5; i++) {
    weir_transport *t = open_transport(20), *other = open_transport(20);
    cross(other, 1);
    cross(t, 1);
    t->ops->destroy(t);
    cross(other, 2);
    other->ops->destroy(other);
  }
}

/* --- all-reduce ------------------------------------------------------------------------------ */

typedef struct header {
  int32_t rank;
  char text[28];
} header;

/* Fractions whose sum depends on the order: all ranks must have taken the same one. */
static void sum(weir_comm *comm, uint32_t row, size_t n, bool exact) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  FREED float *x = malloc((n + 1) * sizeof *x);
  header block[RANKS_MOST] = {0};
  weir_headers headers = {block, sizeof *block};
  for (size_t i = 0; i < n; i++)
    x[i] = exact ? (float)(rank + (int)(i % 8)) : 1.0f / (float)(3 + 7 * (size_t)rank + i % 1013);
  block[rank].rank = 100 + rank;
  (void)snprintf(block[rank].text, sizeof block[rank].text, "header of %d", rank);
  const weir_status status = weir_allreduces[row].run(comm, x, n, WEIR_VALUE_FP32, NULL, &headers);
  CHECK(status == WEIR_OK, "%s of %zu", weir_allreduces[row].name, n);
  for (int r = 0; r < size; r++) {
    char due[28] = "";
    (void)snprintf(due, sizeof due, "header of %d", r);
    CHECK(block[r].rank == 100 + r && strcmp(block[r].text, due) == 0, "header %d", r);
  }
  for (size_t i = 0; exact && i < n; i++)
    CHECK(x[i] == (float)(size * (size - 1) / 2 + size * (int)(i % 8)), "%s of %zu: x[%zu] = %g",
          weir_allreduces[row].name, n, i, (double)x[i]);
  uint64_t all[RANKS_MOST] = {0};
  size_t bytes[RANKS_MOST];
  for (int r = 0; r < size; r++) bytes[r] = sizeof *all;
  all[rank] = weir_hash(WEIR_HASH_INIT, x, n * sizeof *x);
  CHECK(weir_allgather(comm, all, sizeof *all, bytes, NULL) == WEIR_OK, "gather");
  for (int r = 0; r < size; r++)
    CHECK(all[r] == all[0], "%s of %zu: rank %d has other bits", weir_allreduces[row].name, n, r);
}

static void allreduce(void) {
  static const size_t sizes[] = {0, 1, 5, 1000, 20000, 300001};
  weir_transport *t = open_transport(20);
  weir_comm *comm = NULL;
  uint64_t step = 0;
  CHECK(weir_comm_create(&comm, t, 20) == WEIR_OK, "communicator");
  CHECK(weir_comm_native(comm), "MPI has an all-reduce of its own");
  for (uint32_t row = 0; row <= WEIR_ALLREDUCE_NATIVE; row++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int exact = 0; exact < 2; exact++) {
        weir_comm_step(comm, 1, step++);
        sum(comm, row, sizes[i], exact);
      }
  float x = 1, error = 0;
  CHECK(weir_allreduces[WEIR_ALLREDUCE_NATIVE].run(comm, &x, 1, WEIR_VALUE_BF16, &error, NULL) ==
            WEIR_E_UNSUPPORTED,
        "bf16");
  weir_comm_free(comm);
  t->ops->destroy(t);
}

/* --- memory and MPI --------------------------------------------------------------------------- */

/* Every row comes to the bits that it comes to over MPI alone. */
static void rows(void) {
  static const size_t lengths[] = {3, 20011, 150007}; /* the last is longer than a ring */
  static uint64_t alone[ROWS_ALL], shared[ROWS_ALL];
  for (size_t i = 0; i < (launch.world_size > RANKS ? 2 : 3); i++) {
    weir_transport *t = NULL, *both = open_transport(20);
    CHECK(weir_transport_mpi(&t, 42, launch.rank, launch.world_size, 20) == WEIR_OK, "MPI alone");
    CHECK(rows_digest(t, per_machine, lengths[i], 60, alone) == WEIR_OK, "MPI alone");
    CHECK(rows_digest(both, per_machine, lengths[i], 60, shared) == WEIR_OK, "with memory");
    for (int row = 0; row < ROWS_ALL; row++)
      CHECK(alone[row] == shared[row], "row %d of %zu elements: other bits", row, lengths[i]);
    both->ops->destroy(both);
    t->ops->destroy(t);
  }
}

/* Sums of whole numbers and bytes, drawn at random and worked out by each rank alone. */
static void drawn_rows(void) {
  weir_transport *t = open_transport(20);
  random_ops ops;
  int name[RANKS_MOST];
  for (int r = 0; r < t->size; r++) name[r] = r;
  CHECK(ops_open(&ops, t, name, (uint64_t)per_machine, 60) == WEIR_OK, "begin");
  for (uint64_t step = 0; step < 100; step++)
    CHECK(ops_next(&ops, step) == WEIR_OK, "step %d", (int)step);
  ops_close(&ops);
  t->ops->destroy(t);
}

/* No two ranks share a machine: nothing is said, and nothing changes. */
static void apart(void) {
  weir_transport *t = open_transport(20);
  const int machine[] = {3, 2, 1, 0};
  const uint64_t before = t->bytes_sent;
  CHECK(weir_transport_share(t, machine, 20) == WEIR_OK, "share");
  CHECK(strcmp(t->ops->name, "mpi") == 0 && t->bytes_sent == before, "%s", t->ops->name);
  cross(t, 1);
  t->ops->destroy(t);
}

/* Rank 3 has no descriptor left when memory is opened: its machine goes over MPI, the other does
 * not, and all go by one name. */
static void lacking(void) {
  weir_transport *t = open_transport(20);
  struct rlimit files;
  cross(t, 1); /* MPI has opened what it needs */
  const int next = dup(STDERR_FILENO);
  (void)close(next);
  (void)getrlimit(RLIMIT_NOFILE, &files);
  const struct rlimit none = {(rlim_t)next, files.rlim_max};
  if (t->rank == 3) (void)setrlimit(RLIMIT_NOFILE, &none);
  join_machines(&t, 2, false);
  (void)setrlimit(RLIMIT_NOFILE, &files);
  for (uint64_t step = 2; step < 6; step++) cross(t, step);
  t->ops->destroy(t);
}

/* --- errors ---------------------------------------------------------------------------------- */

/* One message from each rank to the next around a ring. */
static weir_status ring(weir_transport *t, uint64_t step, size_t bytes, size_t room,
                        double timeout_s) {
  unsigned char *out = calloc(1, bytes + 1), *in = calloc(1, room + 1);
  const weir_tag tag = {1, step, 1, 0};
  const weir_send send = {(t->rank + 1) % t->size, out, bytes, 0};
  weir_recv recv = {(t->rank + t->size - 1) % t->size, in, room, 0, 0};
  const weir_status status =
      t->ops->transfer(t, &tag, &send, 1, &recv, 1, weir_now_s() + timeout_s);
  if (status == WEIR_OK) { /* after a failure MPI may still look at them */
    free(in);
    free(out);
  }
  return status;
}

/* Ranks that do not depend on the one at fault learn of it with one of the next messages. */
static weir_status ring_until_failure(weir_transport *t, uint64_t step, size_t bytes, size_t room,
                                      double timeout_s) {
  weir_status status = WEIR_OK;
  for (uint64_t i = 0; i < 2 * RANKS && status == WEIR_OK; i++)
    status = ring(t, step + i, bytes, room, timeout_s);
  return status;
}

/* Every rank hears from all others.  Who has heard knows that they have come to share memory; who
 * has not may hear first that the group has ended. */
static weir_status meet(weir_transport *t) {
  unsigned char byte[RANKS_MOST] = {0};
  const weir_tag tag = {1, 1, 1, 0};
  return weir_transport_tell(t, &tag, byte, 1, weir_now_s() + 20);
}

/* mpirun ends the others once a rank has ended without MPI_Finalize. */
static void end_together(void) {
  printf("rank %d: ok\n", launch.rank);
  (void)fflush(stdout);
  if (ends_badly) nap(2.0);
}

#define FOUND_S 15.0 /* for a fault on a slow machine: other waits here are 20 s and more */

/* Nothing works any more, for the same reason, and without waiting for the time that is given. */
static void stays_ended(weir_transport *t, weir_status status) {
  const double begin_s = weir_now_s();
  CHECK(ring(t, 50, 1, 1, 30) == status, "a second attempt");
  CHECK(weir_now_s() - begin_s < FOUND_S, "a second attempt took %g s", weir_now_s() - begin_s);
}

static void other_step(void) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  weir_status status = meet(t);
  if (status == WEIR_OK) status = ring_until_failure(t, t->rank == 1 ? 70 : 7, 100, 100, 20);
  CHECK(status == WEIR_E_MISMATCH, "status %d", (int)status);
  CHECK(said("rank 1") || said("rank 2") || t->rank == 1, "who?");
  stays_ended(t, WEIR_E_MISMATCH);
  t->ops->destroy(t);
}

static void too_long(void) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  weir_status status = meet(t);
  if (status == WEIR_OK) status = ring_until_failure(t, 7, t->rank == 1 ? 200000 : 1000, 1000, 20);
  CHECK(status == WEIR_E_PROTOCOL, "status %d", (int)status);
  CHECK(said("rank 1"), "who?");
  stays_ended(t, WEIR_E_PROTOCOL);
  t->ops->destroy(t);
}

static void native_other_step(void) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  weir_comm *comm = NULL;
  float x = 1;
  CHECK(weir_comm_create(&comm, t, 20) == WEIR_OK, "communicator");
  weir_comm_step(comm, 1, launch.rank == 1 ? 8 : 7);
  const weir_status status =
      weir_allreduces[WEIR_ALLREDUCE_NATIVE].run(comm, &x, 1, WEIR_VALUE_FP32, NULL, NULL);
  CHECK(status == WEIR_E_MISMATCH, "status %d", (int)status);
  weir_comm_free(comm);
  t->ops->destroy(t);
}

/* Rank 2 is busy elsewhere: all others name it, though only rank 3 waits for it and the rest wait
 * for one another. */
static void silent(bool native) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  weir_comm *comm = NULL;
  float x = 1;
  CHECK(ring(t, 1, 10, 10, 20) == WEIR_OK, "first");
  if (t->rank == 2) nap(3.0);
  const double begin_s = weir_now_s();
  weir_status status;
  CHECK(weir_comm_create(&comm, t, 1.0) == WEIR_OK, "communicator");
  if (native)
    status = weir_allreduces[WEIR_ALLREDUCE_NATIVE].run(comm, &x, 1, WEIR_VALUE_FP32, NULL, NULL);
  else
    status = weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, &x, 1, WEIR_VALUE_FP32, NULL, NULL);
  CHECK(status == WEIR_E_TIMEOUT, "status %d", (int)status);
  CHECK(said("rank 2"), "who?");
  CHECK(weir_now_s() - begin_s < FOUND_S, "%g s", weir_now_s() - begin_s);
  weir_comm_free(comm);
  t->ops->destroy(t);
}
static void silent_rank(void) { silent(false); }
static void silent_rank_native(void) { silent(true); }

/* Rank 1 is stopped by a signal, and goes on once the others are through. */
static void frozen(void) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  int32_t pid[RANKS] = {0};
  size_t bytes[RANKS] = {4, 4, 4, 4};
  weir_comm *comm = NULL;
  pid[t->rank] = (int32_t)getpid();
  CHECK(weir_comm_create(&comm, t, 20) == WEIR_OK, "communicator");
  CHECK(weir_allgather(comm, pid, 4, bytes, NULL) == WEIR_OK, "gather");
  weir_comm_free(comm);
  if (t->rank == 1) (void)raise(SIGSTOP);
  const double begin_s = weir_now_s();
  const weir_status status = ring_until_failure(t, 2, 1000000, 1000000, 1.5);
  CHECK(status == WEIR_E_TIMEOUT, "status %d", (int)status);
  CHECK(said("rank 1"), "who?");
  CHECK(weir_now_s() - begin_s < FOUND_S, "%g s", weir_now_s() - begin_s);
  if (t->rank == 0) {
    nap(1.0); /* the others, too, are through */
    (void)kill((pid_t)pid[1], SIGCONT);
  }
  t->ops->destroy(t);
}

/* Rank 1 leaves; what it sent before arrives. */
static void leaving(void) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  const weir_tag tag = {1, 1, 1, 0};
  unsigned char bytes[5000] = {42};
  if (t->rank == 1) {
    const weir_send send = {0, bytes, 1000, 0};
    CHECK(t->ops->transfer(t, &tag, &send, 1, NULL, 0, weir_now_s() + 20) == WEIR_OK, "send");
    t->ops->destroy(t);
    return;
  }
  nap(0.5);
  weir_recv recv = {1, bytes, sizeof bytes, 0, 0};
  bytes[0] = 0;
  if (t->rank == 0) {
    CHECK(t->ops->transfer(t, &tag, NULL, 0, &recv, 1, weir_now_s() + 20) == WEIR_OK, "receive");
    CHECK(recv.bytes == 1000 && bytes[0] == 42, "%zu bytes", recv.bytes);
  }
  const double begin_s = weir_now_s();
  const weir_status status = ring_until_failure(t, 2, 10, 10, 20);
  CHECK(status == WEIR_E_PEER, "status %d", (int)status);
  CHECK(said("rank 1 is gone"), "who?");
  CHECK(weir_now_s() - begin_s < FOUND_S, "%g s", weir_now_s() - begin_s);
  t->ops->destroy(t);
}

static atomic_bool to_fail;

/* In the place of MPI's, for the module, too: fails once with an error of no request's. */
__attribute__((visibility("default"))) int MPI_Testsome(int count, void *requests, int *found,
                                                        int *index, void *statuses);
int MPI_Testsome(int count, void *requests, int *found, int *index, void *statuses) {
  static int (*mpi)(int, void *, int *, int *, void *);
  void *module = mpi ? NULL : dlopen("libweir_mpi.so.0", RTLD_NOW | RTLD_NOLOAD);
  if (!mpi) *(void **)&mpi = dlsym(module, "PMPI_Testsome");
  *found = 0;
  return atomic_exchange(&to_fail, false) ? 16 : mpi(count, requests, found, index, statuses);
}

/* Rank 2's MPI fails when it first looks for what rank 1 sends: all say that it was waiting for
 * rank 1, and none waits for the time that is given. */
static void first_look(void) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  weir_status status = meet(t);
  atomic_store(&to_fail, t->rank == 2);
  const double begin_s = weir_now_s();
  if (status == WEIR_OK) status = ring_until_failure(t, 2, 10, 10, 20);
  CHECK(status == WEIR_E_PEER, "status %d", (int)status);
  CHECK(said(t->rank == 2 ? "(rank 1)" : "rank 1") && !said("rank -1"), "who?");
  CHECK(weir_now_s() - begin_s < FOUND_S, "%g s", weir_now_s() - begin_s);
  stays_ended(t, WEIR_E_PEER);
  CHECK(said("rank 1") && !said("rank -1"), "who?");
  t->ops->destroy(t);
}

/* --- joining --------------------------------------------------------------------------------- */

static void other_job(void) {
  weir_transport *t = NULL;
  const weir_status status =
      weir_transport_mpi(&t, launch.rank == 2 ? 7 : 8, launch.rank, launch.world_size, 20);
  CHECK(status == WEIR_E_MISMATCH && t == NULL, "status %d", (int)status);
  CHECK(said("another job"), "why?");
}

static void other_rank(void) {
  weir_transport *t = NULL;
  CHECK(weir_transport_mpi(&t, 1, launch.rank ^ 1, launch.world_size, 20) == WEIR_E_MISMATCH,
        "rank");
  CHECK(said("to MPI, not rank"), "why?");
  CHECK(weir_transport_mpi(&t, 1, launch.rank, launch.world_size + 1, 20) == WEIR_E_MISMATCH,
        "size");
  CHECK(weir_transport_mpi(&t, 1, launch.rank, launch.world_size, 0) == WEIR_E_INVALID, "time-out");
  CHECK(weir_transport_mpi(&t, 1, -1, launch.world_size, 1) == WEIR_E_INVALID, "no rank");
}

/* Rank 2 does not come to the second group. */
static void one_missing(void) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  CHECK(ring(t, 1, 10, 10, 20) == WEIR_OK, "first");
  if (t->rank != 2) {
    weir_transport *second = NULL;
    const double begin_s = weir_now_s();
    CHECK(weir_transport_mpi(&second, 1, launch.rank, launch.world_size, 1.0) == WEIR_E_TIMEOUT,
          "second");
    CHECK(second == NULL && weir_now_s() - begin_s < FOUND_S, "%g s", weir_now_s() - begin_s);
  } else {
    nap(1.0);
  }
}

/* Rank 1 never initialises MPI. */
static void no_init(void) {
  weir_transport *t = NULL;
  if (launch.rank == 1) {
    nap(3.0);
    return;
  }
  const double begin_s = weir_now_s();
  CHECK(weir_transport_mpi(&t, 1, launch.rank, launch.world_size, 1.0) == WEIR_E_TIMEOUT, "init");
  CHECK(said("MPI_Init") && weir_now_s() - begin_s < FOUND_S, "%g s", weir_now_s() - begin_s);
}

/* mpirun ends the others. */
static void killed(void) {
  weir_transport *t = open_transport(20);
  CHECK(ring(t, 1, 10, 10, 20) == WEIR_OK, "first");
  if (t->rank == 1) (void)raise(SIGKILL);
  (void)ring(t, 2, 10, 10, 30);
  nap(60);
}

/* mpirun lets the others be: they say who is lost. */
static void killed_alone(void) {
  ends_badly = true;
  weir_transport *t = open_transport(20);
  CHECK(ring(t, 1, 10, 10, 20) == WEIR_OK, "first");
  if (t->rank == 1) (void)raise(SIGKILL);
  const double begin_s = weir_now_s();
  const weir_status status = ring_until_failure(t, 2, 1000000, 1000000, 1.5);
  CHECK(status == WEIR_E_TIMEOUT || status == WEIR_E_PEER, "status %d", (int)status);
  CHECK(said("rank 1"), "who?");
  CHECK(weir_now_s() - begin_s < FOUND_S, "%g s", weir_now_s() - begin_s);
  t->ops->destroy(t);
}

static void unlaunched(void) {
  weir_transport *t = NULL;
  CHECK(weir_transport_mpi(&t, 1, 0, 2, 1) == WEIR_E_STATE && t == NULL, "it is launched");
  CHECK(said("mpirun"), "why?");
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"messages", messages},       {"groups", groups},
               {"allreduce", allreduce},     {"other_step", other_step},
               {"too_long", too_long},       {"native_other_step", native_other_step},
               {"silent_rank", silent_rank}, {"silent_rank_native", silent_rank_native},
               {"frozen", frozen},           {"leaving", leaving},
               {"other_job", other_job},     {"other_rank", other_rank},
               {"one_missing", one_missing}, {"no_init", no_init},
               {"killed", killed},           {"killed_alone", killed_alone},
               {"unlaunched", unlaunched},   {"rows", rows},
               {"drawn_rows", drawn_rows},   {"apart", apart},
               {"lacking", lacking},         {"first_look", first_look}};
  (void)alarm(400);
  CHECK(weir_launch_read(&launch) == WEIR_OK, "launch");
  if (argc > 2) per_machine = atoi(argv[2]);
  nccl = argc > 3 && strcmp(argv[3], "nccl") == 0;
  for (size_t i = 0; argc >= 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      end_together();
      return 0;
    }
  fprintf(stderr, "mpi_ranks: no such case\n");
  return 2;
}
