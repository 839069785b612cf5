/* libFuzzer: quantizers' messages with their codes coded.  The first byte says which codec's, and
 * the next two of how many elements; what follows is such a message, as it travels.  It is restored
 * in exactly as much memory as the longest message takes, and what the codec then takes for a
 * message must come back once more when it is shortened. */
#include <stdlib.h>
#include <string.h>

#include "demand.h"
#include "kernels/entropy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 3, MOST = 8192, BITS_AT = 13 };

static const uint32_t codecs[] = {WEIR_CODEC_COMPANDED, WEIR_CODEC_NONZERO, WEIR_CODEC_QSGD,
                                  WEIR_CODEC_MINIFLOAT, WEIR_CODEC_DITHERED};

/* Never NULL, and no byte more than asked for. */
static uint8_t *memory_of(size_t bytes) {
  uint8_t *const memory = malloc(bytes + (bytes == 0));
  demand(memory != NULL, "no memory");
  return memory;
}

/* What is a message is the same after it has travelled again. */
static void feed_again(const weir_codec *codec, const uint8_t *message, size_t bytes, size_t n,
                       size_t most, uint8_t *room) {
  uint8_t *const again = memory_of(most);
  memcpy(again, message, bytes);
  const size_t length = weir_entropy_shorten(codec, again, bytes, room);
  demand(length <= bytes, "longer than it was");
  demand(weir_entropy_restore(codec, again, length, n, most, room) == bytes, "of another length");
  demand(memcmp(again, message, bytes) == 0, "another message came back");
  free(again);
}

static void feed(const weir_codec *codec, const uint8_t *data, size_t size, size_t n, double cr) {
  const size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  const size_t most = codec->bound(&layout, cr), length = size < most ? size : most;
  uint8_t *const message = memory_of(most), *const room = memory_of(weir_entropy_room());
  double peak;
  memcpy(message, data, length);
  const size_t bytes = weir_entropy_restore(codec, message, length, n, most, room);
  demand(bytes <= most, "more than there is room for");
  if (bytes > 0 && codec->check(message, bytes, &layout, &peak) == WEIR_OK)
    feed_again(codec, message, bytes, n, most, room);
  free(message);
  free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < HEAD) return 0;
  const weir_codec *codec = weir_codec_find(codecs[data[0] % (sizeof codecs / sizeof *codecs)]);
  const size_t n = (size_t)(data[1] | data[2] << 8) % (MOST + 1);
  /* A receiver knows how many bits its plan has; the message says it once more. */
  const unsigned told = size > HEAD + BITS_AT ? data[HEAD + BITS_AT] : 0;
  const bool good = told >= codec->bits.least && told <= codec->bits.most;
  feed(codec, data + HEAD, size - HEAD, n, (good ? told : codec->bits.most) / 32.0);
  return 0;
}
