#include "engine/memory.h"

#include "kernels/codec.h"

static size_t stride_of(size_t bytes) { return bytes / 16 * 16 + 32; }

weir_bucket_room weir_bucket_room_of(const weir_plan *plan, weir_way way, int ranks, size_t n,
                                     size_t kept) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const weir_wire_format format = (weir_wire_format)plan->wire;
  weir_bucket_room room = {0};
  if (codec->low_rank) {
    room.values = kept;
  } else if (way == WEIR_WAY_AG && codec->encode != NULL) {
    room.messages = (size_t)ranks;
    room.stride = stride_of(kept);
  } else if (way == WEIR_WAY_AG || way == WEIR_WAY_ART) {
    const bool gathers = way == WEIR_WAY_AG;
    room.indices = kept;
    /* VAR's root is found there. */
    room.values = codec->id == WEIR_CODEC_VAR && kept < (size_t)ranks ? (size_t)ranks : kept;
    room.errors = gathers && format < WEIR_WIRE_AUTO_BF16 ? 0 : kept;
    room.messages = gathers ? (size_t)ranks : 1;
    room.stride = stride_of(weir_wire_bound(n, kept, format));
  }
  return room;
}
