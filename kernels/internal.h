/* What the files of kernels/ share; not for other folders. */
#ifndef WEIR_KERNELS_INTERNAL_H
#define WEIR_KERNELS_INTERNAL_H

#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"
#include "kernels/pool.h"

/* Radix search: 11 + 10 + 10 bits of the magnitude; counters in up to 4 interleaved copies. */
#define WEIR_RADIX_BINS 2048
#define WEIR_RADIX_COPIES 4

struct weir_codec_context {
  uint32_t histogram[WEIR_RADIX_BINS][WEIR_RADIX_COPIES];
  size_t capacity;    /* candidates that fit (slack beyond it) */
  float *magnitude;   /* of the candidates */
  uint32_t *position; /* of the candidates, ascending */
  /* The above lie in what has been lent, or are these. */
  size_t own_capacity;
  float *own_magnitude;
  uint32_t *own_position;
  void *lent;
  size_t lent_bytes;
  uint64_t *bitmap; /* a bit an element, for drawing and for decoding */
  size_t bitmap_words;
  weir_pool *pool; /* borrowed; NULL: one thread */
  struct {
    const void *const *g; /* NULL: none are told */
    const uint8_t *type;
  } touched;
  /* Candidates listed while e was made (ef_topk.c), for a search of its k largest. */
  struct {
    weir_candidates list;
    const float *e; /* NULL: none are */
    size_t n, k;
  } ahead;
};

/* |x| and place of the elements of e whose magnitude is >= bits, in order, into the context: how
 * many, SIZE_MAX: more than most, which is at most its capacity. */
size_t weir_compact(weir_codec_context *context, const float *e, size_t n, uint32_t bits,
                    size_t most);

/* Bytes of room for so many candidates. */
size_t weir_context_room(size_t candidates, bool threads);
/* Room for candidates; keeps what is there when it suffices. */
weir_status weir_context_reserve(weir_codec_context *context, size_t candidates);

/* Room for a bitmap of so many words, their contents undefined. */
weir_status weir_context_bitmap(weir_codec_context *context, size_t words);

/* What every select checks first: ratio, size (u32 indices), room for k. */
weir_status weir_select_check(const weir_layout *layout, double cr, size_t kept, size_t capacity);

/* The k-th largest magnitude of n >= k >= 1 elements. */
typedef struct weir_kth {
  uint32_t bits;
  size_t above; /* elements strictly larger; below k */
} weir_kth;
weir_kth weir_kth_largest(weir_codec_context *context, const float *x, size_t n, size_t k);

/* What an emit pass takes for the k largest. */
static inline weir_band weir_band_of(weir_kth kth, size_t k) {
  return (weir_band){kth.bits + 1, kth.bits, k - kth.above, k};
}

/* count <= n elements, one of each of count equal stretches, at a place that varies: no period in
 * the data fools it.  _at is the place of the i-th, called for 0, 1, .. with *state from 1. */
size_t weir_sample_at(size_t i, size_t stretch, uint64_t *state);
void weir_sample(const float *e, size_t n, size_t count, float *sample);

/* Outcome of a search: the k-th largest, and the short list that the context now holds, all
 * elements of magnitude >= floor_bits, the k-th among them.  listed = 0: there is no short list
 * (few elements, ties in bulk, large k). */
typedef struct weir_found {
  weir_kth kth;
  size_t listed;
  uint32_t floor_bits;
} weir_found;
weir_status weir_search(weir_codec_context *context, const float *e, size_t n, size_t k,
                        weir_found *out);

/* Elements from which on a gradient is written past the caches: it would not be found
 * there again. */
#define WEIR_STREAM_LEAST ((size_t)4 << 20)

/* The parts of weir_search, for who fills the short list on another pass's way: when it is worth a
 * list, with WEIR_SAMPLE sampled elements in context->magnitude, the floor of the list and room for
 * it; then what follows from the list of count elements (SIZE_MAX: they were too many). */
#define WEIR_SAMPLE 8192
bool weir_listable(size_t n, size_t k);
/* Of so many sampled elements the rank-th largest is a floor that k of n elements reach as good as
 * always, and more than `room` (never below sampled) as good as never. */
typedef struct weir_list_plan {
  size_t rank, room;
} weir_list_plan;
weir_list_plan weir_plan_list(size_t n, size_t k, size_t sampled);
weir_status weir_list_floor(weir_codec_context *context, size_t n, size_t k, uint32_t *floor_bits);
weir_found weir_list_conclude(weir_codec_context *context, const float *e, size_t n, size_t k,
                              uint32_t floor_bits, size_t count);
/* base + the indices of the k largest, ascending, once they are found. */
void weir_emit_found(const weir_codec_context *context, const float *e, size_t n, size_t k,
                     const weir_found *found, uint32_t base, uint32_t *index);

