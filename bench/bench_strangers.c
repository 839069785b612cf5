/* What strangers at the doors of a group cost its steps: 4 ranks sum 1 MiB over and over (TCP on
 * the loopback, TLS), while nobody calls, or somebody without the secret does, by turns.
 *
 *   bench_strangers [CYCLES [CALLS]]   10 cycles of all turns and 1000 calls a second at each door
 *
 * Once with a group that nobody may join, whose ranks hang up on who calls, and once with one that
 * others may join, whose ranks hear who it is:
 *
 *   elsewhere  calls at a port where nobody listens: what the attack costs the machine they share
 *   flood      calls and hangs up
 *   half-open  says nothing, 256 connections a door, again where it was hung up on
 *   slow       64 connections a door, each a byte of a right hello every 50 ms
 *   replay     says again what a rank with the secret has said to another
 *
 * Prints medians over the cycles: ms a step, how much longer than in the quiet turns before and
 * after it, the same of the ranks' processor time, and how much of a processor a rank's thread
 * takes that answers at the door: where the machine has other work, too, the last tells most. */
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/transports/tcp_meeting.h"

enum {
  RANKS = 4,
  ELEMENTS = 1 << 18,
  HELD_MOST = 256, /* connections a door */
  SLOW_HELD = 64,
  SLOW_MS = 50,
  STEPS_MOST = 100000,
  CYCLES_MOST = 1000
};
#define TURN_S 1.0
#define SETTLE_S 0.2
#define TIMEOUT_S 60.0

typedef enum attack { QUIET, ELSEWHERE, FLOOD, HALF_OPEN, SLOW, REPLAY, ATTACKS } attack;
static const char *const names[ATTACKS] = {"quiet",     "elsewhere", "flood",
                                           "half-open", "slow",      "replay"};

/* In memory that all processes share. */
typedef struct board {
  struct sockaddr_in door[RANKS]; /* of each rank; and, after the start: */
  atomic_int here;                /* ranks that have met */
  atomic_int kind;                /* what the strangers do */
  atomic_bool stop, failed;
  atomic_long calls;
  tcp_hello said[2]; /* by one with the secret: a hello, and the proof for another challenge */
  atomic_long steps;
  _Atomic double processor_s[RANKS], own_s[RANKS]; /* of the process; of the thread that steps */
  double step_s[STEPS_MOST];                       /* rank 0's, around */
} board;

/* --- the ranks -------------------------------------------------------------------------------- */

static double clock_s(clockid_t clock) {
  struct timespec t;
  (void)clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void record_words(board *b, const tcp *self) {
  const tcp_hello challenge = tcp_compose(self, HELLO_CHALLENGE, 0);
  b->said[0] = tcp_compose(self, HELLO_JOIN, 12345);
  b->said[0].size = htole32((uint32_t)self->offer);
  b->said[0].rank = htole32((uint32_t)(self->offer >> 32));
  tcp_hello_seal(&b->said[0]);
  b->said[1] = tcp_compose(self, HELLO_PROOF, 0);
  tcp_prove_caller(&self->key, &b->said[0], &challenge, b->said[1].proof);
  tcp_hello_seal(&b->said[1]);
}

static weir_status sum_up(board *b, weir_transport *t) {
  weir_comm *comm = NULL;
  float *x = calloc(ELEMENTS + 1, sizeof *x);
  weir_status status = weir_comm_create(&comm, t, TIMEOUT_S);
  for (uint64_t step = 0; status == WEIR_OK && x[ELEMENTS] == 0.0f; step++) {
    const double begin_s = weir_now_s();
    /* All stop at the same step: rank 0 has seen that they shall, and what it adds tells so. */
    x[ELEMENTS] = t->rank == 0 && atomic_load(&b->stop) ? 1.0f : 0.0f;
    weir_comm_step(comm, 1, step);
    status = weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, x, ELEMENTS + 1, WEIR_VALUE_FP32, NULL,
                                                      NULL);
    atomic_store(&b->processor_s[t->rank], clock_s(CLOCK_PROCESS_CPUTIME_ID));
    atomic_store(&b->own_s[t->rank], clock_s(CLOCK_THREAD_CPUTIME_ID));
    if (t->rank > 0) continue;
    b->step_s[step % STEPS_MOST] = weir_now_s() - begin_s;
    atomic_store(&b->steps, (long)step + 1);
  }
  weir_comm_free(comm);
  free(x);
  return status;
}

