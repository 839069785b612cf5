/* Threads share the passes and change no bit.  Sizes are those from which passes are shared, and
 * beside what is the same for all, a part's end falls anywhere. */
#include <criterion/criterion.h>
#include <pthread.h>

#include "kernels/internal.h"
#include "kernels_data.h"

enum { N = 1200000 + 77, PARTS = 13 };

typedef struct tally {
  pthread_mutex_t lock;
  int times[PARTS];
} tally;

static void count_part(void *argument, size_t part) {
  tally *t = argument;
  (void)pthread_mutex_lock(&t->lock);
  t->times[part]++;
  (void)pthread_mutex_unlock(&t->lock);
}

Test(kernels_threads, every_part_is_done_once) {
  static const unsigned threads[] = {1, 2, 3, 8};
  cr_assert_eq(weir_pool_parts(NULL, N), 1);
  for (size_t i = 0; i < 4; i++) {
    weir_pool *pool = NULL;
    cr_assert_eq(weir_pool_create(&pool, threads[i]), WEIR_OK, "%s", weir_last_error());
    cr_expect_eq(weir_pool_parts(pool, N), threads[i]);
    cr_expect_eq(weir_pool_parts(pool, WEIR_SPLIT_LEAST - 1), 1);
    for (int round = 0; round < 50; round++) {
      tally t = {.lock = PTHREAD_MUTEX_INITIALIZER};
      size_t parts = (size_t)round % (PARTS + 1);
      weir_pool_run(pool, count_part, &t, parts);
      for (size_t part = 0; part < PARTS; part++) cr_assert_eq(t.times[part], part < parts);
    }
    weir_pool_free(pool);
  }
  weir_pool *pool = NULL;
  cr_expect_eq(weir_pool_create(&pool, 0), WEIR_E_INVALID);
  cr_expect_eq(weir_pool_create(&pool, WEIR_POOL_MOST + 1), WEIR_E_INVALID);
  cr_expect_null(pool);
  weir_pool_free(NULL);
}

/* Two callers of one pool: each gets all of its parts, together or alone. */
typedef struct caller {
  weir_pool *pool;
  tally sum;
} caller;

static void *call_often(void *argument) {
  caller *c = argument;
  for (int round = 0; round < 300; round++) weir_pool_run(c->pool, count_part, &c->sum, PARTS);
  return NULL;
}

