/* Ranks that are killed, frozen or cut off at random moments of random collectives: nobody hangs, no
 * sum is wrong, the survivors go on and finish, and nothing is left behind.  40 rounds;
 * WEIR_STRESS_ROUNDS asks for another number, WEIR_STRESS_SEED for other ones. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdatomic.h>
#include <time.h>

#include "collectives/wrappers.h"
#include "ranks.h"

#define TIMEOUT_S 1.0
/* A time-out to find out, the questions to all, and reunions that wait for a silent rank; then a busy
 * machine. */
#define HANG_S 30.0
#define MOST 60000

typedef struct round_of {
  uint64_t seed;
  int victim, strike; /* 0: killed, 1: frozen, 2: its connections are reset */
  uint64_t transfer;  /* at which a reset happens */
  atomic_int there;   /* ranks that are in the group */
} round_of;

static void nap(double seconds) {
  const struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&pause, NULL);
}

/* Random all-reduces of small whole numbers, the same on all ranks; the sum is known exactly. */
static weir_status collectives(weir_transport *t, const int *old, weir_rng *rng, int steps) {
  weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, TIMEOUT_S);
  if (status != WEIR_OK) return status;
  float *x = malloc(MOST * sizeof *x), *error = calloc(MOST, sizeof *error);
  for (int step = 0; status == WEIR_OK && step < steps; step++) {
    const uint64_t draw = weir_rng_next(rng);
    const size_t n = (size_t)1 << (draw % 16), shift = (size_t)(draw >> 16 & 63);
    const uint32_t algorithm = (uint32_t)(draw >> 24) % (WEIR_ALLREDUCE_STAR + 1);
    const weir_value_format format = draw >> 40 & 1 ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32;
    for (size_t i = 0; i < n; i++) x[i] = (float)((i + shift) % 8 + (size_t)old[t->rank]);
    weir_comm_step(comm, 7, (uint64_t)step);
    status = weir_allreduces[algorithm].run(comm, x, n, format, error, NULL);
    float ranks = 0;
    for (int r = 0; r < t->size; r++) ranks += (float)old[r];
    for (size_t i = 0; status == WEIR_OK && i < n; i++) /* below 256: exact as bf16, too */
      if (x[i] != (float)((i + shift) % 8) * (float)t->size + ranks)
        status = weir_fail(WEIR_E_INTERNAL, "element %zu of %zu is %g (%s)", i, n, (double)x[i],
                           weir_allreduces[algorithm].name);
  }
  free(error);
  free(x);
  weir_comm_free(comm);
  return status;
}

/* Until the group ends; then with those who are left. */
static weir_status stress_body(weir_transport *first, void *user) {
  round_of *round = user;
  weir_transport *t = first, *faulty = NULL, *next = NULL;
  int old[GROUP_MAX], kept[GROUP_MAX];
  weir_rng rng;
  weir_status status = WEIR_OK;
  for (int r = 0; r < first->size; r++) old[r] = r;
  (void)atomic_fetch_add(&round->there, 1);
  if (round->strike == 2 && first->rank == round->victim) {
    const weir_strike strike = {WEIR_STRIKE_RESET, round->transfer, -1};
    status = weir_transport_fault(&faulty, first, &strike);
    t = faulty;
  }
  weir_rng_seed(&rng, round->seed);
  if (status == WEIR_OK) status = collectives(t, old, &rng, 1000000);
  if (status < WEIR_E_TIMEOUT || status == WEIR_E_INTERNAL) return status;
  if (round->strike == 2 && first->rank == round->victim && !first->ops->echo) {
    free(faulty); /* without sockets it has left */
    return status;
  }
  free(faulty);
  status = first->ops->shrink(first, TIMEOUT_S, &next, kept);
  if (status != WEIR_OK) return status;
  for (int r = 0; r < next->size; r++) old[r] = kept[r];
  weir_rng_seed(&rng, round->seed + 1);
  status = collectives(next, old, &rng, 20);
  next->ops->destroy(next);
  return status;
}

static int segments(void) {
  int count = 0;
  DIR *folder = opendir("/dev/shm");
  for (const struct dirent *e; folder && (e = readdir(folder)) != NULL;)
    if (strncmp(e->d_name, "weir-", 5) == 0) count++;
  if (folder) (void)closedir(folder);
  return count;
}

/* True when the process has ended in time. */
static bool ends(pid_t pid, double until_s) {
  for (;;) {
    if (waitpid(pid, NULL, WNOHANG) == pid) return true;
    if (weir_now_s() >= until_s) return false;
    nap(0.005);
  }
}

static void play(uint64_t number, weir_rng *rng) {
  static const char *const strikes[] = {"killed", "frozen", "cut off"};
  const enum group_kind kind = weir_rng_below(rng, 2) ? GROUP_TCP : GROUP_SHM;
  const int size = 3 + (int)weir_rng_below(rng, 3);
  round_of *round = group_shared(sizeof *round);
  *round = (round_of){.seed = weir_rng_next(rng), .victim = (int)weir_rng_below(rng, (uint64_t)size),
                    .strike = (int)weir_rng_below(rng, 3), .transfer = weir_rng_below(rng, 2000)};
  group g;
  group_init(&g, kind, size, stress_body, round);
  group_start(&g);
  for (int i = 0; i < 2000 && atomic_load(&round->there) < size; i++) nap(0.01);
  nap(0.3 * weir_rng_uniform(rng));
  const double since_s = weir_now_s();
  if (round->strike < 2) (void)kill(g.pid[round->victim], round->strike == 0 ? SIGKILL : SIGSTOP);
  bool hangs = false;
  for (int r = 0; r < size; r++) {
    if (r == round->victim && round->strike < 2) continue;
    if (ends(g.pid[r], since_s + HANG_S)) continue;
    hangs = true;
    (void)kill(g.pid[r], SIGKILL);
    (void)waitpid(g.pid[r], NULL, 0);
  }
  if (round->strike < 2) {
    (void)kill(g.pid[round->victim], SIGKILL);
    (void)waitpid(g.pid[round->victim], NULL, 0);
  }
  char what[96];
  (void)snprintf(what, sizeof what, "round %d, %s, %d ranks, rank %d %s", (int)number,
                 kind == GROUP_TCP ? "tcp" : "shm", size, round->victim, strikes[round->strike]);
  cr_assert(!hangs, "%s: somebody hangs", what);
  for (int r = 0; r < size; r++)
    if (r != round->victim)
      cr_assert_eq(g.result[r].status, WEIR_OK, "%s: rank %d: %s %s", what, r,
                   weir_status_name(g.result[r].status), g.result[r].message);
  (void)munmap(round, sizeof *round);
  group_done(&g);
}

Test(stress, ranks_are_lost_at_random, .timeout = 86400) {
  const char *rounds = getenv("WEIR_STRESS_ROUNDS"), *seed = getenv("WEIR_STRESS_SEED");
  const uint64_t count = rounds ? strtoull(rounds, NULL, 10) : 40;
  weir_rng rng;
  weir_rng_seed(&rng, seed ? strtoull(seed, NULL, 10) : 1);
  const int before = segments();
  for (uint64_t i = 0; i < count; i++) play(i, &rng);
  cr_assert_leq(segments(), before, "shared memory is left behind");
  cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "a process is left behind");
}
