/* Random courses of plans (random_course.h): whatever they are, all ranks get the same bits and the
 * same status, nothing of a gradient is lost or invented, each bucket does what its own plan says,
 * lost steps and trials leave nothing behind, and all goes on to the bit as it would have without
 * the trials, and where an engine goes on from another one's memory.
 *
 * A failure names the course's seed, and prints it.  WEIR_PLANS_SEED is the first seed to try, and
 * WEIR_PLANS_COURSES says how many. */
#include <criterion/criterion.h>
#include <float.h>

#include "engine/state.h"
#include "half.h"
#include "kernels/half.h"
#include "random_course.h"
#include "reference.h"

#define EXACT_MOST 1000 /* elements of a bucket that are sorted the slow way */

/* A rank in a step: what it put in, what its memory held before and after, and what it got. */
typedef struct record {
  weir_status status;
  float *g, *update;
  float *residual, *residual_after, *residual_kept; /* kept: when the last step that counts ended */
  float *velocity, *velocity_after, *velocity_kept; /* zeros without momentum */
  uint64_t digest; /* of all that it got and held in steps that count */
} record;

enum { RECORD_FLOATS = 8 }; /* arrays of n each */

typedef struct play {
  const random_course *c;
  int cut; /* after this step a new engine takes the memory over; -1: never */
  record rank[GROUP_MAX];
} play;

typedef struct player {
  member *m;
  const play *all;
  const random_course *c;
  record *own;
  script script;
  weir_engine *engine;
  float *handed; /* a tensor of 16 bits an element takes half of its place */
} player;

