/* mpirun -n 4 mpi_nccl CASE: NCCL inside of two machines of two ranks and MPI between them
 * (nccl+mpi), when a rank of whom NCCL waits for a message does not send it, and while it sends it
 * late.  Prints "rank R: ok", or what is wrong and exits with 1. */
#include <time.h>

#include "base/base.h"
#include "collectives/transports/nccl.h"
#include "mpi_check.h"

enum { RANKS = 4, LONG = 20000 };
#define PATIENCE_S 60.0 /* for what goes well, on however busy a machine */
#define SOON_S 30.0     /* for what is found out */

static nct *group;
static weir_transport *witness; /* a group of its own, over MPI alone */
static unsigned char received[LONG];
static const weir_tag tag = {.plan = 5, .step = 2};

static void nap(double seconds) {
  const double until_s = weir_now_s() + seconds;
  while (weir_now_s() < until_s) (void)usleep(1000);
}

/* Rank 3 announces a long message to rank 2, its neighbour. */
static void announce(void) {
  const nct_word word = {NCT_MAGIC, 1, LONG};
  const weir_send send = {2, &word, sizeof word, 0};
  weir_transport *control = group->control;
  CHECK(control->ops->transfer(control, &tag, &send, 1, NULL, 0, weir_now_s() + PATIENCE_S) ==
            WEIR_OK,
        "announce");
}

static weir_status receive(double timeout_s) {
  weir_recv recv = {3, received, LONG, 0, 0};
  return group->base.ops->transfer(&group->base, &tag, NULL, 0, &recv, 1, weir_now_s() + timeout_s);
}

static void receive_nothing(double timeout_s, weir_status due, const char *why) {
  const double begin_s = weir_now_s();
  const weir_status status = receive(timeout_s);
  CHECK(status == due && said(why), "status %d", (int)status);
  CHECK(weir_now_s() - begin_s < SOON_S, "%g s", weir_now_s() - begin_s);
  CHECK(receive(PATIENCE_S) != WEIR_OK, "the group goes on");
}

/* Its process is busy elsewhere. */
static void silent(void) {
  if (launch.rank == 2) receive_nothing(1.5, WEIR_E_TIMEOUT, "rank 3 did not answer in time");
  if (launch.rank != 3) return;
  announce();
  nap(3.0);
}

/* Rank 0 waits for rank 2 over MPI, and is the first to find that rank 3 is to blame. */
static void chain(void) {
  if (launch.rank == 0) {
    weir_recv recv = {2, received, 1, 1, 0};
    weir_transport *t = &group->base;
    CHECK(t->ops->transfer(t, &tag, NULL, 0, &recv, 1, weir_now_s() + 2.0) == WEIR_E_TIMEOUT &&
              said("rank 3 did not answer in time"),
          "who?");
  }
  if (launch.rank == 2)
    receive_nothing(PATIENCE_S, WEIR_E_TIMEOUT, "rank 3 did not answer in time, says rank 0");
  if (launch.rank != 3) return;
  announce();
  nap(4.0);
}

static void leaves(void) {
  if (launch.rank == 2) receive_nothing(PATIENCE_S, WEIR_E_PEER, "rank 3 is gone");
  if (launch.rank == 3) announce();
}

/* Rank 0 finds that something is wrong while rank 2 waits for NCCL. */
static void ended(void) {
  weir_transport *control = group->control;
  const weir_send send = {0, "!", 1, 1};
  weir_recv recv = {2, received, 1, 1, 0};
  const double begin_s = weir_now_s();
  if (launch.rank == 0) {
    CHECK(control->ops->transfer(control, &tag, NULL, 0, &recv, 1, begin_s + PATIENCE_S) == WEIR_OK,
          "told");
    group->base.ops->abort(&group->base, 1);
  }
  if (launch.rank != 2) return;
  CHECK(nct_reserve(group, LONG) == WEIR_OK, "memory");
  (void)group->lib->group_start();
  (void)group->lib->recv(group->memory, LONG, ncclUint8, 1, group->comm, group->stream);
  CHECK(nct_result(group, group->lib->group_end(), "to receive") == WEIR_OK, "receive");
  CHECK(control->ops->transfer(control, &tag, &send, 1, NULL, 0, begin_s + PATIENCE_S) == WEIR_OK,
        "tell");
  CHECK(nct_wait(group, 3, 2, begin_s + PATIENCE_S) == WEIR_E_PEER &&
            said("rank 1 is gone, says rank 0"),
        "who?");
  CHECK(weir_now_s() - begin_s < SOON_S, "%g s", weir_now_s() - begin_s);
}

/* What NCCL is given is sent while ranks that owe nothing have left. */
static void late(void) {
  if (launch.rank == 2) {
    CHECK(receive(PATIENCE_S) == WEIR_OK, "receive");
    CHECK(received[0] == 77 && received[LONG - 1] == 77, "another message");
  }
  if (launch.rank != 3) return;
  announce();
  CHECK(nct_reserve(group, LONG) == WEIR_OK, "memory");
  memset(group->memory, 77, LONG);
  nap(1.0); /* four times what is given to a rank that leaves */
  (void)group->lib->group_start();
  (void)group->lib->send(group->memory, LONG, ncclUint8, 0, group->comm, group->stream);
  CHECK(nct_result(group, group->lib->group_end(), "to send") == WEIR_OK, "send");
  CHECK(nct_wait(group, 2, 2, weir_now_s() + PATIENCE_S) == WEIR_OK, "sent");
}

/* Nobody is back before all have come; mpirun ends the others once a rank has ended without
 * MPI_Finalize. */
static void meet(uint64_t step) {
  const weir_tag here = {.plan = 6, .step = step};
  unsigned char all[RANKS] = {0};
  CHECK(weir_transport_tell(witness, &here, all, 1, weir_now_s() + PATIENCE_S) == WEIR_OK, "meet");
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {
      {"silent", silent}, {"chain", chain}, {"leaves", leaves}, {"ended", ended}, {"late", late}};
  weir_transport *t = NULL;
  (void)alarm(400);
  CHECK(argc == 2 && weir_launch_read(&launch) == WEIR_OK && launch.world_size == RANKS, "launch");
  CHECK(weir_transport_mpi(&t, 42, launch.rank, RANKS, PATIENCE_S) == WEIR_OK, "MPI");
  CHECK(weir_transport_mpi(&witness, 42, launch.rank, RANKS, PATIENCE_S) == WEIR_OK, "MPI");
  join_machines(&t, 2, true);
  group = (nct *)t;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      if (strcmp(argv[1], "ended") == 0) meet(1); /* who leaves before might be found out first */
      t->ops->destroy(t);
      printf("rank %d: ok\n", launch.rank);
      (void)fflush(stdout);
      meet(2);
      return 0;
    }
  fprintf(stderr, "mpi_nccl: no such case\n");
  return 2;
}
