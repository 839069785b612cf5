/* Finds the exchange that runs a plan in this group of ranks. */
#include <string.h>

#include "base/base.h"
#include "engine/device.h"
#include "engine/lowrank.h"

const weir_exchange weir_exchanges[WEIR_WAY_COUNT] = {
    [WEIR_WAY_DENSE] = {weir_prepare_dense, weir_exchange_dense, weir_publish_lowrank},
    [WEIR_WAY_AG] = {weir_prepare_ag, weir_exchange_ag, weir_publish_ag},
    [WEIR_WAY_ART] = {weir_prepare_art, weir_exchange_art, weir_publish_art},
    [WEIR_WAY_COMPRESSED] = {weir_prepare_compressed, weir_exchange_compressed,
                             weir_residual_publish},
    [WEIR_WAY_HITOPK] = {weir_prepare_hitopk, weir_exchange_hitopk, weir_residual_publish},
};

void weir_group_lend(weir_group *group) {
  void *const room = group->room != NULL ? group->room : (void *)group->spare;
  const size_t bytes = group->room != NULL ? group->room_bytes : group->n * sizeof(float);
  weir_codec_context_lend(group->context, room, bytes);
}

weir_status weir_group_select(weir_group *group, size_t *k) {
  weir_group_lend(group);
  const weir_status status = weir_codec_find(group->plan.codec)
                                 ->select(group->context, group->fed, &group->layout,
                                          group->plan.cr, group->index, group->kept_capacity, k);
  weir_codec_context_lend(group->context, NULL, 0);
  return status;
}

weir_status weir_exchange_find(weir_group *group) {
  const weir_way_row *row = &weir_ways[group->plan.collective];
  const weir_comm *comm = group->engine->config.comm;
  group->way = row->way;
  /* Where nothing is summed inside of machines first, each rank's selection travels as it is. */
  if (row->way == WEIR_WAY_HITOPK && !weir_comm_levelled(comm)) group->way = WEIR_WAY_AG;
  group->allreduce = NULL;
  group->compressed = NULL;
  if (group->engine->config.devices) {
    const weir_status status = weir_on_device_accepts(&group->plan);
    if (status != WEIR_OK) return status;
  }
  if (row->way == WEIR_WAY_DENSE || row->way == WEIR_WAY_ART) {
    group->allreduce = weir_allreduce_find(row->algorithm);
    if (group->allreduce == NULL)
      return weir_fail(WEIR_E_INTERNAL, "%s names no all-reduce", row->name);
    if (group->allreduce->id == WEIR_ALLREDUCE_NATIVE && !weir_comm_native(comm))
      return weir_fail(
          WEIR_E_UNSUPPORTED,
          "collective %s needs transport shm, mpi or nccl: there is no all-reduce of its "
          "own below this group's",
          row->name);
  }
  if (row->way == WEIR_WAY_COMPRESSED) {
    group->compressed = weir_compressed_find(row->algorithm);
    if (group->compressed == NULL)
      return weir_fail(WEIR_E_INTERNAL, "%s names no compressed all-reduce", row->name);
  }
  if (row->way == WEIR_WAY_HITOPK && group->engine->config.momentum > 0)
    return weir_fail(
        WEIR_E_UNSUPPORTED,
        "collective %s goes without momentum correction: what of a rank's gradient its "
        "machine sent is not known to it",
        row->name);
  if (row->way == WEIR_WAY_HITOPK && weir_comm_hosts(comm) == 1 && weir_comm_size(comm) > 1)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "collective %s needs several machines: all %d ranks are on one, where nothing "
                     "is sent between machines",
                     row->name, weir_comm_size(comm));
  return WEIR_OK;
}
