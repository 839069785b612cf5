/* How many pieces an AG exchange takes, and what it sends in all of them (collectives/pieces.h).
 *
 * Decisions ask this thousands of times, and large groups send thousands of pieces, so that pieces
 * much shorter than what is left are not counted one by one: how long one is changes steadily with
 * what is left, first in proportion to it and in the end hardly. */
#include <math.h>

#include "base/ways.h"
#include "collectives/cost.h"
#include "collectives/pieces.h"
#include "kernels/codec.h"

/* Pieces are counted together that are shorter than this share of what is left, and until this
 * share of it is. */
#define SHORT 0.125
#define UNTIL 0.5

/* What is gathered, of how much. */
typedef struct exchange {
  const weir_plan *plan;
  int ranks;
  bool encodes;
  size_t n;
  double density; /* of a selection */
} exchange;

typedef struct piece {
  size_t left;  /* elements, with its own */
  double count; /* its own */
  double bytes;
  bool apart; /* in the place of the last ones */
} piece;

static double message_bytes(const weir_plan *plan, const weir_layout *layout) {
  return (double)weir_codec_find(plan->codec)->bound(layout, plan->cr);
}

static piece piece_of(const exchange *x, size_t left) {
  const size_t at = x->n - left;
  if (x->encodes) {
    const size_t all[2] = {0, x->n};
    size_t offset[2];
    const weir_layout next = weir_piece_next(x->plan, x->ranks, &(weir_layout){1, all}, at, offset);
    return (piece){left, (double)offset[1], message_bytes(x->plan, &next), false};
  }
  const weir_span span = weir_span_next(x->plan, x->ranks, x->n, at);
  const double reach = (double)span.kept / x->density;
  const bool limited = reach < (double)span.most;
  const size_t count = !limited ? span.most : reach < 1.0 ? 1 : (size_t)reach;
  const double before = floor(x->density * (double)at);
  const size_t k = limited ? span.kept : (size_t)(x->density * (double)(at + count) - before);
  return (piece){
      left, (double)count,
      WEIR_SPAN_AHEAD + weir_wire_expected(count, k, (weir_wire_format)x->plan->wire, true),
      span.apart};
}

/* Until so many are left, pieces change steadily. */
static size_t steady_until(const exchange *x, const piece *p) {
  const size_t until = (size_t)((double)p->left * UNTIL);
  const double last = (double)WEIR_PIECES_LAST + (double)x->ranks * WEIR_PIECES_RANK;
  /* Half of the elements less the marks, 15 of 32, are as long as the last pieces' place. */
  const size_t turn = (size_t)(last / sizeof(float) * 32.0 / 15.0) + 32;
  return !x->encodes && !p->apart && until < turn && turn < p->left ? turn : until;
}

/* How many pieces from one to another.  Between them a piece's elements c go with a power p of what
 * is left, l: the integral of dl / c.  A sum of so many whole pieces is shorter by half the
 * logarithm of what c changes by, as 1 / log(1 / (1 - s)) = 1 / s - 1 / 2 for a small share s. */
static double pieces_between(const piece *a, const piece *b) {
  const double left = log((double)a->left / (double)b->left), change = log(a->count / b->count);
  const double power = change / left, rest = 1.0 - power;
  const double share = a->count / (double)a->left;
  const double smooth = fabs(rest) < 1e-6 ? left / share : -expm1(-rest * left) / rest / share;
  return fmax(smooth - 0.5 * change, 1.0);
}

static weir_gathering in_pieces(const exchange *x) {
  static const size_t empty[1] = {0};
  const size_t scales = weir_codec_find(x->plan->codec)->scales * sizeof(float);
  const double header = x->encodes
                            ? message_bytes(x->plan, &(weir_layout){0, empty}) + (double)scales
                            : WEIR_SPAN_AHEAD + (double)WEIR_WIRE_HEADER;
  weir_gathering all = {0.0, 0.0};
  if (!x->encodes) all = (weir_gathering){1.0, WEIR_SPAN_AHEAD}; /* how far the first goes */
  for (piece p = piece_of(x, x->n), next; p.left > 0; p = next) {
    const double left = (double)p.left;
    next = (piece){.left = p.left - (size_t)p.count};
    if (p.count < SHORT * left && left * UNTIL >= 1.0) {
      next = piece_of(x, steady_until(x, &p));
      const double pieces = pieces_between(&p, &next), gone = left - (double)next.left;
      const double each =
          ((p.bytes - header) / p.count + (next.bytes - header) / next.count) / 2; /* an element */
      all.rounds += pieces;
      all.bytes += pieces * header + gone * each;
      continue;
    }
    all.rounds++;
    all.bytes += p.bytes;
    if (next.left > 0) next = piece_of(x, next.left);
  }
  return all;
}

weir_gathering weir_cost_gathering(const weir_plan *plan, weir_group_shape shape, size_t elements,
                                   size_t kept) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  if (shape.ranks <= 1 || plan->collective >= WEIR_COLL_COUNT ||
      weir_ways[plan->collective].way != WEIR_WAY_AG)
    return (weir_gathering){0.0, 0.0};
  if (!shape.devices && elements > 0 && weir_pieces_wanted(plan, shape.ranks, elements, kept))
    return in_pieces(&(exchange){plan, shape.ranks, codec->encode != NULL, elements,
                                 (double)kept / (double)elements});
  const double whole = weir_wire_expected(elements, kept, (weir_wire_format)plan->wire, true);
  return (weir_gathering){1.0, codec->encode != NULL ? (double)kept : whole};
}
