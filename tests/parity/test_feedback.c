/* Encoding with error feedback and decoding many messages at once, for every encoder that the table
 * of codecs has: the bits of the scalar code's steps one after the other. */
#include <float.h>

#include "kernels/encoder.h"
#include "parity.h"

enum { N = 20011, TENSORS = 5, MESSAGES = 4 };
static const size_t sizes[] = {0, 1, 7, 130, 4096, 4097, 8192, N};
#define SIZES (sizeof sizes / sizeof sizes[0])

typedef struct encoder {
  uint32_t codec;
  double cr;
} encoder;
static const encoder encoders[] = {{WEIR_CODEC_FP16, 0.5},
                                   {WEIR_CODEC_TERNGRAD, 2.0 / 32},
                                   {WEIR_CODEC_ONEBIT, 1.0 / 32},
                                   {WEIR_CODEC_EFSIGNSGD, 1.0 / 32},
                                   {WEIR_CODEC_QSGD, 4.0 / 32},
                                   {WEIR_CODEC_QSGD, 3.0 / 32},
                                   {WEIR_CODEC_QSGD_L2, 5.0 / 32},
                                   {WEIR_CODEC_QSGD_NEAREST, 8.0 / 32},
                                   {WEIR_CODEC_QSGD_L2_NEAREST, 2.0 / 32},
                                   {WEIR_CODEC_MINIFLOAT, 8.0 / 32},
                                   {WEIR_CODEC_MINIFLOAT, 5.0 / 32},
                                   {WEIR_CODEC_COMPANDED, 3.0 / 32},
                                   {WEIR_CODEC_COMPANDED, 4.0 / 32},
                                   {WEIR_CODEC_COMPANDED, 8.0 / 32}};
#define ENCODERS (sizeof encoders / sizeof encoders[0])

static weir_layout spread(size_t n, size_t offset[TENSORS + 1]) {
  const size_t at[TENSORS + 1] = {0, n > 0, n > 0, n / 9 + (n > 0), n / 2 + (n > 0), n};
  for (size_t t = 0; t <= TENSORS; t++) offset[t] = at[t] < n ? at[t] : n;
  return (weir_layout){TENSORS, offset};
}

static void near_sum(double got, double wanted, double magnitudes, size_t n, const char *what) {
  cr_assert(fabs(got - wanted) <= 2.0 * (double)n * DBL_EPSILON * magnitudes, "%s: %a, not %a",
            what, got, wanted);
}

/* Moments on the device, and e = g + r on the host beside them. */
static void same_moments(const weir_moments *got, const float *e, size_t n) {
  double sum = 0, magnitudes = 0;
  for (size_t i = 0; i < n; i++) {
    sum += (double)e[i];
    magnitudes += fabs((double)e[i]);
  }
  near_sum(got->sum, sum, magnitudes, n, "sum");
  near_sum(got->sum_square, weir_sum_square(e, n), weir_sum_square(e, n), n, "squares");
  cr_assert_eq(got->nonfinite, 0);
}

/* g and r (or none, which counts as zeros), or e: the device's message is that of the plain
 * encoder, and what is left that message taken off e by the scalar code. */
static void check_feedback(weir_cuda *cuda, const encoder *by, const weir_layout *layout,
                           const float *g, const float *r, bool fused, size_t skew) {
  const weir_codec *codec = weir_codecs[by->codec];
  const size_t n = layout->offset[layout->tensors], bound = codec->bound(layout, by->cr);
  FREED float *const e = array(n, sizeof *e), *const left = array(n, sizeof *left);
  FREED uint8_t *const plain = array(bound, 1), *const message = array(bound, 1);
  const weir_moments none[2] = {{1, 1, 1}, {1, 1, 1}};
  weir_moments moments[2];
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++) e[i] = g[i] + (r != NULL ? r[i] : 0.0F);
  device_buffer dg = put(cuda, g, n * sizeof *g, skew),
                dr = put(cuda, r != NULL ? r : g, n * sizeof *g, 4);
  device_buffer de = put(cuda, e, n * sizeof *e, skew), left_of = take(cuda, n * sizeof *e, skew);
  device_buffer dm = take(cuda, bound, skew % 3), moments_of = put(cuda, none, sizeof none, 0);
  must(weir_cuda_encode(cuda, by->codec, de.data, layout, by->cr, n, dm.data, bound, &bytes));
  get(cuda, plain, dm, bound);
  cr_assert_eq(bytes, bound);
  const weir_cuda_fed fed = {fused ? dg.data : NULL, fused && r != NULL ? dr.data : NULL,
                             fused ? left_of.data : de.data, moments_of.data};
  const weir_status status =
      weir_cuda_ef_encode(cuda, by->codec, &fed, layout, by->cr, n, dm.data, bound, &bytes,
                          (weir_moments *)moments_of.data + 1);
  device_buffer *const all[] = {&dg, &dr, &de, &left_of, &dm, &moments_of};
  if (fused && r == NULL && codec->by_tensor) {
    cr_assert_eq(status, WEIR_E_INVALID);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) weir_cuda_release(cuda, all[i]->block);
    return;
  }
  must(status);
  get(cuda, message, dm, bound);
  get(cuda, left, fused ? left_of : de, n * sizeof *left);
  get(cuda, moments, moments_of, sizeof moments);
  cr_assert_eq(bytes, bound);
  cr_assert(memcmp(message, plain, bound) == 0, "%s: another message of %zu", codec->name, n);
  if (fused)
    same_moments(&moments[0], e, n);
  else
    cr_assert_eq(memcmp(&moments[0], &none[0], sizeof none[0]), 0, "moments of a given e");
  FREED float *const sent = array(n, sizeof *sent);
  must(codec->decode(NULL, message, bound, layout, sent, false));
  for (size_t i = 0; i < n; i++) e[i] -= sent[i];
  same_floats(left, e, n, codec->name);
  near_sum(moments[1].sum_square, weir_sum_square(e, n), weir_sum_square(e, n), n, "lost");
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) weir_cuda_release(cuda, all[i]->block);
}