Test(kernels_threads, a_pool_can_be_shared) {
  weir_pool *pool = NULL;
  cr_assert_eq(weir_pool_create(&pool, 3), WEIR_OK);
  caller callers[2];
  pthread_t thread[2];
  for (int i = 0; i < 2; i++) {
    callers[i] = (caller){.pool = pool, .sum = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    cr_assert_eq(pthread_create(&thread[i], NULL, call_often, &callers[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    cr_assert_eq(pthread_join(thread[i], NULL), 0);
    for (size_t part = 0; part < PARTS; part++) cr_expect_eq(callers[i].sum.times[part], 300);
  }
  weir_pool_free(pool);
}

/* --- the same bits ---------------------------------------------------------------------------- */

typedef struct bench {
  float *g, *r;
  size_t offset[4];
  weir_layout layout;
} bench;

typedef struct output {
  weir_moments moments;
  float *e, *to;
  uint32_t *index;
  uint8_t *message;
  size_t k, bytes;
} output;

static output room(void) {
  return (output){.e = calloc(N, sizeof(float)),
                  .to = calloc(N, sizeof(float)),
                  .index = calloc(N, sizeof(uint32_t)),
                  .message = calloc(8, N)};
}

static void release(output *o) {
  free(o->e);
  free(o->to);
  free(o->index);
  free(o->message);
}

static void compress(weir_codec_context *context, const bench *b, uint32_t id, double cr,
                     output *o) {
  const weir_codec *codec = weir_codec_find(id);
  o->moments = (weir_moments){0};
  weir_ef_accumulate(b->g, b->r, o->e, N, &o->moments);
  if (codec->encode != NULL) {
    cr_assert_eq(codec->encode(context, o->e, &b->layout, cr, 5, o->message, 8 * N, &o->bytes),
                 WEIR_OK);
    cr_assert_eq(codec->decode(context, o->message, o->bytes, &b->layout, o->to, false), WEIR_OK);
    cr_assert_eq(codec->decode(context, o->message, o->bytes, &b->layout, o->to, true), WEIR_OK);
    return;
  }
  cr_assert_eq(codec->select(context, o->e, &b->layout, cr, o->index, N, &o->k), WEIR_OK);
  FREED float *value = malloc(o->k * sizeof *value);
  weir_gather(o->e, o->index, o->k, value);
  cr_assert_eq(weir_wire_encode(N, o->index, value, o->k, WEIR_WIRE_AUTO_BF16, o->message, 8 * N,
                                &o->bytes, NULL),
               WEIR_OK);
  cr_assert_eq(weir_wire_decode_dense(context, o->message, o->bytes, N, o->to), WEIR_OK);
  cr_assert_eq(weir_wire_decode_add(context, o->message, o->bytes, N, o->to), WEIR_OK);
}

static void check_equal(const output *a, const output *b) {
  cr_assert(memcmp(&a->moments, &b->moments, sizeof a->moments) == 0);
  cr_assert(memcmp(a->e, b->e, N * sizeof(float)) == 0);
  cr_assert_eq(a->k, b->k);
  for (size_t i = 0; i < a->k; i++) {
    cr_assert_eq(a->index[i], b->index[i], "place %zu of %zu: %u, %u", i, a->k, a->index[i],
                 b->index[i]);
  }
  cr_assert_eq(a->bytes, b->bytes);
  cr_assert(memcmp(a->message, b->message, a->bytes) == 0);
  cr_assert(memcmp(a->to, b->to, N * sizeof(float)) == 0);
}

/* Gaussian; all that counts in one part of it; equal magnitudes in bulk. */
static void fill(bench *b, int shape) {
  weir_rng rng = weir_rng_of(77);
  for (size_t i = 0; i < N; i++) {
    float x = (float)weir_rng_normal(&rng);
    b->g[i] = shape == 0 ? x : shape == 1 ? (i < N / 5 ? 1e3F * x : x) : x > 0 ? 0.5F : -0.5F;
    b->r[i] = shape == 2 ? 0.0F : 0.1F * (float)weir_rng_normal(&rng);
  }
}

Test(kernels_threads, change_no_bit) {
  static const struct {
    uint32_t codec;
    double cr;
  } row[] = {
      {WEIR_CODEC_TOPK, 0.01},   {WEIR_CODEC_TOPK, 0.1},      {WEIR_CODEC_TOPK, 0.4},
      {WEIR_CODEC_MSTOPK, 0.05}, {WEIR_CODEC_DGC, 0.02},      {WEIR_CODEC_SIDCO, 0.01},
      {WEIR_CODEC_QSGD, 0.125},  {WEIR_CODEC_QSGD, 0.25},     {WEIR_CODEC_TERNGRAD, 0.0625},
      {WEIR_CODEC_LWTOPK, 0.01}, {WEIR_CODEC_QSGD_L2, 0.25},  {WEIR_CODEC_QSGD_NEAREST, 0.125},
      {WEIR_CODEC_FP16, 0.5},    {WEIR_CODEC_DITHERED, 0.125}};
  bench b = {.g = malloc(N * sizeof(float)),
             .r = malloc(N * sizeof(float)),
             .offset = {0, 300001, 300001, N}};
  b.layout = (weir_layout){3, b.offset};
  for (int shape = 0; shape < 3; shape++) {
    fill(&b, shape);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
      output alone = room();
      SCOPED weir_codec_context *const context = open_context();
      compress(context, &b, row[i].codec, row[i].cr, &alone);
      for (unsigned threads = 2; threads <= 5; threads += 3) {
        output shared = room();
        weir_pool *pool = NULL;
        cr_assert_eq(weir_pool_create(&pool, threads), WEIR_OK);
        weir_codec_context_use(context, pool);
        compress(context, &b, row[i].codec, row[i].cr, &shared);
        check_equal(&alone, &shared);
        weir_codec_context_use(context, NULL);
        weir_pool_free(pool);
        release(&shared);
      }
      release(&alone);
    }
  }
  free(b.g);
  free(b.r);
}

/* A damaged message of many parts leaves the sum as it was. */
Test(kernels_threads, damage_is_found_in_every_part) {
  static float x[300000], to[300000];
  static uint8_t message[300000];
  const weir_layout layout = {1, (const size_t[]){0, 300000}};
  const weir_codec *qsgd = weir_codec_find(WEIR_CODEC_QSGD);
  SCOPED weir_codec_context *const context = open_context();
  weir_pool *pool = NULL;
  size_t bytes = 0;
  cr_assert_eq(weir_pool_create(&pool, 4), WEIR_OK);
  weir_codec_context_use(context, pool);
  weir_rng rng = weir_rng_of(1);
  fill_shape(&rng, 0, x, 300000);
  cr_assert_eq(qsgd->encode(context, x, &layout, 0.125, 1, message, sizeof message, &bytes),
               WEIR_OK);
  /* Units of 8 bytes of scales and 64 of codes behind 16 of header: the step of each is checked. */
  static const size_t unit[] = {0, 585, 586, 1171, 1172, 2000, 2343};
  for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++) {
    uint8_t *step = message + 16 + 72 * unit[i] + 3;
    *step ^= 0x80;
    cr_expect_eq(qsgd->decode(context, message, bytes, &layout, to, true), WEIR_E_PROTOCOL,
                 "unit %zu", unit[i]);
    *step ^= 0x80;
  }
  for (size_t i = 0; i < 300000; i++) cr_assert_eq(to[i], 0.0F);
  cr_expect_eq(qsgd->decode(context, message, bytes, &layout, to, true), WEIR_OK);
  weir_pool_free(pool);
}

/* As many as are asked for, and one more, wherever parts end: each part has room for its share. */
Test(kernels_threads, too_many_candidates_are_too_many_together) {
  enum { LENGTH = 300000 };
  static float x[LENGTH];
  for (size_t i = 0; i < LENGTH; i++) x[i] = i % 2 ? 1.0F : -2.0F;
  for (unsigned threads = 1; threads <= 4; threads += 3) {
    SCOPED weir_codec_context *const context = open_context();
    weir_pool *pool = NULL;
    cr_assert_eq(weir_pool_create(&pool, threads), WEIR_OK);
    weir_codec_context_use(context, pool);
    cr_assert_eq(weir_context_reserve(context, LENGTH), WEIR_OK);
    const uint32_t two = weir_magnitude(2.0F);
    cr_expect_eq(weir_compact(context, x, LENGTH, two, LENGTH / 2), LENGTH / 2);
    cr_expect(context->position[0] == 0 && context->position[LENGTH / 2 - 1] == LENGTH - 2);
    cr_expect_eq(weir_compact(context, x, LENGTH, two, LENGTH / 2 - 1), SIZE_MAX, "%u", threads);
    weir_pool_free(pool);
  }
}
