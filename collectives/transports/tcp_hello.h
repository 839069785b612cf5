/* What ranks say to each other before they are a group.
 *
 * The one who connects:  hello ->            <- challenge
 *                        proof ->            <- welcome (of rank 0 at the start: the table of
 * ranks)
 *
 * All have the same form.  A hello and a challenge carry a nonce; a proof is an HMAC under the
 * job's key over hello and challenge, a welcome's one over these and what follows it.  Whoever
 * connects proves first: a stranger learns nothing to try secrets on.  Any of them may be answered
 * by a refusal, which proves nothing. */
#ifndef WEIR_TRANSPORTS_TCP_HELLO_H
#define WEIR_TRANSPORTS_TCP_HELLO_H

#include <endian.h>
#include <netinet/in.h>

#include "collectives/secret.h"
#include "collectives/transport.h"

#define TCP_NONCE 16

enum {
  HELLO_REGISTER = 1,
  HELLO_MESH = 2,
  HELLO_TABLE = 3,
  HELLO_REFUSED = 4,
  HELLO_CHALLENGE = 5,
  HELLO_PROOF = 6,
  HELLO_WELCOME = 7,
  HELLO_REJOIN = 8,
  HELLO_STREAM = 9,
  HELLO_WAIT = 10,   /* rank 0 to those who have come: not before rank `detail` has */
  HELLO_ABSENT = 11, /* and: rank `detail` has not come in time */
  HELLO_JOIN = 12,   /* of one who wants to join a group that runs */
  HELLO_GROUP = 13,  /* the answer to its proof: the table of that group, of which `rank` says so */
  HELLO_HERE = 14,   /* all members have answered so; and, later, the answer to: */
  HELLO_CALL = 15    /* are you there?  What follows is the table of the group with it, as `rank` */
};
enum {
  REFUSE_NOT,
  REFUSE_GARBAGE,
  REFUSE_VERSION,
  REFUSE_JOB,
  REFUSE_SIZE,
  REFUSE_RANK,
  REFUSE_SECRET,
  REFUSE_STREAMS,
  REFUSE_USER,
  REFUSE_TLS,
  REFUSE_OFFER,
  REFUSE_COUNT,
  REFUSE_EARLY /* not now: to be dropped without a word, so that it calls again */
};

/* Little-endian on the wire, but for ports. */
typedef struct tcp_hello {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint64_t job;
  uint32_t size;
  uint32_t rank;
  in_port_t data_port; /* network order: where it listens */
  in_port_t echo_port;
  uint32_t detail;     /* of a refusal: why; of a table: checksum of the entries that follow; of a
                          word that a rank is missing: which; else how messages will be
                          encrypted, tcp_seal */
  uint64_t generation; /* how often the group has changed; of a HELLO_JOIN: a number of its own,
                          and size and rank are halves of what it offers */
  unsigned char nonce[TCP_NONCE];
  unsigned char proof[WEIR_PROOF_BYTES];
  uint16_t streams;  /* connections between each two ranks */
  uint16_t stream;   /* of a HELLO_STREAM: which, from 1 */
  uint32_t checksum; /* of the bytes before it */
} tcp_hello;
_Static_assert(sizeof(tcp_hello) == 96, "a hello has no padding");

typedef struct tcp_table_entry {
  struct in_addr address;
  in_port_t data_port;
  in_port_t echo_port;
} tcp_table_entry;
_Static_assert(sizeof(tcp_table_entry) == 8, "a table entry has no padding");

/* Who asks to be let in: fixed for a meeting. */
typedef struct tcp_terms {
  uint64_t job;
  uint64_t generation;
  uint32_t size;
  uint32_t kind;       /* of hello due */
  uint32_t first, end; /* ranks first .. end-1 are due */
  uint16_t streams;
  uint16_t stream; /* of HELLO_STREAM */
  uint64_t offer;  /* of HELLO_JOIN */
} tcp_terms;

/* Why a hello is refused, from what has come of it so far (bytes of it); REFUSE_NOT: nothing
 * against it yet. */
int tcp_hello_judge(const tcp_hello *hello, size_t bytes, const tcp_terms *terms);
/* Is it whole, of our version and of this kind? */
bool tcp_hello_is(const tcp_hello *hello, int kind);
/* Fill in magic, version and checksum. */
void tcp_hello_seal(tcp_hello *hello);
void tcp_nonce(unsigned char nonce[TCP_NONCE]);

/* The proof of the one who connects, and of the one who is connected to. */
void tcp_prove_caller(const weir_key *key, const tcp_hello *hello, const tcp_hello *challenge,
                      unsigned char proof[WEIR_PROOF_BYTES]);
void tcp_prove_host(const weir_key *key, const tcp_hello *hello, const tcp_hello *challenge,
                    const tcp_hello *welcome, const void *table, size_t table_bytes,
                    unsigned char proof[WEIR_PROOF_BYTES]);

const char *tcp_refusal(uint32_t reason);
/* What one who wants to join offers. */
static inline uint64_t tcp_hello_offer(const tcp_hello *hello) {
  return (uint64_t)le32toh(hello->rank) << 32 | le32toh(hello->size);
}
/* A refusal by a rank, as this rank's error. */
weir_status tcp_refused(int by, uint32_t reason);

#endif
