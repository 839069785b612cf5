/* Tells of transfers; cheap where nobody looks: two readings of the clock and a few stores. */
#include "collectives/told.h"

#include <string.h>

#include "base/log.h"
#include "base/scope.h"
#include "base/trace_file.h"

/* Whoever has no messages of its own waits for all (a transport's own all-reduce). */
static size_t all_others(const weir_transport *t, int *peer) {
  int count = 0;
  for (int r = 0; r < t->size && count < WEIR_LIVE_PEERS; r++)
    if (r != t->rank) peer[count++] = weir_transport_rank_of(t, r);
  return (size_t)t->size - 1;
}

/* One bit a rank; of a larger group what is beyond counts each time. */
enum { TOLD_RANKS = 4096 };

/* Is it the first message of this rank?  Those of several blocks come from all ranks by turns. */
static bool is_first(uint64_t met[TOLD_RANKS / 64], int rank) {
  if (rank < 0 || rank >= TOLD_RANKS) return true;
  const uint64_t bit = UINT64_C(1) << rank % 64, before = met[rank / 64];
  met[rank / 64] |= bit;
  return (before & bit) == 0;
}

/* A receiver waits for its sender; a rank that only sends, for whoever takes it. */
static size_t waited_for(const weir_transport *t, const weir_send *send, size_t sends,
                         const weir_recv *recv, size_t recvs, int *peer) {
  if (sends + recvs == 0) return all_others(t, peer);
  const size_t count = recvs > 0 ? recvs : sends;
  uint64_t met[TOLD_RANKS / 64];
  size_t ranks = 0;
  memset(met, 0, ((size_t)(t->size < TOLD_RANKS ? t->size : TOLD_RANKS) + 63) / 64 * sizeof *met);
  for (size_t i = 0; i < count; i++) {
    const int next = recvs > 0 ? recv[i].peer : send[i].peer;
    if (!is_first(met, next)) continue;
    if (ranks < WEIR_LIVE_PEERS) peer[ranks] = weir_transport_rank_of(t, next);
    ranks++;
  }
  return ranks;
}

weir_told weir_told_begin(const weir_transport *t, const weir_send *send, size_t sends,
                          const weir_recv *recv, size_t recvs) {
  weir_scope *scope = weir_scope_here();
  if (scope == NULL) return (weir_told){0};
  const weir_told told = {weir_now_s(), t->bytes_sent};
  int peer[WEIR_LIVE_PEERS];
  const size_t count = waited_for(t, send, sends, recv, recvs, peer);
  weir_scope_wait(scope, peer, count, told.begin_s);
  return told;
}

static void trace(const weir_transport *t, const weir_scope *scope, const weir_told *told,
                  const weir_send *send, size_t sends, const weir_recv *recv, size_t recvs) {
  weir_tracer *tracer = scope->tracer;
  const uint64_t step = atomic_load_explicit(&scope->live->step, memory_order_relaxed);
  const double end_s = weir_now_s();
  for (size_t i = 0; i < sends; i++)
    weir_tracer_message(tracer, false, weir_transport_rank_of(t, send[i].peer), send[i].bytes, step,
                        told->begin_s, end_s);
  for (size_t i = 0; i < recvs; i++)
    weir_tracer_message(tracer, true, weir_transport_rank_of(t, recv[i].peer), recv[i].bytes, step,
                        told->begin_s, end_s);
  weir_tracer_span(tracer, weir_scope_thread(), "transfer", told->begin_s, end_s,
                   "\"step\":%llu,\"sends\":%zu,\"recvs\":%zu,\"wire_bytes\":%llu",
                   (unsigned long long)step, sends, recvs,
                   (unsigned long long)(t->bytes_sent - told->bytes_before));
}

static void log_messages(const weir_transport *t, const weir_send *send, size_t sends,
                         const weir_recv *recv, size_t recvs) {
  for (size_t i = 0; i < sends; i++)
    weir_log(WEIR_LOG_TRACE, "sent %zu bytes to rank %d", send[i].bytes,
             weir_transport_rank_of(t, send[i].peer));
  for (size_t i = 0; i < recvs; i++)
    weir_log(WEIR_LOG_TRACE, "got %zu bytes from rank %d", recv[i].bytes,
             weir_transport_rank_of(t, recv[i].peer));
}

void weir_told_end(const weir_transport *t, const weir_told *told, const weir_send *send,
                   size_t sends, const weir_recv *recv, size_t recvs, weir_status status) {
  weir_scope *scope = weir_scope_here();
  if (scope == NULL) return;
  weir_scope_wait(scope, NULL, 0, told->begin_s);
  if (status != WEIR_OK) return;
  if (scope->tracer != NULL) trace(t, scope, told, send, sends, recv, recvs);
  if (weir_log_on(WEIR_LOG_TRACE)) log_messages(t, send, sends, recv, recvs);
}
