/* Ranks compare digests of the averages they took: a rank whose average is another than the
 * others', be it by one bit of one element once, is found in the next step and named; nobody is
 * accused otherwise.  That no plan, switch or trial raises a false alarm every other test of this
 * folder shows, test_digests with all plans. */
#include <criterion/criterion.h>
#include <string.h>

#include "../planned.h"
#include "base/base.h"
#include "engine/backend.h"
#include "group.h"
#include "script.h"

enum { TENSORS = 4, STEPS = 8 };
static const size_t offset[TENSORS + 1] = {0, 1, 97, 601, 640};
static const size_t rows[TENSORS] = {0, 8, 24, 0};
enum { N = 640 };

typedef struct course {
  script_step script[STEPS];
  bool table;           /* of buckets */
  int victim, step;     /* whose sum is altered, and when */
  size_t element;       /* of what it holds of a bucket */
  unsigned bit, bucket; /* of a float; which bucket's */
  /* What came of it. */
  float average[GROUP_MAX][STEPS][N];
  int ended[GROUP_MAX]; /* the step that failed; STEPS: none */
  weir_status status[GROUP_MAX];
  char text[GROUP_MAX][256];
  bool diverged[GROUP_MAX];
} course;

/* --- a rank whose memory is at fault ---------------------------------------------------------- */

typedef struct faulty {
  weir_backend backend; /* first: the engine's is this */
  const course *course;
  bool now;
} faulty;

static void flip(float *at, unsigned bit) {
  uint32_t bits;
  memcpy(&bits, at, sizeof bits);
  bits ^= UINT32_C(1) << bit;
  memcpy(at, &bits, sizeof bits);
}

static weir_status publish(weir_bucket *bucket, float share) {
  const faulty *self = (const faulty *)bucket->engine->backend;
  const course *c = self->course;
  const bool listed = bucket->scheme == WEIR_SCHEME_SHARED || bucket->thin;
  float *const held = listed ? bucket->value : bucket->engine->host.sum + bucket->at;
  const size_t count = listed ? bucket->kept : bucket->n;
  if (self->now && bucket->number == c->bucket % bucket->engine->set.count && count > 0)
    flip(&held[c->element % count], c->bit);
  return weir_host_backend.publish(bucket, share);
}

/* --- one rank --------------------------------------------------------------------------------- */

static weir_status one_step(weir_engine *engine, int rank, int step, float *g) {
  weir_rng rng = weir_rng_of((uint64_t)(step * GROUP_MAX + rank + 1));
  for (size_t i = 0; i < N; i++) g[i] = (float)((double)(int64_t)weir_rng_next(&rng) * 0x1p-63);
  weir_status status = weir_engine_step_begin(engine, NULL);
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++)
    status = weir_engine_submit(engine, t, g + offset[t]);
  return status == WEIR_OK ? weir_engine_step_end(engine, NULL) : status;
}

static void walk(member *m, course *c, weir_engine *engine, script *v) {
  const int r = m->rank;
  faulty backend = {.backend = weir_host_backend, .course = c};
  backend.backend.publish = publish;
  engine->backend = &backend.backend;
  for (v->at = 0; v->at < STEPS && c->status[r] == WEIR_OK; v->at++) {
    float g[N];
    backend.now = r == c->victim && v->at == c->step;
    c->ended[r] = v->at;
    c->status[r] = one_step(engine, r, v->at, g);
    memcpy(c->average[r][v->at], g, sizeof g);
  }
  if (c->status[r] == WEIR_OK) c->ended[r] = STEPS;
  if (c->status[r] != WEIR_OK) (void)snprintf(c->text[r], 256, "%.255s", weir_last_error());
  c->diverged[r] = weir_engine_diverged(engine);
  engine->backend = &weir_host_backend;
}

static void body(member *m) {
  course *c = m->group->shared;
  script v = {c->script, STEPS, 0};
  weir_engine *engine = NULL;
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, offset},
                                     .rows = rows,
                                     .first_plan = c->script[0].plan,
                                     .first_buckets = c->table ? c->script[0].table : NULL,
                                     .hooks = script_hooks(&v)};
  if (weir_engine_create(&engine, &config) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  group_barrier(m);
  if (!group_failed(m->group)) walk(m, c, engine, &v);
  group_barrier(m);
  weir_engine_free(engine);
}

/* --- courses ---------------------------------------------------------------------------------- */

