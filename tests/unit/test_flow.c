/* How fast messages arrive over links that are wires or token buckets, in packets or in lumps of
 * many: what a transport's reads tell, and what the monitor makes of it. */
#include "collectives/transports/flow.h"
#include "netmon_stream.h"

typedef struct arrival {
  double s;
  size_t bytes;
} arrival;

static weir_flow_sample flow_of(const arrival *reads, size_t count, size_t length) {
  weir_flow_track track = {0};
  size_t received = 0;
  for (size_t i = 0; i < count; i++) {
    received += reads[i].bytes;
    const bool due = weir_flow_due(&track, length, received);
    weir_flow_read(&track, length, received, reads[i].bytes, due ? reads[i].s : NAN);
  }
  return weir_flow_end(&track, 3, received, reads[count - 1].s);
}

/* By hand, 6.4 MB/s: lumps of 64 kB, the last of 32 kB.  A bucket lets the first pass at once and
 * each further one when those before it are paid for: after half of the message 20 ms, those of two
 * long lumps.  A wire takes 15 ms for what came, so that 32 kB are in doubt. */
Test(flow, long_lumps_are_counted_with_their_doubt) {
  const arrival bucket[] = {{1.00, 64000}, {1.01, 64000}, {1.02, 64000}, {1.03, 32000}};
  weir_flow_sample flow = flow_of(bucket, 4, 224000);
  cr_assert_eq(flow.peer, 3);
  cr_assert_eq(flow.bytes, 160000);
  cr_assert_eq(flow.late_bytes, 128000);
  cr_assert_eq(flow.doubt, 32000);
  cr_assert_float_eq(flow.last_s - flow.half_s, 0.02, 1e-12);
  cr_assert_float_eq(flow.last_s - flow.first_s, 0.03, 1e-12);
  const arrival wire[] = {{1.01, 64000}, {1.02, 64000}, {1.03, 64000}, {1.035, 32000}};
  flow = flow_of(wire, 4, 224000);
  cr_assert_float_eq(flow.last_s - flow.half_s, 0.015, 1e-12);
  cr_assert_eq(flow.late_bytes - flow.doubt, 96000);
}

Test(flow, packets_and_equal_lumps_leave_no_doubt) {
  const arrival equal[] = {{1, 64000}, {2, 64000}, {3, 64000}, {4, 64000}};
  cr_assert_eq(flow_of(equal, 4, 256000).doubt, 0);
  const arrival packets[] = {{1, 9000}, {2, 9000}, {3, 9000}, {4, 3000}};
  const weir_flow_sample flow = flow_of(packets, 4, 30000);
  cr_assert_eq(flow.late_bytes, 12000);
  cr_assert_eq(flow.doubt, 0);
}

/* What a late rank reads at once is no lump; but a last packet behind many tells nothing. */
Test(flow, late_reads) {
  const arrival late[] = {{1, 64000}, {2, 900000}, {3, 800000}};
  weir_flow_sample flow = flow_of(late, 3, 1764000);
  cr_assert_eq(flow.late_bytes, 800000);
  cr_assert_eq(flow.doubt, 0);
  const arrival little[] = {{1, 15866}, {2, 518}};
  flow = flow_of(little, 2, 16384);
  cr_assert_eq(flow.doubt, flow.late_bytes);
}

Test(flow, what_is_there_at_once_has_no_time) {
  const arrival once[] = {{1, 20000}};
  weir_flow_sample flow = flow_of(once, 1, 20000);
  cr_assert_eq(flow.bytes, 0);
  cr_assert_eq(flow.late_bytes, 0);
  cr_assert_float_eq(flow.last_s - flow.first_s, 0, 1e-12);
  /* The second read brings all that was left, and more than half. */
  const arrival twice[] = {{1, 2000}, {1.5, 18000}};
  flow = flow_of(twice, 2, 20000);
  cr_assert_eq(flow.bytes, 18000);
  cr_assert_eq(flow.late_bytes, 0);
}

/* The last read may bring the begin of the next message: its bytes came in that time too. */
Test(flow, bytes_beyond_the_end_count) {
  const arrival reads[] = {{1, 10000}, {2, 10000}, {3, 10000}, {4, 15000}};
  const weir_flow_sample flow = flow_of(reads, 4, 40000);
  cr_assert_eq(flow.bytes, 35000);
  cr_assert_eq(flow.late_bytes, 25000);
}

/* A link of so many link bytes/s that lets `depth` of them pass at once after a rest, as htb does:
 * a lump goes when anything is left in the bucket, and is paid for afterwards. */
typedef struct bucket {
  double rate, depth, tokens, now_s;
} bucket;

static weir_flow_sample send_over(bucket *b, size_t length, size_t lump, double rest_s) {
  arrival reads[1024];
  size_t count = 0;
  b->now_s += rest_s;
  b->tokens = fmin(b->depth, b->tokens + rest_s * b->rate);
  for (size_t left = length; left > 0;) {
    const size_t bytes = left < lump ? left : lump;
    if (b->tokens < 0) {
      b->now_s += -b->tokens / b->rate;
      b->tokens = 0;
    }
    b->tokens -= (double)bytes * OVERHEAD;
    cr_assert_lt(count, 1024);
    reads[count++] = (arrival){b->now_s, bytes};
    left -= bytes;
  }
  return flow_of(reads, count, length);
}

