/* Messages of which every tensor is a unit (encoder.h), cut into shorter ones of some elements
 * each: what gathering in pieces sends one after the other of what was encoded at once.  Each has
 * the scales of the tensors it has elements of, so that it is decoded as any other. */
#include "kernels/encoder.h"

/* The last tensor that begins at `at` or before. */
static size_t tensor_at(const weir_layout *layout, size_t at) {
  size_t first = 0, last = layout->tensors;
  while (last - first > 1) {
    const size_t middle = first + (last - first) / 2;
    if (layout->offset[middle] <= at)
      first = middle;
    else
      last = middle;
  }
  return first;
}

weir_layout weir_layout_between(const weir_layout *layout, size_t at, size_t end, size_t *offset) {
  const size_t *const from = layout->offset;
  size_t tensors = 0;
  offset[0] = 0;
  for (size_t t = tensor_at(layout, at); t < layout->tensors && from[t] < end; t++)
    offset[++tensors] = (from[t + 1] < end ? from[t + 1] : end) - at;
  return (weir_layout){tensors, offset};
}

size_t weir_cut_end(const weir_layout *layout, size_t end) {
  const size_t n = layout->offset[layout->tensors];
  if (end >= n) return n;
  const size_t begin = layout->offset[tensor_at(layout, end)];
  return begin + (end - begin) / 8 * 8;
}

void weir_cut_begin(weir_cut *cut, const weir_codec *codec, const void *message,
                    const weir_layout *layout) {
  *cut = (weir_cut){.layout = layout, .scales = codec->scales * sizeof(float)};
  memcpy(cut->head, message, sizeof cut->head);
  cut->rest = (const unsigned char *)message + sizeof cut->head;
}

size_t weir_cut_next(weir_cut *cut, size_t end, void *out) {
  const size_t *const offset = cut->layout->offset;
  unsigned char *to = out;
  weir_encoded head;
  memcpy(&head, cut->head, sizeof head);
  head.n = (uint32_t)(end - cut->at);
  memcpy(to, &head, sizeof head);
  to += sizeof head;
  while (cut->at < end) {
    while (offset[cut->tensor + 1] <= cut->at) cut->tensor++;
    const size_t whole = offset[cut->tensor + 1], stop = whole < end ? whole : end;
    const size_t bytes = weir_codes_bytes(stop - cut->at, head.bits);
    if (cut->at == offset[cut->tensor]) {
      memcpy(cut->scale, cut->rest, cut->scales);
      cut->rest += cut->scales;
    }
    memcpy(to, cut->scale, cut->scales);
    memcpy(to + cut->scales, cut->rest, bytes);
    to += cut->scales + bytes;
    cut->rest += bytes;
    cut->at = stop;
  }
  return (size_t)(to - (unsigned char *)out);
}
