#include "collectives/algorithms/columns.h"

#include <string.h>

#include "base/base.h"

int weir_columns_rank(const weir_comm *comm, int host, int place) {
  for (int r = 0; r < weir_comm_size(comm); r++)
    if (weir_comm_host_of(comm, r) == host && place-- == 0) return r;
  return -1;
}

static int own_place(const weir_comm *comm) {
  return comm->hosts.inner ? weir_comm_rank(comm->hosts.inner) : 0;
}

/* Headers of the ranks at a place to consecutive blocks, or back. */
static void copy(const weir_comm *comm, const weir_headers *headers, int place,
                 unsigned char *packed, bool pack) {
  for (int host = 0; host < comm->hosts.count; host++) {
    unsigned char *at = packed + (size_t)host * headers->bytes;
    void *own = weir_headers_at(headers, weir_columns_rank(comm, host, place));
    memcpy(pack ? at : own, pack ? own : at, headers->bytes);
  }
}

size_t weir_columns_bytes(const weir_comm *comm, const weir_headers *headers) {
  return (size_t)comm->hosts.count * weir_headers_bytes(headers);
}

weir_headers weir_columns_begin(const weir_comm *comm, const weir_headers *headers, void *memory) {
  const weir_headers column = {memory, weir_headers_bytes(headers)};
  if (column.bytes > 0) copy(comm, headers, own_place(comm), memory, true);
  return column;
}

void weir_columns_end(const weir_comm *comm, const weir_headers *headers,
                      const weir_headers *column) {
  if (column->bytes > 0) copy(comm, headers, own_place(comm), column->block, false);
}

weir_status weir_refuse_length(weir_comm *inner, int place, const char *what, size_t bytes,
                               size_t due) {
  inner->transport->ops->abort(inner->transport, place);
  return weir_fail(WEIR_E_PROTOCOL, "a rank of this machine sent %zu bytes of %s, not %zu", bytes,
                   what, due);
}

weir_status weir_gather_inside(weir_comm *comm, uint32_t gather, void *all, size_t stride,
                               size_t length, const char *what) {
  weir_comm *const inner = comm->hosts.inner;
  const int ranks = weir_comm_size(inner);
  void *memory = NULL;
  weir_status status =
      weir_comm_scratch(comm, WEIR_SCRATCH_B, (size_t)ranks * sizeof(size_t), &memory);
  if (status != WEIR_OK) return status;
  size_t *const bytes = memory;
  bytes[weir_comm_rank(inner)] = length;
  status = weir_allgathers[gather].run(inner, all, stride, bytes, NULL);
  for (int p = 0; status == WEIR_OK && p < ranks; p++)
    if (bytes[p] != length) status = weir_refuse_length(inner, p, what, bytes[p], length);
  return status;
}

weir_status weir_columns_share(weir_comm *comm, const weir_headers *headers, uint32_t gather) {
  weir_comm *const inner = comm->hosts.inner;
  if (weir_headers_bytes(headers) == 0 || !inner) return WEIR_OK;
  const int ranks = weir_comm_size(inner), own = weir_comm_rank(inner);
  const size_t column = weir_columns_bytes(comm, headers);
  void *memory = NULL;
  weir_status status = weir_comm_scratch(comm, WEIR_SCRATCH_A, (size_t)ranks * column, &memory);
  if (status != WEIR_OK) return status;
  unsigned char *const all = memory;
  copy(comm, headers, own, all + (size_t)own * column, true);
  status = weir_gather_inside(comm, gather, all, column, column, "headers");
  for (int p = 0; status == WEIR_OK && p < ranks; p++)
    copy(comm, headers, p, all + (size_t)p * column, false);
  return status;
}
