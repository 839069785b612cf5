/* Virtual time for runs without a network: workers are threads that train in earnest; how long each
 * step takes is the slowest rank's processor time plus what the cost model says of the exchange. */
#ifndef WEIR_LAB_SIM_H
#define WEIR_LAB_SIM_H

#include <stdint.h>
#include <weir/status.h>

#include "lab/scenario.h"
#include "lab/trace.h"

typedef struct weir_sim_clock weir_sim_clock;

/* trace may be NULL; both are borrowed. */
weir_status weir_sim_clock_create(weir_sim_clock **out, const weir_scenario *scenario,
                                  const weir_trace *trace);
void weir_sim_clock_free(weir_sim_clock *clock);
/* Before anybody uses it: so much time has passed, and a step of this epoch is next. */
void weir_sim_clock_go_on(weir_sim_clock *clock, double elapsed_s, uint32_t epoch);

/* A rank is about to begin a step of an epoch; the step before kept it busy for busy_s, and all of
 * them for exchange_s on the wire.  Waits for all ranks; then the time has moved on, and the
 * network is set for the coming step.  *elapsed_s: the virtual time now.  WEIR_E_PEER names a rank
 * that has failed, WEIR_E_TIMEOUT says how many did not come. */
weir_status weir_sim_clock_arrive(weir_sim_clock *clock, double busy_s, double exchange_s,
                                  uint32_t epoch, double timeout_s, double *elapsed_s);
/* This rank ends early: let the others go. */
void weir_sim_clock_fail(weir_sim_clock *clock, int rank);

/* An exchange of so many latencies and bytes that begins begins_s after the step did: the latencies
 * first, then the bytes at the rates that the link has meanwhile.  A weir_virtual_exchange_fn with
 * the clock as user. */
double weir_sim_clock_exchange(void *clock, double begins_s, double latencies, double bytes);

/* The network in force; a weir_network_fn with the clock as user. */
void weir_sim_clock_network(void *clock, uint64_t step, double *latency_s,
                            double *bandwidth_bytes_s);

#endif
