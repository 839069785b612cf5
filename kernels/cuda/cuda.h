/* The same operations on a CUDA device: context, memory and one function for each, C linkage.
 *
 * A context is a device, a stream and a workspace.  All operations are queued on the stream and
 * return at once; none waits for the device and none allocates: weir_cuda_reserve does, once,
 * before the first step.  Pointers to floats, indices and messages are device memory, aligned to
 * their elements (4, 4 and 1 bytes); what is not aligned to 16 bytes is merely slower.  n, k and
 * counts are elements.  One thread at a time uses a context; its current device becomes the
 * context's.
 *
 * Errors the host can see (sizes, null pointers, what was not reserved) are returned and nothing is
 * queued.  What only the device sees (bytes from the wire that are malformed) leaves the output
 * unchanged and is reported by the next weir_cuda_wait.  After WEIR_E_INTERNAL (the driver reports
 * a fault) the context is of no further use.
 *
 * The scalar code of kernels/cpu is the oracle: what a function gives is equal to it bit for bit
 * unless the function says otherwise. */
#ifndef WEIR_KERNELS_CUDA_H
#define WEIR_KERNELS_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/adaptive.h"
#include "kernels/codec.h"

typedef struct weir_cuda weir_cuda;

/* Devices that can be used; 0 without a device or a driver.  Never fails. */
int weir_cuda_devices(void);

/* stream: a cudaStream_t of the caller, who keeps it alive; NULL: the context makes its own. */
weir_status weir_cuda_create(int device, void *stream, weir_cuda **out);
void weir_cuda_free(weir_cuda *cuda); /* waits for what is queued; NULL is allowed */
void *weir_cuda_stream(const weir_cuda *cuda);

/* Workspace for gradients of up to n elements of which up to k are kept; never shrinks.  Waits for
 * what is queued when it grows.  An operation beyond what is reserved gives WEIR_E_STATE. */
weir_status weir_cuda_reserve(weir_cuda *cuda, size_t n, size_t k);

/* Wait until all that is queued is done: the only function of a step's that does.  WEIR_E_PROTOCOL
 * when a message was malformed since the last wait. */
weir_status weir_cuda_wait(weir_cuda *cuda);

/* --- memory ---------------------------------------------------------------------------------- */

/* bytes of device memory, aligned to 256; released with weir_cuda_release (NULL is allowed). */
weir_status weir_cuda_alloc(weir_cuda *cuda, size_t bytes, void **out);
void weir_cuda_release(weir_cuda *cuda, void *memory);
/* Queue a copy between host and device in either direction.  Pageable host memory makes the call
 * wait for the copy; page-locked memory does not. */
weir_status weir_cuda_copy(weir_cuda *cuda, void *to, const void *from, size_t bytes);

/* --- selecting ------------------------------------------------------------------------------- */

/* Error feedback and exact top-k in one pass over memory: e = g + r (e may be g or r), index and
 * value the k elements of largest |e|, indices ascending, of equal magnitudes the lower index; then
 * e[index[i]] = 0, so that e is the residual.  *moments as in weir_cuda_ef_accumulate.  A magnitude
 * is compared by its bits: Inf and NaN count as largest, moments->nonfinite tells of them. */
weir_status weir_cuda_ef_topk(weir_cuda *cuda, const float *g, const float *r, float *e, size_t n,
                              size_t k, uint32_t *index, float *value, weir_moments *moments);
/* The same of a given e, which is not changed; value may be NULL. */
weir_status weir_cuda_topk(weir_cuda *cuda, const float *e, size_t n, size_t k, uint32_t *index,
                           float *value);

/* --- codecs ---------------------------------------------------------------------------------- */

/* Tables of where tensors lie, for what treats each by itself: lwtopk, dgc, terngrad, onebit,
 * efsignsgd.  layout is copied, and the codec is then used with an equal one; with another it gives
 * WEIR_E_STATE.  Allocates and waits unless the tables are those of the last call. */
weir_status weir_cuda_reserve_tensors(weir_cuda *cuda, const weir_layout *layout);

