/* Policy bits where ranks have a device: what rank 0 sees of its gradient is what a host sees, so
 * that all get the same widths as ranks in host memory and lose the same.  The device is
 * tests/emulate's, or a real one in parity.device.*. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/base.h"
#include "device.h"
#include "session_ranks.h"

/* Between two, all-gathers are what takes least. */
#define RANKS 2

/* One tensor is longer than what is looked at of it, one is short, one is kept as it is. */
enum { TENSORS = 4, STEPS = 8 };
static const char *const names[TENSORS] = {"large", "small", "last", "last.bias"};
static const size_t numel[TENSORS] = {70000, 300, 9000, 20};

typedef struct worker {
  const char *group;
  int rank, device;
  double momentum;
  weir_status status;
  char message[512];
  float *average[TENSORS]; /* of the last step */
  size_t count;
  weir_plan_bucket table[TENSORS];
  uint64_t digest;
  char journal[32], measured[STEPS][2048]; /* rank 0: what its assignments knew */
  int assignments;
} worker;

/* Of the small tensor much is lost by few bits: its elements are a thousand times as large. */
static void gradient(float *g, size_t tensor, int rank, int step) {
  weir_rng rng = weir_rng_of(64 * tensor + 8 * (uint64_t)step + (uint64_t)rank);
  const float scale = tensor == 1 ? 1000.0F : tensor == 2 ? 30.0F : 1.0F;
  for (size_t i = 0; i < numel[tensor]; i++) g[i] = scale * (float)weir_rng_normal(&rng);
}

static weir_status one_step(worker *w, weir_session *session, float **g, int step) {
  const test_device d = test_device_open();
  weir_status status = weir_step_begin(session, NULL);
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++) {
    const size_t bytes = numel[t] * sizeof(float);
    gradient(w->average[t], t, w->rank, step);
    if (w->device >= 0)
      d.put(g[t], w->average[t], bytes);
    else
      memcpy(g[t], w->average[t], bytes);
    status = weir_submit(session, t, g[t]);
  }
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  for (size_t t = 0; t < TENSORS; t++)
    if (w->device >= 0)
      d.get(w->average[t], g[t], numel[t] * sizeof(float));
    else
      memcpy(w->average[t], g[t], numel[t] * sizeof(float));
  return status;
}

static void prepare(const worker *w, weir_options *options) {
  *options = session_options(w->rank, RANKS, w->group, "bits:knapsack:1:2");
  options->device = w->device;
  options->virtual_network = session_slow_link;
  options->momentum_correction = w->momentum;
  options->journal_path = w->rank == 0 ? w->journal : NULL;
}

static void *worker_main(void *argument) {
  worker *w = argument;
  const test_device d = test_device_open();
  weir_options options;
  weir_session *session = NULL;
  float *g[TENSORS];
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t bytes = numel[t] * sizeof(float);
    g[t] = w->device >= 0 ? d.memory(bytes) : malloc(bytes);
  }
  prepare(w, &options);
  weir_status status = weir_session_create(&session, &options);
  for (size_t t = 0; t < TENSORS && status == WEIR_OK; t++)
    status = weir_register_tensor(session, names[t], numel[t], NULL);
  if (status == WEIR_OK) status = weir_session_start(session);
  for (int step = 0; step < STEPS && status == WEIR_OK; step++)
    status = one_step(w, session, g, step);
  if (status == WEIR_OK) status = weir_current_buckets(session, w->table, TENSORS, &w->count);
  if (status == WEIR_OK) status = weir_residual_digest(session, &w->digest);
  if (status != WEIR_OK) (void)snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  w->status = status;
  weir_session_free(session);
  for (size_t t = 0; t < TENSORS; t++)
    if (w->device >= 0)
      d.forget(g[t]);
    else
      free(g[t]);
  return NULL;
}

/* Of every assignment the object that says what was measured and what came of it. */
static void read_journal(worker *w) {
  static char line[1 << 16];
  FILE *file = fopen(w->journal, "r");
  cr_assert_not_null(file);
  while (w->assignments < STEPS && fgets(line, sizeof line, file) != NULL) {
    const char *begin = strstr(line, "\"bits\":{");
    const char *end = begin != NULL ? strstr(begin, "]}]}") : NULL;
    cr_assert_not_null(end, "%.300s", line);
    (void)snprintf(w->measured[w->assignments++], sizeof w->measured[0], "%.*s", (int)(end - begin),
                   begin);
  }
  (void)fclose(file);
}

static void run(worker *w, unsigned where, double momentum) {
  static int serial;
  char group[64];
  (void)snprintf(group, sizeof group, "bits on a device %d", serial++);
  for (int r = 0; r < RANKS; r++) {
    w[r] = (worker){
        .group = group, .rank = r, .device = where >> r & 1 ? 0 : -1, .momentum = momentum};
    (void)strcpy(w[r].journal, "bits-XXXXXX");
    const int fd = mkstemp(w[r].journal);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    for (size_t t = 0; t < TENSORS; t++) w[r].average[t] = calloc(numel[t], sizeof(float));
  }
  session_threads(w, sizeof *w, RANKS, worker_main);
  read_journal(&w[0]);
  for (int r = 0; r < RANKS; r++) (void)unlink(w[r].journal);
}

static void free_all(worker *w) {
  for (int r = 0; r < RANKS; r++)
    for (size_t t = 0; t < TENSORS; t++) free(w[r].average[t]);
}

/* Rank 0, which looks, is on a device. */
Test(device_bits, widths_and_what_they_follow_from_are_those_of_the_host) {
  static worker host[RANKS], mine[RANKS];
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  for (unsigned where = 1; where <= 3; where += 2) { /* rank 0; both */
    const double momentum = where == 3 ? 0.5 : 0;
    run(host, 0, momentum);
    run(mine, where, momentum);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(host[r].status, WEIR_OK, "%s", host[r].message);
      cr_assert_eq(mine[r].status, WEIR_OK, "%s", mine[r].message);
      cr_assert_eq(mine[r].count, host[r].count);
      cr_assert_eq(memcmp(mine[r].table, host[r].table, sizeof host[r].table), 0);
      for (size_t t = 0; t < TENSORS; t++)
        cr_assert_eq(memcmp(mine[r].average[t], host[r].average[t], numel[t] * sizeof(float)), 0,
                     "%s", names[t]);
      cr_assert_eq(mine[r].digest, host[r].digest);
    }
    cr_assert_eq(mine[0].assignments, host[0].assignments);
    cr_assert_geq(mine[0].assignments, 2);
    for (int i = 0; i < mine[0].assignments; i++)
      cr_assert_str_eq(mine[0].measured[i], host[0].measured[i]);
    /* More bits for what is large, fewer for what is small: it was really measured. */
    cr_assert_geq(mine[0].count, 3);
    cr_assert_lt(mine[0].table[0].cr, mine[0].table[1].cr);
    free_all(host);
    free_all(mine);
  }
}
