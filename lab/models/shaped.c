/* "shaped": tensors of a profile (planner/profile.h) as a scenario names it, whose gradients are
 * ready when the profile says and hold noise.  It learns nothing: what it trains is the
 * exchange. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/models/model.h"
#include "lab/pace.h"
#include "planner/profile.h"

enum { NOISE = 1 << 16 };
static const double least_s = 1e-9;

typedef struct shaped {
  weir_profile profile;
  float *noise;
} shaped;

static weir_status list_tensors(weir_model *m, const weir_profile *profile, const char *path) {
  for (size_t t = 0; t < profile->count; t++) {
    const weir_profile_tensor *tensor = &profile->tensors[t];
    if (strlen(tensor->name) >= sizeof m->tensors->name || tensor->numel > UINT32_MAX)
      return weir_fail(WEIR_E_INVALID,
                       "%s: tensor '%.40s' of %.0f elements: expected names of less than %zu "
                       "letters and less than 2^32 elements",
                       path, tensor->name, tensor->numel, sizeof m->tensors->name);
    (void)weir_model_add(m, 1, (size_t)tensor->numel, "%s", tensor->name);
  }
  return m->parameters <= UINT32_MAX
             ? WEIR_OK
             : weir_fail(WEIR_E_INVALID, "%s: %zu elements: expected less than 2^32", path,
                         m->parameters);
}

static void release(weir_model *m) {
  shaped *s = m->own;
  if (s != NULL) weir_profile_free(&s->profile);
}

static weir_status create(weir_model *m, const weir_model_config *config) {
  shaped *s = m->own = g_new0(shaped, 1);
  weir_status status = weir_profile_load(&s->profile, config->sizes.shape);
  if (!status) status = list_tensors(m, &s->profile, config->sizes.shape);
  if (status) return status;
  s->noise = weir_model_floats(m, NOISE);
  m->logits = weir_model_floats(m, 1);
  m->label = (uint8_t *)weir_model_floats(m, 1);
  m->classes = 1;
  return WEIR_OK;
}

static void init(weir_model *m, uint64_t seed) {
  shaped *s = m->own;
  weir_rng rng = weir_rng_of(seed);
  weir_model_normal(s->noise, NOISE, 1e-3, &rng);
  memset(m->parameter, 0, m->parameters * sizeof *m->parameter);
}

static weir_status forward(weir_model *m, const weir_batch *batch) {
  (void)batch;
  *m->logits = 0;
  m->outputs = 1;
  m->pace.late_s = 0;
  return WEIR_OK;
}

/* Another part of the noise in every step and tensor: the same again where a step is, after a trial
 * or in a run that goes on. */
static void fill(const shaped *s, uint64_t step, size_t tensor, float *to, size_t count) {
  const uint64_t at[2] = {step, tensor};
  size_t from = (size_t)(weir_hash(WEIR_HASH_INIT, at, sizeof at) % NOISE);
  for (size_t done = 0; done < count;) {
    const size_t part = MIN(count - done, (size_t)NOISE - from);
    memcpy(to + done, s->noise + from, part * sizeof *to);
    done += part;
    from = 0;
  }
}

static weir_status backward(weir_model *m) {
  const shaped *s = m->own;
  weir_status status = WEIR_OK;
  for (size_t t = 0; t < m->count && !status; t++) {
    const double begin = weir_pace_clock(m->pace.virtual_time) - m->pace.late_s;
    fill(s, m->step, t, m->gradient + m->tensors[t].offset, m->tensors[t].numel);
    /* Also where there is no gap, lest what it is behind be forgotten there. */
    m->pace.late_s =
        weir_pace(m->pace.virtual_time, begin, fmax(s->profile.tensors[t].gap_s, least_s));
    status = weir_model_tell(m);
  }
  return status;
}

const weir_model_kind weir_model_shaped = {.name = "shaped",
                                           .dataset = "fashion-mnist",
                                           .evaluated = 1,
                                           .create = create,
                                           .free = release,
                                           .init = init,
                                           .forward = forward,
                                           .backward = backward};
