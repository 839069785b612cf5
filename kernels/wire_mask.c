/* Index lists read as masks, a bit an element, 64 at a time: what spreading values over a gradient
 * works from.
 *
 * A bitmap is copied.  A Rice list of a small parameter s is read WINDOW bits at a time through a
 * table: at the begin of a code a zero bit leaves out 2^s elements, and after it a code begins
 * again (so zeros may be taken one by one), and a one bit with s more leaves out as many as they
 * say and keeps the next. An entry does all that lies whole in its window.  The rest, sparse lists
 * and the last 64 bits, goes index by index. */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/wire.h"

#define WINDOW WEIR_RICE_WINDOW
#define TABLED_MOST 5U             /* largest parameter read through a table */
#define TABLED_LEAST ((size_t)256) /* indices; for fewer a cold table is slower */

#define SPAN_MOST 48U /* elements of an entry */

static uint64_t tables[TABLED_MOST + 1][1U << WINDOW];
static atomic_bool built[TABLED_MOST + 1];
static pthread_mutex_t building = PTHREAD_MUTEX_INITIALIZER;

static uint64_t entry_of(unsigned window, unsigned shift) {
  uint64_t bits = 0;
  unsigned span = 0;
  unsigned used = 0;
  while (used < WINDOW) {
    unsigned rest = window >> used;
    if (rest & 1) {
      unsigned low = rest >> 1 & ((1U << shift) - 1);
      if (used + 1 + shift > WINDOW || span + low + 1 > SPAN_MOST) {
        break;
      }
      bits |= UINT64_C(1) << (span + low);
      span += low + 1;
      used += 1 + shift;
    } else {
      if (span + (1U << shift) > SPAN_MOST) {
        break;
      }
      span += 1U << shift;
      used++;
    }
  }
  return bits << WEIR_RICE_BITS_AT | (uint64_t)span << WEIR_RICE_SPAN_AT | used;
}

/* NULL: this list is read index by index. */
static const uint64_t *table_of(weir_index_code code, size_t k) {
  if (code.encoding != WEIR_INDEX_RICE || code.shift > TABLED_MOST || k < TABLED_LEAST) {
    return NULL;
  }
  if (!atomic_load_explicit(&built[code.shift], memory_order_acquire)) {
    (void)pthread_mutex_lock(&building);
    if (!atomic_load_explicit(&built[code.shift], memory_order_relaxed)) {
      for (unsigned window = 0; window < 1U << WINDOW; window++) {
        tables[code.shift][window] = entry_of(window, code.shift);
      }
      atomic_store_explicit(&built[code.shift], true, memory_order_release);
    }
    (void)pthread_mutex_unlock(&building);
  }
  return tables[code.shift];
}

bool weir_masks_dense(const weir_index_reader *list, size_t k) {
  return list->code.encoding == WEIR_INDEX_BITMAP || table_of(list->code, k) != NULL;
}

void weir_masks_start(weir_mask_reader *reader, const weir_index_reader *list, size_t k,
                      unsigned lead) {
  *reader =
      (weir_mask_reader){.list = *list, .k = k, .lead = lead, .table = table_of(list->code, k)};
}

size_t weir_masks_words(const weir_mask_reader *reader) {
  return (reader->list.n + reader->lead + 63) / 64;
}

/* Element 0 is bit `lead` of the first mask. */
static void read_bitmap(weir_mask_reader *reader, uint64_t *mask, size_t words) {
  const uint8_t *data = reader->list.data;
  size_t bytes = reader->list.code.bytes;
  unsigned lead = reader->lead;
  uint64_t before = reader->carry[0];
  for (size_t w = 0; w < words; w++) {
    uint64_t bits = 0;
    size_t from = 8 * (reader->word + w);
    if (from + sizeof bits <= bytes) {
      memcpy(&bits, data + from, sizeof bits);
    } else if (from < bytes) {
      memcpy(&bits, data + from, bytes - from);
    }
    mask[w] = bits << lead | before;
    before = lead > 0 ? bits >> (64 - lead) : 0;
  }
  reader->carry[0] = before;
}

