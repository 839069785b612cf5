/* Gathering, in trials and outside of them: of any number of ranks and any tensors, the average and
 * the residuals are bit for bit those of messages added up in the ranks' order, and a step takes
 * one all-gather, however long the messages are. */
#define GROUP_MAX 40
#include <criterion/criterion.h>

#include "../sampled.h"
#include "base/base.h"
#include "collectives/comm.h"
#include "group.h"

#define TENSORS 7
#define STEPS 3

typedef struct course {
  size_t n, offset[TENSORS + 1];
  weir_plan plan;
  bool trial; /* steps 1 and 2 are */
  uint64_t seed;
  float *e[GROUP_MAX], *want; /* the ranks' residuals as they should be, and the average */
} course;

static const char *const plans[] = {
    "terngrad:0.0625:ag",      "onebit:0.03125:ag",     "efsignsgd:0.03125:ag",    "fp16:0.5:ag",
    "qsgd-nearest:0.25:ag",    "topk:0.3:ag",           "mstopk:0.1:ag:auto-bf16", "topk:0.02:ag",
    "lwtopk:0.5:ag:auto-fp16", "topk:0.05:ag:auto-fp32"};
#define PLANS (sizeof plans / sizeof *plans)

/* Whole tensors may be much larger than others, so that what is selected lies together. */
static void fill(const course *c, float *g, int step, int rank) {
  weir_rng rng = weir_rng_of(c->seed + (uint64_t)(step * GROUP_MAX + rank));
  const size_t loud = c->seed % (2 * TENSORS);
  for (size_t t = 0; t < TENSORS; t++)
    for (size_t i = c->offset[t]; i < c->offset[t + 1]; i++)
      g[i] = (float)(2 * weir_rng_uniform(&rng) - 1) * (t == loud ? 100.0f : 1.0f);
}

/* --- whole messages, one thread --------------------------------------------------------------- */

typedef struct reference {
  weir_codec_context *context;
  unsigned char *message;
  size_t room, k;
  uint32_t *index;
  float *value, *error;
} reference;

static weir_status encode(const course *c, reference *f, int step, int rank, size_t *bytes) {
  const weir_codec *codec = weir_codec_find(c->plan.codec);
  const weir_layout layout = {TENSORS, c->offset};
  float *e = c->e[rank];
  const uint64_t words[2] = {(uint64_t)step, (uint64_t)rank};
  if (codec->encode != NULL) {
    const weir_status status =
        codec->encode(f->context, e, &layout, c->plan.cr,
                      weir_hash(WEIR_HASH_INIT, words, sizeof words), f->message, f->room, bytes);
    return status ? status
                  : codec->decode(f->context, f->message, *bytes, &layout, e, WEIR_DECODE_SUBTRACT);
  }
  weir_status status = codec->select(f->context, e, &layout, c->plan.cr, f->index, c->n, &f->k);
  if (status) return status;
  weir_gather(e, f->index, f->k, f->value);
  memset(f->error, 0, f->k * sizeof *f->error);
  status = weir_wire_encode(c->n, f->index, f->value, f->k, (weir_wire_format)c->plan.wire,
                            f->message, f->room, bytes, f->error);
  weir_scatter_zero(e, f->index, f->k);
  weir_scatter_add(e, f->index, f->error, f->k);
  return status;
}

static weir_status add(const course *c, const reference *f, size_t bytes, bool first) {
  const weir_codec *codec = weir_codec_find(c->plan.codec);
  const weir_layout layout = {TENSORS, c->offset};
  if (codec->decode != NULL)
    return codec->decode(f->context, f->message, bytes, &layout, c->want,
                         first ? WEIR_DECODE_STORE : WEIR_DECODE_ADD);
  return first ? weir_wire_decode_dense(f->context, f->message, bytes, c->n, c->want)
               : weir_wire_decode_add(f->context, f->message, bytes, c->n, c->want);
}

static weir_status refer(const course *c, int step, int ranks) {
  reference f = {.room = 9 * c->n + 1024};
  FREED float *const g = malloc((c->n + 1) * sizeof *g);
  f.message = malloc(f.room);
  f.index = malloc((c->n + 1) * sizeof *f.index);
  f.value = malloc((c->n + 1) * sizeof *f.value);
  f.error = malloc((c->n + 1) * sizeof *f.error);
  weir_status status = weir_codec_context_create(&f.context);
  for (int r = 0; r < ranks && !status; r++) {
    weir_moments moments = {0};
    size_t bytes = 0;
    fill(c, g, step, r);
    weir_ef_accumulate(g, c->e[r], c->e[r], c->n, &moments);
    status = encode(c, &f, step, r, &bytes);
    if (!status) status = add(c, &f, bytes, r == 0);
  }
  weir_scale(c->want, c->n, 1.0f / (float)ranks);
  weir_codec_context_free(f.context);
  free(f.error);
  free(f.value);
  free(f.index);
  free(f.message);
  return status;
}

