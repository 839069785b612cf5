/* Initialising MPI and ending it.  Both happen once in a process's life, whatever the number of
 * transports. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "collectives/mpi/mpi.h"

#define SPINS 32
#define YIELD_S 0.002
#define NAP_NS 50000

void mpt_pause_turn(mpt_pause *pause) {
  if (++pause->polls < SPINS) return;
  const double now_s = weir_now_s();
  if (pause->polls == SPINS) pause->idle_since_s = now_s;
  if (now_s - pause->idle_since_s < YIELD_S) {
    (void)sched_yield();
    return;
  }
  const struct timespec nap = {.tv_nsec = NAP_NS};
  (void)nanosleep(&nap, NULL);
}

weir_status mpt_error(int code, const char *doing) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
  return weir_fail(WEIR_E_PEER, "MPI failed %s: %s", doing, text);
}

weir_status mpt_wait(MPI_Request *request, double deadline_s, const char *doing) {
  mpt_pause pause = {0};
  for (;;) {
    int done = 0;
    const int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return mpt_error(code, doing);
    if (done) return WEIR_OK;
    if (weir_now_s() >= deadline_s) return WEIR_E_TIMEOUT;
    mpt_pause_turn(&pause);
  }
}

/* --- MPI_Init -------------------------------------------------------------------------------- */

/* MPI_Init waits until every rank of the job has called it and has no time-out, so a thread of its
 * own waits. */
typedef struct init_state {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool begun, over;
  int code, level;
} init_state;
static init_state init = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static atomic_bool no_finalise;

void mpt_do_not_finalise(void) { atomic_store(&no_finalise, true); }

static void finalise(void) {
  int over = 0;
  if (atomic_load(&no_finalise) || MPI_Finalized(&over) != MPI_SUCCESS || over) return;
  (void)MPI_Finalize();
}

static void *initialise(void *unused) {
  int level = MPI_THREAD_SINGLE;
  (void)unused;
  const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
  (void)pthread_mutex_lock(&init.mutex);
  init.over = true;
  init.code = code;
  init.level = level;
  (void)pthread_cond_broadcast(&init.changed);
  (void)pthread_mutex_unlock(&init.mutex);
  return NULL;
}

/* Would MPI_Init find other ranks?  Without a launcher Open MPI starts a daemon for a world
 * of one. */
static bool is_launched(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i])) return true;
  return false;
}

/* With the mutex held. */
static weir_status begin(void) {
  pthread_t thread;
  if (!is_launched())
    return weir_fail(WEIR_E_STATE,
                     "this process was not started by mpirun or srun --mpi: there is no MPI job to "
                     "join");
  if (pthread_create(&thread, NULL, initialise, NULL) != 0)
    return weir_fail(WEIR_E_NOMEM, "no thread to initialise MPI");
  (void)pthread_detach(thread);
  init.begun = true;
  return WEIR_OK;
}

static weir_status wait_for_init(double deadline_s) {
  const double left_s = deadline_s - weir_now_s();
  struct timespec until;
  (void)clock_gettime(CLOCK_REALTIME, &until);
  const double end_s = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + left_s;
  until.tv_sec = (time_t)end_s;
  until.tv_nsec = (long)((end_s - (double)until.tv_sec) * 1e9);
  while (!init.over)
    if (pthread_cond_timedwait(&init.changed, &init.mutex, &until) != 0) break;
  if (!init.over)
    return weir_fail(WEIR_E_TIMEOUT,
                     "MPI_Init did not return in time: some rank of the job has not called it");
  if (init.code != MPI_SUCCESS) return weir_fail(WEIR_E_PEER, "MPI_Init failed (%d)", init.code);
  return WEIR_OK;
}

static weir_status initialise_once(double deadline_s) {
  (void)pthread_mutex_lock(&init.mutex);
  weir_status status = init.begun ? WEIR_OK : begin();
  const bool was_over = init.over;
  if (status == WEIR_OK) status = wait_for_init(deadline_s);
  /* A trainer that uses MPI itself before Weir ends it itself. */
  if (status == WEIR_OK && !was_over && atexit(finalise) != 0) mpt_do_not_finalise();
  (void)pthread_mutex_unlock(&init.mutex);
  return status;
}

weir_status mpt_initialise(double deadline_s) {
  int done = 0, over = 0, level = MPI_THREAD_SINGLE;
  if (MPI_Finalized(&over) == MPI_SUCCESS && over)
    return weir_fail(WEIR_E_STATE, "MPI has been finalised in this process already");
  if (MPI_Initialized(&done) != MPI_SUCCESS || !done) {
    const weir_status status = initialise_once(deadline_s);
    if (status != WEIR_OK) return status;
  }
  if (MPI_Query_thread(&level) != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "MPI was initialised for one thread; Weir needs MPI_THREAD_SERIALIZED or "
                     "MPI_THREAD_MULTIPLE (MPI_Init_thread)");
  return WEIR_OK;
}
