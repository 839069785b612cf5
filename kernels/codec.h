/* Codecs: which elements of an error-fed gradient are sent, and how they look on the wire.
 *
 * Notation (docs/internals/architecture.md): n elements, g gradient, r residual, e = g + r the
 * error-fed gradient, c compression ratio (fraction kept), k elements kept.  A codec is one file
 * with one row, all that is known of it, to which weir_codecs[] points; and one of four kinds:
 *   dense      every element goes through an all-reduce (none, bf16)
 *   selection  select() says which elements go, as fp32 or bf16 (top-k and its kin); selecting and
 *              encoding are apart so that any selection can travel in any wire format
 *   encoder    encode() writes every element in few bits, decode() reads it (quantizers).  What
 *              encoding loses, e - decode(encode(e)), is the caller's to keep.
 *   low rank    matrices go as two thin ones, each through an all-reduce (powersgd.h), or both
 *               through one (bilateral.h)
 *  Scalar code is the oracle for the vector paths chosen at run time.
 *
 * The edges are the same for all of them:
 *   n = 0         nothing is kept (k = 0), a message is its header
 *   n = 1         the element is kept; every encoder gives it back, but for the rounding of its
 *                 levels or norm: an ulp or two of fp32, or of what it stores levels in (fp16)
 *   k > n         cannot be: a ratio above 1 is WEIR_E_INVALID, a list or message that says so too
 *   n > 2^32 - 1  WEIR_E_UNSUPPORTED before e is read: indices have 32 bits.  All up to there works
 *   NaN, Inf      for the caller to find (weir_ef_accumulate) and to drop.  Given to a codec all
 * the same, select returns kept() ascending indices, the same for every vector width, but which is
 * not said; of encode's bytes the same holds, and decode refuses them or stores what is finite
 *   alignment     floats and indices lie at multiples of 4 bytes (weir_submit refuses others),
 *                 messages anywhere */
#ifndef WEIR_KERNELS_CODEC_H
#define WEIR_KERNELS_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>
#include <weir/status.h>

/* Where tensors lie in the flat gradient: tensor t is [offset[t], offset[t+1]). */
typedef struct weir_layout {
  size_t tensors;
  const size_t *offset; /* tensors + 1 entries, offset[0] = 0, ascending; offset[tensors] = n */
} weir_layout;

/* Scratch of one thread; grows on first use of a size and is then reused (no allocation after
 * warm-up). */
typedef struct weir_codec_context weir_codec_context;
weir_status weir_codec_context_create(weir_codec_context **out);
void weir_codec_context_free(weir_codec_context *context); /* NULL is allowed */

/* Threads that share the long passes of encoding and decoding, the caller's among them; those
 * beside it wait while there is nothing to do.  How many there are changes no bit of any result.
 * Borrowed by the contexts that use it, and freed after them; who finds it busy with another's pass
 * works alone. */
#define WEIR_POOL_MOST 64
typedef struct weir_pool weir_pool;
weir_status weir_pool_create(weir_pool **out, unsigned threads);           /* 1..WEIR_POOL_MOST */
void weir_pool_free(weir_pool *pool);                                      /* NULL is allowed */
void weir_codec_context_use(weir_codec_context *context, weir_pool *pool); /* NULL: no threads */

/* Memory for selecting, at a multiple of 4 bytes: as far as it suffices, no memory of the context's
 * own is taken.  Until it is lent other memory, or NULL. */
void weir_codec_context_lend(weir_codec_context *context, void *memory, size_t bytes);
/* Bytes that suffice for keeping k of n elements, or of so many in tensors; 0: it takes none, or
 * what a fit of the gradient says (sidco below a sixteenth: at most the gradient's). */
struct weir_codec;
size_t weir_select_room(const struct weir_codec *codec, size_t n, size_t k, bool threads);

/* The gradients that the next e is made from, of the tensors of its layout, and their types
 * (weir_type), for codecs that send what they touch; borrowed.  NULL: e itself tells. */
void weir_codec_context_touched(weir_codec_context *context, const void *const *g,
                                const uint8_t *type);
