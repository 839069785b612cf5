/* Messages of selected elements, device against scalar. */
#include "parity.h"

enum { N = 300007, K = 30000 };

/* k of n indices: spread at random, or clustered at either end. */
static void draw_indices(weir_rng *rng, size_t n, size_t k, int how, uint32_t *index) {
  random_indices(rng, how == 0 ? n : k + k / 3 < n ? k + k / 3 : n, k, index);
  for (size_t i = 0; i < k && how == 2; i++) {
    index[i] += (uint32_t)(n - (k + k / 3 < n ? k + k / 3 : n)); /* one large gap before all */
  }
}

/* Reads a message on both sides, into all elements and added to what is there.  Both accept it or
 * neither; what is refused leaves everything as it was. */
static weir_status check_read(weir_cuda *cuda, const uint8_t *message, size_t bytes, size_t n,
                              const char *what) {
  size_t k = 0;
  FREED uint32_t *index = array(n, sizeof *index);
  FREED float *value = array(n, sizeof *value);
  FREED float *wanted = array(n, sizeof *wanted);
  device_buffer dm = put(cuda, message, bytes, 0);
  weir_status status = weir_wire_decode(message, bytes, n, index, value, n, &k);
  for (int add = 0; add < 2; add++) {
    for (size_t i = 0; i < n; i++) wanted[i] = add ? 0.5F * (float)i : -1.0F;
    LENT device_buffer dt = put(cuda, wanted, n * sizeof *wanted, 4);
    weir_status queued = weir_cuda_wire_decode_to(cuda, dm.data, bytes, n, dt.data, add);
    weir_status seen = weir_cuda_wait(cuda);
    cr_assert_eq(queued == WEIR_OK ? seen : queued, status, "%s: placed with %d", what, (int)seen);
    get(cuda, value, dt, n * sizeof *value);
    if (status == WEIR_OK) {
      must(add ? weir_wire_decode_add(NULL, message, bytes, n, wanted)
               : weir_wire_decode_dense(NULL, message, bytes, n, wanted));
    }
    same_floats(value, wanted, n, what);
  }
  weir_cuda_release(cuda, dm.block);
  return status;
}

/* A list alone, of k indices: both sides read the same, or neither does. */
static weir_status check_list(weir_cuda *cuda, const uint8_t *message, size_t bytes, size_t n,
                              size_t k) {
  size_t there = 0;
  FREED uint32_t *wanted = array(k, sizeof *wanted);
  FREED uint32_t *got = array(k, sizeof *got);
  weir_status status = weir_wire_decode(message, bytes, n, wanted, NULL, k, &there);
  if (status == WEIR_OK && there != k) status = WEIR_E_PROTOCOL;
  LENT device_buffer dm = put(cuda, message, bytes, 0);
  LENT device_buffer di = take(cuda, k * sizeof *got, 4);
  weir_status queued = weir_cuda_wire_read(cuda, dm.data, bytes, n, k, di.data);
  weir_status seen = weir_cuda_wait(cuda);
  cr_assert_eq(queued == WEIR_OK ? seen : queued, status, "%zu of %zu: %d", k, n, (int)seen);
  get(cuda, got, di, k * sizeof *got);
  for (size_t i = 0; i < k && status == WEIR_OK; i++) cr_assert_eq(got[i], wanted[i]);
  return status;
}

