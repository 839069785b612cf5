/* What LARS and LAMB scale a tensor's step by: norms, in pieces that are divided among the ranks. */
#include <math.h>
#include <stdlib.h>
#include <weir/parallel.h>

#include "kernels/adaptive.h"
#include "session/abi.h"
#include "session/state.h"

#define PIECE ((size_t)65536) /* elements */

typedef struct scaling {
  const weir_scaled_tensor *tensors;
  size_t count;
  const weir_adam *adam; /* NULL: LARS */
  size_t pieces;
  size_t *work;          /* of each piece: its elements */
  weir_squares *squares; /* of each piece */
} scaling;

static size_t pieces_of(size_t numel) { return numel / PIECE + (numel % PIECE > 0); }

static weir_tensor_piece piece_at(const weir_scaled_tensor *t, size_t piece, bool moments) {
  const size_t at = piece * PIECE, left = t->numel - at;
  return (weir_tensor_piece){.weight = t->weight + at,
                             .gradient = t->gradient + at,
                             .first = moments ? t->first + at : NULL,
                             .second = moments ? t->second + at : NULL,
                             .n = left < PIECE ? left : PIECE};
}

/* --- checks ----------------------------------------------------------------------------------- */

static weir_status check_tensor(const weir_session *session, const scaling *s, size_t number) {
  const weir_scaled_tensor *t = &s->tensors[number];
  const float *const data[] = {t->weight, t->gradient, t->first, t->second};
  for (size_t i = 0; i < (s->adam != NULL ? 4 : 2) && t->numel > 0; i++) {
    if (data[i] == NULL)
      return weir_fail(
          WEIR_E_INVALID, "tensor %zu to be scaled lacks its %s", number,
          (const char *[]){"weights", "gradient", "first moments", "second moments"}[i]);
    const weir_status status =
        session != NULL ? weir_session_check_host(session, data[i]) : WEIR_OK;
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

static weir_status check_bounds(double least, double most) {
  if (least >= 0 && isfinite(least) && isfinite(most) && (most == 0 || most >= least))
    return WEIR_OK;
  return weir_fail(WEIR_E_INVALID, "bounds of %g and %g, expected 0 <= least <= most", least, most);
}

static weir_status check_at_least(const char *what, double value, bool zero) {
  if (isfinite(value) && (value > 0 || (zero && value == 0))) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID, "%s is %g; it must be %s", what, value,
                   zero ? "0 or more" : "above 0");
}

static weir_status check_beta(double beta) {
  if (beta >= 0 && beta < 1) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID, "beta is %g; it must be in [0, 1)", beta);
}

static weir_status check_all(const weir_session *session, const scaling *s, const double *scales) {
  weir_status status = session != NULL ? weir_session_check(session) : WEIR_OK;
  if (status == WEIR_OK && session != NULL && session->device_ops != NULL)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "norms are taken in host memory, and the session runs on a device");
  if (status == WEIR_OK && s->count > 0 && (s->tensors == NULL || scales == NULL))
    status = weir_fail(WEIR_E_INVALID, "the pointer for tensors or scales is NULL");
  for (size_t t = 0; status == WEIR_OK && t < s->count; t++) status = check_tensor(session, s, t);
  return status;
}

/* --- norms ------------------------------------------------------------------------------------ */

static weir_status square_pieces(void *user, size_t first, size_t count, void *results) {
  const scaling *s = user;
  weir_squares *out = results, *const end = out + count;
  for (size_t t = 0; out < end; t++) {
    const size_t pieces = pieces_of(s->tensors[t].numel);
    for (; first < pieces && out < end; first++) {
      const weir_tensor_piece piece = piece_at(&s->tensors[t], first, s->adam != NULL);
      *out++ = s->adam != NULL ? weir_lamb_squares(&piece, s->adam) : weir_lars_squares(&piece);
    }
    first -= pieces <= first ? pieces : first;
  }
  return WEIR_OK;
}

