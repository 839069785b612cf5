#include "collectives/transports/tcp_hello.h"

#include <sys/random.h>

#include "base/base.h"
#include "collectives/transports/tcp.h"

#define HELLO_MAGIC UINT32_C(0x48494557) /* "WEIH" */

static const char *const refusals[REFUSE_COUNT] = {
    "it does not say why",
    "it does not speak our protocol",
    "it is of another version",
    "it belongs to another job",
    "it expects another number of ranks",
    "its rank is taken or does not belong here",
    "it does not know this job's secret",
    "it expects another number of streams",
    "it is another user's, and this job has no secret",
    "one of the two encrypts its messages and the other does not, or one by certificates and the "
    "other "
    "by the secret alone (WEIR_TLS, WEIR_TLS_CERT)",
    "it has registered other tensors or state than the group, or has other options",
};

const char *tcp_refusal(uint32_t reason) {
  return refusals[reason < REFUSE_COUNT ? reason : REFUSE_NOT];
}

weir_status tcp_refused(int by, uint32_t reason) {
  return weir_fail(reason == REFUSE_RANK ? WEIR_E_INVALID : WEIR_E_MISMATCH,
                   "rank %d refused this rank: %s", by, tcp_refusal(reason));
}

void tcp_hello_seal(tcp_hello *h) {
  h->magic = htole32(HELLO_MAGIC);
  h->version = htole16(TCP_VERSION);
  h->checksum = htole32(tcp_checksum(h, offsetof(tcp_hello, checksum)));
}

static bool whole(const tcp_hello *h) {
  return le32toh(h->magic) == HELLO_MAGIC && le16toh(h->version) == TCP_VERSION &&
         le32toh(h->checksum) == tcp_checksum(h, offsetof(tcp_hello, checksum));
}

bool tcp_hello_is(const tcp_hello *h, int kind) { return whole(h) && le16toh(h->kind) == kind; }

int tcp_hello_judge(const tcp_hello *h, size_t bytes, const tcp_terms *terms) {
  if (bytes >= sizeof h->magic && le32toh(h->magic) != HELLO_MAGIC) return REFUSE_GARBAGE;
  if (bytes >= offsetof(tcp_hello, kind) && le16toh(h->version) != TCP_VERSION)
    return REFUSE_VERSION;
  if (bytes < sizeof *h) return REFUSE_NOT;
  const bool joins = terms->kind == HELLO_JOIN;
  const bool early = (tcp_hello_is(h, HELLO_STREAM) &&
                      (terms->kind != HELLO_STREAM || le16toh(h->stream) > terms->stream)) ||
                     (tcp_hello_is(h, HELLO_JOIN) && !joins) ||
                     (joins && (tcp_hello_is(h, HELLO_REJOIN) || tcp_hello_is(h, HELLO_MESH)));
  if (!early && !tcp_hello_is(h, (int)terms->kind)) return REFUSE_GARBAGE;
  if (le64toh(h->job) != terms->job) return REFUSE_JOB;
  if (early) return REFUSE_EARLY;
  if (joins) return tcp_hello_offer(h) == terms->offer ? REFUSE_NOT : REFUSE_OFFER;
  if (le32toh(h->size) != terms->size) return REFUSE_SIZE;
  if (le16toh(h->streams) != terms->streams) return REFUSE_STREAMS;
  if (le16toh(h->stream) != terms->stream) return REFUSE_RANK;
  const uint32_t rank = le32toh(h->rank);
  if (rank < terms->first || rank >= terms->end) return REFUSE_RANK;
  if (le64toh(h->generation) != terms->generation) return REFUSE_RANK;
  return REFUSE_NOT;
}

void tcp_nonce(unsigned char nonce[TCP_NONCE]) {
  /* Never shorter than asked for, up to 256 bytes, once the kernel has gathered entropy. */
  while (getrandom(nonce, TCP_NONCE, 0) != TCP_NONCE) continue;
}

void tcp_prove_caller(const weir_key *key, const tcp_hello *hello, const tcp_hello *challenge,
                      unsigned char proof[WEIR_PROOF_BYTES]) {
  const weir_piece piece[] = {{hello, sizeof *hello}, {challenge, sizeof *challenge}};
  weir_prove(key, "weir caller", piece, 2, proof);
}

void tcp_prove_host(const weir_key *key, const tcp_hello *hello, const tcp_hello *challenge,
                    const tcp_hello *welcome, const void *table, size_t table_bytes,
                    unsigned char proof[WEIR_PROOF_BYTES]) {
  const weir_piece piece[] = {{hello, sizeof *hello},
                              {challenge, sizeof *challenge},
                              {welcome, offsetof(tcp_hello, proof)},
                              {table, table_bytes}};
  weir_prove(key, "weir host", piece, 4, proof);
}
