/* Threads beside the caller's, for plans of several buckets:
 *
 *   caller      submits a bucket's last tensor, compresses it there when the plan says so, launches
 *               it
 *   compressor  feeds and prepares launched buckets whose place is a thread, in order
 *   wire        exchanges the buckets that are ready, in order, decodes and publishes them
 *
 * All buckets but the last go through here; the last is exchanged by the caller once the others are
 * through, as it has nothing else left to do.  So the communicator is used by the wire lane from
 * the first launch until the lanes are drained, by the caller otherwise, and the order of the
 * exchanges is the same on all ranks whatever the order in which tensors are handed in.
 *
 * A bucket is written by one thread at a time; it changes hands under the lock.  Lanes wait for
 * work without a limit: the caller's lanes_free ends that.  The caller's wait for them ends because
 * every transfer is bounded by the communicator's time-out. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "base/scope.h"
#include "engine/state.h"

typedef struct lane {
  pthread_t thread;
  bool running;
  weir_stopwatch stopwatch;
  weir_codec_context *context;
} lane;

struct weir_lanes {
  weir_engine *engine;
  pthread_mutex_t lock;
  pthread_cond_t to_compress, to_exchange; /* the lanes wait for these */
  pthread_cond_t through;                  /* the caller waits for it */
  size_t launched;                         /* buckets handed on in this step */
  size_t looked_at;                        /* of those, by the compressor */
  size_t unprepared;                       /* of those, not yet compressed */
  size_t exchanged;
  bool quit;
  weir_status failed;
  char text[512];
  lane compressor, wire;
};

/* --- the compressor ------------------------------------------------------------------------- */

static void *compress(void *argument) {
  weir_lanes *lanes = argument;
  weir_scope_join(lanes->engine->config.scope, "compressor");
  (void)pthread_mutex_lock(&lanes->lock);
  while (!lanes->quit) {
    if (lanes->unprepared == 0) {
      (void)pthread_cond_wait(&lanes->to_compress, &lanes->lock);
      continue;
    }
    weir_bucket *bucket = &lanes->engine->set.bucket[lanes->looked_at++];
    if (bucket->place != WEIR_PLACE_THREAD) continue; /* it came prepared */
    (void)pthread_mutex_unlock(&lanes->lock);
    bucket->stopwatch = &lanes->compressor.stopwatch;
    bucket->context = lanes->compressor.context;
    bucket->stopwatch->mark = weir_now_s();
    bucket->one_thread = !lanes->engine->curve_wanted;
    if (bucket->one_thread) weir_bucket_feed(bucket);
    weir_bucket_compress(bucket);
    bucket->stopwatch->compress_s = 0;
    weir_lap_compress(bucket);
    bucket->times.compress_s = bucket->stopwatch->compress_s;
    (void)pthread_mutex_lock(&lanes->lock);
    bucket->ready = true;
    lanes->unprepared--;
    (void)pthread_cond_signal(&lanes->to_exchange);
    (void)pthread_cond_signal(&lanes->through);
  }
  (void)pthread_mutex_unlock(&lanes->lock);
  return NULL;
}

/* --- the wire ------------------------------------------------------------------------------- */

static weir_status carry(weir_lanes *lanes, weir_bucket *bucket) {
  weir_stopwatch *stopwatch = bucket->stopwatch = &lanes->wire.stopwatch;
  bucket->context = lanes->wire.context;
  stopwatch->mark = weir_now_s();
  stopwatch->compress_s = stopwatch->comm_s = 0;
  bucket->times.started_s = stopwatch->mark - lanes->engine->begun;
  weir_status status = weir_bucket_exchange(bucket, NULL);
  if (status == WEIR_OK) status = weir_bucket_publish(bucket);
  weir_lap_compress(bucket);
  bucket->times.exchange_s = stopwatch->comm_s;
  bucket->times.decode_s = stopwatch->compress_s;
  return status;
}

static bool has_work(const weir_lanes *lanes) {
  return lanes->failed == WEIR_OK && lanes->exchanged < lanes->launched &&
         lanes->engine->set.bucket[lanes->exchanged].ready;
}

/* What is on the wire holds all ranks up, and needs little of a processor: where threads share one
 * it goes before computing, if the system lets it. */
static void go_first(void) { (void)setpriority(PRIO_PROCESS, (id_t)gettid(), -10); }

