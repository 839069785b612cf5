/* What a run tells about its own timings: a profile of its tensors, and the times of its buckets.
 *
 * DIR/profile.csv: `tensor,numel,gap_us`, as planner/profile.h reads it; gaps are means over
 * ranks and steps.
 * DIR/groups.csv: `last,plan,place,bytes,launched_ms,compress_ms,exchange_ms,decode_ms`,
 * a line a bucket of the plan in force at the end; bytes are the dense fp32 ones.  Medians; of all
 * ranks the mean, but the least exchange_ms: the others' is waiting for slower ranks. */
#ifndef WEIR_LAB_CAPTURE_H
#define WEIR_LAB_CAPTURE_H

#include <weir/weir.h>

#include "lab/trainer.h"

/* Collective, between steps; rank 0 writes, under other names first.  The session profiles. */
weir_status weir_capture(weir_session *session, const weir_trainer *trainer, int rank, int ranks,
                         const char *directory);

#endif