static void complain(const player *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void complain(const player *p, const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  group_fail(p->m->group, "seed %llu, step %d, rank %d: %s", (unsigned long long)p->c->seed,
             p->script.at, p->m->rank, text);
}

static bool same(const random_course *c, const float *a, const float *b) {
  return memcmp(a, b, c->n * sizeof *a) == 0;
}

static void copy(const random_course *c, float *to, const float *from) {
  memcpy(to, from, c->n * sizeof *to);
}

/* --- what a step did ------------------------------------------------------------------------- */

/* What momentum brings into e.  The engine has the factor as a float. */
static double moved(const random_course *c, const record *r, size_t i) {
  return (double)(float)c->momentum * (double)r->velocity[i];
}

/* The magnitude of all that an element of e is made of, and of what is left of it. */
static double put_in(const random_course *c, const record *r, size_t i) {
  return fabs((double)r->g[i]) + fabs((double)r->residual[i]) + fabs(moved(c, r, i));
}

static double left(const random_course *c, const record *r, size_t i) {
  (void)c;
  return fabs((double)r->residual_after[i]);
}

/* Of one or the other in [from, to), the length as a vector; of all ranks together. */
static double length(const play *all, size_t from, size_t to,
                     double (*of)(const random_course *, const record *, size_t)) {
  double sum = 0;
  for (int r = 0; r < all->c->ranks; r++) {
    double square = 0;
    for (size_t i = from; i < to; i++) {
      const double x = of(all->c, &all->rank[r], i);
      square += x * x;
    }
    sum += sqrt(square);
  }
  return sum;
}

/* --- is it as it should be? ------------------------------------------------------------------- */

/* Nothing of a gradient is lost or invented: of every element
 *   sum of (gradient + momentum * velocity + residual) = N * average + sum of residuals after.
 *
 * The engine works in floats, and every operation rounds by at most 2^-24 of its result.  An
 * element goes through two operations to become e, a few to be encoded, decoded and taken off,
 * N - 1 to be summed and two to be averaged: at most N + 8.  Their results are sums of what ranks
 * put in and of what was sent, which is what was put in less what stays: both together are `size`,
 * and as an intermediate sum may be twice as much, it is 2^-23.
 *
 * An encoder's message has one scale for many elements, and a compressed all-reduce encodes sums of
 * what it decoded: what one of these makes of an element may be as large as all elements that share
 * the scale, even where the next encoder takes it back.  No scale is larger than the length of the
 * vector that is encoded, and that is one of what was put in, less errors, which are in residuals.
 * Low rank adds up products of factors, of which no partial sum is longer than that either.  `near`
 * is the sum of these lengths, for the whole bucket.
 *
 * Averages of 16 bits are rounded once more, numbers below the least normal one count as nothing,
 * and a sum on its way that would be beyond the largest float is held there. */
static bool conserved(const play *all, size_t i, unsigned type, double near, double *in,
                      double *out) {
  const int ranks = all->c->ranks;
  const double average = (double)all->rank[0].update[i];
  double size = near;
  *in = 0;
  *out = ranks * average;
  for (int r = 0; r < ranks; r++) {
    const record *of = &all->rank[r];
    *in += (double)of->g[i] + moved(all->c, of, i) + (double)of->residual[i];
    *out += (double)of->residual_after[i];
    size += put_in(all->c, of, i) + left(all->c, of, i);
  }
  const double halves = type == WEIR_FP32 ? 0 : ranks * half_unit(type, average) / 2;
  return size > (double)FLT_MAX ||
         fabs(*in - *out) <= (ranks + 8) * 0x1p-23 * size + halves + ranks * 0x1p-126;
}

static void check_conservation(const player *p, const weir_plan *plan, size_t first, size_t end) {
  const random_course *c = p->c;
  const weir_codec *codec = weir_codec_find(plan->codec);
  const bool shares = codec->encode != NULL || codec->low_rank;
  const size_t from = c->offset[first], to = c->offset[end];
  const double near =
      shares ? length(p->all, from, to, put_in) + length(p->all, from, to, left) : 0;
  if (c->without_feedback && plan->codec != WEIR_CODEC_NONE) return; /* what is not sent is lost */
  for (size_t t = first; t < end; t++)
    for (size_t i = c->offset[t]; i < c->offset[t + 1]; i++) {
      double in, out;
      if (conserved(p->all, i, c->types[t], near, &in, &out)) continue;
      complain(p, "element %zu of tensor %zu: %.9g came in, %.9g went out", i - c->offset[t], t, in,
               out);
      return;
    }
}

/* What stays behind where that is known to the bit: nothing of dense sums; of top-k all but the k
 * largest. */
static void check_residual(const player *p, const weir_plan *plan, size_t from, size_t to) {
  const random_course *c = p->c;
  const bool top = plan->codec == WEIR_CODEC_TOPK && plan->wire != WEIR_WIRE_AUTO_BF16 &&
                   c->machines[0] == '\0' && c->momentum == 0 && to - from <= EXACT_MOST;
  const bool nothing = plan->codec == WEIR_CODEC_NONE || c->without_feedback;
  if (!top && !nothing) return;
  FREED float *e = calloc(c->n + 1, sizeof *e);
  FREED bool *sent = calloc(c->n + 1, sizeof *sent);
  for (size_t i = from; i < to; i++) e[i] = p->own->g[i] + p->own->residual[i];
  if (top) reference_top(e, from, to, reference_kept(to - from, plan->cr), sent);
  for (size_t i = from; i < to; i++) {
    const float due = nothing || sent[i] ? 0 : e[i];
    if (p->own->residual_after[i] == due) continue;
    complain(p, "element %zu of bucket [%zu, %zu): residual %g, not %g", i, from, to,
             (double)p->own->residual_after[i], (double)due);
    return;
  }
}

/* Where an element was selected its velocity starts anew; elsewhere it goes on, and all of e, to
 * which it is added last, stays behind.  On machines of several ranks others may have sent it. */
static void check_velocity(const player *p, const weir_plan *plan, size_t from, size_t to) {
  const record *r = p->own;
  const weir_codec *codec = weir_codec_find(plan->codec);
  const bool selects = codec->select != NULL || codec->draw != NULL;
  for (size_t i = from; i < to && p->c->momentum > 0; i++) {
    const double due = moved(p->c, r, i) + (double)r->g[i], got = (double)r->velocity_after[i];
    const double size = fabs(moved(p->c, r, i)) + fabs((double)r->g[i]);
    const bool stays = r->residual_after[i] == r->velocity_after[i] + r->residual[i];
    if (got == 0 && (selects || fabs(due) <= 0x1p-126)) continue;
    if (fabs(got - due) <= 0x1p-23 * size + 0x1p-126 &&
        (stays || !selects || p->c->machines[0] != '\0'))
      continue;
    complain(p, "element %zu: velocity %.9g of %.9g, residual %.9g", i, got, due,
             (double)r->residual_after[i]);
    return;
  }
}

static void check_bucket(const player *p, const weir_plan *plan, size_t first, size_t end) {
  check_residual(p, plan, p->c->offset[first], p->c->offset[end]);
  check_velocity(p, plan, p->c->offset[first], p->c->offset[end]);
  if (p->m->rank == 0) check_conservation(p, plan, first, end);
}

/* Tensors in full precision are behind all buckets, and a dense one of their own. */
static void check_buckets(const player *p) {
  const script_step *s = &p->c->steps[p->script.at];
  const size_t planned = p->c->tensors - p->c->full;
  const weir_plan full = {.codec = WEIR_CODEC_NONE, .cr = 1};
  size_t first = 0;
  for (size_t k = 0; k < s->plan.buckets && first < planned; first = s->table[k++].end) {
    weir_plan plan = {0};
    weir_plan_of_bucket(&s->table[k], &plan);
    check_bucket(p, &plan, first, s->table[k].end < planned ? s->table[k].end : planned);
  }
  if (s->plan.buckets == 0) check_bucket(p, &s->plan, 0, planned);
  check_bucket(p, &full, planned, p->c->tensors);
}

/* All ranks agree whether the step counts.  It does not where an element put in is no number, and
 * does where no sum comes near to what fp16 holds. */
static void check_status(const player *p) {
  const random_course *c = p->c;
  bool finite = true;
  for (int r = 0; r < c->ranks; r++) {
    if (p->all->rank[r].status != p->own->status)
      complain(p, "%s, but rank %d: %s", weir_status_name(p->own->status), r,
               weir_status_name(p->all->rank[r].status));
    for (size_t i = 0; i < c->n; i++) finite &= isfinite(p->all->rank[r].g[i]);
  }
  if (!finite && p->own->status == WEIR_OK)
    complain(p, "a gradient that is not finite was averaged");
  if (finite && p->own->status != WEIR_OK && length(p->all, 0, c->n, put_in) < 3e4)
    complain(p, "the step was lost for nothing");
}

static void check_lost(const player *p) {
  const record *r = p->own;
  if (!same(p->c, r->residual, r->residual_after)) complain(p, "a lost step changed the residual");
  if (!same(p->c, r->velocity, r->velocity_after)) complain(p, "a lost step changed the velocity");
  for (size_t i = 0; i < p->c->n; i++)
    if (p->c->keep_nonfinite ? !isnan(r->update[i]) : r->update[i] != 0) {
      complain(p, "element %zu of a lost step is %g", i, (double)r->update[i]);
      return;
    }
}

static void check_step(const player *p) {
  if (p->m->rank == 0) check_status(p);
  if (!same(p->c, p->own->update, p->all->rank[0].update)) complain(p, "other bits than on rank 0");
  if (p->own->status == WEIR_OK)
    check_buckets(p);
  else
    check_lost(p);
}

static void check_info(const player *p, const weir_step_info *info) {
  const script_step *s = &p->c->steps[p->script.at];
  if (info->trial != p->c->trial[p->script.at])
    complain(p, "%s trial is told of", info->trial ? "a" : "no");
  if (weir_plan_digest(&info->plan) != weir_plan_digest(&s->plan))
    complain(p, "another plan was run than agreed");
}

/* A trial begins where the steps that count have come to, and at its end, or where the next one
 * begins, it is as if it had not been.  Nothing else changes between steps. */
static void check_begun(const player *p, const weir_step_info *info) {
  const random_course *c = p->c;
  const int at = p->script.at;
  const script_step *s = &c->steps[at];
  const bool back = at > 0 && c->trial[at - 1] &&
                    (s->action == WEIR_ACTION_TRIAL || s->action == WEIR_ACTION_SWITCH);
  const record *r = p->own;
  if (!same(c, r->residual, back ? r->residual_kept : r->residual_after) ||
      !same(c, r->velocity, back ? r->velocity_kept : r->velocity_after))
    complain(p, back ? "the trial left something behind" : "memory changed between steps");
  check_info(p, info);
  if (c->full == 0 && weir_engine_buckets(p->engine, NULL, 0) != s->plan.buckets)
    complain(p, "%zu buckets, not %u", weir_engine_buckets(p->engine, NULL, 0), s->plan.buckets);
}

/* --- one rank --------------------------------------------------------------------------------- */

static bool always(void *user) {
  (void)user;
  return true;
}

static weir_engine *create(player *p) {
  const random_course *c = p->c;
  weir_engine_config config = {.comm = p->m->comm,
                               .layout = {c->tensors, c->offset},
                               .rows = c->rows,
                               .types = c->types,
                               .full = c->full,
                               .momentum = c->momentum,
                               .first_plan = c->steps[0].plan,
                               .first_buckets = c->steps[0].table,
                               .hooks = script_hooks(&p->script),
                               .codec_threads = c->threads,
                               .counts = c->momentum == 0,
                               .without_feedback = c->without_feedback,
                               .damped = c->damped,
                               .keep_nonfinite = c->keep_nonfinite,
                               .profile = true};
  if (c->curve) config.hooks.want_curve = always;
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK) complain(p, "%s", weir_last_error());
  return engine;
}

