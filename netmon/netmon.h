/* The network monitor: samples from several sources in, one robust estimate with its age and
 * uncertainty out.  The estimator is pure (no I/O, no clock of its own), so it can be replayed. */
#ifndef WEIR_NETMON_H
#define WEIR_NETMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

typedef enum weir_sample_kind {
  WEIR_SAMPLE_ECHO,       /* value: round-trip time, s; bytes: 0, or the running number, from 1 on,
                             of a transfer that it shared its way with */
  WEIR_SAMPLE_FLOW,       /* value: seconds over which `bytes` arrived back to back, at the end of a
                             message that had emptied token buckets; doubt: bytes */
  WEIR_SAMPLE_SHARED,     /* likewise of several messages together, from and to several ranks, that
                             shared the links on their way; alone: bytes/s that the fastest of them
                             had by itself */
  WEIR_SAMPLE_MESSAGE,    /* value: seconds over which `bytes` arrived, all of a message but its
                             first packets */
  WEIR_SAMPLE_LOSS,       /* value: of `bytes` TCP segments sent, so many were sent again; doubt: so
                             many came in another order than they were sent in */
  WEIR_SAMPLE_TRAIN,      /* value: seconds over which `bytes` of the link's arrived in datagrams */
  WEIR_SAMPLE_COLLECTIVE, /* value: seconds a collective took; alpha_terms, bytes: its cost terms */
  WEIR_SAMPLE_TCP_INFO,   /* value: busy seconds over which `bytes` were acknowledged */
  WEIR_SAMPLE_TCP_RTT,    /* value: tcpi_min_rtt over the last window, s */
  WEIR_SAMPLE_PROBE,      /* value: bandwidth in bytes/s, payload (iperf3 or a known burst); doubt:
                             its relative error, 0: it needs no witness */
  WEIR_SAMPLE_IDLE,       /* value: round-trip time that several idle echoes agree on, s */
  WEIR_SAMPLE_CROSS       /* bytes: other traffic on the interface; value: seconds */
} weir_sample_kind;

typedef struct weir_sample {
  weir_sample_kind kind;
  double time_s; /* when taken; never decreasing */
  double value;
  double bytes;
  double alpha_terms;
  double doubt;
  double alone; /* of WEIR_SAMPLE_SHARED only */
} weir_sample;

/* What is known now.  Bandwidth is the link's rate in bytes/s as traffic control counts it (packet
 * headers included), so that it can be compared with what was set. */
typedef struct weir_snapshot {
  double time_s;
  double latency_s;     /* one way; 0: unknown */
  double latency_error; /* relative standard error */
  double latency_age_s; /* since the newest sample that counts */
  double bandwidth;     /* bytes/s; 0: unknown */
  double bandwidth_error;
  double bandwidth_age_s;
  double goodput; /* of it, what messages get; less than bandwidth where packets are lost */
  double goodput_error;
  double deviation; /* of a message's time, s for the root of its bytes, where goodput is less */
  double loss;      /* share of TCP segments sent again */
  double cross_bandwidth;   /* bytes/s of other traffic, 0: none seen */
  uint32_t latency_changes; /* running number of detected changes; the first value counts as one */
  uint32_t bandwidth_changes;
  bool risen;           /* a train came far faster than the bandwidth allows */
  uint32_t fast_trains; /* so many in a row did */
  double risen_to;      /* bytes/s that the newest of them speaks for; 0: none does */
  bool suspect;         /* evidence has moved but not settled: an active probe would help */
} weir_snapshot;

/* Link bytes per payload byte of TCP: Ethernet frames with TCP timestamps. */
#define WEIR_TCP_OVERHEAD (1514.0 / 1448.0)

typedef struct weir_netmon_config {
  double wire_overhead;    /* link bytes per payload byte; 0: WEIR_TCP_OVERHEAD */
  double change_threshold; /* relative change that counts, default 0.1 */
  double window_s;         /* how long a minimum or maximum counts, default 10 */
} weir_netmon_config;

typedef struct weir_netmon weir_netmon;
weir_status weir_netmon_create(weir_netmon **out,
                               const weir_netmon_config *config); /* NULL: defaults */
void weir_netmon_free(weir_netmon *monitor);
/* Non-finite, negative or absurd samples are refused with WEIR_E_INVALID and change nothing. */
weir_status weir_netmon_feed(weir_netmon *monitor, const weir_sample *sample);
void weir_netmon_snapshot(const weir_netmon *monitor, double now_s, weir_snapshot *snapshot);

/* --- sources -------------------------------------------------------------------------------- */

/* TCP_INFO of a connected socket: differences since the last call with the same reader.
 * *fresh is false when too little was sent to say anything of its speed; loss->bytes is 0 when it
 * was to say how much was lost. */
typedef struct weir_tcp_reader {
  uint64_t bytes_acked;
  uint64_t busy_us;
  uint32_t segments, resent, disordered;
  bool primed;
} weir_tcp_reader;
weir_status weir_tcp_info_read(weir_tcp_reader *reader, int descriptor, weir_sample *flow,
                               bool *fresh, weir_sample *rtt, weir_sample *loss);

/* The helper program, weir-netprobe, which runs iperf3 and asks netlink for a process that cannot:
 * libiperf wants a process to itself.  It is found where it is installed with libweir, or where the
 * environment's WEIR_HELPER says, and may be started at any time.  It ends when it is freed, and
 * when this process does.  One thread at a time asks it.  WEIR_E_UNSUPPORTED: there is none. */
typedef struct weir_helper weir_helper;
weir_status weir_helper_start(weir_helper **out);
void weir_helper_free(weir_helper *helper); /* and its children; waits for it */

/* Below, WEIR_E_IO also says that the helper is gone, and WEIR_E_TIMEOUT that it did not answer. */

/* Bytes an interface has sent, from netlink, for cross traffic. */
weir_status weir_link_bytes(weir_helper *helper, const char *interface_name, uint64_t *sent);
/* Name of the interface that holds an IPv4 address ("10.0.0.1"). */
weir_status weir_link_of_address(weir_helper *helper, const char *address, char name[16]);
/* Let iperf3 serve on address:port until weir_iperf_close or the helper's end. */
weir_status weir_iperf_serve(weir_helper *helper, const char *address, int port);
/* No longer serve: iperf3 knows no secret, so its port is open no longer than it is needed. */
weir_status weir_iperf_close(weir_helper *helper);
/* Send `bytes` to address:port and tell the received payload rate in bytes/s. */
weir_status weir_iperf_measure(weir_helper *helper, const char *address, int port, size_t bytes,
                               double timeout_s, double *bandwidth);

#endif