/* Bytes of nonzero's message over what it takes at most, of a gradient of which such shares are not
 * zero, and begin a run of such. */
double weir_nonzero_share(double nonzero, double runs, double cr);

/* What becomes of decoded values. */
typedef enum weir_decoding {
  WEIR_DECODE_STORE = 0,
  WEIR_DECODE_ADD = 1,
  WEIR_DECODE_SUBTRACT = 2
} weir_decoding;

/* A set of one, of what has a number below 32: bits of weir_codec.schemes, .usual and .wires. */
#define WEIR_WITH(number) (UINT32_C(1) << (number))
#define WEIR_WIRES_ALL (WEIR_WITH(WEIR_WIRE_LISTS) - 1)
/* Of values that are summed: sums of halves would overflow, and an all-reduce takes bf16. */
#define WEIR_WIRES_SUMMED (WEIR_WIRES_ALL & ~WEIR_WITH(WEIR_WIRE_AUTO_FP16))

/* Of thin matrices: as they are, or in bf16. */
#define WEIR_WIRES_FACTORS (WEIR_WITH(WEIR_WIRE_PAPER) | WEIR_WITH(WEIR_WIRE_AUTO_BF16))
/* Of a quantizer with buckets: codes as they are, or by how often they occur (entropy.h). */
#define WEIR_WIRES_CODES (WEIR_WITH(WEIR_WIRE_PAPER) | WEIR_WITH(WEIR_WIRE_HUFFMAN))

/* fixed + per_element * elements + messages decoded here * (per_decoded * elements + per_kept *
 * kept), in s. */
typedef struct weir_codec_prior {
  double fixed, per_element, per_decoded, per_kept;
} weir_codec_prior;

/* The buckets that plans may name, as binary logarithms, and the usual one. */
enum { WEIR_BUCKET_LOG2_LEAST = 6, WEIR_BUCKET_LOG2_USUAL = 7, WEIR_BUCKET_LOG2_MOST = 13 };

/* qsgd, all that its messages tell. */
typedef struct weir_qsgd_options {
  unsigned bits;   /* 2..8 */
  uint32_t bucket; /* elements, 8..65536, a multiple of 8 */
  bool nearest;    /* instead of stochastic rounding */
  bool l2;         /* grid from the bucket's L2 norm instead of its smallest and largest */
} weir_qsgd_options;

/* Where a message's buckets begin, how many elements they have in all, and what scales. */
typedef struct weir_message_buckets {
  size_t at, elements;
  unsigned scales;
  bool short_scales;
} weir_message_buckets;

