/* HMAC-SHA256 of a test's own, from RFC 2104 and FIPS 180-4, to hold the library's proofs against;
 * itself held against RFC 4231 in test_secret.c.  Texts of up to 1024 bytes. */
#ifndef WEIR_TESTS_HMAC_H
#define WEIR_TESTS_HMAC_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The first 32 bits of the fraction of the root of the n-th prime. */
static inline uint32_t sha_word(int n, int cube) {
  int prime = 2;
  for (int found = 0;; prime++) {
    int divisor = 2;
    while (divisor * divisor <= prime && prime % divisor != 0) divisor++;
    if (divisor * divisor > prime && found++ == n) break;
  }
  const long double root = cube ? cbrtl((long double)prime) : sqrtl((long double)prime);
  return (uint32_t)((root - floorl(root)) * 4294967296.0L);
}

static inline uint32_t sha_turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static inline void sha_block(uint32_t h[8], const unsigned char *block) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
           (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
  for (int i = 16; i < 64; i++)
    w[i] = w[i - 16] + w[i - 7] +
           (sha_turn(w[i - 15], 7) ^ sha_turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
           (sha_turn(w[i - 2], 17) ^ sha_turn(w[i - 2], 19) ^ w[i - 2] >> 10);
  memcpy(v, h, sizeof v);
  for (int i = 0; i < 64; i++) {
    const uint32_t one = v[7] + (sha_turn(v[4], 6) ^ sha_turn(v[4], 11) ^ sha_turn(v[4], 25)) +
                         ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha_word(i, 1) + w[i];
    const uint32_t two = (sha_turn(v[0], 2) ^ sha_turn(v[0], 13) ^ sha_turn(v[0], 22)) +
                         ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += one;
    v[0] = one + two;
  }
  for (int i = 0; i < 8; i++) h[i] += v[i];
}

static inline void sha256(const unsigned char *text, size_t bytes, unsigned char digest[32]) {
  unsigned char padded[1280] = {0};
  uint32_t h[8];
  const size_t whole = (bytes + 9 + 63) / 64 * 64;
  if (whole > sizeof padded) abort();
  memcpy(padded, text, bytes);
  padded[bytes] = 0x80;
  for (int i = 0; i < 8; i++) padded[whole - 1 - (size_t)i] = (unsigned char)(8 * bytes >> 8 * i);
  for (int i = 0; i < 8; i++) h[i] = sha_word(i, 0);
  for (size_t at = 0; at < whole; at += 64) sha_block(h, padded + at);
  for (int i = 0; i < 32; i++) digest[i] = (unsigned char)(h[i / 4] >> (24 - i % 4 * 8));
}

static inline void hmac(const void *key, size_t key_bytes, const void *text, size_t bytes,
                        unsigned char mac[32]) {
  unsigned char block[64] = {0}, inner[64 + 1024], outer[96];
  if (bytes > 1024) abort();
  if (key_bytes > 64)
    sha256(key, key_bytes, block);
  else if (key_bytes > 0)
    memcpy(block, key, key_bytes);
  for (int i = 0; i < 64; i++) {
    inner[i] = block[i] ^ 0x36;
    outer[i] = block[i] ^ 0x5c;
  }
  memcpy(inner + 64, text, bytes);
  sha256(inner, 64 + bytes, outer + 64);
  sha256(outer, 96, mac);
}

#endif
