/* What all transports share: the words of their errors and the record of large arrivals. */
#ifndef WEIR_TRANSPORTS_COMMON_H
#define WEIR_TRANSPORTS_COMMON_H

#include "collectives/transport.h"

/* Most ranks of a group: a rank number travels in 16 bits, and a full mesh has a
 * descriptor each. */
#define WEIR_RANKS_MAX 4096

/* Refuse ranks, sizes and time-outs out of range. */
weir_status weir_transport_check(int rank, int size, double timeout_s);

/* May this process use fewer processors than a group of `size` ranks wants on one machine? */
bool weir_crowded(int size);

/* Refuse messages to or from oneself or nobody. */
weir_status weir_messages_check(const weir_transport *t, const weir_send *send, size_t sends,
                                const weir_recv *recv, size_t recvs);

/* The next message to, or from, the same peer behind number i; the number of messages when there is
 * none. */
size_t weir_send_after(const weir_send *send, size_t sends, size_t i);
size_t weir_recv_after(const weir_recv *recv, size_t recvs, size_t i);

/* WEIR_OK when what `peer` sent is what this rank expects; else WEIR_E_MISMATCH saying what differs
 * and both values. */
weir_status weir_tag_check(int peer, const weir_tag *expected, const weir_tag *got);

/* What goes before a message where the library below, or memory, keeps the bytes as they are; in
 * the machine's own order of bytes. */
typedef struct weir_frame {
  uint32_t magic;
  uint16_t version;
  uint16_t from; /* rank */
  uint64_t plan;
  uint64_t step;
  uint32_t op;
  uint32_t hop;
  uint64_t length; /* of the payload */
} weir_frame;
_Static_assert(sizeof(weir_frame) == 40, "the frame header has no padding");
weir_frame weir_frame_of(int from, const weir_tag *tag, uint32_t hop, size_t length);
/* WEIR_OK when `peer` sent the frame that this receive expects. */
weir_status weir_frame_check(const weir_frame *frame, int peer, const weir_tag *tag, uint32_t hop,
                             size_t capacity);

/* The group has ended: `reporter` found `culprit` to blame for `reason` (WEIR_E_TIMEOUT, PEER,
 * MISMATCH or PROTOCOL; anything else reads as PEER). */
typedef struct weir_end {
  weir_status reason; /* WEIR_OK: it has not ended */
  int culprit;
  int reporter;
} weir_end;
weir_status weir_end_fail(const weir_end *end, int rank);

/* What is known of a rank when somebody has waited in vain. */
typedef struct weir_waiter {
  bool answers;
  int waiting_on; /* the rank that it waits for itself; none of the group's: for nobody */
} weir_waiter;
typedef weir_waiter weir_waiter_of(const void *group, int rank);
/* Who is to blame: from `peer`, whom rank `own` has waited for, along who waits for whom, to a rank
 * that does not answer or waits for nobody.  Of a circle, or a way that comes back to `own`, the
 * first rank that does not answer, as the circle may go through one that is frozen; else `peer`. */
int weir_end_of_chain(const void *group, weir_waiter_of *of, int size, int own, int peer);

/* May these members of a group of `size` go on as the group, when these of the others have ended?
 * WEIR_E_PEER when they may not (see shrink in transport.h). */
weir_status weir_survivors_check(const bool *member, const bool *dead, int size);
/* How long survivors wait for a rank that the group ended for because it was silent. */
#define WEIR_SHRINK_GRACE_S 1.0

/* Every rank tells all others as many bytes: all[size * bytes], in which the caller's own are set.
 * Whoever tells another number of bytes ends the group (WEIR_E_MISMATCH). */
weir_status weir_transport_tell(weir_transport *t, const weir_tag *tag, void *all, size_t bytes,
                                double deadline_s);

/* Bytes into and out of a ring of `size` bytes, a power of two, at the running position `at`. */
void weir_ring_write(unsigned char *ring, size_t size, uint64_t at, const void *data, size_t bytes);
void weir_ring_read(const unsigned char *ring, size_t size, uint64_t at, void *data, size_t bytes);

void weir_flow_record(weir_transport *t, weir_flow_sample flow);
/* Shorter messages say nothing about bandwidth. */
#define WEIR_FLOW_MIN ((size_t)16 * 1024)

#endif