static const char *const plans[] = {
    "none:1:dense-ring",    "none:1:dense-tree",     "bf16:1:dense-halving",
    "topk:0.1:ag",          "star:0.1:art-ring",     "var:0.2:art-tree:auto-bf16",
    "qsgd:0.125:ag",        "qsgd-nearest:0.25:sra", "terngrad:0.0625:compressed-tree",
    "efsignsgd:0.03125:ag", "powersgd:2:dense-tree", "bilateral:2:dense-ring",
    "whitened:0.125:sra",   "dithered:0.125:sra"};
enum { PLANS = sizeof plans / sizeof *plans };

/* One plan, another one, and from step 4 to 5 a trial of a third, after which the first is back. */
static void write_course(course *c, size_t plan) {
  static const uint32_t action[STEPS] = {
      0, 0, WEIR_ACTION_SWITCH, 0, WEIR_ACTION_TRIAL, 0, WEIR_ACTION_SWITCH, 0};
  static const size_t shift[STEPS] = {0, 0, 1, 1, 2, 2, 0, 0};
  for (int step = 0; step < STEPS; step++) {
    script_step *s = &c->script[step];
    s->action = action[step];
    s->plan = planned(plans[(plan + shift[step]) % PLANS]);
    s->plan.id = (uint64_t)step;
    if (!c->table) continue;
    size_t count = 0;
    const weir_plan second = planned(plans[(plan + shift[step] + 4) % PLANS]);
    script_add_bucket(s, &count, 2, WEIR_PLACE_CALLER, &s->plan);
    script_add_bucket(s, &count, TENSORS, WEIR_PLACE_CALLER, &second);
    script_close(s, count, (uint64_t)(step / 2));
  }
  for (int step = 1; step < STEPS; step++)
    if (c->script[step].action == WEIR_ACTION_KEEP) {
      c->script[step].plan = c->script[step - 1].plan;
      memcpy(c->script[step].table, c->script[step - 1].table, sizeof c->script[step].table);
    }
}

/* Does the victim hold another average of the step than the others? */
static bool differs(const course *c, int step) {
  const int other = c->victim == 0 ? 1 : 0;
  return memcmp(c->average[c->victim][step], c->average[other][step], sizeof(float[N])) != 0;
}

static void check(const course *c, int size, const char *plan) {
  char named[64];
  const bool altered = differs(c, c->step);
  const int due = altered ? c->step + 1 : STEPS;
  if (size > 2)
    (void)snprintf(named, sizeof named, "rank %d holds another average of step", c->victim);
  else
    (void)snprintf(named, sizeof named, "ranks 0 and 1 hold different averages of step");
  for (int r = 0; r < size; r++) {
    cr_assert_eq(c->ended[r], due, "%s, rank %d of %d: step %d, not %d: %s", plan, r, size,
                 c->ended[r], due, c->text[r]);
    cr_assert_eq(c->status[r], altered ? WEIR_E_MISMATCH : WEIR_OK, "%s: %s", plan, c->text[r]);
    cr_assert_eq(c->diverged[r], altered);
    if (altered) cr_assert(strstr(c->text[r], named) != NULL, "%s: %s", plan, c->text[r]);
  }
}

/* Steps of a trial that is under way, or has been rolled back, do not count:
 * weir_step_info.step. */
static int counted(int step) { return step < 4 ? step : step < 6 ? 4 : step - 2; }

static int found;

static void try_one(weir_rng *rng, size_t plan, int size, bool table) {
  static course c;
  char number[32];
  c = (course){.table = table};
  write_course(&c, plan);
  c.victim = (int)weir_rng_below(rng, (uint64_t)size);
  c.step = (int)weir_rng_below(rng, STEPS - 1);
  c.element = weir_rng_below(rng, N);
  c.bit = (unsigned)weir_rng_below(rng, 23); /* of the mantissa: it stays finite */
  c.bucket = (unsigned)weir_rng_below(rng, 2);
  group_well(size, body, &c, plans[plan]);
  check(&c, size, plans[plan]);
  if (!differs(&c, c.step)) return;
  found++;
  (void)snprintf(number, sizeof number, "of step %d", counted(c.step));
  cr_assert(strstr(c.text[0], number) != NULL, "step %d: %s", c.step, c.text[0]);
}

Test(averages, one_bit_of_one_rank_is_found_in_the_next_step) {
  weir_rng rng = weir_rng_of(17);
  int tried = 0;
  for (size_t plan = 0; plan < PLANS; plan++)
    for (int size = 2; size <= 5; size++)
      for (int table = 0; table < 2; table++, tried++) try_one(&rng, plan, size, table != 0);
  /* A low bit may be lost when the sum is divided; the average is unaltered then. */
  cr_assert(found > tried / 2, "%d of %d alterations were seen by anybody", found, tried);
}
