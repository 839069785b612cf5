/* Wire messages looked at before anything is decoded from them. */
#include <float.h>
#include <math.h>

#include "base/base.h"
#include "kernels/wire.h"

/* Largest magnitude of a message's values; infinite when one of them is not finite. */
static double peak_of(const weir_wire_parts *message) {
  float value[WEIR_WIRE_PIECE];
  int32_t peak = 0; /* magnitudes are ordered as their bits are */
  for (size_t done = 0; done < message->k; done += WEIR_WIRE_PIECE) {
    size_t rest = message->k - done;
    size_t count = rest < WEIR_WIRE_PIECE ? rest : WEIR_WIRE_PIECE;
    weir_wire_values(message, done, count, value);
    for (size_t i = 0; i < count; i++) {
      int32_t bits;
      memcpy(&bits, &value[i], sizeof bits);
      bits &= INT32_MAX;
      peak = bits > peak ? bits : peak;
    }
  }
  float most;
  memcpy(&most, &peak, sizeof most);
  return most <= FLT_MAX ? (double)most : (double)INFINITY;
}

weir_status weir_wire_made(size_t kept, const void *message) {
  weir_wire_header head;
  memcpy(&head, message, sizeof head);
  if (head.k == kept) return WEIR_OK;
  return weir_fail(WEIR_E_PROTOCOL, "malformed message, made by another plan than this one");
}

weir_status weir_wire_check(weir_codec_context *context, const void *message, size_t bytes,
                            size_t expected_n, double *peak) {
  *peak = 0.0;
  weir_wire_parts in;
  weir_status status = weir_wire_parse(message, bytes, expected_n, &in);
  if (status != WEIR_OK) return status;
  if (in.values == NULL) return weir_wire_malformed("values are missing");
  if (!weir_wire_good_list(&in)) return weir_wire_malformed("bad index list");
  *peak = peak_of(&in);
  /* A mask for every 64 elements, wherever the first lies, and as many as are written beyond. */
  return context != NULL ? weir_context_bitmap(context, (expected_n + 63) / 64 + 1 + 16) : WEIR_OK;
}
