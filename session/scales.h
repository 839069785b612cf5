/* Inside of LARS and LAMB: tensors in pieces, whose norms are taken together. */
#ifndef WEIR_SESSION_SCALES_H
#define WEIR_SESSION_SCALES_H

#include <weir/parallel.h>

#include "kernels/adaptive.h"
#include "session/state.h"

#define WEIR_PIECE ((size_t)65536) /* elements at most */

typedef struct weir_cut {
  size_t tensor, at, n; /* elements [at, at + n) of it */
  size_t begin;         /* the first one's place among all tensors' elements */
} weir_cut;

typedef struct weir_scaling {
  const weir_session *session; /* NULL: alone */
  const weir_scaled_tensor *tensors;
  size_t count;
  /* Of a whole step: what it moves, and its moments, of this rank's share (tensors have none). */
  const weir_moved_tensor *moved;
  const weir_moment_share *moments;
  const weir_adam *adam; /* NULL: LARS */
  size_t pieces;
  weir_cut *piece;
  size_t *work;          /* of each piece: its elements */
  weir_squares *squares; /* of each piece */
} weir_scaling;

weir_status weir_check_beta(double beta);
/* Is this memory where the session's is? */
weir_status weir_check_memory(const weir_session *session, const void *memory);
/* Checks options and what they point to, and takes a default-filled copy of them. */
weir_status weir_take_lars(const weir_lars *callers, weir_lars *own);
weir_status weir_take_lamb(const weir_lamb *callers, weir_lamb *own);
weir_status weir_check_scaling(const weir_session *session, const weir_scaling *scaling,
                               const void *out);

/* Pieces of tensors of these lengths; afterwards `piece` and `work` are there, and room for
 * squares. */
weir_status weir_cut_pieces(weir_scaling *scaling, const size_t *numel);
void weir_scaling_free(weir_scaling *scaling);

/* The scales of all tensors, by norms that all ranks take together. */
weir_status weir_scale_lars(weir_session *session, const weir_lars *lars, weir_scaling *scaling,
                            double *scales);
weir_status weir_scale_lamb(weir_session *session, const weir_lamb *lamb, weir_scaling *scaling,
                            double *scales);

#endif
