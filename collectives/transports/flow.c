#include "collectives/transports/flow.h"

#include <math.h>

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
  weir_flow_sample flow = {
      .peer = peer, .length = arrived, .first_s = track->first_s, .half_s = track->first_s};
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

/* How much of what arrived between two moments had at t, if evenly. */
static double share_by(double t, double from, double to) {
  return t >= to ? 1 : t <= from ? 0 : (t - from) / (to - from);
}

/* Bytes of a message that were there at t. */
static double there_by(const weir_flow_sample *flow, double t) {
  if (t < flow->first_s) return 0;
  const double late = fmin((double)flow->late_bytes, (double)flow->bytes);
  return (double)(flow->length - flow->bytes) +
         ((double)flow->bytes - late) * share_by(t, flow->first_s, flow->half_s) +
         late * share_by(t, flow->half_s, flow->last_s);
}

static double all_there_by(const weir_flow_sample *flow, size_t count, double t) {
  double bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += there_by(&flow[i], t);
  return bytes;
}

weir_flow_sample weir_flow_together(const weir_flow_sample *flow, size_t count) {
  enum { HALVINGS = 40 }; /* of an exchange's time: to nanoseconds */
  weir_flow_sample all = flow[0];
  if (count == 1) return all;
  for (size_t i = 1; i < count; i++) {
    all.length += flow[i].length;
    all.doubt += flow[i].doubt;
    all.first_s = fmin(all.first_s, flow[i].first_s);
    all.last_s = fmax(all.last_s, flow[i].last_s);
  }
  const double whole = (double)all.length, begun = all_there_by(flow, count, all.first_s);
  double before = all.first_s, after = all.last_s;
  for (int i = 0; i < HALVINGS; i++) {
    const double middle = 0.5 * (before + after);
    *(2 * all_there_by(flow, count, middle) < whole ? &before : &after) = middle;
  }
  all.half_s = after;
  all.bytes = (size_t)(whole - begun);
  all.late_bytes = (size_t)(whole - all_there_by(flow, count, after));
  return all;
}
