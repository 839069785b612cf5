/* Ranges for profilers, seen by a tool that is loaded as profilers are: one of each kind for every
 * group of every step, whichever thread it is in, ended in the thread that began it, whether the
 * step succeeds, is dropped, or fails. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>

#include "log.h"
#include "multi/group.h"

enum { TENSORS = 6, LENGTH = 600, RANKS = 2, GROUPS = 3, STEPS = 5 };

/* A selection on the compressor's thread, one that goes by all-reduce, an encoder. */
static const char *const arms[GROUPS] = {"topk:0.1:ag", "none:1:dense-ring", "qsgd:0.125:ag"};

static void make_table(weir_plan *whole, weir_plan_bucket *table) {
  for (uint32_t k = 0; k < GROUPS; k++) {
    weir_plan plan = {0};
    if (weir_plan_parse(arms[k], &plan) != WEIR_OK) abort();
    table[k] = (weir_plan_bucket){.end = 2 * (k + 1),
                                  .place = k == 0 ? WEIR_PLACE_THREAD : WEIR_PLACE_CALLER};
    weir_bucket_set_plan(&table[k], &plan);
  }
  weir_plan_of_bucket(&table[0], whole);
  whole->buckets = GROUPS;
  whole->layout = weir_buckets_name(table, GROUPS);
}

static weir_status step(weir_engine *engine, float *g, const size_t *offset, bool spoilt) {
  weir_status status = weir_engine_step_begin(engine, NULL);
  for (size_t i = 0; i < LENGTH; i++) g[i] = sinf((float)i);
  if (spoilt) g[LENGTH / 2] = NAN;
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++)
    status = weir_engine_submit(engine, t, g + offset[t]);
  return status == WEIR_OK ? weir_engine_step_end(engine, NULL) : status;
}

/* Steps that count, one of them dropped; then one that fails because a rank goes away. */
static void body(member *m) {
  size_t offset[TENSORS + 1];
  weir_plan_bucket table[GROUPS] = {0};
  weir_plan whole = {0};
  weir_engine *engine = NULL;
  float g[LENGTH];
  for (size_t t = 0; t <= TENSORS; t++) offset[t] = t * LENGTH / TENSORS;
  make_table(&whole, table);
  const weir_engine_config config = {
      .comm = m->comm, .layout = {TENSORS, offset}, .first_plan = whole, .first_buckets = table};
  if (weir_engine_create(&engine, &config) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  for (int i = 0; i < STEPS && engine != NULL; i++) {
    const weir_status status = step(engine, g, offset, i == 2 && m->rank == 1);
    if (status != (i == 2 ? WEIR_E_NONFINITE : WEIR_OK))
      group_fail(m->group, "rank %d, step %d: %s", m->rank, i, weir_last_error());
  }
  group_barrier(m);
  if (m->rank == 1) m->transport->ops->abort(m->transport, 1);
  if (m->rank == 0 && engine != NULL && step(engine, g, offset, false) == WEIR_OK)
    group_fail(m->group, "a step without rank 1 has succeeded");
  weir_engine_free(engine);
}

static int count(const nvtx_log *log, const char *what, uint64_t number) {
  int found = 0;
  for (int i = 0; i < log->begun; i++)
    found += strcmp(log->begin[i].what, what) == 0 && log->begin[i].number == number;
  return found;
}

Test(trace, ranges_come_in_pairs) {
  cr_assert_eq(setenv("NVTX_INJECTION64_PATH", WEIR_NVTX_TOOL, 1), 0);
  group_well(RANKS, body, NULL, NULL);

  void *tool = dlopen(WEIR_NVTX_TOOL, RTLD_NOW | RTLD_NOLOAD);
  cr_assert_not_null(tool, "the tool was not loaded");
  const nvtx_log *log = dlsym(tool, "weir_nvtx_log");
  cr_assert_not_null(log);
  cr_assert_str_eq(log->domain, "weir");
  cr_assert_eq(log->begun, log->ended, "%d begun, %d ended", log->begun, log->ended);
  cr_assert_eq(log->stray, 0);
  cr_assert_leq(log->begun, NVTX_LOG_MOST);

  for (uint64_t k = 0; k < GROUPS; k++) {
    static const char *const always[] = {"feed", "compress", "exchange", "publish"};
    for (size_t w = 0; w < 4; w++) {
      /* Rank 0's failed step fed and compressed; which buckets it began to exchange depends on when
       * it saw that rank 1 had gone. */
      const int least = RANKS * STEPS - (w == 3 && k == GROUPS - 1 ? RANKS : 0);
      const int found = count(log, always[w], k);
      cr_assert(found >= least && found <= RANKS * STEPS + 1, "%s of group %d: %d times", always[w],
                (int)k, found);
    }
  }
  for (int i = 0; i < log->begun; i++) {
    const nvtx_event *event = &log->begin[i];
    const bool decoding = strcmp(event->what, "decode") == 0;
    cr_assert_str_eq(event->inside, decoding ? "exchange" : "", "%s inside of %s", event->what,
                     event->inside);
    if (decoding) cr_assert_eq(event->number, event->inside_number);
  }
  cr_assert_geq(count(log, "decode", 0), RANKS * STEPS);
  cr_assert_geq(count(log, "decode", 2), RANKS * STEPS);
  cr_assert_eq(dlclose(tool), 0);
}
