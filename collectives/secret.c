/* The digest itself, without an object for it, is of the interface that OpenSSL 3 calls old. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "collectives/secret.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* HMAC (RFC 2104) by libcrypto's SHA-256.  Its own HMAC takes memory for every proof, and datagrams
 * are proved while steps are under way, which take none. */
enum { BLOCK = SHA256_CBLOCK };
_Static_assert(WEIR_PROOF_BYTES == SHA256_DIGEST_LENGTH, "a proof is a whole digest");

static void begin(SHA256_CTX *hash, const unsigned char key[BLOCK], unsigned char with) {
  unsigned char pad[BLOCK];
  for (size_t i = 0; i < BLOCK; i++) pad[i] = key[i] ^ with;
  (void)SHA256_Init(hash);
  (void)SHA256_Update(hash, pad, sizeof pad);
  OPENSSL_cleanse(pad, sizeof pad);
}

static void sign(const void *key, size_t key_bytes, const weir_piece *piece, size_t pieces,
                 unsigned char proof[WEIR_PROOF_BYTES]) {
  unsigned char block[BLOCK] = {0}, inside[SHA256_DIGEST_LENGTH];
  SHA256_CTX hash;
  if (key_bytes > BLOCK)
    (void)SHA256(key, key_bytes, block);
  else
    memcpy(block, key, key_bytes);
  begin(&hash, block, 0x36);
  for (size_t i = 0; i < pieces; i++) (void)SHA256_Update(&hash, piece[i].data, piece[i].bytes);
  (void)SHA256_Final(inside, &hash);
  begin(&hash, block, 0x5c);
  (void)SHA256_Update(&hash, inside, sizeof inside);
  (void)SHA256_Final(proof, &hash);
  OPENSSL_cleanse(block, sizeof block);
}

void weir_prove(const weir_key *key, const char *label, const weir_piece *piece, size_t pieces,
                unsigned char proof[WEIR_PROOF_BYTES]) {
  weir_piece all[1 + WEIR_PIECES_MAX] = {{label, strlen(label) + 1}};
  for (size_t i = 0; i < pieces; i++) all[1 + i] = piece[i];
  sign(key->bytes, sizeof key->bytes, all, 1 + pieces, proof);
}

bool weir_proof_equal(const unsigned char *a, const unsigned char *b, size_t bytes) {
  unsigned differ = 0;
  for (size_t i = 0; i < bytes; i++) differ |= (unsigned)(a[i] ^ b[i]);
  return differ == 0;
}

weir_key weir_key_of_job(const void *secret, size_t bytes, uint64_t job) {
  static const unsigned char label[] = "weir job";
  const uint64_t number = htole64(job);
  const weir_piece piece[] = {{label, sizeof label}, {&number, sizeof number}};
  weir_key key;
  sign(bytes > 0 ? secret : label, bytes, piece, 2, key.bytes);
  return key;
}

weir_key weir_key_of_group(const weir_key *job, const void *name, size_t bytes) {
  const weir_piece piece = {name, bytes};
  weir_key key;
  weir_prove(job, "weir group", &piece, 1, key.bytes);
  return key;
}

weir_status weir_secret_read(const char *path, unsigned char secret[WEIR_SECRET_MAX],
                             size_t *bytes) {
  char text[WEIR_SECRET_MAX + 6]; /* with a mark and CR LF, and room to see that there is more */
  struct stat found;
  size_t got = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us up */
  if (fd < 0) return weir_fail(WEIR_E_IO, "%s: cannot read the secret: %s", path, strerror(errno));
  const bool known = fstat(fd, &found) == 0;
  ssize_t part = known && S_ISREG(found.st_mode) ? 1 : 0;
  while (part > 0 && got < sizeof text) {
    part = read(fd, text + got, sizeof text - got);
    if (part > 0) got += (size_t)part;
  }
  const int error = errno;
  (void)close(fd);
  if (part < 0 || !known)
    return weir_fail(WEIR_E_IO, "%s: cannot read the secret: %s", path, strerror(error));
  if (!S_ISREG(found.st_mode))
    return weir_fail(WEIR_E_INVALID, "%s: the secret is not in a regular file", path);
  if (found.st_uid != geteuid() && found.st_uid != 0)
    return weir_fail(WEIR_E_INVALID, "%s: the secret belongs to another user", path);
  if ((found.st_mode & 077) != 0)
    return weir_fail(WEIR_E_INVALID, "%s: the secret is open to other users (mode %o; 600 is due)",
                     path, (unsigned)(found.st_mode & 0777));
  const size_t begin = weir_text_mark(text, got);
  got = weir_text_line(text + begin, got - begin);
  if (got < 1 || got > WEIR_SECRET_MAX)
    return weir_fail(WEIR_E_INVALID, "%s: a secret has 1 to %d bytes", path, WEIR_SECRET_MAX);
  memcpy(secret, text + begin, got);
  *bytes = got;
  return WEIR_OK;
}
