/* Writes the fuzzers' first inputs: make_corpus FOLDER.  Small valid messages of every kind; the
 * same files each time. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/base.h"
#include "kernels/encoder.h"
#include "kernels/entropy.h"
#include "kernels/huffman.h"

enum { MOST = 200 };
static const size_t sizes[] = {0, 1, 9, MOST};
static uint8_t message[16 * MOST];
static float x[MOST];

static void fail(const char *what) {
  fprintf(stderr, "make_corpus: %s\n", what);
  exit(1);
}

static void save(const char *folder, const char *decoder, unsigned number, size_t bytes) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/%s", folder, decoder);
  (void)mkdir(path, 0777);
  (void)snprintf(path, sizeof path, "%s/%s/%02u", folder, decoder, number);
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(message, 1, bytes, file) != bytes || fclose(file) != 0) fail(path);
}

static void write_wire(const char *folder) {
  unsigned number = 0;
  uint32_t index[MOST];
  size_t bytes = 0;
  for (size_t s = 0; s < 4; s++)
    for (size_t every = 1; every <= 13; every += 3)
      for (weir_wire_format format = 0; format < WEIR_WIRE_LISTS; format++) {
        size_t k = 0;
        for (size_t i = 0; i < sizes[s]; i += every) index[k++] = (uint32_t)i;
        const float *value = s == 2 && every == 1 ? NULL : x;
        if (weir_wire_encode(sizes[s], index, value, k, format, message, sizeof message, &bytes,
                             NULL) != WEIR_OK)
          fail(weir_last_error());
        save(folder, "wire", number++, bytes);
      }
}

/* The layout of fuzz_decoders.c. */
static void write_encoder(const char *folder, const weir_codec *codec, double bits,
                          unsigned *number) {
  static float sparse[MOST];
  size_t bytes = 0;
  for (size_t i = 0; i < MOST; i++) sparse[i] = codec->touched && i % 40 >= 16 ? 0.0F : x[i];
  for (size_t s = 0; s < 4; s++) {
    const size_t n = sizes[s];
    const size_t offset[5] = {0, n / 3, n / 3, n - n / 5, n};
    if (codec->encode(NULL, sparse, &(weir_layout){4, offset}, bits / 32, s, message,
                      sizeof message, &bytes) != WEIR_OK)
      fail(weir_last_error());
    save(folder, codec->name, (*number)++, bytes);
  }
}

/* The head of fuzz_huffman.c, then a message; and the same symbols as such. */
static void write_huffman(const char *folder) {
  enum { HEAD = 3 };
  unsigned number = 0;
  for (unsigned bits = 1; bits <= 8; bits++)
    for (size_t s = 0; s < 4; s++) {
      uint8_t symbol[MOST];
      const size_t n = sizes[s];
      const double middle = (1 << bits) / 2.0;
      for (size_t i = 0; i < n; i++)
        symbol[i] = (uint8_t)(middle + middle / 5 * (double)(x[i] < -4 ? -4 : x[i] > 4 ? 4 : x[i]));
      message[0] = (uint8_t)(bits - 1);
      message[1] = (uint8_t)n;
      message[2] = 0;
      save(folder, "huffman", number++,
           HEAD + weir_huffman_encode(symbol, n, bits, message + HEAD));
      message[0] |= 8;
      for (size_t i = 0; i < n; i++) message[HEAD + i] = symbol[i];
      save(folder, "huffman", number++, HEAD + n);
    }
}

/* The head of fuzz_entropy.c, then a message of what is mostly small, so that it becomes
 * shorter. */
static void write_entropy(const char *folder) {
  enum { HEAD = 3, N = 2000 };
  static const uint32_t codecs[] = {WEIR_CODEC_COMPANDED, WEIR_CODEC_NONZERO, WEIR_CODEC_QSGD,
                                    WEIR_CODEC_MINIFLOAT, WEIR_CODEC_DITHERED};
  static float small[N];
  static uint8_t room[1 << 20];
  unsigned number = 0;
  if (weir_entropy_room() > sizeof room) fail("entropy: no room");
  for (size_t i = 0; i < N; i++) {
    const float root = x[i % MOST] * x[i / 3 % MOST];
    small[i] = root * root * root;
  }
  for (uint8_t c = 0; c < 5; c++)
    for (unsigned bits = weir_codec_find(codecs[c])->bits.least; bits <= 8; bits++)
      for (size_t n = 300; n <= N; n += 850) {
        const weir_codec *const codec = weir_codec_find(codecs[c]);
        const size_t offset[2] = {0, n};
        const weir_layout layout = {1, offset};
        size_t bytes = 0;
        if (codec->encode(NULL, small, &layout, bits / 32.0, 1, message + HEAD,
                          sizeof message - HEAD, &bytes) != WEIR_OK)
          fail(weir_last_error());
        bytes = weir_entropy_shorten(codec, message + HEAD, bytes, room);
        message[0] = c;
        message[1] = (uint8_t)n;
        message[2] = (uint8_t)(n >> 8);
        save(folder, "entropy", number++, HEAD + bytes);
      }
}

int main(int argc, char **argv) {
  if (argc != 2) fail("usage: make_corpus FOLDER");
  weir_rng rng = weir_rng_of(1);
  for (size_t i = 0; i < MOST; i++) x[i] = (float)weir_rng_normal(&rng);
  write_wire(argv[1]);
  write_huffman(argv[1]);
  write_entropy(argv[1]);
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++) {
    unsigned number = 0;
    weir_plan plan = {.codec = id, .scheme = WEIR_SCHEME_GATHER};
    for (unsigned bits = 1; bits <= 16 && weir_codecs[id]->encode != NULL; bits++) {
      plan.cr = bits / 32.0;
      if (weir_plan_check(&plan) == WEIR_OK) write_encoder(argv[1], weir_codecs[id], bits, &number);
    }
  }
  size_t bytes = 0;
  const weir_qsgd_options l2 = {.bits = 3, .bucket = 64, .nearest = true, .l2 = true};
  if (weir_qsgd_encode_with(x, MOST, l2, 1, message, sizeof message, &bytes) != WEIR_OK)
    fail(weir_last_error());
  save(argv[1], "qsgd", 99, bytes);
  return 0;
}