static void read_memory(const player *p, float *residual, float *velocity) {
  copy(p->c, residual, weir_engine_residual(p->engine));
  if (p->c->momentum > 0) copy(p->c, velocity, p->engine->host.velocity);
}

/* The gradient becomes what its types can hold of it. */
static void prepare(const player *p) {
  const random_course *c = p->c;
  float *g = p->own->g;
  course_gradient(c, p->script.at, p->m->rank, g);
  for (size_t t = 0; t < c->tensors; t++) {
    const size_t at = c->offset[t], n = c->offset[t + 1] - at;
    uint16_t *const halves = (uint16_t *)(void *)(p->handed + at);
    if (c->types[t] == WEIR_FP32) {
      memcpy(p->handed + at, g + at, n * sizeof *g);
    } else {
      (void)weir_narrow(c->types[t], g + at, n, halves);
      weir_widen(c->types[t], halves, n, g + at);
    }
  }
}

static void read_update(const player *p) {
  const random_course *c = p->c;
  for (size_t t = 0; t < c->tensors; t++) {
    const size_t at = c->offset[t], n = c->offset[t + 1] - at;
    if (c->types[t] == WEIR_FP32)
      memcpy(p->own->update + at, p->handed + at, n * sizeof(float));
    else
      weir_widen(c->types[t], (const uint16_t *)(const void *)(p->handed + at), n,
                 p->own->update + at);
  }
}