/* As far as whole words of the list go; may end within the slack behind the masks. */
static void read_tabled(weir_mask_reader *reader, uint64_t *mask, size_t words,
                        weir_spread_job *job) {
  weir_index_reader *list = &reader->list;
  uint64_t out = list->next + reader->lead - 64 * (uint64_t)reader->word;
  weir_rice rice = {.table = reader->table,
                    .from = list->data + list->at / 8,
                    .last = list->data + list->code.bytes,
                    .to = (uint8_t *)mask + out / 8,
                    .fill = out % 8};
  rice.pending = *rice.to;
  if (rice.last - rice.from >= 8) {
    memcpy(&rice.window, rice.from, sizeof rice.window);
    rice.window >>= list->at % 8;
    rice.have = 56 - list->at % 8;
    rice.from += 7;
  } else {
    rice.have = -(list->at % 8); /* nothing is read, and the place stays */
  }
  weir_cpu()->rice_read(&rice, (const uint8_t *)(mask + words), job);
  list->at = 8 * (uint64_t)(rice.from - list->data) - rice.have;
  out = 8 * (uint64_t)(rice.to - (uint8_t *)mask) + rice.fill;
  list->next = out + 64 * (uint64_t)reader->word - reader->lead;
  if (rice.last - rice.from < 8) {
    reader->table = NULL;
    reader->read = reader->seen + weir_cpu()->ones(mask, words + WEIR_MASK_SLACK);
  }
}

static bool read_listed(weir_mask_reader *reader, uint64_t *mask, size_t words) {
  uint64_t first = 64 * (uint64_t)reader->word;
  for (;;) {
    for (; reader->taken < reader->listed; reader->taken++) {
      uint64_t bit = (uint64_t)reader->piece[reader->taken] + reader->lead - first;
      if (bit >= 64 * (uint64_t)words) {
        return true;
      }
      mask[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    if (reader->read >= reader->k) {
      return reader->read == reader->k;
    }
    size_t rest = reader->k - reader->read;
    reader->taken = 0;
    reader->listed = rest < WEIR_MASK_PIECE ? rest : WEIR_MASK_PIECE;
    if (!weir_index_read(&reader->list, reader->piece, reader->listed)) {
      return false;
    }
    reader->read += reader->listed;
  }
}

bool weir_masks_read(weir_mask_reader *reader, uint64_t *mask, size_t words, size_t *ones,
                     weir_spread_job *meanwhile) {
  weir_spread_job none = {.words = 0};
  bool good = true;
  *ones = 0;
  if (reader->list.code.encoding == WEIR_INDEX_BITMAP) {
    read_bitmap(reader, mask, words);
  } else {
    memcpy(mask, reader->carry, sizeof reader->carry);
    memset(mask + WEIR_MASK_SLACK, 0, words * sizeof *mask);
    if (reader->table != NULL) {
      read_tabled(reader, mask, words, meanwhile != NULL ? meanwhile : &none);
    }
    if (reader->table == NULL) {
      good = read_listed(reader, mask, words);
    }
    memcpy(reader->carry, mask + words, sizeof reader->carry);
  }
  reader->word += words;
  *ones = weir_cpu()->ones(mask, words);
  reader->seen += *ones;
  return good && reader->seen <= reader->k;
}

bool weir_masks_done(const weir_mask_reader *reader, uint64_t last) {
  unsigned used = (unsigned)((reader->list.n + reader->lead) % 64);
  uint64_t beyond = used > 0 ? last >> used : 0;
  for (size_t i = 0; i < WEIR_MASK_SLACK; i++) {
    beyond |= reader->carry[i];
  }
  if (beyond != 0 || reader->seen != reader->k) {
    return false;
  }
  if (reader->list.code.encoding == WEIR_INDEX_BITMAP) {
    return true;
  }
  return reader->table == NULL && reader->read == reader->k && weir_index_done(&reader->list);
}
