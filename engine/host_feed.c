/* Error feedback in host memory: e = g + r, or with momentum correction e = (m u + g) + r.
 *
 * Damped (few bits, set.c), e = g + r / 2, and what compressing leaves joins the other half
 * (host.c): all that is lost is still fed, by halves.  What is sent is then g + r(t) - r(t + 1), as
 * ever; but where rounding errs by some v in the mean square, independently from step to step, the
 * noise of what is sent is 4/3 v where it was 2 v.  An optimizer that divides by the root of what
 * squares of gradients were like makes shorter steps for as long as there is such noise
 * (docs/internals/progress.md, "What few bits take from Adam's steps"). */
#include <math.h>
#include <string.h>

#include "engine/host.h"
#include "kernels/decorate.h"
#include "kernels/half.h"
#include "kernels/pool.h"

/* Elements that are still in the first cache when the next operation comes over them; and with the
 * velocity and what it becomes beside them. */
#define BLOCK 4096
#define BLOCK_MOMENTUM 1024
/* A long tensor is fed in so many parts, each with moments of its own, which are then added in
 * order: so the sums do not depend on who works on how many. */
#define PARTS ((size_t)32)
#define PARTS_LEAST ((size_t)1 << 20)

/* A tensor's part of all that is read and written. */
typedef struct feed {
  weir_codec_context *context;
  size_t first;  /* of the bucket's elements */
  bool damped;   /* half of r is fed */
  bool copies;   /* e = g as it is: there is no residual, and nothing is selected */
  unsigned type; /* weir_type, of what g is */
  const void *g;
  const float *u, *r; /* u: NULL without momentum; r: NULL when it is zero */
  float *e, *next;
  float momentum;
  size_t n, parts;
  bool counts; /* what of g is not zero */
  weir_moments moments[PARTS];
  size_t nonzero[PARTS], runs[PARTS];
} feed;

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* A block of g as floats: where it is, or widened into `room`, which is still in the first cache
 * when it is read. */
static const float *floats_of(const feed *f, size_t at, size_t count, float *room) {
  if (f->type == WEIR_FP32) return (const float *)f->g + at;
  weir_widen(f->type, (const uint16_t *)f->g + at, count, room);
  return room;
}

static void feed_block(feed *f, size_t at, size_t count, size_t part) {
  static const float zeros[BLOCK];
  float room[BLOCK];
  weir_moments *const moments = &f->moments[part];
  float *const e = f->e + at;
  /* What is summed as it is, is widened to there. */
  const bool copies = f->u == NULL && f->r == NULL && f->copies;
  const float *const given = floats_of(f, at, count, copies ? e : room), *g = given;
  if (f->u != NULL) {
    weir_momentum_correct(g, f->u + at, f->next + at, count, f->momentum);
    g = f->next + at;
  }
  if (f->r != NULL) {
    if (f->damped) weir_halve(f->r + at, count, e);
    const float *const r = f->damped ? e : f->r + at;
    weir_ahead_feed(f->context, f->first + at, g, r, e, count, moments);
  } else if (f->copies) {
    if (g != e) memcpy(e, g, count * sizeof *e);
    moments->sum_square += weir_sum_square(e, count);
  } else {
    weir_ef_accumulate(g, zeros, e, count, moments);
  }
  /* Not before: that pass asks memory for what it reads well ahead. */
  if (!f->counts) return;
  f->nonzero[part] += weir_nonzero(given, count);
  f->runs[part] += weir_nonzero_runs(given, count);
}

static void feed_part(void *argument, size_t part) {
  feed *f = argument;
  const size_t each = (f->n / f->parts + BLOCK - 1) / BLOCK * BLOCK;
  const size_t end = part + 1 < f->parts ? least((part + 1) * each, f->n) : f->n;
  const size_t block = f->u != NULL ? BLOCK_MOMENTUM : BLOCK;
  for (size_t at = part * each; at < end; at += block)
    feed_block(f, at, least(end - at, block), part);
}

static bool all_floats(const weir_bucket *bucket) {
  bool floats = true;
  for (size_t t = bucket->first; t < bucket->end; t++)
    floats = floats && bucket->engine->types[t] == WEIR_FP32;
  return floats;
}

/* Where this rank will select from all of e, which one thread makes, what the search will be after
 * is listed on the way; the sample that it begins with is of floats.  The list lies in memory that
 * is lent until the search: another thread's context would know of neither. */
