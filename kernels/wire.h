/* The form of wire messages, for the files that write and read them; wire.c describes it. */
#ifndef WEIR_KERNELS_WIRE_H
#define WEIR_KERNELS_WIRE_H

#include "kernels/internal.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "messages are little-endian and written as they lie in memory"
#endif

/* The numbers stand in messages. */
typedef enum weir_value_encoding {
  WEIR_VALUES_NONE = 0,
  WEIR_VALUES_FP32 = 1,
  WEIR_VALUES_BF16 = 2,
  WEIR_VALUES_FP16 = 3,
  WEIR_VALUES_COUNT = 4
} weir_value_encoding;

static const size_t weir_value_bytes[WEIR_VALUES_COUNT] = {0, 4, 2, 2};
static const uint8_t weir_wire_magic[4] = {'W', 'R', 'M', '1'};

typedef struct weir_wire_header {
  uint8_t magic[4];
  uint32_t k;
  uint32_t n;
  uint8_t index_encoding;
  uint8_t value_encoding;
  uint8_t shift;
  uint8_t zero;
} weir_wire_header;
_Static_assert(sizeof(weir_wire_header) == WEIR_WIRE_HEADER,
               "the header goes out as it lies in memory");

#define WEIR_WIRE_PIECE 512 /* values converted at a time */

/* An untrusted message taken apart: lengths are checked, the list is not yet. */
typedef struct weir_wire_parts {
  size_t k;
  weir_index_reader list;
  weir_value_encoding encoding;
  const uint8_t *values; /* NULL when it carries none */
} weir_wire_parts;

/* WEIR_E_PROTOCOL: what is wrong with a message. */
weir_status weir_wire_malformed(const char *what);
weir_status weir_wire_parse(const void *message, size_t bytes, size_t expected_n,
                            weir_wire_parts *out);
/* Is its list good?  wire_spread.c. */
bool weir_wire_good_list(const weir_wire_parts *message);
/* values[from .. from + count) as floats. */
void weir_wire_values(const weir_wire_parts *message, size_t from, size_t count, float *value);

/* --- an index list as masks; wire_mask.c ----------------------------------------------------- */

/* Words that a buffer of masks has behind those asked for. */
#define WEIR_MASK_SLACK 8
#define WEIR_MASK_PIECE 512

/* Reads an untrusted list as a bit an element.  Element 0 is bit `lead` of the first mask, so that
 * masks fall on lines of memory wherever the gradient begins. */
typedef struct weir_mask_reader {
  weir_index_reader list;
  unsigned lead;                   /* 0..63 */
  bool flat;                       /* read as masks, and not index by index */
  size_t word;                     /* masks read */
  size_t seen;                     /* bits in them */
  uint64_t before;                 /* bits of the last mask read that lie in the next one */
  weir_elias sections;             /* of an Elias-Fano list that is read as masks: */
  weir_elias_masks elias;          /* how far */
  uint64_t carry[WEIR_MASK_SLACK]; /* what it has given of the masks that follow, */
  size_t ahead;                    /* so many bytes */
  size_t read, listed, taken;      /* indices read so far, in piece, and of those used */
  uint32_t piece[WEIR_MASK_PIECE];
} weir_mask_reader;

void weir_masks_start(weir_mask_reader *reader, const weir_index_reader *list, unsigned lead);
/* Is the list read as masks, and not index by index? */
bool weir_masks_flat(const weir_index_reader *list);
/* Is the list worth masks for its values' places? */
bool weir_masks_dense(const weir_index_reader *list);
/* Masks of the whole gradient. */
size_t weir_masks_words(const weir_mask_reader *reader);
/* The next words masks, and how many bits are set in them: never more than k in all.  mask has room
 * for WEIR_MASK_SLACK more.  false: malformed. */
bool weir_masks_read(weir_mask_reader *reader, uint64_t *mask, size_t words, size_t *ones);
/* After the last mask, which is given again: the list is at its end, has k indices, and none is out
 * of range. */
bool weir_masks_done(const weir_mask_reader *reader, uint64_t last);

#endif
