#include "collectives/secret.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

void weir_prove(const weir_key *key, const char *label, const weir_piece *piece, size_t pieces,
                unsigned char proof[WEIR_PROOF_BYTES]) {
  gsize length = WEIR_PROOF_BYTES;
  GHmac *mac = g_hmac_new(G_CHECKSUM_SHA256, key->bytes, sizeof key->bytes);
  g_hmac_update(mac, (const guchar *)label, (gssize)strlen(label) + 1);
  for (size_t i = 0; i < pieces; i++)
    if (piece[i].bytes > 0) g_hmac_update(mac, piece[i].data, (gssize)piece[i].bytes);
  g_hmac_get_digest(mac, proof, &length);
  g_hmac_unref(mac);
}

bool weir_proof_equal(const unsigned char *a, const unsigned char *b, size_t bytes) {
  unsigned differ = 0;
  for (size_t i = 0; i < bytes; i++) differ |= (unsigned)(a[i] ^ b[i]);
  return differ == 0;
}

weir_key weir_key_of_job(const void *secret, size_t bytes, uint64_t job) {
  static const unsigned char label[] = "weir job";
  const uint64_t number = htole64(job);
  weir_key key;
  gsize length = sizeof key.bytes;
  GHmac *mac = g_hmac_new(G_CHECKSUM_SHA256, bytes > 0 ? secret : label, bytes);
  g_hmac_update(mac, label, (gssize)sizeof label);
  g_hmac_update(mac, (const guchar *)&number, (gssize)sizeof number);
  g_hmac_get_digest(mac, key.bytes, &length);
  g_hmac_unref(mac);
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
  unsigned char text[WEIR_SECRET_MAX + 2]; /* room to see that there is more */
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
  if (got > 0 && text[got - 1] == '\n') got--;
  if (got < 1 || got > WEIR_SECRET_MAX)
    return weir_fail(WEIR_E_INVALID, "%s: a secret has 1 to %d bytes", path, WEIR_SECRET_MAX);
  memcpy(secret, text, got);
  *bytes = got;
  return WEIR_OK;
}