typedef struct weir_codec {
  uint32_t id; /* weir_codec_id; its index in weir_codecs[] */
  const char *name;
  const char *description; /* one line with the source */
  uint32_t schemes;        /* that it goes with, by weir_scheme_id */
  uint32_t usual;      /* of these, the ones whose costs are told of it where no codec is named */
  uint32_t wires;      /* of its lists or factors, by weir_wire_format; none: it takes none */
  bool dense;          /* sends every element by all-reduce; select and encode are NULL */
  bool rounds;         /* dense, as bfloat16: what that loses is the residual */
  bool low_rank;       /* its parts are in kernels/powersgd.h; select and encode are NULL */
  bool at_once;        /* low rank: both factors go in one sum (kernels/bilateral.h) */
  bool shared_indices; /* all ranks send the same indices: one rank's, or drawn */
  bool by_variance;    /* ... of the rank of largest variance, instead of rank step mod N */
  bool by_tensor;      /* tensors are selected from or encoded apart from each other */
  bool ahead;          /* selects the largest of all: weir_ahead_begin lists what it is after */
  bool device;         /* kernels/cuda has its operations */
  bool touched;        /* messages are of what gradients have touched, and their length with it */
  bool seeded;   /* its messages tell what draws follow from, before their buckets (encoder.h) */
  bool whitened; /* encodes elements in units of what each usually is (whitened.h) */
  bool damps;    /* rounds every element to a value beside it, so that half of the residual
                          may wait (engine/host_feed.c) */
  bool unbiased; /* what it loses is nothing on average, or half a unit of 16 bits at most: it
                          may go without error feedback */
  /* What it takes of a processor with some GB/s, to an order of magnitude; the first measured steps
   * replace it. */
  weir_codec_prior prior;
  unsigned rereads; /* passes over e beyond the first that wait for memory */
  /* Low rank: what encodes its factors where their sums are of messages. */
  struct {
    uint32_t codec;
    double cr;
  } factors;
  /* Number of elements select() keeps, always exactly: max(1, floor(c*n)) per compressed unit
   * (the whole gradient, or each tensor for lwtopk and dgc); 0 for an empty unit.  n for encoders
   * and low rank. */
  size_t (*kept)(const weir_layout *layout, double cr);
  /* Writes exactly kept() indices, strictly ascending.  capacity >= kept() or WEIR_E_CAPACITY.
   * e must be finite.  Ties: the lower index is kept. */
  weir_status (*select)(weir_codec_context *context, const float *e, const weir_layout *layout,
                        double cr, uint32_t *index, size_t capacity, size_t *k);
  /* Candidates of k of n elements that select() has room for, where they are not topk's; or
   * NULL. */
  size_t (*listed)(size_t n, size_t k);

  /* Instead of select for indices that do not depend on e (randomk; NULL for the others): from the
   * same seed the same indices, so that they need not travel. */
  weir_status (*draw)(weir_codec_context *context, const weir_layout *layout, double cr,
                      uint64_t seed, uint32_t *index, size_t capacity, size_t *k);

  /* Encoders only; NULL for the others.  cr is bits an element / 32 (weir_plan_check). */

  struct {
    unsigned least, most;
    unsigned halves; /* and halves above this; 0: no halves */
  } bits;            /* an element that it can be asked for */
  double
      spare_bits;  /* an element that coding by how often codes occur usually leaves out; 0: by the
                        code's width (controller/candidates.c) */
  unsigned scales; /* floats before each bucket's codes, where it has buckets */
  bool short_scales; /* which are bfloat16s in floats' places: the lower half of their bits is 0 */
  /* Of a message of n elements, from untrusted bytes; false: it can be none.  NULL: its buckets
   * begin behind the header, have n elements, and scales as above. */
  bool (*buckets)(const void *message, size_t bytes, size_t n, weir_message_buckets *buckets);
  /* Its mode, of codecs whose plans may name another bucket than the usual one: then
   * weir_plan_bound and weir_plan_encode are for what bound and encode are; NULL for the others. */
  const weir_qsgd_options *qsgd;
  /* Length of the message in bytes, exactly; where `touched`, at most. */
  size_t (*bound)(const weir_layout *layout, double cr);
  /* capacity >= bound() or WEIR_E_CAPACITY; e must be finite.  The bytes follow from e, layout, cr
   * and seed alone, whatever the vector width.  out need not be aligned.  *bytes is what was
   * written. */
  weir_status (*encode)(weir_codec_context *context, const float *e, const weir_layout *layout,
                        double cr, uint64_t seed, void *out, size_t capacity, size_t *bytes);
  /* Decode untrusted bytes into to[0..n), n of the layout.  What is stored, added or subtracted is
   * finite.  Malformed, or made for another layout: WEIR_E_PROTOCOL, to unchanged. */
  weir_status (*decode)(weir_codec_context *context, const void *message, size_t bytes,
                        const weir_layout *layout, float *to, weir_decoding how);
  /* Would decode take these bytes?  *peak: no value it decodes to is larger in magnitude. */
  weir_status (*check)(const void *message, size_t bytes, const weir_layout *layout, double *peak);
} weir_codec;

extern const weir_codec *const weir_codecs[WEIR_CODEC_COUNT];
const weir_codec *weir_codec_find(uint32_t id); /* NULL when unknown */
/* An encoder's bound and encode as a plan says: its codec, ratio and bucket. */
size_t weir_plan_bound(const weir_plan *plan, const weir_layout *layout);
weir_status weir_plan_encode(const weir_plan *plan, weir_codec_context *context, const float *e,
                             const weir_layout *layout, uint64_t seed, void *out, size_t capacity,
                             size_t *bytes);
