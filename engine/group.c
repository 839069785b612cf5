/* One group's way: feed, prepare, exchange, publish.  Each is done by whichever thread has the
 * group in its hands (step.c, lanes.c). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/trace.h"
#include "engine/state.h"

/* When this rank's e is not finite it is made all zero: the rank takes part in the exchange, so
 * that nobody waits for it, and adds nothing. */
void weir_group_feed(weir_group *group) {
  weir_moments *moments = &group->passage.moments;
  memset(&group->passage, 0, sizeof group->passage);
  weir_trace_begin("feed", group->number);
  weir_residual_feed(group);
  weir_trace_end();
  group->finite = moments->nonfinite == 0 && isfinite(moments->sum_square);
  if (group->finite) return;
  memset(group->fed, 0, group->n * sizeof(float));
  memset(moments, 0, sizeof *moments);
}

void weir_group_prepare(weir_group *group) {
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
  const weir_status status = weir_exchanges[group->way].run(group, group->allreduce, notes);
  if (group->trace == WEIR_TRACE_DECODE) weir_trace_end();
  group->trace = WEIR_TRACE_NONE;
  weir_trace_end();
  return status;
}

weir_status weir_group_publish(weir_group *group) {
  if (group->overflow) return WEIR_OK;
  weir_trace_begin("publish", group->number);
  const weir_status status =
      weir_exchanges[group->way].publish(group, 1.0f / (float)group->engine->size);
  weir_trace_end();
  return status;
}