/* Of a given x, elsewhere: the same messages, one for every `block` elements, and loss, and x as it
 * was; and what they decode to, stored and added. */
static void check_series(weir_cuda *cuda, const encoder *by, const float *x, size_t n, size_t block,
                         size_t skew) {
  const weir_codec *codec = weir_codecs[by->codec];
  const size_t of_block[2] = {0, block}, of_rest[2] = {0, n % block};
  const weir_layout whole = {1, of_block}, rest = {1, of_rest};
  const size_t each = codec->bound(&whole, by->cr);
  const size_t bound =
      n / block * each + (n % block > 0 || n == 0 ? codec->bound(&rest, by->cr) : 0);
  const weir_cuda_series series = {block, each, WEIR_HASH_INIT + n};
  FREED float *const left = array(n, sizeof *left), *const sent = array(n, sizeof *sent),
                     *const kept = array(n, sizeof *kept), *const back = array(n, sizeof *back);
  FREED uint8_t *const plain = array(bound, 1), *const message = array(bound, 1);
  size_t bytes = 0, begin = 0;
  weir_moments lost;
  LENT device_buffer dx = put(cuda, x, n * sizeof *x, skew), dl = take(cuda, n * sizeof *x, 4);
  LENT device_buffer dm = take(cuda, bound, skew % 3), told = take(cuda, sizeof lost, 0);
  LENT device_buffer db = take(cuda, n * sizeof *x, 8);
  const weir_status status = weir_cuda_encode_series(cuda, by->codec, dx.data, n, &series, by->cr,
                                                     dm.data, bound, &bytes, dl.data, told.data);
  if (codec->by_tensor) {
    cr_assert_eq(status, WEIR_E_UNSUPPORTED);
    return;
  }
  must(status);
  cr_assert_eq(bytes, bound);
  must(
      weir_cuda_decode_series(cuda, by->codec, dm.data, bound, n, &series, by->cr, db.data, false));
  must(weir_cuda_decode_series(cuda, by->codec, dm.data, bound, n, &series, by->cr, db.data, true));
  get(cuda, message, dm, bound);
  get(cuda, left, dl, n * sizeof *left);
  get(cuda, kept, dx, n * sizeof *kept);
  get(cuda, back, db, n * sizeof *back);
  get(cuda, &lost, told, sizeof lost);
  for (uint64_t at = 0; at < n || at == 0; at += block) {
    const weir_layout layout = {1, (const size_t[]){0, n - at < block ? n - at : block}};
    must(codec->encode(NULL, x + at, &layout, by->cr, weir_hash(series.draws, &at, sizeof at),
                       plain + begin, bound - begin, &bytes));
    must(codec->decode(NULL, plain + begin, bytes, &layout, sent + at, WEIR_DECODE_STORE));
    begin += bytes;
  }
  cr_assert(memcmp(message, plain, bound) == 0, "%s: other messages of %zu", codec->name, n);
  same_floats(kept, x, n, "what is encoded");
  for (size_t i = 0; i < n; i++) kept[i] = sent[i] + sent[i];
  same_floats(back, kept, n, "what is decoded and added");
  for (size_t i = 0; i < n; i++) sent[i] = x[i] - sent[i];
  same_floats(left, sent, n, codec->name);
  near_sum(lost.sum_square, weir_sum_square(sent, n), weir_sum_square(sent, n), n, "lost");
  /* A byte of the last message's header. */
  if (n < 2) return;
  const size_t last = (n - 1) / block * each;
  message[last] ^= 1;
  must(weir_cuda_copy(cuda, dm.data, message, bound));
  must(
      weir_cuda_decode_series(cuda, by->codec, dm.data, bound, n, &series, by->cr, db.data, false));
  cr_assert_eq(weir_cuda_wait(cuda), WEIR_E_PROTOCOL);
  get(cuda, back, db, n * sizeof *back);
  same_floats(back, kept, n, "what a malformed message leaves");
}

