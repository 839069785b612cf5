/* AR-Topk over a device: one rank broadcasts its indices, all ranks all-reduce their values there,
 * which come to the host and go back. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "engine/device.h"

/* Of VAR every rank has made a list, behind the place where the variances of all will be. */
size_t weir_on_device_list_at(const weir_group *group) {
  return group->plan.codec == WEIR_CODEC_VAR ? weir_art_variances(group->engine) : 0;
}

/* The indices on every rank in group->index: the root's, or drawn alike by all. */
static weir_status find_indices(weir_group *group, size_t *bytes) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  weir_engine *engine = group->engine;
  int root = weir_art_root(group);
  weir_status status = WEIR_OK;
  if (codec->draw != NULL) {
    status = weir_art_draw(group);
    return status == WEIR_OK ? WEIR_OK : weir_engine_blame(engine, engine->rank, status);
  }
  if (group->plan.codec == WEIR_CODEC_VAR) status = weir_art_root_of_variance(group, &root);
  if (status != WEIR_OK) return status;
  *bytes = 0;
  if (root == engine->rank) {
    *bytes = (size_t)group->told->bytes;
    memmove(group->blocks, group->blocks + weir_on_device_list_at(group), *bytes);
  }
  return weir_art_share(group, root, false, bytes);
}

/* The values at the indices; of a rank whose e is not finite, zeros. */
static weir_status fetch(weir_group *group) {
  const weir_on_device *on = group->engine->device;
  const weir_status status = weir_on_device_status(
      on, on->ops->fetch(on->device, group->number, group->index, group->value));
  if (status != WEIR_OK) return weir_engine_blame(group->engine, group->engine->rank, status);
  if (!group->finite) memset(group->value, 0, group->kept * sizeof(float));
  group->passage.kept_square = weir_sum_square(group->value, group->kept);
  memset(group->error, 0, group->kept * sizeof(float));
  return WEIR_OK;
}

weir_status weir_on_device_art(weir_group *group, const weir_allreduce *allreduce,
                               weir_notes *notes) {
  const weir_on_device *on = group->engine->device;
  const weir_wire_format wire = (weir_wire_format)group->plan.wire;
  const size_t k = group->kept;
  size_t bytes = 0;
  weir_status status = weir_on_device_await(group);
  weir_lap_compress(group);
  if (status != WEIR_OK) return weir_engine_blame(group->engine, group->engine->rank, status);
  status = find_indices(group, &bytes);
  if (status == WEIR_OK) status = fetch(group);
  weir_lap_compress(group);
  if (status != WEIR_OK) return status;
  status = allreduce->run(group->engine->config.comm, group->value, k,
                          wire == WEIR_WIRE_AUTO_BF16 ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32,
                          group->error, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  weir_art_extra_bytes(group, bytes);
  group->overflow = !isfinite(weir_sum_square(group->value, k));
  status = weir_on_device_status(
      on, on->ops->settle(on->device, group->number, group->error, group->value));
  group->settled = status == WEIR_OK;
  weir_lap_compress(group);
  return status;
}
