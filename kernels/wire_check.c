/* Wire messages looked at before anything is decoded from them. */
#include <float.h>
#include <math.h>

#include "kernels/wire.h"

/* Largest magnitude of a message's values; infinite when one of them is not finite. */
static double peak_of(const weir_wire_parts *message) {
  float value[WEIR_WIRE_PIECE];
  float peak = 0.0F;
  bool finite = true;
  for (size_t done = 0; done < message->k; done += WEIR_WIRE_PIECE) {
    size_t rest = message->k - done;
    size_t count = rest < WEIR_WIRE_PIECE ? rest : WEIR_WIRE_PIECE;
    weir_wire_values(message, done, count, value);
    for (size_t i = 0; i < count; i++) {
      float size = fabsf(value[i]);
      finite = finite && size <= FLT_MAX;
      peak = size > peak ? size : peak;
    }
  }
  return finite ? (double)peak : (double)INFINITY;
}

static bool good_list(const weir_wire_parts *message) {
  uint32_t index[WEIR_WIRE_PIECE];
  weir_index_reader list = message->list;
  for (size_t done = 0; done < message->k; done += WEIR_WIRE_PIECE) {
    size_t rest = message->k - done;
    if (!weir_index_read(&list, index, rest < WEIR_WIRE_PIECE ? rest : WEIR_WIRE_PIECE)) {
      return false;
    }
  }
  return weir_index_done(&list);
}

weir_status weir_wire_check(weir_codec_context *context, const void *message, size_t bytes,
                            size_t expected_n, double *peak) {
  *peak = 0.0;
  weir_wire_parts in;
  weir_status status = weir_wire_parse(message, bytes, expected_n, &in);
  if (status != WEIR_OK) {
    return status;
  }
  if (in.values == NULL) {
    return weir_wire_malformed("values are missing");
  }
  if (!good_list(&in)) {
    return weir_wire_malformed("bad index list");
  }
  *peak = peak_of(&in);
  /* A mask for every 64 elements, wherever the first lies, and as many as are written beyond. */
  return context != NULL ? weir_context_marks(context, (expected_n + 63) / 64 + 1 + 16) : WEIR_OK;
}