/* Linux' tc without further words gives a bucket of a timer's tick, 10 ms at 100 Hz, and lumps are
 * of 64 KiB; the lab's own are of 1 ms and shorter.  By how much the rate found is off. */
static double found_over(double mbit, double depth_s, size_t length, size_t lump, double rest_s) {
  bucket b = {.rate = mbit * MBIT, .depth = depth_s * mbit * MBIT, .tokens = 0, .now_s = 10};
  weir_netmon *monitor = NULL;
  weir_snapshot snapshot;
  cr_assert_eq(weir_netmon_create(&monitor, NULL), WEIR_OK);
  for (int i = 0; i < 40; i++) {
    const weir_flow_sample flow = send_over(&b, length, lump, rest_s);
    const weir_sample sample = {.kind = WEIR_SAMPLE_FLOW,
                                .time_s = b.now_s,
                                .value = flow.last_s - flow.half_s,
                                .bytes = (double)flow.late_bytes,
                                .doubt = (double)flow.doubt};
    cr_assert_eq(weir_netmon_feed(monitor, &sample), WEIR_OK, "%s", weir_last_error());
  }
  weir_netmon_snapshot(monitor, b.now_s, &snapshot);
  weir_netmon_free(monitor);
  return snapshot.bandwidth / (mbit * MBIT);
}

Test(flow, rates_are_found_behind_buckets_and_lumps) {
  const struct {
    double mbit, depth_s, rest_s;
    size_t length, lump;
  } links[] = {
      {10, 0.010, 0.002, 1 << 20, 65160},   {100, 0.010, 0.002, 1 << 20, 65160},
      {1000, 0.010, 0.002, 2 << 20, 65160}, {1000, 0.010, 0.005, 2 << 20, 65160},
      {750, 0.001, 0.050, 1 << 20, 65160},  {750, 0.001, 0.050, 524288, 2896},
      {30, 0.001, 0.100, 65536, 2896},      {100, 0, 0.010, 262144, 1448},
  };
  for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
    const double found = found_over(links[i].mbit, links[i].depth_s, links[i].length, links[i].lump,
                                    links[i].rest_s);
    cr_assert_float_eq(found, 1, 0.05, "%g Mbit/s, %zu bytes: %g", links[i].mbit, links[i].length,
                       found);
  }
}

/* 15 kB pass at once, and the last packet waits until they are paid for: no rate follows. */
Test(flow, a_last_packet_alone_tells_nothing) {
  cr_assert_eq(found_over(10, 0.010, 16000, 15000, 0.002), 0);
}

/* By hand: two messages of 100 kB, of which 10 kB are there at the first look, half after 50 ms and
 * all after 100 ms; the second begins when half of the first is there.  After 50 ms 60 kB of both
 * are there, and 90 kB come within the next 50 ms: half of 200 kB after 72.2 ms. */
Test(flow, messages_that_share_links_count_together) {
  const weir_flow_sample two[] = {
      {1, 0, 100000, 90000, 50000, 100, 1.00, 1.05, 1.10},
      {2, 1, 100000, 90000, 50000, 200, 1.05, 1.10, 1.15},
  };
  const weir_flow_sample all = weir_flow_together(two, 2);
  cr_assert_eq(all.length, 200000);
  cr_assert_eq(all.bytes, 190000);
  cr_assert_float_eq(all.half_s, 1.05 + 0.05 * 40 / 90, 1e-9);
  cr_assert_float_eq((double)all.late_bytes, 100000, 1);
  cr_assert_eq(all.doubt, 300);
  cr_assert_float_eq(all.first_s, 1.00, 1e-12);
  cr_assert_float_eq(all.last_s, 1.15, 1e-12);
}

/* What is there at once has no time of its own, but others' time may pass meanwhile. */
Test(flow, one_that_is_there_at_once_counts_when_it_was_seen) {
  const weir_flow_sample two[] = {
      {1, 0, 100000, 90000, 50000, 0, 1.00, 1.05, 1.10},
      {2, 1, 40000, 0, 0, 0, 1.08, 1.08, 1.08},
  };
  const weir_flow_sample all = weir_flow_together(two, 2);
  /* 70 kB of 140 kB: after 70 ms, with 50 kB of 100 after 50 and 1 kB a ms. */
  cr_assert_float_eq(all.half_s, 1.07, 1e-9);
  cr_assert_float_eq((double)all.late_bytes, 70000, 1);
  cr_assert_eq(all.bytes, 130000);
}

Test(flow, one_alone_stays_what_it_is) {
  const weir_flow_sample one = {3, 0, 100000, 90000, 50000, 7, 1.00, 1.05, 1.10};
  const weir_flow_sample all = weir_flow_together(&one, 1);
  cr_assert_eq(memcmp(&all, &one, sizeof one), 0);
}
