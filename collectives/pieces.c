#include "collectives/pieces.h"

#include "kernels/codec.h"

/* Of an element of a piece: its index, its value, and what rounding that loses. */
#define LISTED (sizeof(uint32_t) + 2 * sizeof(float))

/* Pieces of thousands of ranks get so small that counting them all would take long, and their plan
 * is out of the question long before. */
#define COUNTED 1000

static size_t align(size_t bytes) { return (bytes + 15) / 16 * 16; }

/* --- encoders --------------------------------------------------------------------------------- */

size_t weir_piece_bytes(const weir_plan *plan, size_t count) {
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  return weir_codec_find(plan->codec)->bound(&layout, plan->cr);
}

static size_t all_bytes(const weir_plan *plan, int ranks, size_t count) {
  return (size_t)ranks * weir_piece_bytes(plan, count);
}

size_t weir_piece_next(const weir_plan *plan, int ranks, size_t left) {
  const size_t grain = weir_codec_find(plan->codec)->grain, room = left * sizeof(float);
  if (all_bytes(plan, ranks, left) <= WEIR_PIECES_LAST) return left;
  /* A message's bytes grow with its elements, so that this is a little too much at the most. */
  const double share = (double)room / (double)(room + all_bytes(plan, ranks, left));
  size_t count = (size_t)(share * (double)left) / grain * grain;
  while (count > grain && count * sizeof(float) + all_bytes(plan, ranks, count) > room)
    count -= grain;
  return count > grain ? count : grain;
}

/* --- selections ------------------------------------------------------------------------------- */

size_t weir_span_marks(size_t elements) { return (elements + 31) / 32; }

static size_t stride_of(const weir_plan *plan, size_t most, size_t kept) {
  return align(WEIR_SPAN_AHEAD + weir_wire_bound(most, kept, (weir_wire_format)plan->wire));
}

static bool fits(const weir_plan *plan, int ranks, const weir_span *span, size_t kept,
                 size_t room) {
  return (size_t)ranks * stride_of(plan, span->most, kept) + kept * LISTED <= room;
}

weir_span weir_span_next(const weir_plan *plan, int ranks, size_t n, size_t at) {
  const size_t left = n - at, half = (left + 1) / 2, marks = weir_span_marks(left);
  const size_t behind = left - half > marks ? (left - half - marks) * sizeof(float) : 0;
  const size_t last = WEIR_PIECES_LAST + (size_t)ranks * WEIR_PIECES_RANK;
  const bool apart = behind < last;
  const size_t room = apart ? last : behind;
  weir_span span = {.most = apart ? left : half, .kept = 1, .apart = apart};
  for (size_t low = 1, high = span.most; low < high;) {
    const size_t middle = low + (high - low + 1) / 2;
    if (fits(plan, ranks, &span, middle, room))
      span.kept = low = middle;
    else
      high = middle - 1;
  }
  span.stride = stride_of(plan, span.most, span.kept);
  return span;
}

/* --- both ------------------------------------------------------------------------------------- */

/* A selection's list of candidates lies where others' messages will come in, if there is room
 * beside indices, values and errors; decoding marks an element by a bit. */
static size_t selection_bytes(const weir_plan *plan, int ranks, size_t n, size_t kept) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const size_t stride = weir_wire_bound(n, kept, (weir_wire_format)plan->wire);
  const size_t others = (size_t)(ranks - 1) * stride,
               room = weir_select_room(codec, n, kept, false);
  const size_t lists = kept * LISTED + room;
  return stride + (others > lists ? others : others + lists) + n / 8;
}

bool weir_pieces_wanted(const weir_plan *plan, int ranks, size_t n, size_t kept) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const size_t most = n * sizeof(float) + WEIR_PIECES_LAST;
  if (codec->encode == NULL) return selection_bytes(plan, ranks, n, kept) > most;
  return codec->grain > 0 && all_bytes(plan, ranks, n) > most &&
         all_bytes(plan, ranks, codec->grain) <= WEIR_PIECES_LAST;
}

size_t weir_pieces_rounds(const weir_plan *plan, int ranks, size_t n, size_t kept) {
  if (n == 0 || !weir_pieces_wanted(plan, ranks, n, kept)) return 1;
  const bool encodes = weir_codec_find(plan->codec)->encode != NULL;
  size_t rounds = encodes ? 0 : 1; /* how far the first goes */
  for (size_t at = 0, count; at < n && rounds < COUNTED; at += count, rounds++) {
    if (encodes) {
      count = weir_piece_next(plan, ranks, n - at);
      continue;
    }
    const weir_span span = weir_span_next(plan, ranks, n, at);
    const double reach = (double)span.kept / (double)kept * (double)n;
    count = reach < (double)span.most ? (size_t)reach : span.most;
    count = count > 0 ? count : 1;
  }
  return rounds;
}
