/* How fast a message arrives, read by read: what the network monitor is told of it.  Pure: the
 * transport says what arrived when. */
#ifndef WEIR_TRANSPORTS_FLOW_H
#define WEIR_TRANSPORTS_FLOW_H

#include "collectives/transport.h"

/* Of the message being received; zeros before its first read. */
typedef struct weir_flow_track {
  double first_s, half_s; /* 0: not yet */
  size_t first_bytes;     /* of the message, there when first_s was read */
  size_t half_bytes;      /* likewise at half_s, the first look that found half of it */
  size_t half_lump, lump; /* what came with that read, and with the newest */
} weir_flow_track;

/* Will a read that makes it `received` bytes of `length` be one whose time counts?  Looking at the
 * clock at every read would cost more than reading. */
bool weir_flow_due(const weir_flow_track *track, size_t length, size_t received);
/* A read brought `lump` bytes; of a message of `length` bytes `received` are here.  now_s counts
 * when weir_flow_due(). */
void weir_flow_read(weir_flow_track *track, size_t length, size_t received, size_t lump,
                    double now_s);
/* The message is complete, and the last read brought what makes it `arrived` bytes: more than its
 * length when the begin of the next one came along, as a lump's time must not be counted without
 * its bytes. */
weir_flow_sample weir_flow_end(const weir_flow_track *track, int peer, size_t arrived,
                               double now_s);

/* Messages that share the links on their way, as one message: each alone has only a part of what
 * these carry.  Of one nothing changes. */
weir_flow_sample weir_flow_together(const weir_flow_sample *flow, size_t count);

#endif
