/* Messages added up in little room: the bits of their sum, in the room that is promised, wherever
 * their elements lie; and who has sent what cannot be read. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "kernels/codec.h"

enum { LONGEST = 20000, MESSAGES = 9 };

typedef struct set {
  size_t n, count, most, stride;
  unsigned char *message;
  size_t bytes[MESSAGES];
  float *sum, *packed; /* as decoded one by one; n floats and a mark */
  void *room;
} set;

static set create(void) {
  set s = {.stride = weir_wire_bound(LONGEST, LONGEST, WEIR_WIRE_PAPER) + 32};
  s.message = malloc(MESSAGES * s.stride);
  s.sum = malloc((LONGEST + 1) * sizeof *s.sum);
  s.packed = malloc((LONGEST + 1) * sizeof *s.packed);
  s.room = malloc(weir_merge_room(LONGEST, MESSAGES));
  cr_assert(s.message && s.sum && s.packed && s.room);
  return s;
}

static void destroy(set *s) {
  free(s->message);
  free(s->sum);
  free(s->packed);
  free(s->room);
}

/* Elements anywhere, or all in a stretch, or next to each other at the end. */
static void draw(set *s, weir_rng *rng, weir_wire_format format) {
  static uint32_t index[LONGEST];
  static float value[LONGEST];
  const uint64_t kind = weir_rng_below(rng, 4);
  s->n = 1 + weir_rng_below(rng, weir_rng_below(rng, 2) ? LONGEST : 1500);
  s->count = 1 + weir_rng_below(rng, MESSAGES);
  s->most = 0;
  const size_t width = kind == 0 ? s->n : 1 + weir_rng_below(rng, s->n);
  const size_t begin = kind == 1 ? s->n - width : weir_rng_below(rng, s->n - width + 1);
  const uint64_t of = kind == 2 ? 1 : 1 + weir_rng_below(rng, 40);
  for (size_t m = 0; m < s->count; m++) {
    size_t k = 0;
    for (size_t i = begin; i < begin + width; i++)
      if (weir_rng_below(rng, of) == 0) {
        index[k] = (uint32_t)i;
        value[k++] = weir_rng_below(rng, 8) == 0 ? -0.0f : (float)weir_rng_normal(rng);
      }
    if (k > s->most) s->most = k;
    cr_assert_eq(weir_wire_encode(s->n, index, value, k, format, s->message + m * s->stride,
                                  s->stride, &s->bytes[m], NULL),
                 WEIR_OK);
  }
}

static weir_status decode(set *s, size_t m) {
  const unsigned char *message = s->message + m * s->stride;
  return m == 0 ? weir_wire_decode_dense(NULL, message, s->bytes[m], s->n, s->sum)
                : weir_wire_decode_add(NULL, message, s->bytes[m], s->n, s->sum);
}

static weir_status merge(set *s, size_t *bad) {
  size_t floats;
  const size_t most = weir_merge_floats(s->n, s->count, s->most);
  cr_assert_leq(most, s->n);
  for (size_t i = 0; i <= s->n; i++) s->packed[i] = 77.0f;
  const weir_status status = weir_merge(s->message, s->stride, s->bytes, s->count, s->n, s->most,
                                        s->room, s->packed, &floats, bad);
  for (size_t i = most; i <= s->n; i++) cr_assert(s->packed[i] == 77.0f, "written beyond");
  if (status != WEIR_OK) return status;
  cr_assert_leq(floats, most);
  float *const end = s->packed + (s->n - floats);
  memmove(end, s->packed, floats * sizeof *end);
  weir_merge_spread(s->room, s->count, end, s->n, s->packed);
  cr_assert(s->packed[s->n] == 77.0f);
  return WEIR_OK;
}

Test(kernels_merge, as_decoded_one_by_one) {
  set s = create();
  weir_rng rng;
  weir_rng_seed(&rng, 21);
  size_t bad;
  for (int round = 0; round < (int)(600 / MESSAGES); round++)
    for (int format = 0; format < 4; format++) {
      draw(&s, &rng, (weir_wire_format)format);
      for (size_t m = 0; m < s.count; m++) cr_assert_eq(decode(&s, m), WEIR_OK);
      cr_assert_eq(merge(&s, &bad), WEIR_OK, "%s", weir_last_error());
      cr_assert_arr_eq(s.packed, s.sum, s.n * sizeof(float), "format %d, %zu of %zu by %zu", format,
                       s.most, s.n, s.count);
    }
  destroy(&s);
}

/* By hand: two messages of 1000 elements in all of 40 000 take at most those and a bit an element;
 * 30 000 of two each are more than all. */
Test(kernels_merge, room_by_hand) {
  cr_assert_eq(weir_merge_floats(40000, 2, 500), 1000 + 1250);
  cr_assert_eq(weir_merge_floats(40000, 2, 30000), 40000);
  cr_assert_eq(weir_merge_floats(0, 3, 0), 0);
}

/* What one message alone is refused for is refused, and is its sender's; else the sum is right. */
Test(kernels_merge, refuses_what_decoding_refuses) {
  set s = create();
  weir_rng rng;
  weir_rng_seed(&rng, 22);
  int refused = 0;
  for (int round = 0; round < 3000; round++) {
    draw(&s, &rng, (weir_wire_format)(round % 4));
    const size_t victim = weir_rng_below(&rng, s.count), most = s.most;
    unsigned char *const message = s.message + victim * s.stride;
    const size_t reach = weir_rng_below(&rng, 2) ? 16 : s.bytes[victim];
    message[weir_rng_below(&rng, reach)] ^= (unsigned char)(1 + weir_rng_below(&rng, 255));
    if (weir_rng_below(&rng, 8) == 0) s.bytes[victim]--;
    size_t bad = MESSAGES;
    weir_status one = WEIR_OK;
    for (size_t m = 0; m < s.count && one == WEIR_OK; m++) one = decode(&s, m);
    const weir_status all = merge(&s, &bad);
    uint32_t k;
    memcpy(&k, message + 4, sizeof k);
    cr_assert(all == (one == WEIR_OK && k > most ? WEIR_E_PROTOCOL : one), "%s", weir_last_error());
    if (all != WEIR_OK) {
      cr_assert_eq(bad, victim, "message %zu, not %zu", bad, victim);
      refused++;
    } else {
      cr_assert_arr_eq(s.packed, s.sum, s.n * sizeof(float));
    }
  }
  cr_assert_gt(refused, 500, "%d", refused);
  destroy(&s);
}

/* One element more than there was said to be, in a message that is good otherwise: there is no room
 * for it. */
Test(kernels_merge, refuses_more_than_was_agreed) {
  static const uint32_t index[4] = {1, 5, 30, 31};
  static const float value[4] = {1, 2, 3, 4};
  set s = create();
  s.n = 40;
  s.count = 2;
  for (size_t m = 0; m < 2; m++)
    cr_assert_eq(weir_wire_encode(s.n, index, value, 3 + m, WEIR_WIRE_AUTO_FP32,
                                  s.message + m * s.stride, s.stride, &s.bytes[m], NULL),
                 WEIR_OK);
  size_t bad = 9;
  s.most = 4;
  cr_assert_eq(merge(&s, &bad), WEIR_OK);
  cr_assert(s.packed[5] == 4 && s.packed[31] == 4 && s.packed[30] == 6 && s.packed[2] == 0);
  s.most = 3;
  cr_assert_eq(merge(&s, &bad), WEIR_E_PROTOCOL);
  cr_assert_eq(bad, 1);
  destroy(&s);
}
