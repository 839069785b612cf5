/* Inside of the monitor: what its files share. */
#ifndef WEIR_NETMON_ESTIMATE_H
#define WEIR_NETMON_ESTIMATE_H

#include "netmon/channel.h"
#include "netmon/netmon.h"

enum { WEIR_LOADED_KEPT = 4, WEIR_BOUNDS_KEPT = 4 };

typedef struct weir_collective_fit {
  double aa, ab, bb, a, b; /* normal equations of T = a*alpha + b*beta, each divided by T */
  double terms, bytes;     /* of the newest sample */
  weir_channel ratio;      /* measured over predicted time, for suspicion */
} weir_collective_fit;

/* What the latency is at most: round trips, and hops of exchanges without what their bytes take. */
typedef struct weir_latency_bounds {
  double rtt[WEIR_BOUNDS_KEPT], by[WEIR_BOUNDS_KEPT]; /* s; the transfers they shared a way with */
  double hop[WEIR_BOUNDS_KEPT];                       /* s, with slow bytes */
  double hop_most[WEIR_BOUNDS_KEPT];                  /* s, with quick ones */
  uint32_t rtts, hops;                                /* ever, since the latency changed */
  bool believed; /* the latency known stands on them: one below is true at once */
} weir_latency_bounds;

/* What messages get of a link that loses packets (goodput.c). */
typedef struct weir_goodput {
  double segments, resent, disordered; /* sums that forget */
  double bytes, seconds;               /* likewise, of messages */
  double square;                       /* of their seconds a byte, weighted by bytes */
  double weight;                       /* of all messages */
  uint32_t messages;                   /* ever */
} weir_goodput;

struct weir_netmon {
  double overhead, threshold, window_s;
  double time_s;         /* of the newest sample of any kind */
  double echo_s, flow_s; /* of the newest direct sample; negative: none yet */
  double idle_echo_s;
  double loaded_rtt[WEIR_LOADED_KEPT]; /* since the newest idle round trip */
  double loaded_by[WEIR_LOADED_KEPT];  /* running number of the transfer that each shared its way
                                          with */
  uint32_t loaded;
  weir_latency_bounds bounds;
  weir_channel latency, rate;
  weir_goodput goodput;
  weir_collective_fit fit;
  double cross;
  double train;         /* the newest train's rate over the known rate */
  double usual_train;   /* that of those after which a probe found nothing new: what a token bucket
                           does */
  uint32_t fast_trains; /* in a row, so much faster that the rate must have risen */
  double fast_rate;     /* what the newest of them speaks for at least */
  double fast_exact,
      fast_bytes; /* largest rate of those of them that were long; the newest's length */
  bool suspect;
  int suspected; /* collectives since */
};

/* What was predicted no longer holds: learn the ratio of measured to predicted anew. */
void weir_estimate_forget(weir_netmon *monitor);

/* --- latency (latency.c) -------------------------------------------------------------------- */

void weir_latency_feed(weir_netmon *monitor, double rtt_s, double error);
void weir_latency_echo(weir_netmon *monitor, const weir_sample *sample);
void weir_latency_idle(weir_netmon *monitor, const weir_sample *sample);
/* Of an exchange whose bytes take so many seconds at the known rate. */
void weir_latency_exchange(weir_netmon *monitor, const weir_sample *sample, double bytes_s);

/* --- goodput (goodput.c) -------------------------------------------------------------------- */

void weir_goodput_message(weir_goodput *goodput, const weir_sample *sample);
void weir_goodput_loss(weir_goodput *goodput, const weir_sample *sample);
/* Share of segments sent again. */
double weir_goodput_lost(const weir_goodput *goodput);
/* Do packets get lost or overtake each other so often that messages are slower than the link? */
bool weir_goodput_matters(const weir_goodput *goodput);
/* Payload bytes/s, its relative standard error, and the deviation of a message's time in s for the
 * root of its bytes; 0: unknown, or as the link. */
double weir_goodput_value(const weir_goodput *goodput, double *error, double *deviation);

#endif