static int be_rank(board *b, const char *where, uint64_t job, int rank, int most) {
  weir_transport *t = NULL;
  weir_status status = weir_transport_tcp_open(&t, &(weir_tcp_options){.rendezvous = where,
                                                                       .secret = "of this run",
                                                                       .secret_bytes = 11,
                                                                       .job_id = job,
                                                                       .rank = rank,
                                                                       .size = RANKS,
                                                                       .most = most,
                                                                       .timeout_s = TIMEOUT_S});
  if (status == WEIR_OK) {
    const tcp *self = (tcp *)t;
    if (rank == 0) record_words(b, self);
    b->door[rank] = self->peer[rank].data;
    (void)atomic_fetch_add(&b->here, 1);
    status = sum_up(b, t);
  }
  if (status != WEIR_OK) {
    fprintf(stderr, "bench_strangers: rank %d: %s\n", rank, weir_last_error());
    atomic_store(&b->failed, true);
  }
  if (t != NULL) t->ops->destroy(t);
  return status == WEIR_OK ? 0 : 1;
}

/* --- the strangers ---------------------------------------------------------------------------- */

typedef struct held {
  int fd; /* 0: none */
  size_t said;
  double next_s;
} held;

static int call_at(board *b, const struct sockaddr_in *at) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  (void)connect(fd, (const struct sockaddr *)at, sizeof *at);
  (void)atomic_fetch_add(&b->calls, 1);
  return fd;
}

static void hang_up(held *h) {
  if (h->fd > 0) (void)close(h->fd);
  *h = (held){0};
}

