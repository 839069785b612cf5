/* libFuzzer: Huffman's code.  The first byte says how many bits a symbol has, and whether what
 * follows is a message, of as many symbols as the next two bytes say, or symbols that must come
 * back.  A message is read into exactly as much memory as belongs to it, and what is accepted is
 * below 2^bits. */
#include <stdlib.h>
#include <string.h>

#include "demand.h"
#include "kernels/huffman.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 3, MOST = 4096 };

/* Never NULL, and no byte more than asked for. */
static uint8_t *room(size_t bytes) {
  uint8_t *const memory = malloc(bytes + (bytes == 0));
  demand(memory != NULL, "no memory");
  return memory;
}

static void feed_message(const uint8_t *data, size_t size, size_t n, unsigned bits) {
  uint8_t *const symbol = room(n);
  if (weir_huffman_decode(data, size, n, bits, symbol))
    for (size_t i = 0; i < n; i++) demand(symbol[i] >> bits == 0, "a symbol that is too large");
  free(symbol);
}

static void feed_symbols(const uint8_t *data, size_t n, unsigned bits) {
  uint8_t *const symbol = room(n), *const got = room(n);
  uint8_t *const message = room(weir_huffman_bound(n));
  for (size_t i = 0; i < n; i++) symbol[i] = (uint8_t)(data[i] % (1U << bits));
  const size_t bytes = weir_huffman_encode(symbol, n, bits, message);
  demand(bytes <= weir_huffman_bound(n), "longer than was promised");
  demand(weir_huffman_decode(message, bytes, n, bits, got), "refused what was encoded");
  demand(n == 0 || memcmp(symbol, got, n) == 0, "other symbols came back");
  free(symbol);
  free(got);
  free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < HEAD) return 0;
  const unsigned bits = 1 + data[0] % 8;
  if (data[0] & 8)
    feed_symbols(data + HEAD, size - HEAD, bits);
  else
    feed_message(data + HEAD, size - HEAD, (size_t)(data[1] | data[2] << 8) % (MOST + 1), bits);
  return 0;
}
