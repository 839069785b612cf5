/* libFuzzer: every decoder of bytes from the wire.  WEIR_FUZZ names the one to feed: "wire" or an
 * encoder's name; without it, wire.  The message says how many elements it holds, and the decoder
 * is asked for that many when they are few. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/codec.h"

enum { MOST = 1024, MARK = 8 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const weir_codec *target; /* NULL: wire */
static weir_codec_context *context;

static void demand(bool holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "fuzz_decoders: %s\n", what);
    abort();
  }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  const char *name = getenv("WEIR_FUZZ");
  bool found = name == NULL || strcmp(name, "wire") == 0;
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT && !found; id++) {
    target = weir_codec_find(id);
    found = target->decode != NULL && strcmp(target->name, name) == 0;
  }
  demand(found, "WEIR_FUZZ names no decoder");
  demand(weir_codec_context_create(&context) == WEIR_OK, "no memory");
  return 0;
}

static void fill(float *x) {
  for (size_t i = 0; i < MOST + MARK; i++) {
    x[i] = 1.5F;
  }
}

static void check_rest(const float *x, size_t from) {
  for (size_t i = from; i < MOST + MARK; i++) {
    demand(x[i] == 1.5F, "written where nothing belongs");
  }
}

static void feed_encoder(const uint8_t *data, size_t size, size_t n) {
  static float stored[MOST + MARK], added[MOST + MARK];
  const size_t offset[5] = {0, n / 3, n / 3, n - n / 5, n};
  const weir_layout layout = {4, offset};
  fill(stored);
  fill(added);
  weir_status status = target->decode(context, data, size, &layout, stored, false);
  demand(status == WEIR_OK || status == WEIR_E_PROTOCOL, "another status");
  demand(target->decode(context, data, size, &layout, added, true) == status, "status changes");
  check_rest(stored, status == WEIR_OK ? n : 0);
  check_rest(added, status == WEIR_OK ? n : 0);
  for (size_t i = 0; i < n && status == WEIR_OK; i++) {
    demand(isfinite(stored[i]), "stored what is not finite");
    demand(added[i] == 1.5F + stored[i], "added something else than stored");
  }
}

/* The message spread over a gradient, added (twice, the second time through the context's masks)
 * and stored, at any place of a line of memory. */
static void feed_spread(const uint8_t *data, size_t size, size_t n, weir_status status,
                        const uint32_t *index, const float *value, size_t k) {
  static float memory[2][MOST + MARK + 16];
  float *added = memory[0] + size % 16;
  float *stored = memory[1] + size % 16;
  fill(memory[1] + 16);
  fill(memory[1]);
  for (int with = 0; with < 2; with++) {
    fill(memory[0] + 16);
    fill(memory[0]);
    demand(weir_wire_decode_add(with ? context : NULL, data, size, n, added) == status,
           "status changes");
    check_rest(added, status == WEIR_OK ? n : 0);
    for (size_t i = 0; i < k; i++) {
      const float sum = 1.5F + value[i];
      demand(memcmp(&added[index[i]], &sum, sizeof sum) == 0 || isnan(sum), "added something else");
    }
  }
  demand(weir_wire_decode_dense(context, data, size, n, stored) == status, "status changes");
  check_rest(stored, n);
  size_t next = 0;
  for (size_t i = 0; i < n && status == WEIR_OK; i++) {
    const bool kept = next < k && index[next] == i;
    const float want = kept ? value[next++] : 0.0F;
    demand(memcmp(&stored[i], &want, sizeof want) == 0 || isnan(want), "stored something else");
    demand(kept || added[i] == 1.5F, "added where nothing belongs");
  }
}

static void feed_wire(const uint8_t *data, size_t size, size_t n) {
  static float value[MOST + MARK];
  static uint32_t index[MOST];
  static uint32_t alone_index[MOST];
  size_t k = 0;
  size_t plain = 0;
  fill(value);
  weir_status status = weir_wire_decode(data, size, n, index, value, MOST, &k);
  weir_status alone = weir_wire_decode(data, size, n, alone_index, NULL, MOST, &plain);
  demand(status == WEIR_OK || status == WEIR_E_PROTOCOL, "another status");
  demand(alone == WEIR_OK || alone == WEIR_E_PROTOCOL, "another status without values");
  demand(status != WEIR_OK || alone != WEIR_OK || k == 0, "with and without values at once");
  check_rest(value, status == WEIR_OK ? k : 0);
  const uint32_t *list = status == WEIR_OK ? index : alone_index;
  for (size_t i = 0; i < (status == WEIR_OK ? k : plain); i++) {
    demand(list[i] < n && (i == 0 || list[i] > list[i - 1]), "indices that do not ascend");
  }
  feed_spread(data, size, n, status, index, value, k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  /* Encoders' messages have n at 4, wire messages at 8. */
  const size_t at = target == NULL ? 8 : 4;
  uint32_t n = 0;
  if (size >= at + sizeof n) {
    memcpy(&n, data + at, sizeof n);
  }
  if (target == NULL) {
    feed_wire(data, size, n % (MOST + 1));
  } else {
    feed_encoder(data, size, n % (MOST + 1));
  }
  return 0;
}
