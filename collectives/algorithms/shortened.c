/* Quantizers' messages on their way with their codes by how often they occur (kernels/entropy.h):
 * one of all elements, and those of a sum, of a chunk's blocks one after the other. */
#include <string.h>

#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "kernels/entropy.h"

static weir_status room_for(weir_comm *comm, void **room) {
  return weir_comm_scratch(comm, WEIR_SCRATCH_B, weir_entropy_room(), room);
}

static weir_status refuse(weir_comm *comm, const weir_codec *codec, int peer) {
  return weir_comm_refuse(comm, peer,
                          weir_encoded_malformed(codec->id, "its codes cannot be restored"));
}

weir_status weir_message_shorten(weir_comm *comm, const weir_codec *codec, void *message,
                                 size_t *bytes) {
  void *room = NULL;
  const weir_status status = room_for(comm, &room);
  if (status == WEIR_OK) *bytes = weir_entropy_shorten(codec, message, *bytes, room);
  return status;
}

weir_status weir_message_restore(weir_comm *comm, const weir_codec *codec, int peer, void *message,
                                 size_t n, size_t most, size_t *bytes) {
  void *room = NULL;
  const weir_status status = room_for(comm, &room);
  if (status != WEIR_OK) return status;
  *bytes = weir_entropy_restore(codec, message, *bytes, n, most, room);
  return *bytes > 0 ? WEIR_OK : refuse(comm, codec, peer);
}

/* --- a chunk's blocks ------------------------------------------------------------------------- */

/* Of a block's message all but magic and n, which its receiver knows: so there is room for its
 * length behind it. */
enum { KNOWN = offsetof(weir_encoded, unit) };
typedef uint32_t block_length;
_Static_assert(sizeof(block_length) <= KNOWN, "a block does not become longer");

static bool shortens(const weir_coder *coder) { return coder->huffman && !coder->stays; }

weir_status weir_coder_shorten(weir_comm *comm, const weir_coder *coder, void *message,
                               size_t count, size_t *bytes) {
  if (!shortens(coder)) return WEIR_OK;
  const weir_coder_part part = weir_coder_part_of(coder, count);
  unsigned char *from = message, *to = message;
  void *room = NULL;
  const weir_status status = room_for(comm, &room);
  if (status != WEIR_OK) return status;
  for (size_t at = 0; at < count; at += part.block, from += part.each) {
    const size_t left = part.bytes - (size_t)(from - (unsigned char *)message);
    const size_t whole = left < part.each ? left : part.each;
    const block_length length =
        (block_length)(weir_entropy_shorten(coder->codec, from, whole, room) - KNOWN);
    memmove(to, from + KNOWN, length);
    memcpy(to + length, &length, sizeof length);
    to += length + sizeof length;
  }
  *bytes = (size_t)(to - (unsigned char *)message);
  if (coder->shortened != NULL) {
    coder->shortened->whole += (double)part.bytes;
    coder->shortened->sent += (double)*bytes;
  }
  return WEIR_OK;
}

/* The block of `count` elements that ends at *end goes to its place, and none that is still to be
 * restored lies there. */
static bool restore_block(const weir_coder *coder, unsigned char *message, size_t *end,
                          size_t place, size_t count, size_t whole, void *room) {
  block_length length;
  weir_encoded head = {.unit = 0};
  if (*end < sizeof length) return false;
  *end -= sizeof length;
  memcpy(&length, message + *end, sizeof length);
  if (length > *end || length > whole - KNOWN || length < sizeof head - KNOWN) return false;
  *end -= length;
  if (*end > place) return false;
  memmove(message + place + KNOWN, message + *end, length);
  memcpy((unsigned char *)&head + KNOWN, message + place + KNOWN, sizeof head - KNOWN);
  return weir_encoded_begin(&head, count, 0, message + place, 0) == WEIR_OK &&
         weir_entropy_restore(coder->codec, message + place, length + KNOWN, count, whole, room) ==
             whole;
}

weir_status weir_coder_restore(weir_comm *comm, const weir_coder *coder, int peer, void *message,
                               size_t count, size_t bytes) {
  if (!shortens(coder)) return WEIR_OK;
  const weir_coder_part part = weir_coder_part_of(coder, count);
  void *room = NULL;
  const weir_status status = room_for(comm, &room);
  bool good = true;
  if (status != WEIR_OK) return status;
  for (size_t left = count; good && left > 0;) {
    const size_t number = (left - 1) / part.block, at = number * part.block;
    const size_t place = number * part.each, rest = part.bytes - place;
    good = restore_block(coder, message, &bytes, place, left - at,
                         rest < part.each ? rest : part.each, room);
    left = at;
  }
  return good && bytes == 0 ? WEIR_OK : refuse(comm, coder->codec, peer);
}

weir_status weir_coder_take(weir_comm *comm, const weir_coder *coder, const weir_recv *recv,
                            size_t count) {
  if (!shortens(coder)) return weir_comm_expect(comm, recv, 1);
  return weir_coder_restore(comm, coder, recv->peer, recv->data, count, recv->bytes);
}
