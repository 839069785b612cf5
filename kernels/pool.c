/* Threads of one's own; pool.h.  They wait for work and do nothing else: what they are given only
 * computes, so that waiting for them is bounded by it. */
#include "kernels/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/base.h"

struct weir_pool {
  pthread_mutex_t lock; /* of all below */
  pthread_cond_t begun; /* there are parts to take, or it is time to go */
  pthread_cond_t ended; /* the last part is done */
  unsigned threads;     /* the caller's among them */
  unsigned started;
  bool busy, quit;
  weir_part_fn *work;
  void *argument;
  size_t parts, taken, done;
  pthread_t thread[WEIR_POOL_MOST - 1];
};

/* Take parts until none is left.  With the lock held, which is not held during the work. */
static void take_parts(weir_pool *pool) {
  while (pool->taken < pool->parts) {
    size_t part = pool->taken++;
    weir_part_fn *work = pool->work;
    void *argument = pool->argument;
    (void)pthread_mutex_unlock(&pool->lock);
    work(argument, part);
    (void)pthread_mutex_lock(&pool->lock);
    if (++pool->done == pool->parts) (void)pthread_cond_signal(&pool->ended);
  }
}

static void *serve(void *argument) {
  weir_pool *pool = argument;
  (void)pthread_mutex_lock(&pool->lock);
  while (!pool->quit) {
    take_parts(pool);
    if (!pool->quit) (void)pthread_cond_wait(&pool->begun, &pool->lock);
  }
  (void)pthread_mutex_unlock(&pool->lock);
  return NULL;
}

/* Signals are for the program's own threads. */
static bool start_all(weir_pool *pool) {
  sigset_t all, before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  while (pool->started < pool->threads - 1 &&
         pthread_create(&pool->thread[pool->started], NULL, serve, pool) == 0) {
    pool->started++;
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return pool->started == pool->threads - 1;
}

weir_status weir_pool_create(weir_pool **out, unsigned threads) {
  *out = NULL;
  if (threads < 1 || threads > WEIR_POOL_MOST) {
    return weir_fail(WEIR_E_INVALID, "%u threads for codecs: 1 to %d are possible", threads,
                     WEIR_POOL_MOST);
  }
  weir_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for the threads of codecs");
  pool->threads = threads;
  if (pthread_mutex_init(&pool->lock, NULL) != 0) goto no_lock;
  if (pthread_cond_init(&pool->begun, NULL) != 0) goto no_begun;
  if (pthread_cond_init(&pool->ended, NULL) != 0) goto no_ended;
  if (!start_all(pool)) {
    weir_pool_free(pool);
    return weir_fail(WEIR_E_NOMEM, "%u threads for codecs cannot be started", threads);
  }
  *out = pool;
  return WEIR_OK;

no_ended:
  (void)pthread_cond_destroy(&pool->begun);
no_begun:
  (void)pthread_mutex_destroy(&pool->lock);
no_lock:
  free(pool);
  return weir_fail(WEIR_E_NOMEM, "no lock for the threads of codecs");
}

void weir_pool_free(weir_pool *pool) {
  if (pool == NULL) return;
  (void)pthread_mutex_lock(&pool->lock);
  pool->quit = true;
  (void)pthread_cond_broadcast(&pool->begun);
  (void)pthread_mutex_unlock(&pool->lock);
  for (unsigned i = 0; i < pool->started; i++) (void)pthread_join(pool->thread[i], NULL);
  (void)pthread_cond_destroy(&pool->ended);
  (void)pthread_cond_destroy(&pool->begun);
  (void)pthread_mutex_destroy(&pool->lock);
  free(pool);
}

/* False: somebody else's work is under way. */
static bool begin(weir_pool *pool, weir_part_fn *work, void *argument, size_t parts) {
  (void)pthread_mutex_lock(&pool->lock);
  bool mine = !pool->busy;
  if (mine) {
    pool->busy = true;
    pool->work = work;
    pool->argument = argument;
    pool->parts = parts;
    pool->taken = pool->done = 0;
    (void)pthread_cond_broadcast(&pool->begun);
    take_parts(pool);
    while (pool->done < pool->parts) (void)pthread_cond_wait(&pool->ended, &pool->lock);
    pool->busy = false;
  }
  (void)pthread_mutex_unlock(&pool->lock);
  return mine;
}

void weir_pool_run(weir_pool *pool, weir_part_fn *work, void *argument, size_t parts) {
  if (pool != NULL && pool->threads > 1 && parts > 1 && begin(pool, work, argument, parts)) return;
  for (size_t part = 0; part < parts; part++) work(argument, part);
}

size_t weir_pool_parts(const weir_pool *pool, size_t n) {
  return pool != NULL && n >= WEIR_SPLIT_LEAST ? pool->threads : 1;
}
