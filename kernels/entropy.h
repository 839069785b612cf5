/* A quantizer's message as it travels where links are slow: codes by how often they occur, by
 * Huffman's code anew for every message, and without what its receiver knows.
 *
 *   bytes 8-15 of the message's header (encoder.h), of which the last is 1 where codes are coded
 *   coded   the scales of all units, then a message of weir_huffman_encode of the bytes that the
 *           units' codes make up, one after the other, in symbols of as many whole codes as a byte
 *           holds (of two codes of 3 or 4 bits), filled up with zeros
 *   else    the rest of the message as it is
 *
 * Nothing is lost: what comes out is the message that went in, to the bit.  What it brings is in
 * docs/reference/performance.md, "Codes by how often they occur". */
#ifndef WEIR_KERNELS_ENTROPY_H
#define WEIR_KERNELS_ENTROPY_H

#include "kernels/encoder.h"

/* Bytes to work in for messages of at most so many. */
size_t weir_entropy_room(size_t bytes);
/* Writes at most bytes - 8 to out, which may be the message's own place, and returns how many.
 * codec: what the message is of, with scales > 0. */
size_t weir_entropy_shorten(const weir_codec *codec, const void *message, size_t bytes, void *room,
                            uint8_t *out);
/* Untrusted; to a message of n elements and `bytes` bytes, which overlaps neither `from` nor room.
 * False where it cannot be; what it then holds is not said.  What is restored is for the codec to
 * look at. */
bool weir_entropy_restore(const weir_codec *codec, const uint8_t *from, size_t length, size_t n,
                          void *room, void *message, size_t bytes);

#endif
