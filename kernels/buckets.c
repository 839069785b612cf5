/* Tables of buckets: checking and naming them. */
#include <stdio.h>
#include <weir/plan.h>

#include "base/base.h"

_Static_assert(sizeof(weir_plan_bucket) == 32, "buckets travel as they lie in memory");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tables of buckets are little-endian");

void weir_plan_of_bucket(const weir_plan_bucket *bucket, weir_plan *plan) {
  plan->codec = bucket->codec;
  plan->scheme = bucket->scheme;
  plan->wire = bucket->wire;
  plan->algorithm = bucket->algorithm;
  plan->inside = bucket->inside;
  plan->broadcast = bucket->broadcast;
  plan->bucket_log2 = bucket->bucket_log2;
  plan->cr = bucket->cr;
  plan->buckets = plan->layout = 0;
}

void weir_bucket_set_plan(weir_plan_bucket *bucket, const weir_plan *plan) {
  bucket->codec = plan->codec;
  bucket->scheme = plan->scheme;
  bucket->wire = plan->wire;
  bucket->algorithm = plan->algorithm;
  bucket->inside = plan->inside;
  bucket->broadcast = plan->broadcast;
  bucket->bucket_log2 = plan->bucket_log2;
  bucket->cr = plan->cr;
}

static weir_status check_bucket(const weir_plan_bucket *bucket, size_t number) {
  if (bucket->place >= WEIR_PLACE_COUNT)
    return weir_fail(WEIR_E_INVALID, "bucket %zu is compressed at an unknown place", number);
  weir_plan plan = {0};
  weir_plan_of_bucket(bucket, &plan);
  const weir_status status = weir_plan_check(&plan);
  if (status == WEIR_OK) return WEIR_OK;
  char why[256];
  (void)snprintf(why, sizeof why, "%s", weir_last_error());
  return weir_fail(status, "bucket %zu: %s", number, why);
}

weir_status weir_buckets_check(const weir_plan_bucket *buckets, size_t count, size_t tensors) {
  if (buckets == NULL || count == 0) return weir_fail(WEIR_E_INVALID, "a table of no buckets");
  size_t begin = 0;
  for (size_t k = 0; k < count; begin = buckets[k++].end) {
    if (buckets[k].end <= begin || buckets[k].end > tensors)
      return weir_fail(WEIR_E_INVALID,
                       "bucket %zu ends before tensor %u: expected %zu to %zu, ascending", k,
                       buckets[k].end, begin + 1, tensors);
    const weir_status status = check_bucket(&buckets[k], k);
    if (status != WEIR_OK) return status;
  }
  if (begin != tensors)
    return weir_fail(WEIR_E_INVALID, "the buckets end at tensor %zu of %zu", begin, tensors);
  return WEIR_OK;
}

uint32_t weir_buckets_name(const weir_plan_bucket *buckets, size_t count) {
  const uint64_t hash = weir_hash(WEIR_HASH_INIT, buckets, count * sizeof *buckets);
  const uint32_t name = (uint32_t)(hash ^ hash >> 32);
  return name != 0 ? name : 1;
}
