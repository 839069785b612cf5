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

static void check(weir_cuda *cuda, const uint32_t *index, const float *value, size_t n, size_t k,
                  weir_wire_format format, uint8_t *kind) {
  size_t room = weir_cuda_wire_bound(n, k, format);
  size_t wanted_bytes = 0;
  uint64_t bytes = 0;
  uint8_t *got = array(room, 1);
  uint8_t *wanted = array(room, 1);
  float *error = array(k, sizeof *error);
  float *wanted_error = array(k, sizeof *wanted_error);
  for (size_t i = 0; i < k; i++) {
    error[i] = wanted_error[i] = 1e-3F * (float)i;
  }
  device_buffer di = put(cuda, index, k * sizeof *index, 4);
  device_buffer dv = put(cuda, value, (value != NULL ? k : 0) * sizeof *value, 8);
  device_buffer de = put(cuda, error, k * sizeof *error, 4);
  device_buffer dm = take(cuda, room, 4);
  device_buffer db = take(cuda, sizeof bytes, 0);
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
  *kind = got[12];
  weir_cuda_release(cuda, di.block);
  weir_cuda_release(cuda, dv.block);
  weir_cuda_release(cuda, de.block);
  weir_cuda_release(cuda, dm.block);
  weir_cuda_release(cuda, db.block);
  free(got);
  free(wanted);
  free(error);
  free(wanted_error);
}

Test(parity_wire, messages_are_equal, .timeout = 300) {
  static const size_t shapes[][2] = {{0, 0},      {1, 1},       {5, 2}, {5, 5}, {1000, 10},
                                     {1000, 400}, {4097, 4097}, {N, 0}, {N, 1}, {N, 4096},
                                     {N, 4097},   {N, 3000},    {N, K}};
  weir_cuda *cuda = open_cuda(N, K);
  weir_rng rng;
  weir_rng_seed(&rng, 71);
  uint32_t *index = array(K, sizeof *index);
  float *value = array(K, sizeof *value);
  size_t seen[3] = {0};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    for (int how = 0; how < 3; how++) {
      size_t k = shapes[s][1];
      uint8_t kind = 0;
      draw_indices(&rng, shapes[s][0], k, how, index);
      fill_shape(&rng, how == 0 ? 0 : 2, value, k);
      for (unsigned format = 0; format < WEIR_WIRE_COUNT; format++) {
        check(cuda, index, value, shapes[s][0], k, (weir_wire_format)format, &kind);
        cr_assert(kind < 3);
        seen[kind]++;
      }
      check(cuda, index, NULL, shapes[s][0], k, WEIR_WIRE_AUTO_BF16, &kind);
    }
  }
  cr_assert(seen[0] > 0 && seen[1] > 0 && seen[2] > 0, "lists: %zu, %zu, %zu", seen[0], seen[1],
            seen[2]);
  free(index);
  free(value);
  weir_cuda_free(cuda);
}

Test(parity_wire, errors_are_told) {
  enum { LENGTH = 1000, KEPT = 20 };
  weir_cuda *cuda = open_cuda(LENGTH, KEPT);
  uint32_t index[KEPT];
  size_t room = weir_cuda_wire_bound(LENGTH, KEPT, WEIR_WIRE_AUTO_FP32);
  device_buffer dm = take(cuda, room, 0);
  device_buffer db = take(cuda, 8, 0);
  static const struct {
    size_t at;
    uint32_t value;
  } harm[] = {{KEPT - 1, LENGTH}, {5, 4}, {0, 7}, {KEPT - 1, 0}, {KEPT - 1, UINT32_MAX}};
  for (size_t h = 0; h < sizeof harm / sizeof harm[0]; h++) {
    for (uint32_t i = 0; i < KEPT; i++) {
      index[i] = i;
    }
    index[harm[h].at] = harm[h].value;
    device_buffer di = put(cuda, index, sizeof index, 0);
    must(weir_cuda_wire_encode(cuda, LENGTH, di.data, di.data, KEPT, WEIR_WIRE_AUTO_FP32, dm.data,
                               room, db.data, NULL));
    cr_assert_eq(weir_cuda_wait(cuda), WEIR_E_PROTOCOL, "harm %zu", h);
    must(weir_cuda_wait(cuda));
    weir_cuda_release(cuda, di.block);
  }
  cr_assert_eq(weir_cuda_wire_encode(cuda, LENGTH, NULL, NULL, KEPT, WEIR_WIRE_AUTO_FP32, dm.data,
                                     room - 1, db.data, NULL),
               WEIR_E_CAPACITY);
  cr_assert_eq(weir_cuda_wire_encode(cuda, LENGTH, NULL, NULL, KEPT, WEIR_WIRE_COUNT, dm.data, room,
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
  weir_cuda_free(cuda);
}