static void check(weir_cuda *cuda, const uint32_t *index, const float *value, size_t n, size_t k,
                  weir_wire_format format, uint8_t *kind) {
  size_t room = weir_cuda_wire_bound(n, k, format);
  size_t wanted_bytes = 0;
  uint64_t bytes = 0;
  FREED uint8_t *got = array(room, 1);
  FREED uint8_t *wanted = array(room, 1);
  FREED float *error = array(k, sizeof *error);
  FREED float *wanted_error = array(k, sizeof *wanted_error);
  for (size_t i = 0; i < k; i++) error[i] = wanted_error[i] = 1e-3F * (float)i;
  LENT device_buffer di = put(cuda, index, k * sizeof *index, 4);
  LENT device_buffer dv = put(cuda, value, (value != NULL ? k : 0) * sizeof *value, 8);
  LENT device_buffer de = put(cuda, error, k * sizeof *error, 4);
  LENT device_buffer dm = take(cuda, room, 4);
  LENT device_buffer db = take(cuda, sizeof bytes, 0);
  must(weir_cuda_wire_encode(cuda, n, di.data, value != NULL ? dv.data : NULL, k, format, dm.data,
                             room, db.data, de.data));
  must(weir_wire_encode(n, index, value, k, format, wanted, room, &wanted_bytes, wanted_error));
  get(cuda, &bytes, db, sizeof bytes);
  cr_assert_eq(bytes, wanted_bytes, "%zu of %zu: %zu bytes, not %zu", k, n, (size_t)bytes,
               wanted_bytes);
  get(cuda, got, dm, bytes);
  for (size_t i = 0; i < bytes; i++) {
    cr_assert_eq(got[i], wanted[i], "%zu of %zu, format %u: byte %zu of %zu is %u, not %u", k, n,
                 (unsigned)format, i, (size_t)bytes, got[i], wanted[i]);
  }
  get(cuda, error, de, k * sizeof *error);
  same_floats(error, wanted_error, k, "what values lose");
  cr_assert_eq(value != NULL ? check_read(cuda, wanted, wanted_bytes, n, "a message")
                             : check_list(cuda, wanted, wanted_bytes, n, k),
               WEIR_OK);
  *kind = got[12];
}

Test(parity_wire, messages_are_equal) {
  static const size_t shapes[][2] = {{0, 0},      {1, 1},       {5, 2}, {5, 5}, {1000, 10},
                                     {1000, 400}, {4097, 4097}, {N, 0}, {N, 1}, {N, 4096},
                                     {N, 4097},   {N, 3000},    {N, K}};
  OPENED weir_cuda *cuda = open_cuda(N, K);
  weir_rng rng = weir_rng_of(71);
  FREED uint32_t *index = array(K, sizeof *index);
  FREED float *value = array(K, sizeof *value);
  size_t seen[3] = {0};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    for (int how = 0; how < 3; how++) {
      size_t k = shapes[s][1];
      uint8_t kind = 0;
      draw_indices(&rng, shapes[s][0], k, how, index);
      fill_shape(&rng, how == 0 ? 0 : 2, value, k);
      for (unsigned format = 0; format < WEIR_WIRE_LISTS; format++) {
        check(cuda, index, value, shapes[s][0], k, (weir_wire_format)format, &kind);
        cr_assert(kind < 3);
        seen[kind]++;
      }
      check(cuda, index, NULL, shapes[s][0], k, WEIR_WIRE_AUTO_BF16, &kind);
    }
  }
  cr_assert(seen[0] > 0 && seen[1] > 0 && seen[2] > 0, "lists: %zu, %zu, %zu", seen[0], seen[1],
            seen[2]);
}

/* A message with this list, whatever would be shortest, and values of random bits. */
static size_t make_message(weir_rng *rng, size_t n, const uint32_t *index, size_t k,
                           weir_index_code code, unsigned values, uint8_t *out) {
  static const size_t value_bytes[] = {0, 4, 2, 2};
  const uint32_t head[4] = {0, (uint32_t)k, (uint32_t)n,
                            (uint32_t)code.encoding | values << 8 | code.shift << 16};
  memcpy(out, head, sizeof head);
  memcpy(out, "WRM1", 4);
  weir_index_write(code, n, index, k, out + sizeof head);
  size_t bytes = sizeof head + code.bytes;
  for (size_t i = 0; i < k * value_bytes[values]; i++) out[bytes++] = (uint8_t)weir_rng_next(rng);
  return bytes;
}

