/* A quantizer's message as it travels where links are slow: its codes by how often they occur
 * (entropy coding), by Huffman's code.
 *
 *   header  the message's (encoder.h), but that its last byte is 1; of nonzero its list, too, and
 *           of seeded ones the seed
 *   pieces  of 32768 elements in whole units, the last of up to twice as many: the scales of its
 *           units, then a message of weir_huffman_encode of the bytes that the units' codes make
 *           up, one after the other, in symbols of as many whole codes as a byte holds (of two
 *           codes of 3 or 4 bits), filled up with zeros; then, in 4 bytes, how long that is
 *   scales  floats; where they are bfloat16s (short_scales), their lower bytes, one after the
 *           other, and a message of weir_huffman_encode of their upper ones, of exponents, which
 *           are much alike, whose length the last 2 bytes of the piece say
 *
 * Pieces are coded apart from each other, so that memory to work in does not grow with messages.
 * Nothing is lost: what comes out is the message that went in, to the bit.  What it brings is in
 * docs/reference/performance.md, "Codes by how often they occur". */
#ifndef WEIR_KERNELS_ENTROPY_H
#define WEIR_KERNELS_ENTROPY_H

#include "kernels/encoder.h"

/* Bytes that both work in. */
size_t weir_entropy_room(void);
/* In the message's own place, whose new length it returns; `bytes` where some piece would not be
 * shorter: then the message is as it was.  codec: what the message is of, with scales > 0 and units
 * of at most 32768 elements. */
size_t weir_entropy_shorten(const weir_codec *codec, void *message, size_t bytes, void *room);
/* Untrusted, in its own place, which has room for the longest message of n elements, of `most`
 * bytes.  How long it is now, or 0 where it cannot be one; what is there then is not said.  What is
 * restored is for the codec to look at. */
size_t weir_entropy_restore(const weir_codec *codec, void *message, size_t length, size_t n,
                            size_t most, void *room);

#endif
