/* Gathering in pieces: how an exchange keeps to two gradients' memory when the messages of all
 * ranks are longer than one.
 *
 * The sum grows from the front of a buffer of the gradient's length, and where it has not come to
 * yet lies what the next piece needs.  A piece is a stretch of elements, and takes an all-gather.
 * Encoders send as many bytes for as many elements, so that all pieces are known beforehand.  Those
 * whose unit is a tensor encode at once, and cut pieces off a message at the buffer's end.  Of a
 * selection the next piece goes as far as the messages of all ranks have room: each rank says with
 * a piece how far it can go with the next.  What is selected of the rest is marked by a bit an
 * element, at the buffer's end.
 *
 * All of this follows from plan, ranks and elements alone, and is the same on all ranks. */
#ifndef WEIR_COLLECTIVES_PIECES_H
#define WEIR_COLLECTIVES_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/plan.h>

#include "kernels/codec.h"

/* The last pieces' messages have a place of their own, of so many bytes and some for each rank. */
#define WEIR_PIECES_LAST ((size_t)16 * 1024)
#define WEIR_PIECES_RANK ((size_t)64)

/* kept: elements, or bytes of an encoder's message, as weir_cost_kept has them. */
bool weir_pieces_wanted(const weir_plan *plan, int ranks, size_t n, size_t kept);
/* The same where no more than the pieces' own place is to be taken beside the sum. */
bool weir_pieces_needed(const weir_plan *plan, int ranks, size_t n, size_t kept);

/* Encoders: the next piece, which begins at element `at`, as the layout of its messages (offset has
 * room for as many tensors as layout has).  Without tensors: there is no room for the smallest. */
weir_layout weir_piece_next(const weir_plan *plan, int ranks, const weir_layout *layout, size_t at,
                            size_t *offset);
/* Is there room for every one? */
bool weir_pieces_fit(const weir_plan *plan, int ranks, const weir_layout *layout, size_t *offset);

/* Selections: the piece that begins at element `at` of n. */
typedef struct weir_span {
  size_t most;   /* elements it may have */
  size_t kept;   /* of them, those that a rank may send */
  size_t stride; /* bytes of a message's place, of WEIR_SPAN_AHEAD and a wire message */
  bool apart;    /* messages, and lists of `kept` indices, values and errors behind them, lie in the
                    place of their own; else behind `most` elements of the buffer */
} weir_span;
#define WEIR_SPAN_AHEAD sizeof(uint64_t)
weir_span weir_span_next(const weir_plan *plan, int ranks, size_t n, size_t at);
/* The same of one of which `kept` elements of n go: few, so that a piece may have most of them. */
weir_span weir_span_sparse(const weir_plan *plan, int ranks, size_t n, size_t at, size_t kept);
/* 32-bit words of marks for that many elements. */
size_t weir_span_marks(size_t elements);

/* AR-Topk that keeps many of at least so many elements, in n floats that marks lie at the end of.
 * Indices go in stretches of so many elements, of which list and message have room: */
#define WEIR_MARKED_LEAST ((size_t)256)
size_t weir_marked_stretch(const weir_plan *plan, size_t n, size_t kept);
size_t weir_marked_message(const weir_plan *plan, size_t stretch, size_t kept);
/* Values are summed in windows: how many next when so many are done.  Each has as much memory
 * again, for what rounding loses or for the all-reduce.  And the floats that the sums done take:
 * half of one, rounded; one, where two windows are enough then; else none, as they lie elsewhere.
 */
size_t weir_marked_window(size_t n, size_t kept, size_t done, bool rounded);
size_t weir_marked_taken(size_t n, size_t kept, size_t done, bool rounded);
/* How many of each, at least 1. */
size_t weir_marked_stretches(const weir_plan *plan, size_t n, size_t kept);
size_t weir_marked_windows(const weir_plan *plan, size_t n, size_t kept);

#endif
