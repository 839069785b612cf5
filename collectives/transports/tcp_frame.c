/* The header before every message over TCP: writing and checking it. */
#include <endian.h>
#include <string.h>

#include "base/base.h"
#include "collectives/transports/tcp.h"

#define FRAME_MAGIC UINT32_C(0x52494557) /* "WEIR" */

uint32_t tcp_checksum(const void *bytes, size_t count) {
  const uint64_t hash = weir_hash(WEIR_HASH_INIT, bytes, count);
  return (uint32_t)(hash ^ (hash >> 32));
}

void tcp_frame_write(tcp_frame *frame, int from, const weir_tag *tag, uint32_t hop, size_t length,
                     int stream) {
  *frame = (tcp_frame){.magic = htole32(FRAME_MAGIC),
                       .version = htole16(TCP_VERSION),
                       .from = htole16((uint16_t)from),
                       .plan = htole64(tag->plan),
                       .step = htole64(tag->step),
                       .op = htole32(tag->op),
                       .hop = htole32(hop),
                       .length = htole64(length),
                       .stream = htole32((uint32_t)stream)};
  frame->checksum = htole32(tcp_checksum(frame, offsetof(tcp_frame, checksum)));
}

weir_status tcp_frame_check(const void *bytes, int peer, const weir_tag *tag, uint32_t hop,
                            size_t capacity, int stream, size_t *length) {
  tcp_frame frame;
  memcpy(&frame, bytes, sizeof frame);
  if (le32toh(frame.magic) != FRAME_MAGIC)
    return weir_fail(WEIR_E_PROTOCOL, "what rank %d sent is no message of ours", peer);
  if (le16toh(frame.version) != TCP_VERSION)
    return weir_fail(WEIR_E_PROTOCOL, "rank %d sends messages of version %u, this rank %d", peer,
                     le16toh(frame.version), TCP_VERSION);
  if (le32toh(frame.checksum) != tcp_checksum(bytes, offsetof(tcp_frame, checksum)))
    return weir_fail(WEIR_E_PROTOCOL, "a message header of rank %d is damaged", peer);
  if (le16toh(frame.from) != peer)
    return weir_fail(WEIR_E_PROTOCOL, "a message of rank %d says it is from rank %u", peer,
                     le16toh(frame.from));
  weir_tag due = *tag;
  due.hop = hop;
  const weir_tag got = {le64toh(frame.plan), le64toh(frame.step), le32toh(frame.op),
                        le32toh(frame.hop)};
  const weir_status status = weir_tag_check(peer, &due, &got);
  if (status != WEIR_OK) return status;
  if (le32toh(frame.stream) != (uint32_t)stream)
    return weir_fail(WEIR_E_PROTOCOL, "a message of rank %d for stream %u came on stream %d", peer,
                     le32toh(frame.stream), stream);
  const uint64_t bytes_due = le64toh(frame.length);
  if (bytes_due > capacity)
    return weir_fail(WEIR_E_PROTOCOL, "rank %d sent %llu bytes where at most %zu were due", peer,
                     (unsigned long long)bytes_due, capacity);
  *length = (size_t)bytes_due;
  return WEIR_OK;
}