/* The gradient that a selection works on: either g and r, and e = g + r is stored (e may be one of
 * them), *moments as in weir_cuda_ef_accumulate unless it is NULL, and what is kept becomes 0 in e,
 * which is then the residual; or, g and r being NULL, a given e, which is not changed. */
typedef struct weir_cuda_fed {
  const float *g;
  const float *r;
  float *e;
  weir_moments *moments;
} weir_cuda_fed;

/* codec: a weir_codec_id; how much it keeps or writes (kept(), bound()) is in weir_codecs[]->.
 * Equal to the CPU's bit for bit but for what follows from a sum over a tensor or the gradient,
 * which runs in another order (by at most n 2^-53 of the sum of magnitudes, as
 * weir_cuda_ef_accumulate's):
 *
 *   terngrad, onebit, efsignsgd   a scale may differ in its last bit (n < 2^27), and so may
 *                                 terngrad's clip, with single codes
 *   mstopk, sidco                 a threshold may, and the selection by what lies on it
 *
 * Whichever device made a message, both decode it to the same bits. */

/* Selections: exactly kept() indices, ascending, and the values there (value may be NULL). capacity
 * at least kept(); *k is what will be written.  seed is randomk's, whose set is that of the CPU's
 * draw(). Reserve n and kept(), with mstopk one more. */
weir_status weir_cuda_select(weir_cuda *cuda, uint32_t codec, const weir_cuda_fed *fed,
                             const weir_layout *layout, double cr, uint64_t seed, uint32_t *index,
                             float *value, size_t capacity, size_t *k);
/* Encoders: as the CPU's encode and decode; messages may lie at any address.  Malformed bytes: to
 * unchanged, the next wait says so; a wrong length is WEIR_E_PROTOCOL at once.  cr must be that of
 * the message, and codec the one that made it.  No encoder needs weir_cuda_reserve. */
weir_status weir_cuda_encode(weir_cuda *cuda, uint32_t codec, const float *e,
                             const weir_layout *layout, double cr, uint64_t seed, void *out,
                             size_t capacity, size_t *bytes);
weir_status weir_cuda_decode(weir_cuda *cuda, uint32_t codec, const void *message, size_t bytes,
                             const weir_layout *layout, double cr, float *to, bool add);

/* Error feedback and encoding in as few passes as the codec allows: the message of e = g + r, where
 * r is NULL of e = g + 0 (not of encoders that tell tensors apart), or of a given e (see
 * weir_cuda_fed); fed->e becomes what is lost, e - decode(message), *lost its sum of squares (sum
 * is 0), stored as *moments is, of whose order the same can be said.  Reserve n. */
weir_status weir_cuda_ef_encode(weir_cuda *cuda, uint32_t codec, const weir_cuda_fed *fed,
                                const weir_layout *layout, double cr, uint64_t seed, void *out,
                                size_t capacity, size_t *bytes, weir_moments *lost);
/* Messages one behind the other in one go: one of `block` elements, a multiple of 4096, in `each`
 * bytes after the other, and one of what is left.  The seed of the message that begins at element i
 * is weir_hash(draws, &i, 8), i being 64 bits in little-endian order. */
typedef struct weir_cuda_series {
  size_t block, each;
  uint64_t draws;
} weir_cuda_series;
/* The messages of x[0..n), each of them weir_cuda_encode's; what they lose is stored at `left` (x
 * itself or no part of it), and *lost as above.  Of encoders that do not tell tensors apart.
 * Reserve n. */
weir_status weir_cuda_encode_series(weir_cuda *cuda, uint32_t codec, const float *x, size_t n,
                                    const weir_cuda_series *series, double cr, void *out,
                                    size_t capacity, size_t *bytes, float *left,
                                    weir_moments *lost);
/* As weir_cuda_decode, of all of them: a malformed one leaves all of `to` unchanged. */
weir_status weir_cuda_decode_series(weir_cuda *cuda, uint32_t codec, const void *messages,
                                    size_t bytes, size_t n, const weir_cuda_series *series,
                                    double cr, float *to, bool add);
