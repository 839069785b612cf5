/* libFuzzer: every decoder of bytes from the wire.  WEIR_FUZZ names the one to feed: "wire" or an
 * encoder's name; without it, wire.  The message says how many elements it holds, and the decoder
 * is asked for that many when they are few.  Each version for vector instructions that this
 * processor has is fed, and must give what the scalar one gives. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "demand.h"
#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"

enum { MOST = 1024, MARK = 8, VERSIONS = 3 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const weir_codec *target; /* NULL: wire */
static weir_codec_context *context;
static const weir_cpu_ops *version[VERSIONS];
static size_t versions;

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
  version[versions++] = &weir_cpu_scalar;
  if (weir_cpu_avx2() != NULL) version[versions++] = weir_cpu_avx2();
  if (weir_cpu_avx512() != NULL) version[versions++] = weir_cpu_avx512();
  return 0;
}

static void fill(float *x) {
  for (size_t i = 0; i < MOST + MARK; i++) x[i] = 1.5F;
}

static void check_rest(const float *x, size_t from) {
  for (size_t i = from; i < MOST + MARK; i++) demand(x[i] == 1.5F, "written where nothing belongs");
}

/* Returns the status; stored holds what was decoded. */
static weir_status feed_encoder(const uint8_t *data, size_t size, const weir_layout *layout,
                                float *stored) {
  static float added[MOST + MARK], subtracted[MOST + MARK];
  double peak = -1;
  const size_t n = layout->offset[layout->tensors];
  fill(stored);
  fill(added);
  fill(subtracted);
  weir_status status = target->decode(context, data, size, layout, stored, WEIR_DECODE_STORE);
  demand(status == WEIR_OK || status == WEIR_E_PROTOCOL, "another status");
  demand(
      target->decode(context, data, size, layout, added, WEIR_DECODE_ADD) == status &&
          target->decode(context, data, size, layout, subtracted, WEIR_DECODE_SUBTRACT) == status &&
          target->check(data, size, layout, &peak) == status,
      "status changes");
  check_rest(stored, status == WEIR_OK ? n : 0);
  check_rest(added, status == WEIR_OK ? n : 0);
  check_rest(subtracted, status == WEIR_OK ? n : 0);
  for (size_t i = 0; i < n && status == WEIR_OK; i++) {
    demand(isfinite(stored[i]), "stored what is not finite");
    demand(fabs((double)stored[i]) <= peak, "stored more than was promised");
    demand(added[i] == 1.5F + stored[i], "added something else than stored");
    demand(subtracted[i] == 1.5F - stored[i], "subtracted something else");
  }
  return status;
}

/* As parts of a gradient of several tensors, one of them empty, and as one tensor. */
static void feed_layouts(const uint8_t *data, size_t size, size_t n) {
  static float stored[2][MOST + MARK];
  const size_t offset[5] = {0, n / 3, n / 3, n - n / 5, n};
  const size_t whole[2] = {0, n};
  const weir_layout layout[2] = {{4, offset}, {1, whole}};
  for (size_t l = 0; l < 2; l++) {
    weir_status first = WEIR_OK;
    for (size_t v = 0; v < versions; v++) {
      weir_cpu_force(version[v]);
      weir_status status = feed_encoder(data, size, &layout[l], stored[v > 0]);
      first = v == 0 ? status : first;
      demand(status == first, "versions differ in status");
      demand(memcmp(stored[0], stored[v > 0], sizeof stored[0]) == 0, "versions differ");
    }
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

/* What one version made of a list. */
typedef struct list {
  weir_status status, alone; /* with values, and without */
  size_t k, plain;
  float value[MOST + MARK];
  uint32_t index[MOST], alone_index[MOST];
} list;

static void feed_wire(const uint8_t *data, size_t size, size_t n, list *l) {
  memset(l, 0, sizeof *l);
  fill(l->value);
  l->status = weir_wire_decode(data, size, n, l->index, l->value, MOST, &l->k);
  l->alone = weir_wire_decode(data, size, n, l->alone_index, NULL, MOST, &l->plain);
  demand(l->status == WEIR_OK || l->status == WEIR_E_PROTOCOL, "another status");
  demand(l->alone == WEIR_OK || l->alone == WEIR_E_PROTOCOL, "another status without values");
  demand(l->status != WEIR_OK || l->alone != WEIR_OK || l->k == 0,
         "with and without values at once");
  check_rest(l->value, l->status == WEIR_OK ? l->k : 0);
  const uint32_t *index = l->status == WEIR_OK ? l->index : l->alone_index;
  for (size_t i = 0; i < (l->status == WEIR_OK ? l->k : l->plain); i++)
    demand(index[i] < n && (i == 0 || index[i] > index[i - 1]), "indices that do not ascend");
  double peak = -1;
  demand(weir_wire_check(context, data, size, n, &peak) == l->status, "checked to another end");
  for (size_t i = 0; i < l->k && l->status == WEIR_OK; i++) {
    demand(!isfinite(l->value[i]) ? isinf(peak) : fabs((double)l->value[i]) <= peak,
           "a value beyond the peak");
  }
  feed_spread(data, size, n, l->status, l->index, l->value, l->k);
}

static void feed_versions(const uint8_t *data, size_t size, size_t n) {
  static list made[2];
  for (size_t v = 0; v < versions; v++) {
    weir_cpu_force(version[v]);
    list *l = &made[v > 0];
    feed_wire(data, size, n, l);
    demand(l->status == made[0].status && l->alone == made[0].alone, "versions differ in status");
    const size_t k = l->status == WEIR_OK ? l->k : 0;
    const size_t plain = l->alone == WEIR_OK ? l->plain : 0;
    demand(l->k == made[0].k || k == 0, "versions differ in length");
    demand(memcmp(l->index, made[0].index, k * sizeof *l->index) == 0 &&
               memcmp(l->value, made[0].value, k * sizeof *l->value) == 0 &&
               memcmp(l->alone_index, made[0].alone_index, plain * sizeof *l->index) == 0,
           "versions differ");
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  /* Encoders' messages have n at 4, wire messages at 8. */
  const size_t at = target == NULL ? 8 : 4;
  uint32_t n = 0;
  if (size >= at + sizeof n) memcpy(&n, data + at, sizeof n);
  if (target == NULL) {
    feed_versions(data, size, n % (MOST + 1));
  } else {
    feed_layouts(data, size, n % (MOST + 1));
  }
  return 0;
}
