/* Words between caches: whatever bit of one is changed, it is refused. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/base.h"
#include "cache/wire.h"

static void flip(void *bytes, size_t bit) {
  ((unsigned char *)bytes)[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

Test(cache_wire, words_come_as_they_went) {
  const cache_message ask = {.kind = CACHE_ASK, .index = 41};
  const cache_message here = {CACHE_HERE, 41, 1000, 0x12345678};
  cache_message got;
  cache_word word;
  cache_word_write(&word, &ask);
  cr_assert(cache_word_request(&word, 42, &got));
  cr_assert_eq(got.index, 41);
  cr_assert_not(cache_word_request(&word, 41, &got), "there are 41 samples, from 0 on");
  cr_assert_not(cache_word_reply(&word, 41, 1000, &got));
  cache_word_write(&word, &here);
  cr_assert(cache_word_reply(&word, 41, 1000, &got));
  cr_assert(got.bytes == 1000 && got.crc == 0x12345678 && got.kind == CACHE_HERE);
  cr_assert_not(cache_word_reply(&word, 41, 999, &got));
  cr_assert_not(cache_word_reply(&word, 40, 1000, &got));
  cr_assert_not(cache_word_request(&word, 42, &got));
}

Test(cache_wire, no_bit_of_a_word_may_change) {
  const cache_message ask = {.kind = CACHE_ASK, .index = 3}, here = {CACHE_HERE, 3, 9, 8};
  cache_message got;
  cache_word word;
  for (size_t bit = 0; bit < 8 * sizeof word; bit++) {
    cache_word_write(&word, &ask);
    flip(&word, bit);
    cr_assert_not(cache_word_request(&word, UINT32_MAX, &got), "bit %zu", bit);
    cache_word_write(&word, &here);
    flip(&word, bit);
    cr_assert_not(cache_word_reply(&word, 3, SIZE_MAX, &got), "bit %zu", bit);
  }
}

/* An index that does not fit 32 bits must not come out as one that does. */
Test(cache_wire, noise_is_no_word) {
  cache_message got;
  weir_rng rng = weir_rng_of(7);
  for (int i = 0; i < 100000; i++) {
    uint64_t noise[sizeof(cache_word) / 8];
    cache_word word;
    for (size_t k = 0; k < sizeof noise / sizeof *noise; k++) noise[k] = weir_rng_next(&rng);
    memcpy(&word, noise, sizeof word);
    cr_assert_not(cache_word_request(&word, UINT32_MAX, &got));
  }
}

Test(cache_wire, greetings_are_between_two_ranks_and_whole) {
  cache_greeting g = {0};
  cache_greeting_seal(&g, CACHE_HELLO, 2, 1);
  cr_assert(cache_greeting_is(&g, CACHE_HELLO, 2, 1) && cache_greeting_is(&g, CACHE_HELLO, -1, 1));
  cr_assert_not(cache_greeting_is(&g, CACHE_PROOF, 2, 1));
  cr_assert_not(cache_greeting_is(&g, CACHE_HELLO, 1, 1));
  cr_assert_not(cache_greeting_is(&g, CACHE_HELLO, -1, 2));
  for (size_t bit = 0; bit < 8 * sizeof g; bit++) {
    flip(&g, bit);
    cr_assert_not(cache_greeting_is(&g, CACHE_HELLO, -1, 1), "bit %zu", bit);
    flip(&g, bit);
  }
}

/* The two proofs differ, depend on every bit of both greetings, and on the key. */
Test(cache_wire, proofs_are_of_one_meeting) {
  const weir_key key = {{1}}, other = {{2}};
  cache_greeting hello = {0}, challenge = {0};
  unsigned char proof[WEIR_PROOF_BYTES], another[WEIR_PROOF_BYTES];
  cache_prove(&key, CACHE_PROOF, &hello, &challenge, proof);
  cache_prove(&key, CACHE_WELCOME, &hello, &challenge, another);
  cr_assert_not(weir_proof_equal(proof, another, sizeof proof));
  cache_prove(&other, CACHE_PROOF, &hello, &challenge, another);
  cr_assert_not(weir_proof_equal(proof, another, sizeof proof));
  for (size_t bit = 0; bit < 8 * sizeof hello; bit += 7) {
    flip(&hello, bit);
    cache_prove(&key, CACHE_PROOF, &hello, &challenge, another);
    cr_assert_not(weir_proof_equal(proof, another, sizeof proof));
    flip(&hello, bit);
    flip(&challenge, bit);
    cache_prove(&key, CACHE_PROOF, &hello, &challenge, another);
    cr_assert_not(weir_proof_equal(proof, another, sizeof proof));
    flip(&challenge, bit);
  }
}