Test(parity_feedback, messages_in_a_row_are_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(62);
  FREED float *const x = array(N, sizeof *x);
  for (size_t s = 0; s < SIZES; s++)
    for (size_t k = 0; k < ENCODERS; k++) {
      fill_shape(&rng, (int)((s + k) % SHAPES), x, sizes[s]);
      check_series(cuda, &encoders[k], x, sizes[s], (size_t)4096 << (s + k) % 3, 4 * (k % 4));
    }
}

Test(parity_feedback, what_is_lost_is_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(61);
  FREED float *const g = array(N, sizeof *g), *const r = array(N, sizeof *r);
  size_t offset[TENSORS + 1];
  for (size_t s = 0; s < SIZES; s++) {
    const weir_layout layout = spread(sizes[s], offset);
    must(weir_cuda_reserve_tensors(cuda, &layout));
    for (size_t k = 0; k < ENCODERS; k++) {
      const int shape = (int)((s + k) % SHAPES);
      fill_shape(&rng, shape, g, sizes[s]);
      fill_shape(&rng, 0, r, sizes[s]);
      check_feedback(cuda, &encoders[k], &layout, g, r, true, 4 * (k % 4));
      check_feedback(cuda, &encoders[k], &layout, g, r, false, 4 * (s % 4));
      for (size_t i = 0; i < sizes[s]; i += 7) g[i] = -0.0F;
      check_feedback(cuda, &encoders[k], &layout, g, NULL, true, 4 * (s % 4));
    }
  }
}

/* What is not finite is told of, whatever becomes of the message. */
Test(parity_feedback, what_is_not_finite_is_told) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(62);
  FREED float *const g = array(N, sizeof *g);
  size_t offset[TENSORS + 1];
  const weir_layout layout = spread(N, offset);
  must(weir_cuda_reserve_tensors(cuda, &layout));
  fill_shape(&rng, 0, g, N);
  g[3] = NAN;
  g[N / 2] = INFINITY;
  g[N - 1] = -INFINITY;
  LENT device_buffer dg = put(cuda, g, N * sizeof *g, 0);
  memset(g, 0, N * sizeof *g);
  LENT device_buffer dr = put(cuda, g, N * sizeof *g, 0), de = take(cuda, N * sizeof *g, 0);
  LENT device_buffer told = take(cuda, 2 * sizeof(weir_moments), 0);
  for (size_t k = 0; k < ENCODERS; k++) {
    size_t bytes = weir_codecs[encoders[k].codec]->bound(&layout, encoders[k].cr);
    LENT device_buffer dm = take(cuda, bytes, 0);
    const weir_cuda_fed fed = {dg.data, dr.data, de.data, told.data};
    weir_moments moments;
    must(weir_cuda_ef_encode(cuda, encoders[k].codec, &fed, &layout, encoders[k].cr, 1, dm.data,
                             bytes, &bytes, (weir_moments *)told.data + 1));
    get(cuda, &moments, told, sizeof moments);
    cr_assert_eq(moments.nonfinite, 3, "%zu", moments.nonfinite);
    cr_assert(isfinite(moments.sum_square));
  }
}

/* --- many messages ---------------------------------------------------------------------------- */

typedef struct many {
  const encoder *by;
  const weir_layout *layout;
  size_t n, bytes, pitch, count;
  uint8_t *message; /* count of them, pitch apart, as the scalar code writes them */
} many;

static many write_many(const encoder *by, const weir_layout *layout, size_t count, size_t gap,
                       weir_rng *rng, float scale) {
  const weir_codec *codec = weir_codecs[by->codec];
  const size_t n = layout->offset[layout->tensors], bound = codec->bound(layout, by->cr);
  many m = {by, layout, n, bound, bound + gap, count, array(count * (bound + gap), 1)};
  FREED float *const x = array(n, sizeof *x);
  for (size_t i = 0; i < count; i++) {
    size_t bytes = 0;
    fill_shape(rng, 0, x, n);
    weir_scale(x, n, scale);
    must(codec->encode(NULL, x, layout, by->cr, i, m.message + i * m.pitch, bound, &bytes));
    cr_assert_eq(bytes, bound);
  }
  return m;
}

