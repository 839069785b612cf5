/* TCP_INFO of a connection: what was acknowledged while data was outstanding, and the round trip.
 * The structure is the kernel's own; libc's lacks the newer fields. */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "base/base.h"
#include "netmon/netmon.h"

/* The busy time ticks in jiffies (4 or 10 ms): less than this says nothing. */
enum { FRESH_BUSY_US = 40000, FRESH_BYTES = 65536 };

/* Counters of 32 bits: differences wrap rightly.  Kernels before 5.4 do not tell of packets that
 * came in another order. */
static void read_losses(weir_tcp_reader *reader, const struct tcp_info *info, socklen_t length,
                        weir_sample *loss) {
  const bool ordered =
      length >= offsetof(struct tcp_info, tcpi_rcv_ooopack) + sizeof info->tcpi_rcv_ooopack;
  const uint32_t sent = info->tcpi_data_segs_out, resent = info->tcpi_total_retrans;
  const uint32_t disordered = ordered ? info->tcpi_rcv_ooopack : 0;
  if (reader->primed) {
    loss->bytes = sent - reader->segments;
    loss->value = resent - reader->resent;
    loss->doubt = disordered - reader->disordered;
  }
  reader->segments = sent;
  reader->resent = resent;
  reader->disordered = disordered;
}

weir_status weir_tcp_info_read(weir_tcp_reader *reader, int descriptor, weir_sample *flow,
                               bool *fresh, weir_sample *rtt, weir_sample *loss) {
  struct tcp_info info;
  socklen_t length = sizeof info;
  *fresh = false;
  memset(&info, 0, sizeof info);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length))
    return weir_fail(WEIR_E_IO, "no TCP_INFO: %s", strerror(errno));
  if (length < offsetof(struct tcp_info, tcpi_busy_time) + sizeof info.tcpi_busy_time)
    return weir_fail(WEIR_E_UNSUPPORTED, "this kernel's TCP_INFO has no busy time");
  const double now = weir_now_s();
  /* ~0: the kernel has no round trip yet. */
  const uint32_t rtt_us =
      info.tcpi_min_rtt && info.tcpi_min_rtt != UINT32_MAX ? info.tcpi_min_rtt : info.tcpi_rtt;
  *rtt = (weir_sample){.kind = WEIR_SAMPLE_TCP_RTT, .time_s = now, .value = rtt_us * 1e-6};
  *loss = (weir_sample){.kind = WEIR_SAMPLE_LOSS, .time_s = now};
  read_losses(reader, &info, length, loss);
  if (!reader->primed || info.tcpi_bytes_acked < reader->bytes_acked ||
      info.tcpi_busy_time < reader->busy_us) {
    reader->bytes_acked = info.tcpi_bytes_acked;
    reader->busy_us = info.tcpi_busy_time;
    reader->primed = true;
    return WEIR_OK;
  }
  const uint64_t bytes = info.tcpi_bytes_acked - reader->bytes_acked;
  const uint64_t busy_us = info.tcpi_busy_time - reader->busy_us;
  if (bytes < FRESH_BYTES || busy_us < FRESH_BUSY_US) return WEIR_OK; /* let it add up */
  *flow = (weir_sample){.kind = WEIR_SAMPLE_TCP_INFO,
                        .time_s = now,
                        .value = (double)busy_us * 1e-6,
                        .bytes = (double)bytes};
  *fresh = true;
  reader->bytes_acked = info.tcpi_bytes_acked;
  reader->busy_us = info.tcpi_busy_time;
  return WEIR_OK;
}
