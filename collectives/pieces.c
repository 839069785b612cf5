#include "collectives/pieces.h"

#include <math.h>

#include "kernels/codec.h"

/* Of an element of a piece: its index, its value, and what rounding that loses. */
#define LISTED (sizeof(uint32_t) + 2 * sizeof(float))

static size_t align(size_t bytes) { return (bytes + 15) / 16 * 16; }

static size_t last_bytes(int ranks) { return WEIR_PIECES_LAST + (size_t)ranks * WEIR_PIECES_RANK; }

/* --- encoders --------------------------------------------------------------------------------- */

static size_t message_bytes(const weir_plan *plan, const weir_layout *layout) {
  return weir_codec_find(plan->codec)->bound(layout, plan->cr);
}

static size_t all_bytes(const weir_plan *plan, int ranks, size_t count) {
  const size_t offset[2] = {0, count};
  return (size_t)ranks * message_bytes(plan, &(weir_layout){1, offset});
}

/* What is left of a gradient of which some has been sent. */
typedef struct rest {
  const weir_plan *plan;
  int ranks;
  const weir_layout *layout;
  size_t at;
  size_t *offset;
} rest;

static size_t end_of(const rest *r) { return r->layout->offset[r->layout->tensors]; }

/* At most so many elements of it, of whole grains or where a message can be cut; none: nowhere. */
static weir_layout front(const rest *r, size_t most) {
  const weir_codec *codec = weir_codec_find(r->plan->codec);
  const size_t left = end_of(r) - r->at;
  r->offset[0] = 0;
  if (codec->scales > 0) {
    const size_t end = weir_cut_end(r->layout, most < left ? r->at + most : end_of(r));
    return end > r->at ? weir_layout_between(r->layout, r->at, end, r->offset)
                       : (weir_layout){0, r->offset};
  }
  const size_t count = most < left ? most / codec->grain * codec->grain : left;
  if (count > 0) r->offset[1] = count;
  return (weir_layout){count > 0, r->offset};
}

static size_t elements(const weir_layout *layout) { return layout->offset[layout->tensors]; }

static size_t all_of(const rest *r, const weir_layout *piece) {
  return (size_t)r->ranks * message_bytes(r->plan, piece);
}

/* How many elements have room with their messages, which for all that are left take so many bytes,
 * at `each` bytes an element beside them.  A message's bytes grow with its elements, so that what
 * is guessed is a little too much at the most. */
static size_t piece_in(const rest *r, size_t bytes, size_t each, size_t room) {
  const size_t left = end_of(r) - r->at, grain = weir_codec_find(r->plan->codec)->grain;
  const double share = (double)room / ((double)(left * each) + (double)bytes);
  size_t guess = share < 1 ? (size_t)(share * (double)left) : left;
  for (;;) {
    const weir_layout piece = front(r, guess);
    const size_t count = elements(&piece);
    if (count == 0 || count * each + all_of(r, &piece) <= room) return count;
    guess = count - (grain > 0 ? grain : 1 + count / 64);
  }
}

/* Behind it, or behind so many elements, a message lies that it is cut off. */
weir_layout weir_piece_next(const weir_plan *plan, int ranks, const weir_layout *layout, size_t at,
                            size_t *offset) {
  const rest r = {plan, ranks, layout, at, offset};
  const size_t last = last_bytes(ranks), left = end_of(&r) - at;
  const weir_layout whole = front(&r, left);
  const size_t bytes = all_of(&r, &whole);
  if (bytes <= last) return whole;
  const bool cuts = weir_codec_find(plan->codec)->scales > 0;
  const size_t own = cuts ? bytes / (size_t)ranks : 0;
  const size_t room = left * sizeof(float) > own ? left * sizeof(float) - own : 0;
  const size_t behind = piece_in(&r, bytes, sizeof(float), room);
  size_t apart = piece_in(&r, bytes, 0, last);
  if (apart > room / sizeof(float)) apart = room / sizeof(float);
  return front(&r, behind > apart ? behind : apart);
}

bool weir_pieces_fit(const weir_plan *plan, int ranks, const weir_layout *layout, size_t *offset) {
  const size_t n = elements(layout);
  size_t at = 0;
  for (size_t count = 1; at < n && count > 0; at += count) {
    const weir_layout piece = weir_piece_next(plan, ranks, layout, at, offset);
    count = elements(&piece);
  }
  return at == n;
}

/* --- selections ------------------------------------------------------------------------------- */

size_t weir_span_marks(size_t elements) { return (elements + 31) / 32; }

static size_t stride_of(const weir_plan *plan, size_t most, size_t kept) {
  return align(WEIR_SPAN_AHEAD + weir_wire_bound(most, kept, (weir_wire_format)plan->wire));
}

/* What the messages of all ranks and this one's lists take, with so many kept. */
static size_t room_of(const weir_plan *plan, int ranks, size_t most, size_t kept) {
  return (size_t)ranks * stride_of(plan, most, kept) + kept * LISTED;
}

/* How many may be kept of at most so many elements, one in any case.  A message's bytes are nearly
 * in proportion to them: a few guesses come close, and from there it is not far. */
