/* A bucket's way through a step: feed, compress, exchange, publish.  Each is done by whichever
 * thread has the bucket in its hands (step.c, lanes.c). */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/trace.h"
#include "engine/backend.h"

void weir_bucket_feed(weir_bucket *bucket) {
  memset(&bucket->passage, 0, sizeof bucket->passage);
  bucket->listed = bucket->settled = false;
  bucket->stale_count = 0;
  weir_trace_begin("feed", bucket->number);
  bucket->engine->backend->feed(bucket);
  weir_trace_end();
}

void weir_bucket_compress(weir_bucket *bucket) {
  weir_trace_begin("compress", bucket->number);
  bucket->status = bucket->engine->backend->compress(bucket);
  weir_trace_end();
  if (bucket->status != WEIR_OK)
    (void)snprintf(bucket->text, sizeof bucket->text, "%s", weir_last_error());
}

/* Is it compressed? */
static weir_status await(weir_bucket *bucket) {
  weir_engine *engine = bucket->engine;
  const weir_status status = bucket->status == WEIR_OK
                                 ? engine->backend->await(bucket)
                                 : weir_fail(bucket->status, "%s", bucket->text);
  weir_lap_compress(bucket);
  return status == WEIR_OK ? WEIR_OK : weir_engine_blame(engine, engine->rank, status);
}

weir_status weir_bucket_exchange(weir_bucket *bucket, weir_headers *headers) {
  weir_status status = await(bucket);
  if (status != WEIR_OK) return status;
  weir_trace_begin("exchange", bucket->number);
  bucket->trace = WEIR_TRACE_WIRE;
  status = weir_scheme_run(bucket, headers);
  if (bucket->trace == WEIR_TRACE_DECODE) weir_trace_end();
  bucket->trace = WEIR_TRACE_NONE;
  weir_trace_end();
  /* What came has been added up, but for dense sums, which are made in the hops. */
  if (!bucket->whole && !bucket->thin) bucket->stopwatch->elements += bucket->n;
  return status;
}

weir_status weir_bucket_publish(weir_bucket *bucket) {
  if (bucket->overflow) return WEIR_OK;
  bucket->stopwatch->elements += bucket->n;
  weir_trace_begin("publish", bucket->number);
  const weir_status status =
      bucket->engine->backend->publish(bucket, 1.0f / (float)bucket->engine->size);
  weir_trace_end();
  return status;
}
