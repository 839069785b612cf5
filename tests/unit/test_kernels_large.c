/* More than 2^31 elements, the upper half of what 32-bit indices reach.  The gradient is mapped,
 * not filled: untouched pages are zeros that take no memory, and what is decoded lands in one small
 * file mapped over and over. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../held.h"
#include "kernels/codec.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif

static const size_t N = ((size_t)1 << 31) + 77;
enum { KEPT = 12, TILE = 1 << 24 };

/* Zeros but for the elements of `place`, which descend in magnitude. */
static const uint32_t place[KEPT] = {2147483724U, 5,          2147483648U, 2147483647U,
                                     2147483649U, 1073741824, 2147483700U, 0,
                                     2000000000,  123456789,  2147483723U, 1 << 20};

static bool memory_for(size_t bytes) {
  size_t kib = 0;
  FILE *file = fopen("/proc/meminfo", "r");
  char line[128];
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "MemAvailable: %zu", &kib) == 1) break;
  if (file != NULL) (void)fclose(file);
  return kib > 2 * (bytes >> 10);
}

static float *map_gradient(void) {
  float *e = mmap(NULL, N * sizeof *e, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert(e != MAP_FAILED);
  (void)madvise(e, N * sizeof *e, MADV_HUGEPAGE); /* only faster */
  for (size_t i = 0; i < KEPT; i++) e[place[i]] = (i % 2 ? -1.0F : 1.0F) * (float)(2 * KEPT - i);
  return e;
}

/* Room for N floats, TILE bytes of memory. */
static float *map_tiled(void) {
  const int file = memfd_create("tile", 0);
  cr_assert(file >= 0 && ftruncate(file, TILE) == 0);
  const size_t tiles = (N * sizeof(float) + TILE - 1) / TILE;
  uint8_t *base =
      mmap(NULL, tiles * TILE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert(base != MAP_FAILED);
  for (size_t t = 0; t < tiles; t++)
    cr_assert(mmap(base + t * TILE, TILE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                   0) != MAP_FAILED);
  (void)close(file);
  return (float *)(void *)base;
}

static int ascending(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The first k of place[], in order. */
static void expected(size_t k, uint32_t *index) {
  memcpy(index, place, k * sizeof *index);
  qsort(index, k, sizeof *index, ascending);
}

/* k of N: topk and its kin find the largest k wherever they lie; randomk's draws reach beyond 2^31.
 * k is below the number of elements that are not zero, so that none is a matter of taste. */
Test(kernels_large, selections_reach_beyond_2_to_the_31) {
  /* lwtopk and dgc search as topk does.  dgc would list every zero as a candidate, in 8 GB. */
  static const uint32_t codecs[] = {WEIR_CODEC_TOPK, WEIR_CODEC_MSTOPK, WEIR_CODEC_SIDCO};
  const size_t offset[3] = {0, 0, N};
  const weir_layout layout = {2, offset};
  const double cr = 8.5 / (double)N;
  weir_codec_context *c = NULL;
  cr_assert_eq(weir_codec_context_create(&c), WEIR_OK);
  float *e = map_gradient();
  uint32_t want[KEPT], index[KEPT];
  expected(8, want);
  for (size_t i = 0; i < (SLOW ? 1 : sizeof codecs / sizeof codecs[0]); i++) {
    const weir_codec *codec = weir_codecs[codecs[i]];
    size_t k = 0;
    cr_assert_eq(codec->kept(&layout, cr), 8);
    cr_assert_eq(codec->select(c, e, &layout, cr, index, KEPT, &k), WEIR_OK);
    cr_assert(k == 8 && memcmp(index, want, sizeof *want * 8) == 0, "%s", codec->name);
  }
  size_t k = 0, beyond = 0;
  enum { DRAWN = 2147 };
  static uint32_t drawn[DRAWN];
  cr_assert_eq(weir_codecs[WEIR_CODEC_RANDOMK]->draw(c, &layout, 1e-6, 3, drawn, DRAWN, &k),
               WEIR_OK);
  cr_assert_eq(k, DRAWN);
  for (size_t i = 0; i < k; i++) {
    cr_assert(drawn[i] < N && (i == 0 || drawn[i] > drawn[i - 1]));
    beyond += drawn[i] > N / 2;
  }
  cr_assert(abs((int)beyond - DRAWN / 2) < 5 * 24); /* five standard deviations: sqrt(k) / 2 */
  weir_codec_context_free(c);
  (void)munmap(e, N * sizeof *e);
}

/* Passes and messages that end beyond 2^31. */
Test(kernels_large, moments_and_messages) {
  float *e = map_gradient();
  double square = 0;
  for (size_t i = 0; i < KEPT; i++) square += (double)((2 * KEPT - i) * (2 * KEPT - i));
  cr_assert(weir_sum_square(e, N) == square);
  uint32_t want[KEPT], index[KEPT];
  float value[KEPT], got[KEPT];
  uint8_t message[256];
  expected(KEPT, want);
  weir_gather(e, want, KEPT, value);
  float *to = map_tiled();
  for (weir_wire_format f = WEIR_WIRE_PAPER; f < WEIR_WIRE_LISTS; f++) {
    size_t bytes = 0, k = 0;
    cr_assert_eq(weir_wire_encode(N, want, value, KEPT, f, message, sizeof message, &bytes, NULL),
                 WEIR_OK);
    cr_assert_eq(weir_wire_decode(message, bytes, N, index, got, KEPT, &k), WEIR_OK);
    cr_assert(k == KEPT && memcmp(index, want, sizeof want) == 0);
    cr_assert(memcmp(got, value, sizeof value) == 0); /* small integers: exact in every format */
    const float before = to[want[KEPT - 1]];
    cr_assert_eq(weir_wire_decode_add(NULL, message, bytes, N, to), WEIR_OK);
    cr_assert(to[want[KEPT - 1]] != before);
  }
  (void)munmap(e, N * sizeof *e);
}

/* One tensor of N signs: the message is N / 8 bytes long, and its end is decoded to the end. */
Test(kernels_large, an_encoders_message) {
  const weir_layout layout = {1, (const size_t[]){0, N}};
  const weir_codec *codec = weir_codecs[WEIR_CODEC_ONEBIT];
  const size_t bound = codec->bound(&layout, 1.0 / 32);
  cr_assert_eq(bound, 16 + 8 + ((size_t)1 << 28) + 10);
  if (SLOW || !memory_for(bound)) cr_skip_test("needs %zu MiB and a fast build", bound >> 20);
  float *e = map_gradient(), *to = map_tiled();
  FREED uint8_t *message = malloc(bound);
  size_t bytes = 0;
  cr_assert_eq(codec->encode(NULL, e, &layout, 1.0 / 32, 0, message, bound, &bytes), WEIR_OK);
  cr_assert_eq(bytes, bound);
  cr_assert_eq(codec->decode(NULL, message, bytes, &layout, to, false), WEIR_OK);
  /* Two means: of what is not negative and of the six that are. */
  double sum[2] = {0, 0};
  for (size_t i = 0; i < KEPT; i++) sum[i % 2] += (double)(2 * KEPT - i);
  const float plus = (float)(sum[0] / (double)(N - 6)), minus = (float)(-sum[1] / 6);
  /* The last tile holds the end of the gradient: elements from 2^31 on and the 77 beyond. */
  for (size_t i = (size_t)1 << 31; i < N; i++)
    cr_assert(to[i] == (e[i] < 0.0F ? minus : plus), "element %zu", i);
  cr_assert_eq(codec->decode(NULL, message, bytes - 1, &layout, to, false), WEIR_E_PROTOCOL);
  (void)munmap(e, N * sizeof *e);
}
