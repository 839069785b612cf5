/* All-gather after Bruck: ceil(log2 N) rounds for any N; (N-1) blocks cross each rank's link.
 *
 * Every block is a message of its own, so that it travels from and to its place without a copy and
 * its length stands in its frame's header, checked against the stride before a byte is taken.  All
 * messages of a round leave together.  The headers of a round are at most two runs of the block. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

typedef struct run {
  int first;
  int count;
} run;

/* Ranks first, first+1, ... (mod size) as one or two runs without a wrap. */
static int split(int first, int count, int size, run out[2]) {
  const int head = count < size - first ? count : size - first;
  out[0] = (run){first, head};
  out[1] = (run){0, count - head};
  return count > head ? 2 : 1;
}

static weir_status round_of(weir_comm *comm, int k, unsigned char *all, size_t stride,
                            size_t *bytes, weir_headers *headers) {
  const int size = weir_comm_size(comm);
  const weir_bruck_round round = weir_bruck(weir_comm_rank(comm), size, k);
  const uint32_t base = (uint32_t)k * (uint32_t)(size + 2);
  const size_t header = weir_headers_bytes(headers);
  size_t sends = 0, recvs = 0;
  for (int i = 0; i < round.count; i++, sends++) {
    const size_t out = (size_t)((round.first_sent + i) % size);
    const size_t in = (size_t)((round.first_received + i) % size);
    const uint32_t hop = base + (uint32_t)i;
    comm->send[sends] = (weir_send){round.to, all + out * stride, bytes[out], hop};
    comm->recv[recvs++] = (weir_recv){round.from, all + in * stride, stride, hop, 0};
  }
  if (header > 0) {
    run part[2];
    int parts = split(round.first_sent, round.count, size, part);
    for (int i = 0; i < parts; i++)
      comm->send[sends++] =
          (weir_send){round.to, weir_headers_at(headers, part[i].first),
                      (size_t)part[i].count * header, base + (uint32_t)(size + i)};
    parts = split(round.first_received, round.count, size, part);
    for (int i = 0; i < parts; i++)
      comm->recv[recvs++] =
          (weir_recv){round.from, weir_headers_at(headers, part[i].first),
                      (size_t)part[i].count * header, base + (uint32_t)(size + i), 0};
  }
  const weir_status status = weir_comm_transfer(comm, comm->send, sends, comm->recv, recvs);
  if (status != WEIR_OK) return status;
  for (int i = 0; i < round.count; i++)
    bytes[(round.first_received + i) % size] = comm->recv[i].bytes;
  return weir_comm_expect(comm, comm->recv + round.count, recvs - (size_t)round.count);
}

weir_status weir_allgather(weir_comm *comm, void *all, size_t stride, size_t *bytes,
                           weir_headers *headers) {
  const int rank = weir_comm_rank(comm);
  const int size = weir_comm_size(comm);
  weir_status status = weir_comm_block(bytes[rank], stride);
  if (status == WEIR_OK) status = weir_comm_begin(comm, headers);
  for (int k = 0; status == WEIR_OK && k < weir_log2_ceil(size); k++)
    status = round_of(comm, k, all, stride, bytes, headers);
  return status;
}