static size_t kept_in(const weir_plan *plan, int ranks, size_t most, size_t room) {
  if (room_of(plan, ranks, most, most) <= room) return most;
  const double fixed = (double)ranks * (WEIR_SPAN_AHEAD + WEIR_WIRE_HEADER);
  size_t low = 1, high = most, guess = most / 2 + 1;
  for (int i = 0; i < 3; i++) {
    const double each = ((double)room_of(plan, ranks, most, guess) - fixed) / (double)guess;
    guess = (size_t)fmin(fmax(((double)room - fixed) / each, 1.0), (double)most);
  }
  for (size_t step = 1; high - low > 1; step *= 2) {
    const bool near = low < guess && guess < high;
    const size_t middle = near ? guess : low + (high - low) / 2;
    if (room_of(plan, ranks, most, middle) <= room) {
      low = middle;
      guess = middle + step;
    } else {
      high = middle;
      guess = middle > step ? middle - step : 1;
    }
  }
  return low;
}

/* Bytes behind so many of the elements left, before their marks. */
static size_t bytes_behind(size_t left, size_t most) {
  const size_t marks = weir_span_marks(left);
  return left - most > marks ? (left - most - marks) * sizeof(float) : 0;
}

/* A piece of `most` elements, or of all that are left where little room is behind those. */
static weir_span span_of(const weir_plan *plan, int ranks, size_t left, size_t half) {
  const size_t behind = bytes_behind(left, half);
  const size_t last = last_bytes(ranks);
  const bool apart = behind < last;
  const size_t most = apart ? left : half;
  const size_t kept = kept_in(plan, ranks, most, apart ? last : behind);
  return (weir_span){
      .most = most, .kept = kept, .stride = stride_of(plan, most, kept), .apart = apart};
}

weir_span weir_span_next(const weir_plan *plan, int ranks, size_t n, size_t at) {
  return span_of(plan, ranks, n - at, (n - at + 1) / 2);
}

/* As many as leave room for what they are likely to keep, and a quarter more. */
weir_span weir_span_sparse(const weir_plan *plan, int ranks, size_t n, size_t at, size_t kept) {
  const size_t left = n - at;
  size_t most = left;
  for (size_t part = 32; part >= 2; part /= 2) {
    most = left - left / part;
    const double likely = 1.25 * (double)kept / (double)n * (double)most + 16;
    if (room_of(plan, ranks, most, (size_t)likely) <= bytes_behind(left, most)) break;
  }
  return span_of(plan, ranks, left, most);
}

/* --- AR-Topk ---------------------------------------------------------------------------------- */

static size_t beside_marks(size_t n) { return n - weir_span_marks(n); }

size_t weir_marked_message(const weir_plan *plan, size_t stretch, size_t kept) {
  return (size_t)weir_wire_expected(stretch, kept, (weir_wire_format)plan->wire, false);
}

size_t weir_marked_stretch(const weir_plan *plan, size_t n, size_t kept) {
  const size_t room = beside_marks(n) * sizeof(float);
  size_t stretch = n;
  for (size_t count = 2; stretch > 1; count++) {
    const size_t most = kept < stretch ? kept : stretch;
    if (most * sizeof(uint32_t) + weir_marked_message(plan, stretch, kept) <= room) break;
    stretch = (n + count - 1) / count;
  }
  return stretch;
}

size_t weir_marked_taken(size_t n, size_t kept, size_t done, bool rounded) {
  const size_t half = beside_marks(n) / 2, quarter = (beside_marks(n) - half) / 2;
  if (rounded) return (done + 1) / 2;
  return kept <= half + quarter ? done : 0;
}

size_t weir_marked_window(size_t n, size_t kept, size_t done, bool rounded) {
  const size_t taken = weir_marked_taken(n, kept, done, rounded);
  const size_t room = (beside_marks(n) - taken) / 2, left = kept - done;
  return left < room ? left : room;
}

size_t weir_marked_stretches(const weir_plan *plan, size_t n, size_t kept) {
  if (n < WEIR_MARKED_LEAST || plan->codec == WEIR_CODEC_RANDOMK)
    return 1; /* which sends no indices */
  const size_t stretch = weir_marked_stretch(plan, n, kept);
  return (n + stretch - 1) / stretch;
}

size_t weir_marked_windows(const weir_plan *plan, size_t n, size_t kept) {
  size_t count = 0;
  if (n < WEIR_MARKED_LEAST) return 1;
  for (size_t done = 0; done < kept; count++)
    done += weir_marked_window(n, kept, done, plan->wire == WEIR_WIRE_AUTO_BF16);
  return count > 0 ? count : 1;
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

static bool takes_more(const weir_plan *plan, int ranks, size_t n, size_t kept, size_t most) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  if (codec->encode == NULL) return selection_bytes(plan, ranks, n, kept) > most;
  if (all_bytes(plan, ranks, n) <= most) return false;
  return codec->scales > 0 || all_bytes(plan, ranks, codec->grain) <= WEIR_PIECES_LAST;
}

bool weir_pieces_wanted(const weir_plan *plan, int ranks, size_t n, size_t kept) {
  return takes_more(plan, ranks, n, kept, n * sizeof(float) + WEIR_PIECES_LAST);
}

bool weir_pieces_needed(const weir_plan *plan, int ranks, size_t n, size_t kept) {
  return takes_more(plan, ranks, n, kept, WEIR_PIECES_LAST);
}
