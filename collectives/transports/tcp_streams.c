/* Several connections between each two ranks.  They come together once stream 0 has, one stream
 * after the other, in meetings like the first; a rank that calls for a stream while the other is
 * still in an earlier meeting is dropped there and calls again. */

#include "base/base.h"
#include "collectives/transports/tcp_meeting.h"

tcp_part tcp_part_of(const tcp *self, size_t bytes, int stream) {
  if (self->streams <= 1 || bytes < TCP_DIVIDE_LEAST)
    return (tcp_part){stream == 0, 0, stream == 0 ? bytes : 0};
  const size_t count = (size_t)self->streams, s = (size_t)stream;
  /* Parts of whole cache lines, so that no two streams' copies meet in one. */
  const size_t each = (bytes / count + 63) / 64 * 64;
  const size_t begin = s * each < bytes ? s * each : bytes;
  const size_t end = s + 1 < count && (s + 1) * each < bytes ? (s + 1) * each : bytes;
  return (tcp_part){true, begin, end - begin};
}

static weir_status meet(tcp_meeting *m, const struct sockaddr_in *from, double deadline_s) {
  weir_status status = tcp_gather(m, from, 0, deadline_s);
  if (status == WEIR_OK && m->missing > 0)
    status = weir_fail(WEIR_E_TIMEOUT, "rank %d: stream %u does not reach all ranks in time",
                       m->self->base.rank, m->terms.stream);
  return status;
}

weir_status tcp_streams_open(tcp *self, const struct sockaddr_in *from, double deadline_s) {
  const int size = self->base.size;
  weir_status status = WEIR_OK;
  for (int s = 1; status == WEIR_OK && size > 1 && s < self->streams; s++) {
    tcp_meeting *m = NULL;
    status = tcp_meeting_open(&m, self, self->listener, HELLO_STREAM, self->generation);
    if (status != WEIR_OK) return status;
    m->terms.stream = (uint16_t)s;
    status = meet(m, from, deadline_s);
    for (int r = 0; status == WEIR_OK && r < size; r++) {
      if (m->arrival[r].fd < 0) continue; /* oneself */
      self->peer[s * size + r].fd = m->arrival[r].fd;
      m->arrival[r].fd = -1;
      tcp_settle(self, s * size + r);
    }
    tcp_meeting_close(m);
  }
  return status;
}