/* One piece of memory: work, then squares. */
static weir_status cut(scaling *s) {
  for (size_t t = 0; t < s->count; t++) s->pieces += pieces_of(s->tensors[t].numel);
  s->squares = calloc(s->pieces + 1, sizeof *s->squares + sizeof *s->work);
  if (s->squares == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu norms", s->pieces);
  s->work = (size_t *)(s->squares + s->pieces);
  for (size_t t = 0, at = 0; t < s->count; t++)
    for (size_t p = 0; p < pieces_of(s->tensors[t].numel); p++)
      s->work[at++] = piece_at(&s->tensors[t], p, false).n;
  return WEIR_OK;
}

static weir_status square_all(weir_session *session, scaling *s) {
  weir_status status = cut(s);
  if (status != WEIR_OK) return status;
  const weir_map map = {.struct_size = sizeof map,
                        .count = s->pieces,
                        .bytes = sizeof *s->squares,
                        .work = s->work,
                        .fn = square_pieces,
                        .user = s};
  return weir_parallel_map(session, &map, s->squares);
}

/* The norms of the next tensor, its pieces' squares added up in their order. */
static weir_squares norms(const scaling *s, size_t tensor, size_t *piece) {
  weir_squares sum = {0, 0};
  for (size_t p = 0; p < pieces_of(s->tensors[tensor].numel); p++, (*piece)++) {
    sum.weight += s->squares[*piece].weight;
    sum.step += s->squares[*piece].step;
  }
  return (weir_squares){sqrt(sum.weight), sqrt(sum.step)};
}

static double within(double x, double least, double most) {
  return most > 0 ? fmin(fmax(x, least), most) : x;
}

/* A fraction of two norms, and what stands for one that says nothing. */
static double ratio(double norm, double by, double otherwise) {
  return norm > 0 && by > 0 && isfinite(norm) && isfinite(by) ? norm / by : otherwise;
}

/* --- the two ---------------------------------------------------------------------------------- */

weir_status weir_lars_scales(weir_session *session, const weir_lars *callers,
                             const weir_scaled_tensor *tensors, size_t count, double *scales) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_lars, most);
  weir_lars c = {0};
  scaling s = {.tensors = tensors, .count = count};
  weir_status status =
      callers != NULL ? weir_abi_take(&known, &c, callers) : weir_fail(WEIR_E_INVALID, "no LARS");
  if (status == WEIR_OK) status = check_at_least("trust", c.trust, false);
  if (status == WEIR_OK) status = check_at_least("the weight decay", c.weight_decay, true);
  if (status == WEIR_OK) status = check_at_least("epsilon", c.epsilon, true);
  if (status == WEIR_OK) status = check_bounds(c.least, c.most);
  if (status == WEIR_OK) status = check_all(session, &s, scales);
  if (status == WEIR_OK) status = square_all(session, &s);
  for (size_t t = 0, piece = 0; status == WEIR_OK && t < count; t++) {
    const weir_squares norm = norms(&s, t, &piece);
    const double by = norm.step + c.weight_decay * norm.weight + c.epsilon;
    const double scale = c.trust * ratio(norm.weight, by, 1);
    scales[t] = within(scale, c.least, c.most);
  }
  free(s.squares);
  return status;
}

weir_status weir_lamb_scales(weir_session *session, const weir_lamb *callers,
                             const weir_scaled_tensor *tensors, size_t count, double *scales) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_lamb, step);
  weir_lamb c = {0};
  weir_adam adam;
  scaling s = {.tensors = tensors, .count = count, .adam = &adam};
  weir_status status =
      callers != NULL ? weir_abi_take(&known, &c, callers) : weir_fail(WEIR_E_INVALID, "no LAMB");
  if (status == WEIR_OK) status = check_beta(c.beta1);
  if (status == WEIR_OK) status = check_beta(c.beta2);
  if (status == WEIR_OK) status = check_at_least("epsilon", c.epsilon, false);
  if (status == WEIR_OK) status = check_at_least("the weight decay", c.weight_decay, true);
  if (status == WEIR_OK) status = check_bounds(c.least, c.most);
  if (status == WEIR_OK) status = check_all(session, &s, scales);
  adam = weir_adam_terms(c.beta1, c.beta2, c.epsilon, c.weight_decay, c.step);
  if (status == WEIR_OK) status = square_all(session, &s);
  for (size_t t = 0, piece = 0; status == WEIR_OK && t < count; t++) {
    const weir_squares norm = norms(&s, t, &piece);
    const bool known_norm = norm.weight > 0 && isfinite(norm.weight);
    const double weight = known_norm ? within(norm.weight, c.least, c.most) : 0;
    scales[t] = ratio(weight, norm.step, 1);
  }
  free(s.squares);
  return status;
}
