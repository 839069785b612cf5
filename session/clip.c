/* Clipping a rank's gradient before anything is accumulated from it (kernels/decorate.h). */
#include <math.h>

#include "kernels/codec.h"
#include "kernels/decorate.h"
#include "session/state.h"

static size_t numel(const weir_session *session, size_t tensor) {
  const size_t at = session->place[tensor];
  return session->offset[at + 1] - session->offset[at];
}

static weir_status check(const weir_session *session, float *const *gradients, double limit) {
  if (!(limit >= 0 && isfinite(limit)))
    return weir_fail(WEIR_E_INVALID, "the limit of the norm is %g; it must be 0 or more", limit);
  if (gradients == NULL) return weir_fail(WEIR_E_INVALID, "there are no gradients");
  for (size_t t = 0; t < session->tensors; t++) {
    if (session->types[session->place[t]] != WEIR_FP32)
      return weir_fail(WEIR_E_UNSUPPORTED,
                       "tensor %zu (%s) has 16 bits an element, and only fp32 is clipped", t,
                       session->names[session->place[t]]);
    if (numel(session, t) == 0) continue;
    if (gradients[t] == NULL)
      return weir_fail(WEIR_E_INVALID, "tensor %zu (%s) has no gradient", t,
                       session->names[session->place[t]]);
    const weir_status status = weir_session_check_host(session, gradients[t]);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

weir_status weir_clip(const weir_session *session, float *const *gradients, double limit,
                      double *norm) {
  weir_status status = weir_session_check(session);
  if (status == WEIR_OK) status = check(session, gradients, limit);
  if (status != WEIR_OK) return status;
  const double share = weir_clip_share(limit, session->options.world_size);
  if (session->device_ops != NULL)
    return weir_engine_clip(session->engine, gradients, session->place, share, norm);
  double square = 0;
  for (size_t t = 0; t < session->tensors; t++)
    square += weir_sum_square(gradients[t], numel(session, t));
  if (norm != NULL) *norm = sqrt(square);
  const float factor = weir_clip_factor(square, share);
  for (size_t t = 0; t < session->tensors && factor < 1; t++)
    weir_scale(gradients[t], numel(session, t), factor);
  return WEIR_OK;
}
