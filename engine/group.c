/* A group's way through a step: feed, prepare, exchange, publish.  Each is done by whichever thread
 * has the group in its hands (step.c, lanes.c). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/trace.h"
#include "engine/device.h"

static const weir_exchange *exchange_of(const weir_group *group) {
  return group->engine->device != NULL ? &weir_on_device_exchanges[group->way]
                                       : &weir_exchanges[group->way];
}

/* When this rank's e is not finite it is made all zero: the rank takes part in the exchange, so
 * that nobody waits for it, and adds nothing. */
void weir_group_feed(weir_group *group) {
  weir_moments *moments = &group->passage.moments;
  group->watch->elements += group->n;
  memset(&group->passage, 0, sizeof group->passage);
  weir_trace_begin("feed", group->number);
  weir_residual_feed(group);
  weir_trace_end();
  group->finite = moments->nonfinite == 0 && isfinite(moments->sum_square);
  if (group->finite) return;
  weir_ahead_forget(group->context);
  memset(group->fed, 0, group->n * sizeof(float));
  memset(moments, 0, sizeof *moments);
}

/* Passes that compressing makes beside error feedback's.  Of all ranks only one selects for
 * WEIR_WAY_ART (exchange_art.c); a compressed all-reduce encodes in its hops, counted here. */
static size_t compressed_elements(const weir_group *group) {
  const bool own = group->way != WEIR_WAY_DENSE || weir_codec_find(group->plan.codec)->low_rank;
  return own && group->way != WEIR_WAY_ART ? group->n : 0;
}

void weir_group_prepare(weir_group *group) {
  group->watch->elements += compressed_elements(group);
  weir_trace_begin("compress", group->number);
  group->status = weir_exchanges[group->way].prepare(group);
  weir_trace_end();
  if (group->status != WEIR_OK)
    (void)snprintf(group->text, sizeof group->text, "%s", weir_last_error());
}

weir_status weir_group_exchange(weir_group *group, weir_notes *notes) {
  if (group->status != WEIR_OK) {
    (void)weir_fail(group->status, "%s", group->text);
    return weir_engine_blame(group->engine, group->engine->rank, group->status);
  }
  weir_trace_begin("exchange", group->number);
  group->trace = WEIR_TRACE_WIRE;
  const weir_status status = exchange_of(group)->run(group, group->allreduce, notes);
  if (group->trace == WEIR_TRACE_DECODE) weir_trace_end();
  group->trace = WEIR_TRACE_NONE;
  weir_trace_end();
  /* What came has been added up, but for dense sums, which are made in the hops. */
  if (group->way != WEIR_WAY_DENSE) group->watch->elements += group->n;
  return status;
}

weir_status weir_group_publish(weir_group *group) {
  if (group->overflow) return WEIR_OK;
  group->watch->elements += group->n;
  weir_trace_begin("publish", group->number);
  const weir_status status = exchange_of(group)->publish(group, 1.0f / (float)group->engine->size);
  weir_trace_end();
  return status;
}