/* One of those that stay. */
static void tend(board *b, held *h, attack kind, int door, double now_s, long *allowed) {
  unsigned char byte;
  if (h->fd == 0) {
    if (*allowed <= 0) return;
    --*allowed;
    h->fd = call_at(b, &b->door[door]);
    return;
  }
  if (now_s < h->next_s) return;
  h->next_s = now_s + 1e-3 * SLOW_MS;
  if (recv(h->fd, &byte, 1, MSG_DONTWAIT) == 0 ||
      (kind == SLOW && send(h->fd, (const unsigned char *)b->said + h->said++ % sizeof b->said[0],
                            1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1))
    hang_up(h);
}

static void call_once(board *b, attack kind, int door) {
  struct sockaddr_in at = b->door[door];
  if (kind == ELSEWHERE) at.sin_port = htons(1);
  const int fd = call_at(b, &at);
  if (kind == REPLAY) {
    (void)send(fd, b->said, sizeof b->said, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
  }
  if (fd > 0) (void)close(fd);
}

static void be_strangers(board *b, long calls_a_second) {
  held *all = calloc((size_t)RANKS * HELD_MOST, sizeof *all);
  attack last = QUIET;
  double before_s = weir_now_s(), due = 0.0;
  while (all != NULL && getppid() != 1) {
    const attack kind = (attack)atomic_load(&b->kind);
    const double now_s = weir_now_s();
    if (kind != last)
      for (int i = 0; i < RANKS * HELD_MOST; i++) hang_up(&all[i]);
    due = kind != last ? 0.0 : due + (now_s - before_s) * (double)calls_a_second * RANKS;
    before_s = now_s;
    last = kind;
    const long most = (long)due;
    long allowed = kind == QUIET ? 0 : most;
    if (kind == HALF_OPEN || kind == SLOW) {
      const int held_most = kind == SLOW ? SLOW_HELD : HELD_MOST;
      for (int i = 0; i < RANKS * held_most; i++)
        tend(b, &all[i], kind, i % RANKS, now_s, &allowed);
    } else {
      while (allowed > 0) call_once(b, kind, (int)(allowed-- % RANKS));
    }
    due -= (double)(most - allowed);
    (void)poll(NULL, 0, 1);
  }
  _exit(0);
}

/* --- the turns -------------------------------------------------------------------------------- */

typedef struct turn {
  double step_s, processor_s; /* the median; and of all ranks a step */
  double door;                /* of a processor, a rank */
} turn;

static double sum_of(const _Atomic double *seconds) {
  double sum = 0.0;
  for (int r = 0; r < RANKS; r++) sum += atomic_load(&seconds[r]);
  return sum;
}

static turn take_turn(board *b, attack kind) {
  static double steps[STEPS_MOST];
  atomic_store(&b->kind, kind);
  (void)poll(NULL, 0, (int)(1e3 * SETTLE_S));
  const double used_s = sum_of(b->processor_s), own_s = sum_of(b->own_s), begin_s = weir_now_s();
  const long begin = atomic_load(&b->steps);
  long end;
  do {
    (void)poll(NULL, 0, 10);
    end = atomic_load(&b->steps);
  } while ((weir_now_s() < begin_s + TURN_S || end < begin + 5) && !atomic_load(&b->failed));
  const double processors = sum_of(b->processor_s) - used_s, own = sum_of(b->own_s) - own_s;
  size_t count = 0;
  for (long s = begin; s < end && count < STEPS_MOST; s++)
    steps[count++] = b->step_s[s % STEPS_MOST];
  if (count == 0) return (turn){0};
  weir_sort(steps, count);
  return (turn){steps[count / 2], processors / (double)count,
                (processors - own) / RANKS / (weir_now_s() - begin_s)};
}

static double median_of(double *x, int count) {
  weir_sort(x, (size_t)count);
  return x[count / 2];
}

static void take_turns(board *b, int cycles) {
  static double ms[ATTACKS][CYCLES_MOST], longer[ATTACKS][CYCLES_MOST];
  static double dearer[ATTACKS][CYCLES_MOST], door[ATTACKS][CYCLES_MOST];
  for (int c = 0; c < cycles; c++) {
    turn before = take_turn(b, QUIET);
    for (int kind = ELSEWHERE; kind < ATTACKS && !atomic_load(&b->failed); kind++) {
      const turn attacked = take_turn(b, (attack)kind), after = take_turn(b, QUIET);
      ms[kind][c] = 1e3 * attacked.step_s;
      longer[kind][c] = 2.0 * attacked.step_s / (before.step_s + after.step_s);
      dearer[kind][c] = 2.0 * attacked.processor_s / (before.processor_s + after.processor_s);
      door[kind][c] = attacked.door;
      door[QUIET][c] = after.door;
      before = after;
      ms[QUIET][c] = 1e3 * after.step_s;
    }
  }
  for (int kind = QUIET; kind < ATTACKS; kind++) {
    printf("%-10s %9.3f", names[kind], median_of(ms[kind], cycles));
    if (kind > QUIET)
      printf(" %+8.1f %+8.1f", 100.0 * (median_of(longer[kind], cycles) - 1.0),
             100.0 * (median_of(dearer[kind], cycles) - 1.0));
    else
      printf(" %8s %8s", "", "");
    printf(" %8.2f\n", 100.0 * median_of(door[kind], cycles));
  }
}

static bool run_group(int most, int cycles, long calls_a_second) {
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b == MAP_FAILED) return false;
  char where[32];
  pid_t rank[RANKS], strangers = -1;
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", weir_free_port());
  (void)fflush(NULL);
  const uint64_t job = (uint64_t)getpid();
  for (int r = 0; r < RANKS; r++)
    if ((rank[r] = fork()) == 0) _exit(be_rank(b, where, job, r, most));
  const double until_s = weir_now_s() + TIMEOUT_S;
  while (atomic_load(&b->here) < RANKS && !atomic_load(&b->failed) && weir_now_s() < until_s)
    (void)poll(NULL, 0, 10);
  if (atomic_load(&b->here) == RANKS) {
    if ((strangers = fork()) == 0) be_strangers(b, calls_a_second);
    printf("%s: a group that %s join\n%-10s %9s %8s %8s %8s\n", most > 0 ? "open" : "closed",
           most > 0 ? "others may" : "nobody may", "", "ms a step", "longer,%", "CPU,%", "door,%");
    take_turns(b, cycles);
    printf("%ld calls\n", atomic_load(&b->calls));
    (void)fflush(stdout);
  }
  atomic_store(&b->stop, true);
  bool good = !atomic_load(&b->failed) && strangers > 0;
  for (int r = 0; r < RANKS; r++) {
    int code = 1;
    (void)waitpid(rank[r], &code, 0);
    good = good && code == 0;
  }
  if (strangers > 0) {
    (void)kill(strangers, SIGKILL);
    (void)waitpid(strangers, NULL, 0);
  }
  (void)munmap(b, sizeof *b);
  return good;
}

int main(int argc, char **argv) {
  const int cycles = argc > 1 ? atoi(argv[1]) : 10;
  const long calls = argc > 2 ? atol(argv[2]) : 1000;
  if (cycles < 1 || cycles > CYCLES_MOST || calls < 1 || calls > 100000) {
    fprintf(stderr, "usage: bench_strangers [CYCLES 1..%d [CALLS 1..100000]]\n", CYCLES_MOST);
    return 2;
  }
  (void)signal(SIGPIPE, SIG_IGN);
  return run_group(0, cycles, calls) && run_group(2 * RANKS, cycles, calls) ? 0 : 1;
}