/* An Elias-Fano list of this parameter. */
static weir_index_code elias_code(size_t n, size_t k, unsigned shift) {
  size_t buckets = (n + ((size_t)1 << shift) - 1) >> shift;
  return (weir_index_code){WEIR_INDEX_ELIAS, shift, (k + buckets + 7) / 8 + (k * shift + 7) / 8};
}

/* From one index to one in ten, spread and clustered at either end: fields of many widths, which
 * lie across words, and buckets of many indices. */
Test(parity_wire, elias_lists_are_read) {
  OPENED weir_cuda *cuda = open_cuda(N, K);
  weir_rng rng = weir_rng_of(72);
  FREED uint32_t *index = array(K, sizeof *index);
  FREED uint8_t *message = array(WEIR_WIRE_HEADER + 8 * (size_t)K, 1);
  bool seen[32] = {0};
  unsigned kinds = 0;
  for (size_t k = K; k > 0; k = k > 8 ? 2 * k / 3 : k - 1) {
    weir_index_code code = weir_index_choose(N, k, true);
    for (int how = 0; how < 3; how++) {
      draw_indices(&rng, N, k, how, index);
      size_t bytes = make_message(&rng, N, index, k, code, 1 + (unsigned)how, message);
      cr_assert_eq(check_read(cuda, message, bytes, N, "an Elias-Fano list"), WEIR_OK,
                   "%zu indices, clustered %d", k, how);
    }
    cr_assert_eq(code.encoding, WEIR_INDEX_ELIAS);
    kinds += !seen[code.shift];
    seen[code.shift] = true;
  }
  cr_assert(seen[3] && seen[16] && kinds >= 12, "%u parameters", kinds);
}

/* Bits turned over, bytes cut off and added, in all kinds of lists: both sides agree on which
 * messages are good, and on what those say. */
Test(parity_wire, harmed_messages_are_told_apart) {
  enum { LENGTH = 3000, MOST = 500, ROUNDS = 900 };
  OPENED weir_cuda *cuda =
      open_cuda(4 * LENGTH, LENGTH); /* room for lists that are not the shortest */
  weir_rng rng = weir_rng_of(73);
  uint32_t index[MOST];
  uint8_t message[WEIR_WIRE_HEADER + 12 * MOST + 8];
  size_t accepted = 0;
  for (size_t round = 0; round < ROUNDS; round++) {
    size_t k = weir_rng_below(&rng, MOST + 1);
    size_t n = k + weir_rng_below(&rng, LENGTH - MOST);
    k = round % 2 ? k / 10 : k;
    memset(message, 0, sizeof message);
    random_indices(&rng, n, k, index);
    weir_index_code code = {WEIR_INDEX_U32, 0, 4 * k};
    if (round % 3 == 1) {
      code = (weir_index_code){WEIR_INDEX_BITMAP, 0, (n + 7) / 8};
    } else if (round % 3 == 2) {
      code = weir_index_choose(n, k, true); /* Elias-Fano where that is the shortest */
    }
    size_t bytes = make_message(&rng, n, index, k, code, 1 + (unsigned)round / 3 % 3, message);
    size_t turned = weir_rng_below(&rng, 4);
    for (size_t t = 0; t < turned; t++) {
      size_t reach = weir_rng_below(&rng, 3) == 0 ? WEIR_WIRE_HEADER : bytes;
      message[weir_rng_below(&rng, reach)] ^= (uint8_t)(1U << weir_rng_below(&rng, 8));
    }
    if (weir_rng_below(&rng, 4) == 0) bytes = bytes + weir_rng_below(&rng, 9) - 4;
    accepted += check_read(cuda, message, bytes, n, "a harmed message") == WEIR_OK;
  }
  cr_assert(accepted > ROUNDS / 10 && accepted < ROUNDS / 10 * 9, "%zu of %d accepted", accepted,
            ROUNDS);
}

/* Of more or fewer indices than are due, with values, of another length, out of order, and bits
 * harmed at random: what the host refuses is refused. */
