/* Tables of groups: checking and naming them. */
#include <stdio.h>
#include <string.h>
#include <weir/plan.h>

#include "base/base.h"

_Static_assert(sizeof(weir_plan_group) == 32, "groups travel as they lie in memory");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tables of groups are little-endian");

void weir_group_plan(const weir_plan_group *group, weir_plan *plan) {
  plan->codec = group->codec;
  plan->scheme = group->scheme;
  plan->wire = group->wire;
  plan->algorithm = group->algorithm;
  plan->inside = group->inside;
  plan->broadcast = group->broadcast;
  plan->reserved = group->reserved;
  plan->cr = group->cr;
  plan->groups = plan->layout = 0;
}

void weir_group_set_plan(weir_plan_group *group, const weir_plan *plan) {
  group->codec = plan->codec;
  group->scheme = plan->scheme;
  group->wire = plan->wire;
  group->algorithm = plan->algorithm;
  group->inside = plan->inside;
  group->broadcast = plan->broadcast;
  group->reserved = plan->reserved;
  group->cr = plan->cr;
}

static weir_status check_group(const weir_plan_group *group, size_t number) {
  if (group->place >= WEIR_PLACE_COUNT)
    return weir_fail(WEIR_E_INVALID, "group %zu is compressed at an unknown place", number);
  weir_plan plan = {0};
  weir_group_plan(group, &plan);
  const weir_status status = weir_plan_check(&plan);
  if (status == WEIR_OK) return WEIR_OK;
  char why[256];
  (void)snprintf(why, sizeof why, "%s", weir_last_error());
  return weir_fail(status, "group %zu: %s", number, why);
}

weir_status weir_groups_check(const weir_plan_group *groups, size_t count, size_t tensors) {
  if (groups == NULL || count == 0) return weir_fail(WEIR_E_INVALID, "a table of no groups");
  size_t begin = 0;
  for (size_t k = 0; k < count; begin = groups[k++].end) {
    if (groups[k].end <= begin || groups[k].end > tensors)
      return weir_fail(WEIR_E_INVALID,
                       "group %zu ends before tensor %u: expected %zu to %zu, ascending", k,
                       groups[k].end, begin + 1, tensors);
    const weir_status status = check_group(&groups[k], k);
    if (status != WEIR_OK) return status;
  }
  if (begin != tensors)
    return weir_fail(WEIR_E_INVALID, "the groups end at tensor %zu of %zu", begin, tensors);
  return WEIR_OK;
}

uint32_t weir_groups_name(const weir_plan_group *groups, size_t count) {
  const uint64_t hash = weir_hash(WEIR_HASH_INIT, groups, count * sizeof *groups);
  const uint32_t name = (uint32_t)(hash ^ hash >> 32);
  return name != 0 ? name : 1;
}
