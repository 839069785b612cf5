/* Proofs against an HMAC of the test's own, which is held against RFC 4231; and files
 * of secrets. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../multi/hmac.h"
#include "collectives/secret.h"

static void expect(const unsigned char *got, const char *hex) {
  char text[65];
  for (int i = 0; i < 32; i++) (void)snprintf(text + 2 * i, 3, "%02x", got[i]);
  cr_assert_str_eq(text, hex);
}

/* RFC 4231, cases 1, 2 and 6 (a key longer than a block). */
Test(secret, the_oracle_fits_the_rfc) {
  unsigned char key[131], mac[32];
  memset(key, 0x0b, 20);
  hmac(key, 20, "Hi There", 8, mac);
  expect(mac, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  hmac("Jefe", 4, "what do ya want for nothing?", 28, mac);
  expect(mac, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  memset(key, 0xaa, sizeof key);
  hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54, mac);
  expect(mac, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* key = HMAC(secret, "weir job" 0 job), proof = HMAC(key, label 0 pieces). */
Test(secret, keys_and_proofs_are_what_they_say) {
  static const char *const secrets[] = {"", "s",
                                        "a secret of some length, longer than a block "
                                        "of the hash that is used, which is 64 bytes"};
  for (int i = 0; i < 3; i++) {
    const size_t bytes = strlen(secrets[i]);
    unsigned char text[64] = "weir job", mac[32], proof[32], other[32];
    for (int b = 0; b < 8; b++)
      text[9 + b] = (unsigned char)(UINT64_C(0x1122334455667788) >> 8 * b);
    hmac(secrets[i], bytes, text, 17, mac);
    const weir_key key = weir_key_of_job(secrets[i], bytes, UINT64_C(0x1122334455667788));
    cr_assert_eq(memcmp(key.bytes, mac, 32), 0);
    const weir_piece piece[] = {{"one", 3}, {NULL, 0}, {"two", 3}};
    memcpy(text, "label\0onetwo", 12);
    hmac(mac, 32, text, 12, other);
    weir_prove(&key, "label", piece, 3, proof);
    cr_assert_eq(memcmp(proof, other, 32), 0);
    cr_assert(weir_proof_equal(proof, other, 32));
    for (int at = 0; at < 32; at++) {
      other[at] ^= 1;
      cr_assert(!weir_proof_equal(proof, other, 32));
      other[at] ^= 1;
    }
    weir_prove(&key, "labe", piece, 3, other);
    cr_assert(!weir_proof_equal(proof, other, 32));
    memcpy(text, "weir group\0name", 15);
    hmac(mac, 32, text, 15, other);
    const weir_key of_bucket = weir_key_of_group(&key, "name", 4);
    cr_assert_eq(memcmp(of_bucket.bytes, other, 32), 0);
  }
}

static void write_file(const char *path, const char *text, size_t bytes, mode_t mode) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  cr_assert(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes);
  cr_assert_eq(fchmod(fd, mode), 0);
  (void)close(fd);
}

Test(secret, files) {
  char folder[] = "/tmp/weir-secret-XXXXXX", path[64];
  unsigned char secret[WEIR_SECRET_MAX];
  static char longest[WEIR_SECRET_MAX + 2];
  size_t bytes = 0;
  memset(longest, 'x', sizeof longest);
  cr_assert_not_null(mkdtemp(folder));
  (void)snprintf(path, sizeof path, "%s/secret", folder);
  write_file(path, "word\n", 5, 0600);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_OK, "%s", weir_last_error());
  cr_assert(bytes == 4 && memcmp(secret, "word", 4) == 0);
  write_file(path, "two\nlines\n", 10, 0400);
  (void)chmod(path, 0600);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_OK);
  cr_assert(bytes == 9 && memcmp(secret, "two\nlines", 9) == 0);
  /* As editors of other systems leave it, it is the same secret. */
  write_file(path, "\xEF\xBB\xBFword\r\n", 9, 0600);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_OK);
  cr_assert(bytes == 4 && memcmp(secret, "word", 4) == 0);
  write_file(path, "\xEF\xBB\xBF\r\n", 5, 0600);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_E_INVALID);
  write_file(path, longest, WEIR_SECRET_MAX, 0600);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_OK);
  cr_assert_eq(bytes, WEIR_SECRET_MAX);
  write_file(path, longest, WEIR_SECRET_MAX + 1, 0600);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_E_INVALID);
  write_file(path, "\n", 1, 0600);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_E_INVALID);
  static const mode_t open_modes[] = {0640, 0604, 0660, 0601, 0620};
  for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
    write_file(path, "word", 4, open_modes[i]);
    cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_E_INVALID);
    cr_assert_not_null(strstr(weir_last_error(), "open to other users"));
  }
  (void)unlink(path);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_E_IO);
  cr_assert_eq(mkfifo(path, 0600), 0);
  cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_E_INVALID);
  cr_assert_eq(weir_secret_read(folder, secret, &bytes), WEIR_E_INVALID);
  if (geteuid() == 0) {
    (void)unlink(path);
    write_file(path, "word", 4, 0600);
    cr_assert_eq(chown(path, 1234, 1234), 0);
    cr_assert_eq(weir_secret_read(path, secret, &bytes), WEIR_E_INVALID);
    cr_assert_not_null(strstr(weir_last_error(), "another user"));
  }
  (void)unlink(path);
  (void)rmdir(folder);
}
