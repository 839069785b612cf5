/* Messages that cross: both ways at once, several to each peer; order and every byte are kept. */
#ifndef WEIR_TESTS_CROSSING_H
#define WEIR_TESTS_CROSSING_H

#include <stdlib.h>

#include "base/base.h"
#include "collectives/transports/common.h"

enum { CROSSING_MOST = 64 };

static inline unsigned char crossing_byte(int from, int to, int m, size_t i) {
  return (unsigned char)((size_t)(from * 7 + to * 3 + m * 11) + i * 13 + (i >> 9));
}

/* So many messages of these lengths to each other rank; *bytes: what went out, frames included. */
static inline weir_status crossing(weir_transport *t, uint64_t step, const size_t *length,
                                   int messages, double patience_s, uint64_t *bytes) {
  weir_send send[CROSSING_MOST];
  weir_recv recv[CROSSING_MOST];
  size_t count = 0;
  if ((t->size - 1) * messages > CROSSING_MOST) abort();
  for (int peer = 0; peer < t->size; peer++)
    for (int m = 0; peer != t->rank && m < messages; m++, count++) {
      unsigned char *out = malloc(length[m] + 1), *in = malloc(length[m] + 1);
      for (size_t i = 0; i < length[m]; i++) out[i] = crossing_byte(t->rank, peer, m, i);
      send[count] = (weir_send){peer, out, length[m], (uint32_t)m};
      recv[count] = (weir_recv){peer, in, length[m] + 1, (uint32_t)m, 0};
    }
  const weir_tag tag = {1, step, 1, 0};
  weir_status status =
      t->ops->transfer(t, &tag, send, count, recv, count, weir_now_s() + patience_s);
  *bytes = 0;
  for (size_t k = 0; k < count; k++) {
    const int m = (int)recv[k].hop;
    const unsigned char *in = recv[k].data;
    *bytes += length[m] + sizeof(weir_frame);
    if (status == WEIR_OK && recv[k].bytes != length[m])
      status = weir_fail(WEIR_E_INTERNAL, "message %d has %zu bytes", m, recv[k].bytes);
    for (size_t i = 0; status == WEIR_OK && i < length[m]; i++)
      if (in[i] != crossing_byte(recv[k].peer, t->rank, m, i))
        status = weir_fail(WEIR_E_INTERNAL, "message %d byte %zu", m, i);
    free(recv[k].data);
    free((void *)(uintptr_t)send[k].data);
  }
  return status;
}

#endif
