/* Proofs that somebody knows the job's secret: HMAC-SHA256 (RFC 2104), by OpenSSL's
 * libcrypto. */
#ifndef WEIR_COLLECTIVES_SECRET_H
#define WEIR_COLLECTIVES_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

#define WEIR_PROOF_BYTES 32
#define WEIR_SECRET_MAX 1024

/* What is proved with: derived from the secret and never sent. */
typedef struct weir_key {
  unsigned char bytes[WEIR_PROOF_BYTES];
} weir_key;

/* Pieces of a message, hashed one behind the other. */
typedef struct weir_piece {
  const void *data;
  size_t bytes;
} weir_piece;

/* The key of a job: of `bytes` bytes of secret, 0 for none, and the job's number. */
weir_key weir_key_of_job(const void *secret, size_t bytes, uint64_t job);
/* A key that belongs to one group of the job. */
weir_key weir_key_of_group(const weir_key *job, const void *name, size_t bytes);

/* label tells proofs of different purpose apart; it is hashed with its terminating zero.  At most
 * WEIR_PIECES_MAX pieces follow it. */
#define WEIR_PIECES_MAX 4
void weir_prove(const weir_key *key, const char *label, const weir_piece *piece, size_t pieces,
                unsigned char proof[WEIR_PROOF_BYTES]);
/* Are two proofs equal?  Takes the same time wherever they differ. */
bool weir_proof_equal(const unsigned char *a, const unsigned char *b, size_t bytes);

/* The secret in a file, without a newline at its end.  The file must be regular, of this user or of
 * root, closed to everybody else and hold 1 .. WEIR_SECRET_MAX bytes; else WEIR_E_INVALID, or
 * WEIR_E_IO when it cannot be read. */
weir_status weir_secret_read(const char *path, unsigned char secret[WEIR_SECRET_MAX],
                             size_t *bytes);

#endif
