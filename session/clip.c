/* Clipping a rank's gradient before anything is accumulated from it (kernels/decorate.h). */
#include <math.h>

#include "kernels/codec.h"
#include "kernels/decorate.h"
#include "kernels/half.h"
#include "session/state.h"

static size_t numel(const weir_session *session, size_t tensor) {
  const size_t at = session->place[tensor];
  return session->offset[at + 1] - session->offset[at];
}

static weir_status check(const weir_session *session, void *const *gradients, double limit) {
  if (!(limit >= 0 && isfinite(limit)))
    return weir_fail(WEIR_E_INVALID, "the limit of the norm is %g; it must be 0 or more", limit);
  if (gradients == NULL) return weir_fail(WEIR_E_INVALID, "there are no gradients");
  for (size_t t = 0; t < session->tensors; t++) {
    if (numel(session, t) == 0) continue;
    if (gradients[t] == NULL)
      return weir_fail(WEIR_E_INVALID, "tensor %zu (%s) has no gradient", t,
                       session->names[session->place[t]]);
    const weir_status status = weir_session_check_host(session, gradients[t]);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

static double square_of(unsigned type, const void *g, size_t n) {
  return type == WEIR_FP32 ? weir_sum_square(g, n) : weir_half_square(type, g, n);
}

static void scale(unsigned type, void *g, size_t n, float factor) {
  if (type == WEIR_FP32)
    weir_scale(g, n, factor);
  else
    weir_half_scale(type, g, n, factor);
}

weir_status weir_clip(const weir_session *session, void *const *gradients, double limit,
                      double *norm) {
  weir_status status = weir_session_check(session);
  if (status == WEIR_OK && weir_engine_exchanging(session->engine))
    status = weir_fail(WEIR_E_STATE, "buckets are being exchanged; weir_step_end is due first");
  if (status == WEIR_OK) status = check(session, gradients, limit);
  if (status != WEIR_OK) return status;
  const double share = weir_clip_share(limit, session->options.world_size);
  if (session->device_ops != NULL)
    return weir_engine_clip(session->engine, gradients, session->place, share, norm);
  double square = 0;
  for (size_t t = 0; t < session->tensors; t++)
    square += square_of(session->types[session->place[t]], gradients[t], numel(session, t));
  if (norm != NULL) *norm = sqrt(square);
  const float factor = weir_clip_factor(square, share);
  for (size_t t = 0; t < session->tensors && factor < 1; t++)
    scale(session->types[session->place[t]], gradients[t], numel(session, t), factor);
  return WEIR_OK;
}