static void *exchange(void *argument) {
  weir_lanes *lanes = argument;
  weir_scope_join(lanes->engine->config.scope, "wire");
  go_first();
  (void)pthread_mutex_lock(&lanes->lock);
  while (!lanes->quit) {
    if (!has_work(lanes)) {
      (void)pthread_cond_wait(&lanes->to_exchange, &lanes->lock);
      continue;
    }
    weir_bucket *bucket = &lanes->engine->set.bucket[lanes->exchanged];
    (void)pthread_mutex_unlock(&lanes->lock);
    const weir_status status = carry(lanes, bucket);
    (void)pthread_mutex_lock(&lanes->lock);
    if (status != WEIR_OK) {
      lanes->failed = status;
      (void)snprintf(lanes->text, sizeof lanes->text, "%s", weir_last_error());
    }
    lanes->exchanged++;
    (void)pthread_cond_signal(&lanes->through);
  }
  (void)pthread_mutex_unlock(&lanes->lock);
  return NULL;
}

/* --- the caller's side ---------------------------------------------------------------------- */

static weir_status start(weir_lanes *lanes, lane *l, void *(*body)(void *), const char *what) {
  weir_status status = weir_codec_context_create(&l->context);
  if (status != WEIR_OK) return status;
  weir_codec_context_use(l->context, lanes->engine->pool);
  if (pthread_create(&l->thread, NULL, body, lanes) != 0)
    return weir_fail(WEIR_E_NOMEM, "the engine's %s thread cannot be started", what);
  l->running = true;
  return WEIR_OK;
}

weir_status weir_lanes_create(weir_lanes **out, weir_engine *engine) {
  *out = NULL;
  weir_lanes *lanes = calloc(1, sizeof *lanes);
  if (lanes == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for the engine's threads");
  lanes->engine = engine;
  if (pthread_mutex_init(&lanes->lock, NULL) != 0) goto no_lock;
  if (pthread_cond_init(&lanes->to_compress, NULL) != 0) goto no_compress;
  if (pthread_cond_init(&lanes->to_exchange, NULL) != 0) goto no_exchange;
  if (pthread_cond_init(&lanes->through, NULL) != 0) goto no_through;
  weir_status status = start(lanes, &lanes->compressor, compress, "compressing");
  if (status == WEIR_OK) status = start(lanes, &lanes->wire, exchange, "communication");
  if (status != WEIR_OK) {
    weir_lanes_free(lanes);
    return status;
  }
  *out = lanes;
  return WEIR_OK;

no_through:
  (void)pthread_cond_destroy(&lanes->to_exchange);
no_exchange:
  (void)pthread_cond_destroy(&lanes->to_compress);
no_compress:
  (void)pthread_mutex_destroy(&lanes->lock);
no_lock:
  free(lanes);
  return weir_fail(WEIR_E_NOMEM, "no lock for the engine's threads");
}

void weir_lanes_free(weir_lanes *lanes) {
  if (lanes == NULL) return;
  (void)pthread_mutex_lock(&lanes->lock);
  lanes->quit = true;
  (void)pthread_cond_signal(&lanes->to_compress);
  (void)pthread_cond_signal(&lanes->to_exchange);
  (void)pthread_mutex_unlock(&lanes->lock);
  lane *const all[] = {&lanes->compressor, &lanes->wire};
  for (size_t i = 0; i < 2; i++) {
    if (all[i]->running) (void)pthread_join(all[i]->thread, NULL);
    weir_codec_context_free(all[i]->context);
  }
  (void)pthread_cond_destroy(&lanes->through);
  (void)pthread_cond_destroy(&lanes->to_exchange);
  (void)pthread_cond_destroy(&lanes->to_compress);
  (void)pthread_mutex_destroy(&lanes->lock);
  free(lanes);
}

void weir_lanes_open(weir_lanes *lanes) {
  (void)pthread_mutex_lock(&lanes->lock);
  lanes->launched = lanes->looked_at = lanes->unprepared = lanes->exchanged = 0;
  (void)pthread_mutex_unlock(&lanes->lock);
}

void weir_lanes_launch(weir_lanes *lanes, weir_bucket *bucket) {
  (void)pthread_mutex_lock(&lanes->lock);
  bucket->ready = bucket->place == WEIR_PLACE_CALLER;
  lanes->launched++;
  if (!bucket->ready) lanes->unprepared++;
  (void)pthread_cond_signal(bucket->ready ? &lanes->to_exchange : &lanes->to_compress);
  (void)pthread_mutex_unlock(&lanes->lock);
}

weir_status weir_lanes_drain(weir_lanes *lanes, double *exchange_s) {
  (void)pthread_mutex_lock(&lanes->lock);
  while (lanes->unprepared > 0 || (lanes->exchanged < lanes->launched && lanes->failed == WEIR_OK))
    (void)pthread_cond_wait(&lanes->through, &lanes->lock);
  const weir_status failed = lanes->failed;
  for (size_t k = 0; k < lanes->exchanged; k++)
    *exchange_s += lanes->engine->set.bucket[k].times.exchange_s;
  (void)pthread_mutex_unlock(&lanes->lock);
  return failed == WEIR_OK ? WEIR_OK : weir_fail(failed, "%s", lanes->text);
}
