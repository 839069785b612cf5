/* What LARS and LAMB scale a tensor's step by: norms, in pieces that are divided among the
 * ranks. */
#include "session/scales.h"

#include <math.h>
#include <stdlib.h>

#include "session/abi.h"
#include "session/state.h"

/* --- checks ----------------------------------------------------------------------------------- */

weir_status weir_check_memory(const weir_session *session, const void *memory) {
  if (session == NULL) return WEIR_OK;
  return session->device_ops != NULL ? weir_engine_check_memory(session->engine, memory)
                                     : weir_session_check_host(session, memory);
}

static weir_status check_tensor(const weir_session *session, const weir_scaling *s, size_t number) {
  const weir_scaled_tensor *t = &s->tensors[number];
  const float *const data[] = {t->weight, t->gradient, t->first, t->second};
  const size_t looked_at = s->adam != NULL && s->moments == NULL ? 4 : 2;
  for (size_t i = 0; i < looked_at && t->numel > 0; i++) {
    if (data[i] == NULL)
      return weir_fail(
          WEIR_E_INVALID, "tensor %zu to be scaled lacks its %s", number,
          (const char *[]){"weights", "gradient", "first moments", "second moments"}[i]);
    const weir_status status = weir_check_memory(session, data[i]);
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

weir_status weir_check_beta(double beta) {
  if (beta >= 0 && beta < 1) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID, "beta is %g; it must be in [0, 1)", beta);
}

weir_status weir_check_scaling(const weir_session *session, const weir_scaling *s,
                               const void *out) {
  weir_status status = session != NULL ? weir_session_check(session) : WEIR_OK;
  if (status == WEIR_OK && s->count > 0 && (s->tensors == NULL || out == NULL))
    status = weir_fail(WEIR_E_INVALID, "the pointer for tensors or scales is NULL");
  for (size_t t = 0; status == WEIR_OK && t < s->count; t++) status = check_tensor(session, s, t);
  return status;
}

/* --- pieces ----------------------------------------------------------------------------------- */

static size_t pieces_of(size_t numel) { return numel / WEIR_PIECE + (numel % WEIR_PIECE > 0); }

/* One piece of memory: squares, pieces, work. */
weir_status weir_cut_pieces(weir_scaling *s, const size_t *numel) {
  size_t begin = 0, pieces = 0;
  for (size_t t = 0; t < s->count; t++) pieces += pieces_of(numel[t]);
  s->squares = calloc(pieces + 1, sizeof *s->squares + sizeof *s->piece + sizeof *s->work);
  if (s->squares == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu norms", pieces);
  s->piece = (weir_cut *)(s->squares + pieces);
  s->work = (size_t *)(s->piece + pieces);
  for (size_t t = 0; t < s->count; t++)
    for (size_t at = 0; at < numel[t]; at += WEIR_PIECE) {
      const size_t n = numel[t] - at < WEIR_PIECE ? numel[t] - at : WEIR_PIECE;
      s->work[s->pieces] = n;
      s->piece[s->pieces++] = (weir_cut){t, at, n, begin};
      begin += n;
    }
  return WEIR_OK;
}

void weir_scaling_free(weir_scaling *s) { free(s->squares); }

static weir_status cut(weir_scaling *s) {
  size_t *numel = calloc(s->count + 1, sizeof *numel);
  if (numel == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu lengths", s->count);
  for (size_t t = 0; t < s->count; t++) numel[t] = s->tensors[t].numel;
  const weir_status status = weir_cut_pieces(s, numel);
  free(numel);
  return status;
}

/* --- norms ------------------------------------------------------------------------------------ */

/* Of a tensor whose rate is not scaled nothing is wanted. */
static weir_tensor_piece piece_of(const weir_scaling *s, const weir_cut *cut) {
  const weir_scaled_tensor *t = &s->tensors[cut->tensor];
  const bool plain = s->moved != NULL && s->moved[cut->tensor].plain;
  weir_tensor_piece piece = {
      .weight = t->weight + cut->at, .gradient = t->gradient + cut->at, .n = plain ? 0 : cut->n};
  if (plain || s->adam == NULL) return piece;
  const size_t own = s->moments != NULL ? cut->begin - s->moments->begin : cut->at;
  piece.first = (s->moments != NULL ? s->moments->first : t->first) + own;
  piece.second = (s->moments != NULL ? s->moments->second : t->second) + own;
  return piece;
}

static weir_status square_there(const weir_scaling *s, size_t first, size_t count,
                                weir_squares *out) {
  weir_tensor_piece *pieces = calloc(count + 1, sizeof *pieces);
  if (pieces == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu pieces", count);
  for (size_t i = 0; i < count; i++) pieces[i] = piece_of(s, &s->piece[first + i]);
  const weir_status status = weir_engine_squares(s->session->engine, pieces, count, s->adam, out);
  free(pieces);
  return status;
}

static weir_status square_pieces(void *user, size_t first, size_t count, void *results) {
  const weir_scaling *s = user;
  weir_squares *out = results;
  if (s->session != NULL && s->session->device_ops != NULL)
    return square_there(s, first, count, out);
  for (size_t i = 0; i < count; i++) {
    const weir_tensor_piece piece = piece_of(s, &s->piece[first + i]);
    out[i] = s->adam == NULL ? weir_lars_squares(&piece) : weir_lamb_squares(&piece, s->adam);
  }
  return WEIR_OK;
}

static weir_status square_all(weir_session *session, weir_scaling *s) {
  const weir_status status = s->squares == NULL ? cut(s) : WEIR_OK;
  if (status != WEIR_OK) return status;
  s->session = session;
  const weir_map map = {.struct_size = sizeof map,
                        .count = s->pieces,
                        .bytes = sizeof *s->squares,
                        .work = s->work,
                        .fn = square_pieces,
                        .user = s};
  return weir_parallel_map(session, &map, s->squares);
}

/* The norms of the next tensor, its pieces' squares added up in their order. */
static weir_squares norms(const weir_scaling *s, size_t tensor, size_t *piece) {
  weir_squares sum = {0, 0};
  for (; *piece < s->pieces && s->piece[*piece].tensor == tensor; (*piece)++) {
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

weir_status weir_take_lars(const weir_lars *callers, weir_lars *own) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_lars, most);
  if (callers == NULL) return weir_fail(WEIR_E_INVALID, "no LARS");
  weir_status status = weir_abi_take(&known, own, callers);
  if (status == WEIR_OK) status = check_at_least("trust", own->trust, false);
  if (status == WEIR_OK) status = check_at_least("the weight decay", own->weight_decay, true);
  if (status == WEIR_OK) status = check_at_least("epsilon", own->epsilon, true);
  return status == WEIR_OK ? check_bounds(own->least, own->most) : status;
}

weir_status weir_take_lamb(const weir_lamb *callers, weir_lamb *own) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_lamb, step);
  if (callers == NULL) return weir_fail(WEIR_E_INVALID, "no LAMB");
  weir_status status = weir_abi_take(&known, own, callers);
  if (status == WEIR_OK) status = weir_check_beta(own->beta1);
  if (status == WEIR_OK) status = weir_check_beta(own->beta2);
  if (status == WEIR_OK) status = check_at_least("epsilon", own->epsilon, false);
  if (status == WEIR_OK) status = check_at_least("the weight decay", own->weight_decay, true);
  return status == WEIR_OK ? check_bounds(own->least, own->most) : status;
}

weir_status weir_scale_lars(weir_session *session, const weir_lars *c, weir_scaling *s,
                            double *scales) {
  const weir_status status = square_all(session, s);
  for (size_t t = 0, piece = 0; status == WEIR_OK && t < s->count; t++) {
    const weir_squares norm = norms(s, t, &piece);
    const double by = norm.step + c->weight_decay * norm.weight + c->epsilon;
    const double scale = c->trust * ratio(norm.weight, by, 1);
    scales[t] = within(scale, c->least, c->most);
  }
  return status;
}

weir_status weir_scale_lamb(weir_session *session, const weir_lamb *c, weir_scaling *s,
                            double *scales) {
  const weir_status status = square_all(session, s);
  for (size_t t = 0, piece = 0; status == WEIR_OK && t < s->count; t++) {
    const weir_squares norm = norms(s, t, &piece);
    const bool known_norm = norm.weight > 0 && isfinite(norm.weight);
    const double weight = known_norm ? within(norm.weight, c->least, c->most) : 0;
    scales[t] = ratio(weight, norm.step, 1);
  }
  return status;
}

weir_status weir_lars_scales(weir_session *session, const weir_lars *callers,
                             const weir_scaled_tensor *tensors, size_t count, double *scales) {
  weir_lars c = {0};
  weir_scaling s = {.tensors = tensors, .count = count};
  weir_status status = weir_take_lars(callers, &c);
  if (status == WEIR_OK) status = weir_check_scaling(session, &s, scales);
  if (status == WEIR_OK) status = weir_scale_lars(session, &c, &s, scales);
  weir_scaling_free(&s);
  return status;
}

weir_status weir_lamb_scales(weir_session *session, const weir_lamb *callers,
                             const weir_scaled_tensor *tensors, size_t count, double *scales) {
  weir_lamb c = {0};
  weir_adam adam = {0};
  weir_scaling s = {.tensors = tensors, .count = count, .adam = &adam};
  weir_status status = weir_take_lamb(callers, &c);
  if (status == WEIR_OK) status = weir_check_scaling(session, &s, scales);
  if (status == WEIR_OK)
    adam = weir_adam_terms(c.beta1, c.beta2, c.epsilon, c.weight_decay, c.step);
  if (status == WEIR_OK) status = weir_scale_lamb(session, &c, &s, scales);
  weir_scaling_free(&s);
  return status;
}
