/* Short symbols in fewer bits, without loss: Huffman's code for what a message holds, so that
 * quantizers' messages get shorter on slow links.
 *
 *   byte 0   0: stored, a byte a symbol follows; 1: all alike, the symbol follows; 2: coded
 *
 * and of coded messages, then
 *
 *   fields   of 4 bits, the lower half of a byte first: for every symbol below 2^bits the length of
 *            its code, 0 to 11, where 0 says that it does not occur; 12 to 15 stand for 2, 4, 8 and
 *            16 symbols more with the length before.  A half byte that is left over is 0.
 *   lengths  of the first three streams in bytes, 4 bytes each
 *   streams  four; symbol i is in stream i % 4
 *
 * Codes are those of D. Huffman, "A method for the construction of minimum-redundancy codes" (Proc.
 * IRE 40, 1952), in the canonical form, which follows from the lengths alone: codes are given out
 * in ascending order, to short ones first, then to the smaller symbol (E. Schwartz and B. Kallick,
 * "Generating a canonical prefix encoding", Comm. ACM 7, 1964).  A code's first bit is the lowest
 * that is free in its stream.  Streams end with a whole byte, which zeros fill up.  All numbers are
 * little-endian.
 *
 * A message follows from its symbols alone.  A decoder takes lengths in that form only, nothing
 * after the last stream, and no coded message that is as long as a stored one.  Whether the code
 * is the shortest it does not ask, nor does a message say how many symbols it holds.  A decoder
 * that reads four streams at once waits a quarter as long for where the next code begins. */
#ifndef WEIR_KERNELS_HUFFMAN_H
#define WEIR_KERNELS_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the longest message of n symbols. */
size_t weir_huffman_bound(size_t n);
/* n symbols below 2^bits (bits 1..8) -> out, which has room for weir_huffman_bound(n) bytes.
 * Returns the message's length. */
size_t weir_huffman_encode(const uint8_t *symbol, size_t n, unsigned bits, uint8_t *out);
/* Untrusted bytes.  True where they are a message of exactly n symbols below 2^bits and nothing
 * else; false otherwise, and then symbol[] holds anything within its n bytes.  Never reads beyond
 * from + bytes, never writes beyond symbol + n. */
bool weir_huffman_decode(const uint8_t *from, size_t bytes, size_t n, unsigned bits,
                         uint8_t *symbol);

#endif
