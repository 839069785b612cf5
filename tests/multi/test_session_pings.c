/* A rank is lost while round trips are measured: the others go on. */
#include <criterion/criterion.h>
#include <weir/weir.h>

#include "collectives/wrappers.h"
#include "ranks.h"
#include "session/state.h"
#include "session_ranks.h"

#define N 100

#define PINGERS 4

typedef struct pinger {
  const char *where;
  pthread_barrier_t *started;
  uint64_t strike; /* at which transfer of its pings rank 0 leaves */
  int rank;
  weir_status broke, status; /* of the ping that fails, and of the survivors' new start */
  char message[256];
} pinger;

/* Of a session whose group works; leaves it without its transport's wrapper. */
static weir_status ping(weir_session *session, const weir_strike *strike) {
  weir_transport *const bare = session->transport;
  FREED weir_transport *faulty = NULL;
  double first = 0, second = 0;
  weir_status status = strike ? weir_transport_fault(&faulty, bare, strike) : WEIR_OK;
  if (faulty != NULL) session->transport = faulty;
  if (status == WEIR_OK) status = weir_ping(session, &first, &second);
  session->transport = bare;
  return weir_session_keep_failure(session, status);
}

static void *pinger_main(void *argument) {
  pinger *p = argument;
  const weir_options options =
      session_options(p->rank, PINGERS, p->where, "fixed:none:1:dense-ring");
  weir_session *session = NULL;
  p->status = session_open(&session, &options, N);
  (void)pthread_barrier_wait(p->started);
  const weir_strike strike = {WEIR_STRIKE_LEAVE, p->strike, -1};
  if (p->status == WEIR_OK) p->broke = ping(session, p->rank == 0 ? &strike : NULL);
  if (p->rank != 0 && p->broke == WEIR_OK) p->broke = ping(session, NULL);
  if (p->status == WEIR_OK && p->rank != 0) {
    weir_survivors left = {.struct_size = sizeof left};
    p->status = weir_shrink(session, &left);
    if (p->status == WEIR_OK) p->status = ping(session, NULL);
  }
  (void)snprintf(p->message, sizeof p->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

/* Ranks that have sent different numbers of pings when one is lost ping together afterwards. */
Test(session_shrink, during_round_trips) {
  for (uint64_t strike = 0; strike < 12; strike++) {
    pinger p[PINGERS];
    pthread_barrier_t started;
    char where[64];
    (void)snprintf(where, sizeof where, "pinging %d", (int)strike);
    cr_assert_eq(pthread_barrier_init(&started, NULL, PINGERS), 0);
    for (int r = 0; r < PINGERS; r++)
      p[r] = (pinger){.where = where, .started = &started, .strike = strike, .rank = r};
    session_threads(p, sizeof *p, PINGERS, pinger_main);
    (void)pthread_barrier_destroy(&started);
    for (int r = 1; r < PINGERS; r++) {
      cr_assert_geq(p[r].broke, WEIR_E_TIMEOUT, "transfer %d, rank %d", (int)strike, r);
      cr_assert_eq(p[r].status, WEIR_OK, "transfer %d, rank %d: %s", (int)strike, r, p[r].message);
    }
  }
}