Test(parity_wire, harmed_lists_are_refused) {
  enum { LENGTH = 8000, KEPT = 400, ROUNDS = 200 };
  OPENED weir_cuda *cuda = open_cuda(LENGTH, KEPT + 1);
  weir_rng rng = weir_rng_of(75);
  FREED uint32_t *index = array(KEPT, sizeof *index);
  FREED float *value = array(KEPT, sizeof *value);
  FREED uint8_t *message = array(WEIR_WIRE_HEADER + 8 * LENGTH, 1);
  size_t bytes = 0;
  draw_indices(&rng, LENGTH, KEPT, 0, index);
  for (int format = 0; format < 2; format++) {
    const weir_wire_format wire = format == 0 ? WEIR_WIRE_PAPER : WEIR_WIRE_AUTO_FP32;
    must(weir_wire_encode(LENGTH, index, value, KEPT, wire, message, 8 * LENGTH, &bytes, NULL));
    cr_assert_eq(check_list(cuda, message, bytes, LENGTH, KEPT), WEIR_E_PROTOCOL);
    must(weir_wire_encode(LENGTH, index, NULL, KEPT, wire, message, 8 * LENGTH, &bytes, NULL));
    cr_assert_eq(check_list(cuda, message, bytes, LENGTH, KEPT), WEIR_OK);
    cr_assert_eq(check_list(cuda, message, bytes, LENGTH, KEPT + 1), WEIR_E_PROTOCOL);
    cr_assert_eq(check_list(cuda, message, bytes, LENGTH, KEPT - 1), WEIR_E_PROTOCOL);
    cr_assert_eq(check_list(cuda, message, bytes - 1, LENGTH, KEPT), WEIR_E_PROTOCOL);
    cr_assert_eq(check_list(cuda, message, 15, LENGTH, KEPT), WEIR_E_PROTOCOL);
    cr_assert_eq(check_list(cuda, message, bytes, LENGTH - 1, KEPT), WEIR_E_PROTOCOL);
    for (int round = 0; round < ROUNDS; round++) {
      const size_t at = weir_rng_below(&rng, bytes);
      const uint8_t bit = (uint8_t)(1U << weir_rng_below(&rng, 8));
      message[at] ^= bit;
      (void)check_list(cuda, message, bytes, LENGTH, KEPT);
      message[at] ^= bit;
    }
  }
}

Test(parity_wire, errors_of_reading_are_told) {
  enum { LENGTH = 8000, KEPT = 20 };
  OPENED weir_cuda *cuda = open_cuda(LENGTH, KEPT);
  uint8_t message[WEIR_WIRE_HEADER + LENGTH] = {0};
  uint32_t index[KEPT + 1] = {0};
  float value[KEPT + 1] = {0};
  float to[LENGTH] = {0};
  size_t bytes = 0;
  for (uint32_t i = 0; i < KEPT; i++) index[i] = LENGTH / KEPT * (i + 1) - 1;
  LENT device_buffer dt = put(cuda, to, sizeof to, 0);
  /* One more than there is room for, a message without values, one of more elements. */
  for (int how = 0; how < 3; how++) {
    index[KEPT - 1] = how == 0 ? LENGTH - 2 : LENGTH - 1;
    index[KEPT] = LENGTH - 1;
    must(weir_wire_encode(how == 2 ? LENGTH + 1 : LENGTH, index, how == 1 ? NULL : value,
                          how == 0 ? KEPT + 1 : KEPT, WEIR_WIRE_PAPER, message, sizeof message,
                          &bytes, NULL));
    LENT device_buffer dm = put(cuda, message, bytes, 0);
    must(weir_cuda_wire_decode_to(cuda, dm.data, bytes, LENGTH, dt.data, true));
    cr_assert_eq(weir_cuda_wait(cuda), WEIR_E_PROTOCOL, "case %d", how);
  }
  /* Elias-Fano lists that are well formed, but not the shortest; on the host, too. */
  weir_rng rng = weir_rng_of(74);
  weir_index_code code = weir_index_choose(LENGTH, KEPT, true);
  device_buffer dm = take(cuda, sizeof message, 0);
  for (unsigned shift = code.shift - 1; shift <= code.shift + 1; shift++) {
    bytes = make_message(&rng, LENGTH, index, KEPT, elias_code(LENGTH, KEPT, shift), 1, message);
    weir_status wanted = shift == code.shift ? WEIR_OK : WEIR_E_PROTOCOL;
    cr_assert_eq(weir_wire_decode_add(NULL, message, bytes, LENGTH, to), wanted);
    weir_cuda_release(cuda, dm.block);
    dm = put(cuda, message, bytes, 0);
    must(weir_cuda_wire_decode_to(cuda, dm.data, bytes, LENGTH, dt.data, true));
    cr_assert_eq(weir_cuda_wait(cuda), wanted, "parameter %u", shift);
  }
  cr_assert_eq(weir_cuda_wire_decode_to(cuda, dm.data, 15, LENGTH, dt.data, true), WEIR_E_PROTOCOL);
  cr_assert_eq(weir_cuda_wire_decode_to(cuda, (char *)dm.data + 1, 100, LENGTH, dt.data, true),
               WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_wire_decode_to(cuda, dm.data, 100, LENGTH + 1, dt.data, true),
               WEIR_E_STATE);
  weir_cuda_release(cuda, dm.block);
}