/* Does a message that check() has taken say that it was written as this plan says?  Its length
 * alone tells neither bits nor bucket nor mode.  WEIR_E_PROTOCOL: it does not. */
weir_status weir_plan_made(const weir_plan *plan, const void *message);
/* qsgd's squared errors at 2 to 8 bits, as they are on average over its draws. */
enum { WEIR_QSGD_BITS_LEAST = 2, WEIR_QSGD_WIDTHS = 7 };
void weir_qsgd_mean_errors(const float *x, size_t n, uint32_t bucket,
                           double error2[WEIR_QSGD_WIDTHS]);
/* May codes of such a sum travel by how often they occur (WEIR_WIRE_HUFFMAN)? */
bool weir_codes_shorten(const weir_plan *plan);
/* Do values of such a sum travel rounded, so that ranks keep what that loses? */
bool weir_sums_rounded(const weir_plan *plan);
/* The codec whose row says that it is the usual one of a scheme. */
const weir_codec *weir_codec_usual(uint32_t scheme);

/* --- error feedback ------------------------------------------------------------------------- */

typedef struct weir_moments {
  double sum;        /* of the finite elements of e */
  double sum_square; /* of their squares */
  size_t nonfinite;  /* elements of e that are NaN or Inf */
} weir_moments;

/* e = g + r in one pass; adds to *moments (start from zero).  e may be g or r.  Deterministic for
 * given data and n, whatever the vector width. */
void weir_ef_accumulate(const float *g, const float *r, float *e, size_t n, weir_moments *moments);
/* What is going to be fed: g[t] of tensor t and r, and momentum * u where u is not NULL. */
typedef struct weir_ahead_of {
  const float *const *g;
  const float *r, *u;
  float momentum;
} weir_ahead_of;
/* Error feedback and topk's select in one pass over memory.  _begin says, before e = g + r exists,
 * that the next select of topk or star with this context will be of e, with that layout and ratio,
 * and estimates what to look out for; where a list is of no use it does nothing.  Then each element
 * is fed once, in ascending order, by one thread: _feed makes e = g + r of elements [at, at + n).
 * That select finds the same elements as ever, but does not read e again; memory lent to the
 * context is in use until then.  _forget: e became something else, or is not selected from; _feed
 * then lists nothing, and any threads may share it. */
weir_status weir_ahead_begin(weir_codec_context *context, const weir_ahead_of *sum,
                             const weir_layout *layout, const float *e, double cr);
void weir_ahead_feed(weir_codec_context *context, size_t at, const float *g, const float *r,
                     float *e, size_t n, weir_moments *moments);
void weir_ahead_forget(weir_codec_context *context);
/* Variance of a gradient of n elements from its moments; 0 for n = 0.  Never negative. */
double weir_variance(const weir_moments *moments, size_t n);
/* The rank of the largest of the variances [ranks], the lowest on ties.  One that is no number, as
 * only a rank that is out of order sends, wins nowhere; rank 0 where none is a number. */
int weir_variance_root(const float *variance, int ranks);

void weir_gather(const float *e, const uint32_t *index, size_t k, float *value);
void weir_scatter_zero(float *e, const uint32_t *index, size_t k);
/* to[index[i]] += value[i] */
void weir_scatter_add(float *to, const uint32_t *index, const float *value, size_t k);
void weir_scale(float *x, size_t n, float factor);
/* to = x / 2, and to += x / 2, at most the largest float. */
void weir_halve(const float *x, size_t n, float *to);
void weir_add_half(const float *x, size_t n, float *to);
/* Deterministic, whatever the vector width. */
double weir_sum_square(const float *x, size_t n);
/* Elements that are neither 0 nor -0; NaN counts. */
size_t weir_nonzero(const float *x, size_t n);
/* How many runs of such lie between zeros. */
size_t weir_nonzero_runs(const float *x, size_t n);
/* As memcpy, past the caches; for what is too long to be found in them again. */
void weir_copy_past(void *to, const void *from, size_t bytes);

/* --- 16-bit values -------------------------------------------------------------------------- */