static weir_status hand_in(const player *p, weir_step_info *ended) {
  uint32_t order[COURSE_TENSORS];
  weir_status status = WEIR_OK;
  course_order(p->c, p->script.at, p->m->rank, order);
  for (size_t t = 0; t < p->c->tensors && status == WEIR_OK; t++)
    status = weir_engine_submit(p->engine, order[t], p->handed + p->c->offset[order[t]]);
  return status == WEIR_OK ? weir_engine_step_end(p->engine, ended) : status;
}

static void run_step(const player *p) {
  record *r = p->own;
  weir_step_info begun, ended;
  if (weir_engine_step_begin(p->engine, &begun) != WEIR_OK) {
    complain(p, "%s", weir_last_error());
    return;
  }
  read_memory(p, r->residual, r->velocity);
  check_begun(p, &begun);
  prepare(p);
  r->status = hand_in(p, &ended);
  if (r->status != WEIR_OK && r->status != WEIR_E_NONFINITE) complain(p, "%s", weir_last_error());
  if (r->status == WEIR_OK) check_info(p, &ended);
  read_update(p);
  read_memory(p, r->residual_after, r->velocity_after);
  if (!p->c->trial[p->script.at]) {
    copy(p->c, r->residual_kept, r->residual_after);
    copy(p->c, r->velocity_kept, r->velocity_after);
    r->digest = weir_hash(r->digest, r->update, p->c->n * sizeof(float));
    r->digest = weir_hash(r->digest, r->residual_after, p->c->n * sizeof(float));
  }
}

