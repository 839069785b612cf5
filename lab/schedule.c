#include "lab/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "lab/topology.h"

static void trace_shape(const weir_schedule *schedule, double rate_bytes_s, weir_shape *shape) {
  const weir_scenario *s = schedule->scenario;
  *shape = (weir_shape){.rate_bytes_s = rate_bytes_s * s->bandwidth_scale,
                        .delay_s = s->trace.latency_ms / 1e3};
}

void weir_schedule_shape(const weir_schedule *schedule, uint32_t epoch, double time_s,
                         weir_shape *shape) {
  const weir_scenario *s = schedule->scenario;
  if (s->phase_count)
    weir_scenario_shape(s, weir_scenario_phase(s, epoch), shape);
  else
    trace_shape(schedule, weir_trace_rate(schedule->trace, time_s), shape);
}

/* Every state of the network there is: how many, and one of them. */
static size_t states(const weir_schedule *schedule) {
  const weir_scenario *s = schedule->scenario;
  return s->phase_count ? s->phase_count : schedule->trace->intervals;
}

static void state(const weir_schedule *schedule, size_t at, weir_shape *shape) {
  const weir_scenario *s = schedule->scenario;
  if (s->phase_count)
    weir_scenario_shape(s, &s->phases[at], shape);
  else
    trace_shape(schedule, schedule->trace->rate_bytes_s[at], shape);
}

double weir_schedule_window(const weir_schedule *schedule) {
  double widest = 0;
  for (size_t i = 0; i < states(schedule); i++) {
    weir_shape shape;
    state(schedule, i, &shape);
    widest = fmax(widest, shape.rate_bytes_s * 2 * shape.delay_s);
  }
  return widest;
}

weir_status weir_schedule_check(const weir_schedule *schedule) {
  const weir_scenario *s = schedule->scenario;
  if (s->workers > WEIR_TOPOLOGY_WORKERS_MAX)
    return weir_fail(WEIR_E_INVALID,
                     "%" PRIu32
                     " workers over networks tc and uml; expected at most %d, as many as a "
                     "kernel's bridge has ports for",
                     s->workers, WEIR_TOPOLOGY_WORKERS_MAX);
  for (size_t i = 0; i < states(schedule); i++) {
    weir_shape shape;
    char why[160];
    state(schedule, i, &shape);
    const weir_status status = weir_shape_check(&shape);
    if (!status) continue;
    (void)snprintf(why, sizeof why, "%s", weir_last_error());
    if (s->phase_count)
      return weir_fail(status, "%s:%d: [phase %s]: %s, bandwidth_scale applied", s->path,
                       s->phases[i].line, s->phases[i].name, why);
    return weir_fail(status, "%s:%d: the trace at %g s: %s, bandwidth_scale applied", s->path,
                     s->trace.line, (double)i * schedule->trace->interval_s, why);
  }
  return WEIR_OK;
}

bool weir_schedule_needs_netem(const weir_schedule *schedule) {
  for (size_t i = 0; i < states(schedule); i++) {
    weir_shape shape;
    state(schedule, i, &shape);
    if (weir_shape_needs_netem(&shape)) return true;
  }
  return false;
}
