#include "collectives/secret.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* libcrypto's HMAC, looked up once: the search takes longer than a proof. */
static EVP_MAC *hmac;
static void find_hmac(void) { hmac = EVP_MAC_fetch(NULL, "HMAC", NULL); }

static bool sign(const void *key, size_t key_bytes, const weir_piece *piece, size_t pieces,
                 unsigned char proof[WEIR_PROOF_BYTES]) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static char digest[] = "SHA256";
  const OSSL_PARAM with[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                             OSSL_PARAM_construct_end()};
  size_t length = 0;
  (void)pthread_once(&once, find_hmac);
  EVP_MAC_CTX *mac = hmac != NULL ? EVP_MAC_CTX_new(hmac) : NULL;
  bool good = mac != NULL && EVP_MAC_init(mac, key, key_bytes, with) == 1;
  for (size_t i = 0; i < pieces && good; i++)
    good = piece[i].bytes == 0 || EVP_MAC_update(mac, piece[i].data, piece[i].bytes) == 1;
  good = good && EVP_MAC_final(mac, proof, &length, WEIR_PROOF_BYTES) == 1 &&
         length == WEIR_PROOF_BYTES;
  EVP_MAC_CTX_free(mac);
  return good;
}

/* HMAC of the pieces.  Where libcrypto cannot make one, for want of memory, the proof is bytes that
 * nobody can guess: whoever should have been convinced by it then refuses. */
static void sign_or_spoil(const void *key, size_t key_bytes, const weir_piece *piece, size_t pieces,
                          unsigned char proof[WEIR_PROOF_BYTES]) {
  if (sign(key, key_bytes, piece, pieces, proof)) return;
  while (getrandom(proof, WEIR_PROOF_BYTES, 0) != WEIR_PROOF_BYTES) continue;
}

void weir_prove(const weir_key *key, const char *label, const weir_piece *piece, size_t pieces,
                unsigned char proof[WEIR_PROOF_BYTES]) {
  weir_piece all[1 + WEIR_PIECES_MAX] = {{label, strlen(label) + 1}};
  for (size_t i = 0; i < pieces; i++) all[1 + i] = piece[i];
  sign_or_spoil(key->bytes, sizeof key->bytes, all, 1 + pieces, proof);
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
  sign_or_spoil(bytes > 0 ? secret : label, bytes, piece, 2, key.bytes);
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