static void look_ahead(weir_bucket *bucket) {
  const weir_engine *engine = bucket->engine;
  const weir_host *host = &engine->host;
  const bool selects =
      bucket->codec->ahead &&
      (bucket->scheme == WEIR_SCHEME_GATHER ||
       (bucket->scheme == WEIR_SCHEME_SHARED && engine->rank == weir_shared_root(bucket)));
  weir_ahead_forget(bucket->context);
  if (!selects || !bucket->one_thread || host->zero || engine->pool != NULL || !all_floats(bucket))
    return;
  weir_host_lend(bucket);
  const weir_ahead_of sum = {.g = (const float *const *)engine->submitted + bucket->first,
                             .u = host->velocity != NULL ? host->velocity + bucket->at : NULL,
                             .momentum = (float)engine->config.momentum,
                             .r = host->residual + bucket->at};
  /* Without memory for it there is none for selecting either, which says so. */
  (void)weir_ahead_begin(bucket->context, &sum, &bucket->layout, bucket->fed, bucket->plan.cr);
}

/* Plans say nothing of tensors that stay in full precision. */
static void count_nonzero(weir_bucket *bucket, size_t t, const feed *f) {
  const weir_engine *engine = bucket->engine;
  if (t >= engine->layout.tensors - engine->config.full) return;
  for (size_t part = 0; part < f->parts; part++) {
    bucket->passage.nonzero += f->nonzero[part];
    bucket->passage.runs += f->runs[part];
  }
}

static void feed_tensor(weir_bucket *bucket, size_t t) {
  const weir_engine *engine = bucket->engine;
  const weir_host *host = &engine->host;
  const size_t at = engine->layout.offset[t], n = engine->layout.offset[t + 1] - at;
  feed f = {.context = bucket->context,
            .first = at - bucket->at,
            .damped = bucket->damped,
            .copies = bucket->codec->dense && !bucket->codec->rounds,
            .type = engine->types[t],
            .g = engine->submitted[t],
            .u = host->velocity != NULL ? host->velocity + at : NULL,
            .r = host->zero ? NULL : host->residual + at,
            .e = bucket->fed + (at - bucket->at),
            .next = host->next != NULL ? host->next + at : NULL,
            .momentum = (float)engine->config.momentum,
            .n = n,
            .counts = engine->counting,
            .parts = n < PARTS_LEAST ? 1 : PARTS};
  weir_moments *moments = &bucket->passage.moments;
  if (n == 0) return;
  weir_pool_run(engine->pool, feed_part, &f, f.parts);
  if (f.counts) count_nonzero(bucket, t, &f);
  for (size_t part = 0; part < f.parts; part++) {
    moments->sum += f.moments[part].sum;
    moments->sum_square += f.moments[part].sum_square;
    moments->nonfinite += f.moments[part].nonfinite;
  }
}

/* e is made where it is wanted: where all of it is summed in place, there; else in the place of the
 * next residual.  When it is not finite it becomes all zero: the rank takes part in the exchange,
 * so that nobody waits for it, and adds nothing. */
void weir_host_feed(weir_bucket *bucket) {
  const weir_host *host = &bucket->engine->host;
  weir_moments *moments = &bucket->passage.moments;
  const bool in_place = bucket->all && bucket->scheme != WEIR_SCHEME_HITOPK;
  bucket->fed = (in_place ? host->sum : host->fed) + bucket->at;
  bucket->summed = host->sum + bucket->at;
  bucket->lost = in_place && bucket->leaves ? host->fed + bucket->at : NULL;
  bucket->stopwatch->elements += bucket->n;
  look_ahead(bucket);
  for (size_t t = bucket->first; t < bucket->end; t++) feed_tensor(bucket, t);
  bucket->finite = moments->nonfinite == 0 && isfinite(moments->sum_square);
  if (bucket->finite) return;
  weir_ahead_forget(bucket->context);
  memset(bucket->fed, 0, bucket->n * sizeof(float));
  memset(moments, 0, sizeof *moments);
}

void weir_host_show(weir_bucket *bucket) {
  weir_engine *engine = bucket->engine;
  const weir_engine_hooks *hooks = &engine->config.hooks;
  const size_t *offset = bucket->layout.offset;
  if (engine->curve_wanted) weir_telemetry_sample(engine, bucket);
  for (size_t t = 0; t < bucket->layout.tensors && hooks->fed != NULL && bucket->finite; t++)
    hooks->fed(hooks->user, bucket->first + t, bucket->fed + offset[t], offset[t + 1] - offset[t]);
}
