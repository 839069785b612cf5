/* Passes over a gradient cut into parts for several threads.  Where parts end does not matter to
 * the result, so that any number of threads gives the same bits. */
#include "kernels/internal.h"

/* Where a part begins: at a multiple of the lanes. */
static size_t part_begin(size_t n, size_t part, size_t parts) {
  return part < parts ? n / parts * part / WEIR_LANES * WEIR_LANES : n;
}

typedef struct search {
  weir_codec_context *context;
  const float *e;
  size_t n, parts, share;
  uint32_t bits;
  size_t found[WEIR_POOL_MOST];
} search;

static size_t share_begin(const search *s, size_t part) {
  return part * (s->share + WEIR_CANDIDATE_SLACK);
}

static void compact_part(void *argument, size_t part) {
  search *s = argument;
  size_t at = part_begin(s->n, part, s->parts);
  size_t count = part_begin(s->n, part + 1, s->parts) - at;
  s->found[part] = weir_cpu()->compact(s->e + at, count, s->bits, (uint32_t)at,
                                       s->context->magnitude + share_begin(s, part),
                                       s->context->position + share_begin(s, part), s->share);
}

size_t weir_compact(weir_codec_context *context, const float *e, size_t n, uint32_t bits,
                    size_t most) {
  search s = {.context = context, .e = e, .n = n, .bits = bits};
  s.parts = weir_pool_parts(context->pool, n);
  s.share = 2 * context->capacity / s.parts;
  if (s.parts > 1) weir_pool_run(context->pool, compact_part, &s, s.parts);
  size_t total = 0;
  bool fits = s.parts > 1;
  for (size_t part = 0; fits && part < s.parts; part++) {
    fits = s.found[part] != SIZE_MAX && total + s.found[part] <= most;
    total += s.found[part];
  }
  if (!fits) { /* too many in one part may still be few enough together */
    return weir_cpu()->compact(e, n, bits, 0, context->magnitude, context->position, most);
  }
  size_t end = s.found[0];
  for (size_t part = 1; part < s.parts; part++) {
    size_t from = share_begin(&s, part);
    memmove(context->magnitude + end, context->magnitude + from, s.found[part] * sizeof(float));
    memmove(context->position + end, context->position + from, s.found[part] * sizeof(uint32_t));
    end += s.found[part];
  }
  return total;
}