/* weir_hold_finite: what is larger than the largest float, of either sign, becomes that. */
weir_status weir_cuda_hold_finite(weir_cuda *cuda, float *x, size_t n);
/* to = share times the sum of what messages decode to, in their order; they have the same length
 * and lie `pitch` bytes apart.  *overflow, device memory, becomes 1 where something is not finite,
 * and is left otherwise; NULL: not wanted.  Malformed, any of them: as in weir_cuda_decode. */
typedef struct weir_cuda_messages {
  const void *first;
  size_t bytes, pitch, count;
} weir_cuda_messages;
weir_status weir_cuda_decode_sum(weir_cuda *cuda, uint32_t codec,
                                 const weir_cuda_messages *messages, const weir_layout *layout,
                                 double cr, float *to, float share, uint32_t *overflow);

/* The message of k (index, value) pairs out of n, byte for byte that of weir_wire_encode, with the
 * same choice of the index list; value NULL: the list alone.  *bytes, device memory, is stored: its
 * length, which follows from n, k and format.  error as there, or NULL.  out is aligned to 4 bytes,
 * capacity at least weir_cuda_wire_bound(): weir_wire_bound(), rounded up to words.  Indices that
 * do not ascend or are out of range: the next wait says so. Reserve n and k. */
size_t weir_cuda_wire_bound(size_t n, size_t k, weir_wire_format format);
weir_status weir_cuda_wire_encode(weir_cuda *cuda, size_t n, const uint32_t *index,
                                  const float *value, size_t k, weir_wire_format format, void *out,
                                  size_t capacity, uint64_t *bytes, float *error);

/* Reads an untrusted message with values, of device memory, which lies at a multiple of 4 bytes, as
 * weir_wire_decode_add, or without add as weir_wire_decode_dense: into all of to[0..n), 0 where
 * nothing was kept.  All of it is checked before a bit of it is used; reserve n and as many
 * elements as there may be.  Malformed: to unchanged, and the next wait says so. */
weir_status weir_cuda_wire_decode_to(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                     float *to, bool add);

/* The same of a list alone, of exactly k indices, which index, device memory, has room for: as
 * weir_wire_decode without values.  Malformed: the next wait says so, and nothing that takes
 * indices of this context does anything until then. */
weir_status weir_cuda_wire_read(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                size_t k, uint32_t *index);

/* --- passes ---------------------------------------------------------------------------------- */

/* weir_ef_accumulate: e = g + r, e may be g or r; r NULL: of zeros.  *moments, device memory (NULL:
 * not wanted), is stored, not added to.  e is equal but for the bits of NaNs; the two sums run in
 * another order than on the CPU, deterministic for given n, and differ by at most n 2^-53 of the
 * sum of magnitudes. */
weir_status weir_cuda_ef_accumulate(weir_cuda *cuda, const float *g, const float *r, float *e,
                                    size_t n, weir_moments *moments);
/* value[i] = e[index[i]], unless value is NULL, and where zero is set e[index[i]] = 0 (star, var:
 * indices that another rank has chosen).  The indices are checked like those of
 * weir_cuda_scatter_add. */
weir_status weir_cuda_gather(weir_cuda *cuda, float *e, size_t n, const uint32_t *index, size_t k,
                             float *value, bool zero);
/* to[index[i]] += value[i].  The indices may come from the wire: unless they are strictly ascending
 * and below n, nothing is written and the next wait says so. */
weir_status weir_cuda_scatter_add(weir_cuda *cuda, float *to, size_t n, const uint32_t *index,
                                  const float *value, size_t k);
/* As weir_bf16_encode and weir_bf16_decode; error may be NULL. */
weir_status weir_cuda_bf16_encode(weir_cuda *cuda, const float *x, size_t n, uint16_t *out,
                                  float *error);
weir_status weir_cuda_bf16_decode(weir_cuda *cuda, const uint16_t *x, size_t n, float *out);

weir_status weir_cuda_scale(weir_cuda *cuda, float *x, size_t n, float factor);

/* weir_momentum_correct: next = m u + g; next may be u or g.  Then weir_cuda_gather with zero masks
 * what was sent. */
weir_status weir_cuda_momentum_correct(weir_cuda *cuda, const float *g, const float *u, float *next,
                                       size_t n, float m);
