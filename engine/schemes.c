/* Finds the exchange that runs a plan in this group of ranks. */
#include "base/schemes.h"
#include "base/base.h"
#include "engine/backend.h"

static weir_exchange_fn *const exchanges[WEIR_SCHEME_COUNT] = {
    [WEIR_SCHEME_DENSE] = weir_exchange_dense,
    [WEIR_SCHEME_GATHER] = weir_exchange_gather,
    [WEIR_SCHEME_SHARED] = weir_exchange_shared,
    [WEIR_SCHEME_COMPRESSED] = weir_exchange_compressed,
    [WEIR_SCHEME_HITOPK] = weir_exchange_hitopk,
    [WEIR_SCHEME_LOW_RANK] = weir_exchange_lowrank,
    [WEIR_SCHEME_PATH] = weir_exchange_path,
};

weir_status weir_scheme_run(weir_bucket *bucket, weir_headers *headers) {
  return exchanges[bucket->scheme](bucket, headers);
}

static weir_status find_sum(weir_bucket *bucket, const weir_plan *plan) {
  if (!weir_sum_of(plan, &bucket->sum))
    return weir_fail(WEIR_E_INTERNAL, "%s is no all-reduce", weir_algorithm_name(plan->algorithm));
  return bucket->sum.row != NULL ? weir_comm_runs(bucket->engine->config.comm, bucket->sum.row)
                                 : WEIR_OK;
}

static weir_status check_hitopk(const weir_bucket *bucket) {
  const weir_comm *comm = bucket->engine->config.comm;
  if (weir_comm_hosts(comm) == 1 && weir_comm_size(comm) > 1)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "collective hitopk needs several machines: all %d ranks are on one, where "
                     "nothing is sent between machines",
                     weir_comm_size(comm));
  return WEIR_OK;
}

static weir_status check_path(const weir_bucket *bucket) {
  char name[WEIR_COLLECTIVE_TEXT_MAX];
  if (bucket->engine->config.momentum == 0 || bucket->codec->select == NULL) return WEIR_OK;
  weir_plan_collective(&bucket->plan, name);
  return weir_fail(WEIR_E_UNSUPPORTED,
                   "%s of %s goes without momentum correction: what was sent of a rank's gradient "
                   "is not known to it where sums are compressed",
                   name, bucket->codec->name);
}

/* Said by all ranks of a group in which some rank has a device. */
static weir_status check_device(const weir_bucket *bucket) {
  if (!bucket->engine->config.devices || bucket->codec->device) return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED, "codec %s does not run on a device yet",
                   bucket->codec->name);
}

/* Low rank without a matrix is a dense sum, where it is no sum of messages; and where nothing is
 * summed inside of machines first, each rank's selection travels as it is. */
static uint32_t scheme_of(const weir_bucket *bucket) {
  const uint32_t scheme = bucket->plan.scheme;
  if (scheme == WEIR_SCHEME_LOW_RANK && bucket->kept == bucket->n)
    return weir_factors_encoded(&bucket->plan) ? scheme : WEIR_SCHEME_DENSE;
  return scheme == WEIR_SCHEME_HITOPK && !weir_comm_levelled(bucket->engine->config.comm)
             ? WEIR_SCHEME_GATHER
             : scheme;
}

weir_status weir_scheme_find(weir_bucket *bucket) {
  const weir_plan plan = weir_plan_usual(&bucket->plan);
  bucket->scheme = scheme_of(bucket);
  bucket->gather = &weir_allgathers[weir_gather_row_of(&plan)];
  bucket->broadcast = &weir_broadcasts[weir_list_broadcast(&plan)];
  if (bucket->engine->config.without_feedback && !bucket->codec->unbiased)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "codec %s needs error feedback: what it does not send would be lost, and is "
                     "not nothing on average",
                     bucket->codec->name);
  if (check_device(bucket) != WEIR_OK) return WEIR_E_UNSUPPORTED;
  if (weir_sums_inside_natively(&plan) &&
      weir_comm_sums_inside(bucket->engine->config.comm) != WEIR_OK)
    return WEIR_E_UNSUPPORTED;
  if (plan.scheme == WEIR_SCHEME_HITOPK) return check_hitopk(bucket);
  if (plan.scheme == WEIR_SCHEME_PATH) return check_path(bucket);
  if (plan.scheme == WEIR_SCHEME_GATHER || weir_factors_encoded(&plan)) return WEIR_OK;
  if (plan.scheme != WEIR_SCHEME_COMPRESSED) return find_sum(bucket, &plan);
  bucket->compressed = weir_compressed_of(&plan);
  return bucket->compressed != NULL ? WEIR_OK
                                    : weir_fail(WEIR_E_INTERNAL, "%s sums no messages",
                                                weir_algorithm_name(plan.algorithm));
}
