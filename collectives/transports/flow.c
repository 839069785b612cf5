#include "collectives/transports/flow.h"

/* What a sender's kernel hands to its device at once when it has enough (GSO). */
static const size_t lump_least = 49152, lump_most = 65536;
static const size_t late_least = 4096;

static bool half_there(const weir_flow_track *track, size_t length, size_t received) {
  return track->half_s == 0.0 && received >= length / 2;
}

bool weir_flow_due(const weir_flow_track *track, size_t length, size_t received) {
  return track->first_s == 0.0 || half_there(track, length, received);
}

void weir_flow_read(weir_flow_track *track, size_t length, size_t received, size_t lump,
                    double now_s) {
  const bool half = half_there(track, length, received);
  track->lump = lump;
  if (track->first_s == 0.0) {
    track->first_s = now_s;
    track->first_bytes = received;
  }
  if (!half) return;
  track->half_s = now_s;
  track->half_bytes = received;
  track->half_lump = lump;
}

weir_flow_sample weir_flow_end(const weir_flow_track *track, int peer, size_t arrived,
                               double now_s) {
  weir_flow_sample flow = {.peer = peer, .first_s = track->first_s, .half_s = track->first_s};
  flow.last_s = flow.first_s;
  if (arrived <= track->first_bytes) return flow; /* all was there at once */
  flow.bytes = arrived - track->first_bytes;
  flow.last_s = flow.half_s = now_s;
  if (track->half_s == 0.0 || arrived <= track->half_bytes) return flow;
  flow.half_s = track->half_s;
  flow.late_bytes = arrived - track->half_bytes;
  /* A wire sends a lump and then it is there; a token bucket lets it pass and then waits until it
   * is paid for, so that the time is that of the lump at its begin instead of that at its end.
   * Long lumps are the buckets' (a network card's own are short), so that is what is assumed of
   * them.  Shorter ones may be several that a late rank found together, and packets' lengths; then
   * only a few packets at the end tell nothing. */
  const size_t begin = track->half_lump, end = track->lump;
  if (begin >= lump_least && begin <= lump_most && end <= lump_most) {
    flow.late_bytes += begin - end;
    flow.doubt = begin > end ? begin - end : end - begin;
  } else if (flow.late_bytes < late_least) {
    flow.doubt = flow.late_bytes;
  }
  return flow;
}