/* Round to nearest even bfloat16 bits; a finite value saturates instead of becoming Inf.  When
 * error is not NULL: error[i] += x[i] - rounded. */
void weir_bf16_encode(const float *x, size_t n, uint16_t *out, float *error);
void weir_bf16_decode(const uint16_t *x, size_t n, float *out);

/* --- wire messages -------------------------------------------------------------------------- */

/* A message of k (index, value) pairs out of n elements.  Little-endian header of
 * WEIR_WIRE_HEADER bytes (k, n, index encoding, value encoding), then indices, then values.
 * Index encodings: u32, bitmap (n/8 bytes) or Elias-Fano; the auto formats take the smallest. */
#define WEIR_WIRE_HEADER 16

/* Bytes that k of n elements take in the given format, whichever they are; fewer of fewer elements
 * take no more. */
size_t weir_wire_bound(size_t n, size_t k, weir_wire_format format);
/* The same for planning.  with_values false: the index list alone (for ART's broadcast). */
double weir_wire_expected(size_t n, size_t k, weir_wire_format format, bool with_values);

/* Encode.  value may be NULL: the index list alone.  index strictly ascending, < n.  When error is
 * not NULL: error[i] += value[i] - (value as decoded).  *bytes is what was written. */
weir_status weir_wire_encode(size_t n, const uint32_t *index, const float *value, size_t k,
                             weir_wire_format format, void *out, size_t capacity, size_t *bytes,
                             float *error);
/* Decode untrusted bytes.  expected_n must match the header.  index and value (may be NULL for an
 * index list) have room for capacity elements.  Anything malformed: WEIR_E_PROTOCOL, nothing
 * written past capacity. */
weir_status weir_wire_decode(const void *message, size_t bytes, size_t expected_n, uint32_t *index,
                             float *value, size_t capacity, size_t *k);
/* Decode into all of to[0..n): the values at their indices, 0 elsewhere.  Malformed:
 * WEIR_E_PROTOCOL, and what to then holds is not said.  context may be NULL. */
weir_status weir_wire_decode_dense(weir_codec_context *context, const void *message, size_t bytes,
                                   size_t expected_n, float *to);
/* Decode and add: to[index] += value, for all pairs, in index order.  Malformed: WEIR_E_PROTOCOL,
 * to unchanged.  context may be NULL: a dense list is then read twice. */
weir_status weir_wire_decode_add(weir_codec_context *context, const void *message, size_t bytes,
                                 size_t expected_n, float *to);

/* Would decoding take these bytes?  *peak: the largest magnitude of their values.  Makes room in
 * the context (may be NULL) for decoding them, which then cannot fail. */
weir_status weir_wire_check(weir_codec_context *context, const void *message, size_t bytes,
                            size_t expected_n, double *peak);

/* Has a message that was found good as many pairs as the plan keeps?  WEIR_E_PROTOCOL: it has
 * not. */
weir_status weir_wire_made(size_t kept, const void *message);

/* --- gain curve ----------------------------------------------------------------------------- */

/* Histogram of |e| by magnitude: gain and threshold for every compression ratio at once.
 * Bins are floats' upper bits (exponent and first mantissa bits); the energy inside a bin is taken
 * as equal for all its elements, so that the error is a part of one bin's share. */
typedef struct weir_gain_curve weir_gain_curve;
weir_status weir_gain_curve_create(weir_gain_curve **out);
void weir_gain_curve_free(weir_gain_curve *curve);
/* One pass over finite e.  stride > 1: every element among the largest, about a sixteenth, and of
 * the others every stride-th. */
void weir_gain_curve_fill(weir_gain_curve *curve, const float *e, size_t n, size_t stride);
/* The stride for a gradient of n elements that looks at 2^18 or fewer beside the largest. */
size_t weir_gain_curve_stride(size_t n);
/* Another part of the same gradient. */
void weir_gain_curve_add(weir_gain_curve *curve, const float *e, size_t n, size_t stride);
/* E||g_c||^2 / E||g_e||^2 of exact top-k at ratio cr, in [0, 1]; 1 for an all-zero gradient. */
double weir_gain_curve_gain(const weir_gain_curve *curve, double cr);

#endif