/* Decoded at once into got, which held -1; tells the status of waiting, and *overflow. */
static weir_status add_on_device(weir_cuda *cuda, const many *m, size_t skew, float share,
                                 float *got, uint32_t *overflow) {
  for (size_t i = 0; i < m->n; i++) got[i] = -1.0F;
  *overflow = 0;
  device_buffer dm = put(cuda, m->message, m->count * m->pitch, skew);
  device_buffer to = put(cuda, got, m->n * sizeof *got, 4), flag = put(cuda, overflow, 4, 0);
  const weir_cuda_messages messages = {dm.data, m->bytes, m->pitch, m->count};
  must(weir_cuda_decode_sum(cuda, m->by->codec, &messages, m->layout, m->by->cr, to.data, share,
                            flag.data));
  const weir_status status = weir_cuda_wait(cuda);
  get(cuda, got, to, m->n * sizeof *got);
  get(cuda, overflow, flag, sizeof *overflow);
  weir_cuda_release(cuda, dm.block);
  weir_cuda_release(cuda, to.block);
  weir_cuda_release(cuda, flag.block);
  return status;
}

static void add_on_cpu(const many *m, float share, float *sum) {
  for (size_t i = 0; i < m->count; i++)
    must(weir_codecs[m->by->codec]->decode(NULL, m->message + i * m->pitch, m->bytes, m->layout,
                                           sum, i > 0));
  weir_scale(sum, m->n, share);
}

Test(parity_feedback, sums_of_messages_are_equal) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(63);
  FREED float *const got = array(N, sizeof *got), *const wanted = array(N, sizeof *wanted);
  size_t offset[TENSORS + 1];
  for (size_t s = 0; s < SIZES; s++) {
    const weir_layout layout = spread(sizes[s], offset);
    must(weir_cuda_reserve_tensors(cuda, &layout));
    for (size_t k = 0; k < ENCODERS; k++) {
      const size_t count = 1 + (s + k) % MESSAGES;
      const float share = 1.0F / (float)count;
      uint32_t overflow = 0;
      many m = write_many(&encoders[k], &layout, count, (s + k) % 5, &rng, 1.0F);
      must(add_on_device(cuda, &m, s % 3, share, got, &overflow));
      add_on_cpu(&m, share, wanted);
      same_floats(got, wanted, m.n, weir_codecs[encoders[k].codec]->name);
      cr_assert_eq(overflow, 0);
      free(m.message);
    }
  }
}

Test(parity_feedback, a_sum_that_overflows_is_told) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(64);
  FREED float *const got = array(N, sizeof *got), *const wanted = array(N, sizeof *wanted);
  size_t offset[TENSORS + 1];
  const weir_layout layout = spread(N, offset);
  must(weir_cuda_reserve_tensors(cuda, &layout));
  for (size_t k = 1; k < ENCODERS; k++) { /* fp16 has no values as large */
    uint32_t overflow = 0;
    bool finite = true;
    many m = write_many(&encoders[k], &layout, MESSAGES, 0, &rng, 0x1p125F);
    must(add_on_device(cuda, &m, 0, 1.0F, got, &overflow));
    add_on_cpu(&m, 1.0F, wanted);
    for (size_t i = 0; i < N; i++) finite = finite && isfinite(wanted[i]);
    same_floats(got, wanted, N, weir_codecs[encoders[k].codec]->name);
    cr_assert_eq(overflow, !finite, "%s", weir_codecs[encoders[k].codec]->name);
    free(m.message);
  }
}

/* One harmed message among others, whichever it is. */
Test(parity_feedback, a_malformed_message_among_others_changes_nothing) {
  OPENED weir_cuda *cuda = open_cuda(N, 0);
  weir_rng rng = weir_rng_of(65);
  FREED float *const got = array(N, sizeof *got);
  size_t offset[TENSORS + 1];
  const weir_layout layout = spread(4097, offset);
  must(weir_cuda_reserve_tensors(cuda, &layout));
  for (size_t k = 0; k < ENCODERS; k++)
    for (size_t harmed = 0; harmed < MESSAGES; harmed++) {
      static const uint8_t nan_bytes[4] = {0xff, 0xff, 0xff, 0x7f};
      uint32_t overflow = 0;
      many m = write_many(&encoders[k], &layout, MESSAGES, 4, &rng, 1.0F);
      uint8_t *const message = m.message + harmed * m.pitch;
      if (harmed % 2 == 0)
        message[4] ^= 1; /* the header's number of elements */
      else
        memcpy(message + sizeof(weir_encoded), nan_bytes, sizeof nan_bytes);
      cr_assert_eq(add_on_device(cuda, &m, 0, 1.0F, got, &overflow), WEIR_E_PROTOCOL);
      for (size_t i = 0; i < m.n; i++) cr_assert_eq(got[i], -1.0F);
      cr_assert_eq(overflow, 0);
      free(m.message);
    }
}
