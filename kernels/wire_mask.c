/* Index lists read as masks, a bit an element, 64 at a time: what spreading values over a gradient
 * works from.  A bitmap is copied, and an Elias-Fano list whose buckets have 8 elements gives a
 * byte a bucket.  Other lists go index by index. */
#include "kernels/wire.h"

#define BUCKET_SHIFT 3U            /* of buckets that are bytes */
#define LISTED_MOST 5U             /* shift of the sparsest lists worth masks */
#define LISTED_LEAST ((size_t)256) /* indices; fewer are added one by one */

bool weir_masks_flat(const weir_index_reader *list) {
  const weir_cpu_ops *cpu = weir_cpu();
  return list->code.encoding == WEIR_INDEX_BITMAP ||
         (list->code.encoding == WEIR_INDEX_ELIAS && list->code.shift == BUCKET_SHIFT &&
          cpu->elias_masks != NULL && cpu->elias_masks_able());
}

bool weir_masks_dense(const weir_index_reader *list) {
  return list->code.encoding == WEIR_INDEX_BITMAP ||
         (list->code.encoding == WEIR_INDEX_ELIAS && list->code.shift <= LISTED_MOST &&
          list->k >= LISTED_LEAST);
}

void weir_masks_start(weir_mask_reader *reader, const weir_index_reader *list, unsigned lead) {
  *reader = (weir_mask_reader){.list = *list, .lead = lead, .flat = weir_masks_flat(list)};
  if (reader->flat && list->code.encoding == WEIR_INDEX_ELIAS) {
    reader->sections = weir_elias_open(list);
    reader->elias.good = weir_elias_sealed(&reader->sections);
  }
}

size_t weir_masks_words(const weir_mask_reader *reader) {
  return (reader->list.n + reader->lead + 63) / 64;
}

/* --- flat lists: element 0 is bit 0 of the first mask ---------------------------------------- */

static void read_bitmap(const weir_mask_reader *reader, uint64_t *mask, size_t words) {
  size_t from = 8 * reader->word;
  size_t bytes = reader->list.code.bytes;
  size_t left = from < bytes ? bytes - from : 0;
  size_t taken = left < words * sizeof *mask ? left : words * sizeof *mask;
  memset(mask + taken / sizeof *mask, 0,
         words * sizeof *mask - taken / sizeof *mask * sizeof *mask);
  if (taken > 0) memcpy(mask, reader->list.data + from, taken);
}

/* What a round gives beyond its end is the begin of the next. */
static void read_buckets(weir_mask_reader *reader, uint64_t *mask, size_t words) {
  weir_elias_masks *elias = &reader->elias;
  const uint8_t *end = (const uint8_t *)(mask + words);
  memcpy(mask, reader->carry, sizeof reader->carry);
  elias->list = &reader->sections;
  elias->to = (uint8_t *)mask + reader->ahead;
  weir_cpu()->elias_masks(elias, end);
  reader->ahead = (size_t)(elias->to - end);
  memset(elias->to, 0, sizeof reader->carry - reader->ahead);
  memcpy(reader->carry, mask + words, sizeof reader->carry);
}

static void move_up(weir_mask_reader *reader, uint64_t *mask, size_t words) {
  unsigned lead = reader->lead;
  uint64_t before = reader->before;
  for (size_t w = 0; w < words && lead > 0; w++) {
    uint64_t bits = mask[w];
    mask[w] = bits << lead | before;
    before = bits >> (64 - lead);
  }
  reader->before = before;
}

/* --- index by index -------------------------------------------------------------------------- */

static bool read_listed(weir_mask_reader *reader, uint64_t *mask, size_t words) {
  uint64_t first = 64 * (uint64_t)reader->word;
  uint64_t bits = 0; /* of the mask that the last index is in */
  size_t word = 0;
  memset(mask, 0, words * sizeof *mask);
  for (;;) {
    for (; reader->taken < reader->listed; reader->taken++) {
      uint64_t bit = (uint64_t)reader->piece[reader->taken] + reader->lead - first;
      if (bit >= 64 * (uint64_t)words) return true;
      bits = (bit / 64 == word ? bits : 0) | UINT64_C(1) << bit % 64;
      word = (size_t)(bit / 64);
      mask[word] = bits;
    }
    size_t rest = reader->list.k - reader->read;
    if (rest == 0) return true;
    reader->taken = 0;
    reader->listed = rest < WEIR_MASK_PIECE ? rest : WEIR_MASK_PIECE;
    if (!weir_index_read(&reader->list, reader->piece, reader->listed)) return false;
    reader->read += reader->listed;
  }
}

bool weir_masks_read(weir_mask_reader *reader, uint64_t *mask, size_t words, size_t *ones) {
  bool good = true;
  *ones = 0;
  if (!reader->flat) {
    good = read_listed(reader, mask, words);
  } else {
    if (reader->list.code.encoding == WEIR_INDEX_BITMAP) {
      read_bitmap(reader, mask, words);
    } else {
      read_buckets(reader, mask, words);
    }
    move_up(reader, mask, words);
  }
  reader->word += words;
  *ones = weir_cpu()->ones(mask, words);
  reader->seen += *ones;
  return good && reader->seen <= reader->list.k;
}

bool weir_masks_done(const weir_mask_reader *reader, uint64_t last) {
  unsigned used = (unsigned)((reader->list.n + reader->lead) % 64);
  uint64_t beyond = reader->before | (used > 0 ? last >> used : 0);
  for (size_t i = 0; i < WEIR_MASK_SLACK; i++) beyond |= reader->carry[i];
  if (beyond != 0 || reader->seen != reader->list.k) return false;
  /* k indices in as many bits as there are: the others are zeros, and all buckets were read. */
  return reader->flat ? reader->list.code.encoding == WEIR_INDEX_BITMAP || reader->elias.good
                      : reader->read == reader->list.k && weir_index_done(&reader->list);
}
