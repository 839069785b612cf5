/* Finds the exchange that runs a plan in this group of ranks. */
#include "base/base.h"
#include "engine/backend.h"

static weir_exchange_fn *const exchanges[WEIR_WAY_COUNT] = {
    [WEIR_WAY_DENSE] = weir_exchange_dense,   [WEIR_WAY_AG] = weir_exchange_gather,
    [WEIR_WAY_ART] = weir_exchange_shared,    [WEIR_WAY_COMPRESSED] = weir_exchange_compressed,
    [WEIR_WAY_HITOPK] = weir_exchange_hitopk,
};

weir_status weir_scheme_run(weir_bucket *bucket, weir_headers *headers) {
  return bucket->thin ? weir_exchange_lowrank(bucket, headers)
                      : exchanges[bucket->way](bucket, headers);
}

static weir_status find_allreduce(weir_bucket *bucket, const weir_way_row *row) {
  bucket->allreduce = weir_allreduce_find(row->algorithm);
  if (bucket->allreduce == NULL)
    return weir_fail(WEIR_E_INTERNAL, "%s names no all-reduce", row->name);
  if (bucket->allreduce->id == WEIR_ALLREDUCE_NATIVE &&
      !weir_comm_native(bucket->engine->config.comm))
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "collective %s needs transport shm, mpi or nccl: there is no all-reduce of "
                     "its own below this bucket's",
                     row->name);
  return WEIR_OK;
}

static weir_status check_hitopk(const weir_bucket *bucket, const weir_way_row *row) {
  const weir_comm *comm = bucket->engine->config.comm;
  if (bucket->engine->config.momentum > 0)
    return weir_fail(
        WEIR_E_UNSUPPORTED,
        "collective %s goes without momentum correction: what of a rank's gradient its "
        "machine sent is not known to it",
        row->name);
  if (weir_comm_hosts(comm) == 1 && weir_comm_size(comm) > 1)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "collective %s needs several machines: all %d ranks are on one, where nothing "
                     "is sent between machines",
                     row->name, weir_comm_size(comm));
  return WEIR_OK;
}

weir_status weir_scheme_on_device(const weir_plan *plan) {
  const weir_way_row *row = &weir_ways[plan->collective];
  if (row->way != WEIR_WAY_HITOPK && row->way != WEIR_WAY_COMPRESSED) return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED, "collective %s does not run on a device yet", row->name);
}

weir_status weir_scheme_find(weir_bucket *bucket) {
  const weir_way_row *row = &weir_ways[bucket->plan.collective];
  const weir_engine_config *config = &bucket->engine->config;
  bucket->way = row->way;
  /* Where nothing is summed inside of machines first, each rank's selection travels as it is. */
  if (row->way == WEIR_WAY_HITOPK && !weir_comm_levelled(config->comm)) bucket->way = WEIR_WAY_AG;
  if (config->devices && weir_scheme_on_device(&bucket->plan) != WEIR_OK) return WEIR_E_UNSUPPORTED;
  if (row->way == WEIR_WAY_DENSE || row->way == WEIR_WAY_ART) return find_allreduce(bucket, row);
  if (row->way == WEIR_WAY_HITOPK) return check_hitopk(bucket, row);
  if (row->way != WEIR_WAY_COMPRESSED) return WEIR_OK;
  bucket->compressed = weir_compressed_find(row->algorithm);
  return bucket->compressed != NULL
             ? WEIR_OK
             : weir_fail(WEIR_E_INTERNAL, "%s names no compressed all-reduce", row->name);
}