/* As a session does that was saved and is resumed. */
static void go_on_in_another(player *p) {
  weir_engine_memory from, to;
  weir_engine *const next = create(p);
  if (next == NULL) return;
  if (weir_engine_memory_open(p->engine, 0, false, &from) != WEIR_OK ||
      weir_engine_memory_open(next, from.rank, from.squares != NULL, &to) != WEIR_OK)
    complain(p, "%s", weir_last_error());
  if (!group_failed(p->m->group)) {
    const weir_engine_memory own = to;
    to = from;
    to.residual = own.residual;
    to.velocity = own.velocity;
    to.columns = own.columns;
    to.squares = own.squares;
    copy(p->c, to.residual, from.residual);
    if (to.velocity != NULL) copy(p->c, to.velocity, from.velocity);
    if (to.columns != NULL)
      memcpy(to.columns, from.columns, from.rank * from.width * sizeof *to.columns);
    if (from.squares != NULL) memcpy(to.squares, from.squares, p->c->n * sizeof *to.squares);
    if (weir_engine_memory_take(next, &to) != WEIR_OK) complain(p, "%s", weir_last_error());
  }
  weir_engine_free(p->engine);
  p->engine = next;
}

static void play_rank(member *m) {
  play *shared = m->group->shared;
  const random_course *c = shared->c;
  FREED float *handed = calloc(c->n + 1, sizeof *handed);
  player p = {.m = m,
              .all = shared,
              .c = c,
              .own = &shared->rank[m->rank],
              .script = {c->steps, c->count, 0},
              .handed = handed};
  if (c->machines[0] != '\0' &&
      weir_comm_find_hosts(m->comm, (uint64_t)c->machines[m->rank]) != WEIR_OK)
    complain(&p, "%s", weir_last_error());
  p.engine = create(&p);
  for (p.script.at = 0; p.script.at < c->count; p.script.at++) {
    if (group_failed_by_now(m)) break;
    run_step(&p);
    if (group_failed_by_now(m)) break;
    check_step(&p);
    if (p.script.at == shared->cut && !group_failed_by_now(m)) go_on_in_another(&p);
  }
  weir_engine_free(p.engine);
}

/* --- courses ---------------------------------------------------------------------------------- */

/* What all ranks came to; or the test fails. */
static uint64_t play_course(const random_course *c, int cut) {
  play p = {.c = c, .cut = cut};
  FREED float *memory = calloc((size_t)c->ranks * RECORD_FLOATS * (c->n + 1), sizeof *memory);
  float *next = memory;
  for (int r = 0; r < c->ranks; r++) {
    record *of = &p.rank[r];
    float **each[RECORD_FLOATS] = {&of->g,
                                   &of->update,
                                   &of->residual,
                                   &of->residual_after,
                                   &of->residual_kept,
                                   &of->velocity,
                                   &of->velocity_after,
                                   &of->velocity_kept};
    for (int k = 0; k < RECORD_FLOATS; k++, next += c->n) *each[k] = next;
  }
  group g;
  group_run(&g, c->ranks, play_rank, &p);
  if (g.failed) course_print(c);
  cr_assert(!g.failed, "%s", g.failure);
  uint64_t digest = 0;
  for (int r = 0; r < c->ranks; r++) digest = weir_hash(digest, &p.rank[r].digest, sizeof digest);
  return digest;
}

/* A step after which memory can be saved: no trial is under way or about to be; or -1. */
static int draw_cut(const random_course *c) {
  weir_rng rng = weir_rng_of(~c->seed);
  for (int tries = 0; tries < 20; tries++) {
    const int step = (int)weir_rng_below(&rng, (uint64_t)c->count - 1);
    if (!c->trial[step] && !c->trial[step + 1]) return step;
  }
  return -1;
}

static uint64_t asked(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* One way or the other, by turns, as that costs as much as the course itself. */
static void play_again(random_course *c, uint64_t whole) {
  const bool cuts = c->seed % 4 == 0;
  const int cut = cuts ? draw_cut(c) : -1;
  if (!cuts) course_leave_trials_out(c);
  if (play_course(c, cut) == whole) return;
  course_print(c);
  cr_assert(cuts, "seed %llu: other bits without the trials", (unsigned long long)c->seed);
  cr_assert_fail("seed %llu: other bits where another engine goes on after step %d",
                 (unsigned long long)c->seed, cut);
}

Test(random_plans, nothing_is_lost) {
  const uint64_t first = asked("WEIR_PLANS_SEED", 120);
  const uint64_t count = asked("WEIR_PLANS_COURSES", GROUP_SLOW ? 12 : 90);
  for (uint64_t seed = first; seed < first + count; seed++) {
    random_course c;
    course_draw(&c, seed);
    const uint64_t whole = play_course(&c, -1);
    if (seed % 2 == 0) play_again(&c, whole);
  }
}