/* Clipping: the sum of squares of n elements of this weir_type is stored at the beginning of room,
 * a double, or added to what there is already; then x is brought to a norm of at most limit by it:
 * weir_scale by weir_clip_factor.  The sum runs in another order than on the CPU (see
 * weir_cuda_ef_accumulate), so that the factor may differ in its last bit.  room: WEIR_CUDA_MEASURE
 * bytes of device memory, aligned to 8.  Neither needs a reservation. */
#define WEIR_CUDA_MEASURE ((size_t)40 << 10)
weir_status weir_cuda_measure(weir_cuda *cuda, const void *x, unsigned type, size_t n, bool add,
                              void *room);
weir_status weir_cuda_clip(weir_cuda *cuda, void *x, unsigned type, size_t n, double limit,
                           const void *room);

/* Pieces of optimizers (kernels/adaptive.h): weir_lars_squares of each, or where there are terms
 * weir_lamb_squares, is stored at out; and weir_move.  The tables and out are page-locked or device
 * memory that lasts until it is done; what they point to is the device's.  Equal to the CPU's.
 * Neither needs a reservation. */
weir_status weir_cuda_piece_squares(weir_cuda *cuda, const weir_tensor_piece *pieces, size_t count,
                                    const weir_adam *terms, weir_squares *out);
weir_status weir_cuda_move(weir_cuda *cuda, const weir_mover *movers, size_t count);

/* --- qsgd ------------------------------------------------------------------------------------ */

/* As weir_qsgd_encode_with, all its options: the same bytes for the same seed.  capacity at least
 * weir_qsgd_bound_with(), *bytes is what will be written.  e must be finite, n below 2^32; neither
 * needs a reservation. */
weir_status weir_cuda_qsgd_encode(weir_cuda *cuda, const float *e, size_t n,
                                  weir_qsgd_options options, uint64_t seed, void *out,
                                  size_t capacity, size_t *bytes);
/* Decode untrusted bytes into to[0..n): stored, or added when add.  Another header than that of n
 * elements with these options, or scales out of range: to unchanged, the next wait says so. Another
 * length: WEIR_E_PROTOCOL at once. */
weir_status weir_cuda_qsgd_decode(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                  weir_qsgd_options options, float *to, bool add);

/* --- powersgd -------------------------------------------------------------------------------- */

/* The parts of kernels/powersgd.h, with the same shapes, rank 1 to WEIR_POWERSGD_RANK_MAX; reserve
 * the largest matrix' elements.  project and expand are equal to the CPU's.  project_back is for up
 * to 512 rows; beyond, its sums run in stripes of as many and differ by at most rows 2^-23 of the
 * sum of magnitudes.  All are the same on every device. */
weir_status weir_cuda_powersgd_project(weir_cuda *cuda, const float *m, size_t rows, size_t columns,
                                       const float *q, size_t stride, size_t rank, float *p);
weir_status weir_cuda_powersgd_project_back(weir_cuda *cuda, const float *m, size_t rows,
                                            size_t columns, const float *p, size_t rank, float *q);
weir_status weir_cuda_powersgd_expand(weir_cuda *cuda, const float *p, size_t rows, const float *q,
                                      size_t columns, size_t rank, float *to, bool subtract);
/* --- gain curve ------------------------------------------------------------------------------ */

/* A bin of weir_gain_curve: sum of the squared mantissas, high 2^32 + low, and elements. */
typedef struct weir_cuda_gain_bin {
  uint64_t low;
  uint64_t high;
  uint64_t count;
} weir_cuda_gain_bin;
#define WEIR_CUDA_GAIN_BINS 8192

/* As weir_gain_curve_fill, into WEIR_CUDA_GAIN_BINS bins of device memory, stored.  The caller
 * copies them to the host when it suits him and makes them a curve there.  The energies are exact,
 * while the CPU's have rounding errors of up to n 2^-53. */
weir_status weir_cuda_gain_histogram(weir_cuda *cuda, const float *e, size_t n,
                                     weir_cuda_gain_bin *bins);
/* bins in host memory; n as in weir_cuda_gain_histogram. */
weir_status weir_cuda_gain_curve(const weir_cuda_gain_bin *bins, size_t n, weir_gain_curve *curve);

#endif