/* --- as the engine does it -------------------------------------------------------------------- */

typedef struct voice {
  const course *c;
  int step;
} voice;

static void propose(void *user, weir_directive *directive) {
  const voice *v = user;
  if (!v->c->trial || v->step > 0) return;
  *directive = (weir_directive){.action = WEIR_ACTION_TRIAL, .plan = v->c->plan};
}

/* Tensors lie apart, as a trainer's do. */
static weir_status step(const course *c, weir_engine *engine, float *const *buffer) {
  weir_status status = weir_engine_step_begin(engine, NULL);
  for (uint32_t t = 0; t < TENSORS && !status; t++)
    status = weir_engine_submit(engine, t, c->offset[t + 1] > c->offset[t] ? buffer[t] : NULL);
  return status ? status : weir_engine_step_end(engine, NULL);
}

static void compare(member *m, const course *c, const float *got, const float *want, size_t n,
                    int number, const char *what) {
  char text[WEIR_PLAN_TEXT_MAX];
  if (memcmp(got, want, n * sizeof *got) == 0) return;
  weir_plan_format(&c->plan, text);
  group_fail(m->group, "%s, %d ranks, %zu elements, step %d: another %s", text, m->size, c->n,
             number, what);
}

static void run_rank(member *m) {
  course *c = m->group->shared;
  voice v = {c, 0};
  float *buffer[TENSORS], *const g = malloc((c->n + 1) * sizeof *g);
  for (size_t t = 0; t < TENSORS; t++)
    buffer[t] = malloc((c->offset[t + 1] - c->offset[t] + 1) * sizeof(float));
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, c->offset},
                                     .first_plan = c->plan,
                                     .hooks = {.user = &v, .propose = propose}};
  weir_engine *engine = NULL;
  weir_status status = weir_engine_create(&engine, &config);
  for (; v.step < STEPS && !status; v.step++) {
    fill(c, g, v.step, m->rank);
    for (size_t t = 0; t < TENSORS; t++)
      memcpy(buffer[t], g + c->offset[t], (c->offset[t + 1] - c->offset[t]) * sizeof *g);
    group_barrier(m);
    if (m->rank == 0 && refer(c, v.step, m->size) != WEIR_OK)
      group_fail(m->group, "%s", weir_last_error());
    group_barrier(m);
    status = step(c, engine, buffer);
    if (!status && m->comm->next_op != 1)
      group_fail(m->group, "%u collectives in a step", m->comm->next_op);
    for (size_t t = 0; t < TENSORS && !status; t++)
      compare(m, c, buffer[t], c->want + c->offset[t], c->offset[t + 1] - c->offset[t], v.step,
              "average");
    if (!status)
      compare(m, c, weir_engine_residual(engine), c->e[m->rank], c->n, v.step, "residual");
  }
  if (status) group_fail(m->group, "rank %d, step %d: %s", m->rank, v.step, weir_last_error());
  group_barrier(m);
  weir_engine_free(engine);
  for (size_t t = 0; t < TENSORS; t++) free(buffer[t]);
  free(g);
}

/* --- courses ---------------------------------------------------------------------------------- */

/* One long tensor, short ones before and behind it, single elements and none. */
static void lay(course *c, weir_rng *rng) {
  const size_t most = weir_rng_below(rng, 3) ? 40000 : 2000;
  c->offset[0] = 0;
  for (size_t t = 0; t < TENSORS; t++) {
    const uint64_t kind = weir_rng_below(rng, 5);
    const size_t n = kind == 0   ? weir_rng_below(rng, 2)
                     : kind == 1 ? weir_rng_below(rng, 20)
                     : kind == 2 ? weir_rng_below(rng, most)
                                 : weir_rng_below(rng, most / 8);
    c->offset[t + 1] = c->offset[t] + n;
  }
  c->n = c->offset[TENSORS];
}

static void run(course *c, int ranks) {
  group g;
  c->want = malloc((c->n + 1) * sizeof *c->want);
  for (int r = 0; r < ranks; r++) c->e[r] = calloc(c->n + 1, sizeof(float));
  group_run(&g, ranks, run_rank, c);
  for (int r = 0; r < ranks; r++) free(c->e[r]);
  free(c->want);
  cr_assert(!g.failed, "seed %llu: %s", (unsigned long long)c->seed, g.failure);
}

static void many(uint64_t seed, bool trial) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < 4 * PLANS; i++) {
    course c = {.trial = trial, .seed = weir_rng_next(&rng)};
    lay(&c, &rng);
    const int ranks = 1 + (int)weir_rng_below(&rng, i / PLANS % 2 ? GROUP_MAX : 6);
    if (!sampled(6)) continue;
    cr_assert_eq(weir_plan_parse(plans[i % PLANS], &c.plan), WEIR_OK);
    c.plan.id = 1;
    run(&c, ranks);
  }
}

Test(gathered, is_what_the_ranks_messages_say) { many(1, false); }
Test(gathered, is_the_same_in_trials) { many(2, true); }
