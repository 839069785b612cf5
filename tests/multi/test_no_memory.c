/* A rank that has no memory left in the middle of a step, or of work that is divided: the group has
 * ended, the others hear of it at once, and all of them go on together by weir_shrink. */
#include <criterion/criterion.h>

#include "../ports.h"
#include "session_ranks.h"
#include "weir/parallel.h"

#define RANKS 3
#define N 5000

/* The library's malloc comes here (tests/CMakeLists.txt). */
static _Thread_local bool none_left;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return none_left ? NULL : __real_malloc(bytes); }

typedef struct worker {
  weir_options options;
  bool divides; /* it is work that is divided, no step */
  weir_status end, later, shrunk, again;
  weir_survivors left;
  char why[256];
  float g[N];
} worker;

static void fill(worker *w) {
  for (int i = 0; i < N; i++) w->g[i] = (float)((i + w->options.rank) % 7);
}

static weir_status one_step(weir_session *session, worker *w, bool fails) {
  fill(w);
  weir_status status = weir_step_begin(session, NULL);
  if (status == WEIR_OK) status = weir_submit(session, 0, w->g);
  none_left = fails;
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  none_left = false;
  return status;
}

/* Who has started may end the group while another one has not. */
static pthread_barrier_t started;

enum { RESULT = 1 << 16 };

static weir_status fill_in(void *user, size_t first, size_t count, void *results) {
  (void)user;
  memset(results, (int)first, count * RESULT);
  return WEIR_OK;
}

/* A share more than ranks: results go by way of memory of the session's. */
static weir_status divide(weir_session *session, bool fails) {
  static const weir_map map = {
      .struct_size = sizeof map, .count = RANKS + 1, .bytes = RESULT, .fn = fill_in};
  unsigned char *results = malloc((RANKS + 1) * (size_t)RESULT);
  none_left = fails;
  const weir_status status = weir_parallel_map(session, &map, results);
  none_left = false;
  free(results);
  return status;
}

static void *work(void *argument) {
  worker *w = argument;
  weir_session *session = NULL;
  w->end = session_open(&session, &w->options, N);
  (void)pthread_barrier_wait(&started);
  const bool fails = w->options.rank == 1;
  if (w->end == WEIR_OK) w->end = w->divides ? divide(session, fails) : one_step(session, w, fails);
  (void)snprintf(w->why, sizeof w->why, "%s", weir_last_error());
  w->later = weir_set_epoch(session, 1);
  w->left.struct_size = sizeof w->left;
  w->shrunk = weir_shrink(session, &w->left);
  w->again = w->shrunk == WEIR_OK ? one_step(session, w, false) : w->shrunk;
  weir_session_free(session);
  return NULL;
}

static void lose_memory(const char *policy, bool divides) {
  static worker workers[RANKS];
  char where[32];
  memset(workers, 0, sizeof workers);
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  for (int r = 0; r < RANKS; r++) {
    workers[r].options = session_options(r, RANKS, where, policy);
    workers[r].divides = divides;
    workers[r].options.transport = "tcp";
    workers[r].options.active_probes = false;
  }
  cr_assert_eq(pthread_barrier_init(&started, NULL, RANKS), 0);
  session_threads(workers, sizeof *workers, RANKS, work);
  (void)pthread_barrier_destroy(&started);
  for (int r = 0; r < RANKS; r++) {
    const worker *w = &workers[r];
    cr_assert_eq(w->end, r == 1 ? WEIR_E_NOMEM : WEIR_E_PEER, "%s, rank %d: %s: %s", policy, r,
                 weir_status_name(w->end), w->why);
    cr_assert_eq(w->later, w->end, "%s, rank %d: %s", policy, r, weir_status_name(w->later));
    cr_assert_eq(w->shrunk, WEIR_OK, "%s, rank %d: %s", policy, r, weir_status_name(w->shrunk));
    cr_assert_eq(w->left.world_size, RANKS, "%s, rank %d: %d are left", policy, r,
                 w->left.world_size);
    cr_assert_eq(w->again, WEIR_OK, "%s, rank %d: %s", policy, r, weir_status_name(w->again));
    cr_assert_eq(memcmp(w->g, workers[0].g, sizeof w->g), 0, "%s, rank %d", policy, r);
  }
}

Test(no_memory, in_a_collective) { lose_memory("fixed:none:1:dense-ring", false); }
Test(no_memory, in_a_codec) { lose_memory("fixed:randomk:0.1:art-ring", false); }
Test(no_memory, in_work_that_is_divided) { lose_memory("fixed:none:1:dense-ring", true); }