/* As weir_cpu_ops.emit, over the context's candidates. */
size_t weir_emit_candidates(const weir_codec_context *context, size_t count, weir_band band,
                            uint32_t base, uint32_t *index);

/* base + the indices of the k largest of n elements, ascending. */
weir_status weir_topk_indices(weir_codec_context *context, const float *e, size_t n, size_t k,
                              uint32_t base, uint32_t *index);

/* Fills a gain curve from bins that were counted elsewhere, of a gradient of n elements;
 * WEIR_GAIN_BINS counts and energies. */
void weir_gain_curve_load(weir_gain_curve *curve, size_t n, const uint64_t *count,
                          const double *energy);

/* Selects k of the n elements of a unit, k < n; k = n, too, where the unit is a tensor. */
typedef weir_status weir_unit_fn(weir_codec_context *context, const float *e, size_t n, size_t k,
                                 uint32_t base, uint32_t *index);
/* The frame of every select(): what is a unit, how many it keeps, and the checks. */
weir_status weir_select_whole(weir_codec_context *context, const float *e,
                              const weir_layout *layout, double cr, uint32_t *index,
                              size_t capacity, size_t *k, weir_unit_fn *unit);
weir_status weir_select_tensors(weir_codec_context *context, const float *e,
                                const weir_layout *layout, double cr, uint32_t *index,
                                size_t capacity, size_t *k, weir_unit_fn *unit);

/* MSTopK's two thresholds for keeping k < n after so many rounds (the paper's N): the lowest tried
 * that at most k reach (infinite when there is none) and the highest that more than k reach (or
 * 0). */
typedef struct weir_mstopk_thresholds {
  double upper, lower;
} weir_mstopk_thresholds;
weir_status weir_mstopk_search(weir_codec_context *context, const float *e, size_t n, size_t k,
                               unsigned rounds, weir_mstopk_thresholds *thresholds,
                               weir_found *found);

/* --- what rows of codecs share --------------------------------------------------------------- */
size_t weir_none_kept(const weir_layout *layout, double cr);
size_t weir_topk_kept(const weir_layout *layout, double cr);
size_t weir_lwtopk_kept(const weir_layout *layout, double cr);
weir_status weir_topk_select(weir_codec_context *context, const float *e, const weir_layout *layout,
                             double cr, uint32_t *index, size_t capacity, size_t *k);

/* --- index encodings ------------------------------------------------------------------------- */

/* The numbers stand in messages. */
typedef enum weir_index_encoding {
  WEIR_INDEX_U32 = 0,    /* 4 bytes an index */
  WEIR_INDEX_BITMAP = 1, /* bit i of n says whether i is kept */
  WEIR_INDEX_ELIAS = 2,  /* buckets and low bits (wire_elias.c) */
  WEIR_INDEX_COUNT = 3
} weir_index_encoding;

typedef struct weir_index_code {
  weir_index_encoding encoding;
  unsigned shift; /* low bits of an Elias-Fano list; 0 for the others */
  size_t bytes;   /* length of the encoded list */
} weir_index_code;

/* The code of a list of k of n indices, whichever: u32 when automatic is false, else the
 * shortest. */
weir_index_code weir_index_choose(size_t n, size_t k, bool automatic);
void weir_index_write(weir_index_code code, size_t n, const uint32_t *index, size_t k,
                      uint8_t *out);

/* Reads an untrusted list piece by piece.  Every piece is ascending, goes on ascending from the
 * one before, and is below n.  code.bytes has been checked: it follows from k and n, and an
 * Elias-Fano list has k >= 1.  No more than k indices are asked for. */
typedef struct weir_index_reader {
  weir_index_code code;
  const uint8_t *data;
  size_t n, k;
  uint64_t next;  /* smallest index that may come next */
  uint64_t at;    /* bytes (u32), elements (bitmap) or bits (Elias-Fano, first section) consumed */
  uint64_t taken; /* indices read (Elias-Fano) */
} weir_index_reader;
/* Exactly count more indices; false: malformed. */
bool weir_index_read(weir_index_reader *reader, uint32_t *index, size_t count);
/* After the last index: nothing is left over, spare bits are zero. */
bool weir_index_done(const weir_index_reader *reader);

/* The same for Elias-Fano lists alone, and for who reads them in another way: the sections, and
 * whether the first ends with a bucket and no spare bit is set. */
void weir_elias_write(size_t n, const uint32_t *index, size_t k, unsigned shift, uint8_t *out);
bool weir_elias_read(weir_index_reader *reader, uint32_t *index, size_t count);
bool weir_elias_done(const weir_index_reader *reader);
weir_elias weir_elias_open(const weir_index_reader *reader);
bool weir_elias_sealed(const weir_elias *list);

#endif