Test(parity_wire, errors_are_told) {
  enum { LENGTH = 1000, KEPT = 20 };
  OPENED weir_cuda *cuda = open_cuda(LENGTH, KEPT);
  uint32_t index[KEPT];
  size_t room = weir_cuda_wire_bound(LENGTH, KEPT, WEIR_WIRE_AUTO_FP32);
  device_buffer dm = take(cuda, room, 0);
  device_buffer db = take(cuda, 8, 0);
  static const struct {
    size_t at;
    uint32_t value;
  } harm[] = {{KEPT - 1, LENGTH}, {5, 4}, {0, 7}, {KEPT - 1, 0}, {KEPT - 1, UINT32_MAX}};
  for (size_t h = 0; h < sizeof harm / sizeof harm[0]; h++) {
    for (uint32_t i = 0; i < KEPT; i++) index[i] = i;
    index[harm[h].at] = harm[h].value;
    LENT device_buffer di = put(cuda, index, sizeof index, 0);
    must(weir_cuda_wire_encode(cuda, LENGTH, di.data, di.data, KEPT, WEIR_WIRE_AUTO_FP32, dm.data,
                               room, db.data, NULL));
    cr_assert_eq(weir_cuda_wait(cuda), WEIR_E_PROTOCOL, "harm %zu", h);
    must(weir_cuda_wait(cuda));
  }
  cr_assert_eq(weir_cuda_wire_encode(cuda, LENGTH, NULL, NULL, KEPT, WEIR_WIRE_AUTO_FP32, dm.data,
                                     room - 1, db.data, NULL),
               WEIR_E_CAPACITY);
  cr_assert_eq(weir_cuda_wire_encode(cuda, LENGTH, NULL, NULL, KEPT, WEIR_WIRE_LISTS, dm.data, room,
                                     db.data, NULL),
               WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_wire_encode(cuda, LENGTH, NULL, NULL, KEPT, WEIR_WIRE_PAPER,
                                     (char *)dm.data + 1, room, db.data, NULL),
               WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_wire_encode(cuda, LENGTH, NULL, NULL, LENGTH + 1, WEIR_WIRE_PAPER, dm.data,
                                     room, db.data, NULL),
               WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_wire_encode(cuda, LENGTH, NULL, NULL, KEPT + 1, WEIR_WIRE_PAPER, dm.data,
                                     room, db.data, NULL),
               WEIR_E_STATE);
  weir_cuda_release(cuda, dm.block);
  weir_cuda_release(cuda, db.block);
  must(weir_cuda_wait(cuda));
}
