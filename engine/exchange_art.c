/* AR-Topk: one rank broadcasts its indices, all ranks all-reduce their values there. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"

int weir_art_root(const weir_group *group) {
  return (int)(group->engine->turn % (uint64_t)group->engine->size);
}

size_t weir_art_variances(const weir_engine *engine) {
  return ((size_t)engine->size * sizeof(float) + 63) / 64 * 64;
}

/* VAR's root: largest variance of the error-fed gradient, the lowest rank on ties.  A value that
 * is no number wins nowhere. */
weir_status weir_art_root_of_variance(weir_group *group, int *root) {
  weir_engine *engine = group->engine;
  const float mine = (float)weir_variance(&group->passage.moments, group->n);
  float *variance = (float *)(void *)group->blocks; /* rank order, 4 bytes each */
  variance[engine->rank] = mine;
  group->block_bytes[engine->rank] = sizeof mine;
  weir_lap_compress(group);
  weir_status status =
      weir_allgather(engine->config.comm, group->blocks, sizeof mine, group->block_bytes, NULL);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  *root = 0;
  for (int r = 0; r < engine->size; r++) {
    if (group->block_bytes[r] != sizeof mine) {
      status = weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu bytes where its variance takes %zu", r,
                         group->block_bytes[r], sizeof mine);
      return weir_engine_blame(engine, r, status);
    }
    if (variance[r] > variance[*root]) *root = r;
  }
  return WEIR_OK;
}

/* Do indices take more than one broadcast?  They are marked then, not listed. */
static bool in_stretches(const weir_group *group) {
  return group->marked && group->stretch < group->n;
}

/* The root's own index list, as bytes in block_bytes[rank] of blocks. */
static weir_status select_own(weir_group *group) {
  size_t got = 0;
  group->watch->elements += group->n;
  weir_status status = weir_group_select(group, &got);
  if (status == WEIR_OK && group->marked) weir_marked_listed(group);
  if (status != WEIR_OK || in_stretches(group)) return status;
  return weir_wire_encode(group->n, group->index, NULL, got, (weir_wire_format)group->plan.wire,
                          group->blocks, group->stride, &group->block_bytes[group->engine->rank],
                          NULL);
}

/* Indices that all ranks draw alike, from the step alone: nothing to send.  Groups draw alike too:
 * they are different elements. */
weir_status weir_art_draw(weir_group *group) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  size_t k = 0;
  const uint64_t turn = group->engine->turn;
  const uint64_t seed = weir_hash(WEIR_HASH_INIT, &turn, sizeof turn);
  weir_codec_context_lend(group->context, group->room, group->room_bytes);
  const weir_status status = codec->draw(group->context, &group->layout, group->plan.cr, seed,
                                         group->index, group->kept_capacity, &k);
  weir_codec_context_lend(group->context, NULL, 0);
  return status;
}

weir_status weir_prepare_art(weir_group *group) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  if (group->marked) weir_marked_open(group);
  if (codec->draw != NULL) return weir_art_draw(group);
  const bool known = group->plan.codec != WEIR_CODEC_VAR;
  return known && group->engine->rank == weir_art_root(group) ? select_own(group) : WEIR_OK;
}

weir_status weir_art_share(weir_group *group, int root, bool listed, size_t *bytes) {
  weir_engine *engine = group->engine;
  size_t got = 0;
  weir_status status =
      weir_broadcast(engine->config.comm, root, group->blocks, group->stride, bytes);
  weir_lap_comm(group);
  if (status != WEIR_OK || listed) return status;
  status = weir_wire_decode(group->blocks, *bytes, group->n, group->index, NULL,
                            group->kept_capacity, &got);
  if (status != WEIR_OK) return weir_comm_refuse(engine->config.comm, root, status);
  if (got == group->kept) return WEIR_OK;
  return weir_engine_blame(
      engine, root,
      weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu indices where the plan keeps %zu", root, got,
                group->kept));
}

static weir_status share_indices(weir_group *group, int root, size_t *bytes) {
  weir_engine *engine = group->engine;
  const bool own = engine->rank == root;
  weir_status status = WEIR_OK;
  if (own && group->plan.codec == WEIR_CODEC_VAR) status = select_own(group);
  weir_lap_compress(group);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  if (in_stretches(group)) return weir_marked_share(group, root, bytes);
  *bytes = own ? group->block_bytes[engine->rank] : 0;
  return weir_art_share(group, root, own, bytes);
}

static double levels(int ranks) {
  double count = 0;
  for (int reach = 1; reach < ranks; reach *= 2) count++;
  return count;
}

void weir_art_extra_bytes(weir_group *group, size_t bytes) {
  const bool drawn = weir_codec_find(group->plan.codec)->draw != NULL;
  const double expected =
      drawn ? 0
            : weir_wire_expected(group->n, group->kept, (weir_wire_format)group->plan.wire, false);
  group->passage.extra_bytes = levels(group->engine->size) * ((double)bytes - expected);
}

/* What the all-reduce gave goes to its places; who is late has them in the submitted buffers. */
static void scatter(weir_group *group) {
  weir_velocity_cut(group, 0, group->index, group->kept);
  weir_scatter_zero(group->fed, group->index, group->kept);
  weir_scatter_add(group->fed, group->index, group->error, group->kept);
  group->passage.next = group->fed;
  if (group->late) {
    group->overflow = !isfinite(weir_sum_square(group->value, group->kept));
    return;
  }
  memset(group->spare, 0, group->n * sizeof(float));
  weir_scatter_add(group->spare, group->index, group->value, group->kept);
  group->passage.sum = group->spare;
}

weir_status weir_publish_art(weir_group *group, float share) {
  if (!group->late) return weir_residual_publish(group, share);
  const size_t *offset = group->layout.offset;
  size_t i = 0;
  weir_velocity_settle(group);
  group->old = WEIR_OLD_IN_PLACE;
  if (group->marked) {
    weir_marked_publish(group, share);
    return WEIR_OK;
  }
  for (size_t t = 0; t < group->layout.tensors; t++) {
    float *const to = group->engine->submitted[group->first + t];
    if (offset[t + 1] > offset[t]) memset(to, 0, (offset[t + 1] - offset[t]) * sizeof *to);
    for (; i < group->kept && group->index[i] < offset[t + 1]; i++)
      to[group->index[i] - offset[t]] = group->value[i] * share;
  }
  return WEIR_OK;
}

weir_status weir_exchange_art(weir_group *group, const weir_allreduce *allreduce,
                              weir_notes *notes) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  const weir_wire_format wire = (weir_wire_format)group->plan.wire;
  const size_t k = group->kept;
  int root = weir_art_root(group);
  weir_status status = WEIR_OK;
  if (group->plan.codec == WEIR_CODEC_VAR) status = weir_art_root_of_variance(group, &root);
  size_t bytes = 0;
  if (status == WEIR_OK && codec->draw == NULL) status = share_indices(group, root, &bytes);
  if (status == WEIR_OK && group->marked) {
    status = weir_marked_sum(group, allreduce, notes);
    weir_art_extra_bytes(group, bytes);
    return status;
  }
  if (status != WEIR_OK) return status;

  weir_gather(group->fed, group->index, k, group->value);
  group->passage.kept_square = weir_sum_square(group->value, k);
  memset(group->error, 0, k * sizeof(float));
  weir_lap_compress(group);
  status = allreduce->run(group->engine->config.comm, group->value, k,
                          wire == WEIR_WIRE_AUTO_BF16 ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32,
                          group->error, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;

  weir_art_extra_bytes(group, bytes);
  scatter(group);
  weir_lap_compress(group);
  return WEIR_OK;
}
