/* Hierarchical all-reduce: reduce-scatter inside of every machine, an all-reduce of each share
 * between machines (as many at once as a machine has ranks), all-gather inside.  Only 1/n of the
 * values of a machine's n ranks crosses a link between machines per rank, and latencies between
 * machines are paid for m machines instead of all ranks.  (X. Jia et al., Highly scalable deep
 * learning training system with mixed-precision, 2018; the composition HiTopKComm builds on.)
 *
 * The order of summing is that of the parts: fixed.  Headers of a column of ranks travel between
 * machines, then columns of headers inside.
 *
 * Where the library below sums inside of machines (NCCL), its all-reduce leaves the machine's sum
 * whole on each rank, which goes on with its share of it.
 *
 * With a coder the all-reduce between machines is SRA's: hier-sra (collectives/compressed.h). */
#include <string.h>

#include "base/base.h"
#include "collectives/algorithms/columns.h"
#include "collectives/algorithms/values.h"
#include "collectives/compressed.h"

typedef struct hier {
  weir_comm *comm;
  const weir_hier_choice *choice;
  float *x;
  size_t n;
  weir_value_format format;
  float *error;
  const weir_coder *coder; /* NULL: rows of weir_allreduces[] go between machines */
  float *lost;             /* with a coder: what encoding this rank's share loses */
  weir_headers *headers;
  weir_comm *inner, *outer; /* NULL: nobody else there */
  int rank, size;
} hier;

/* --- even hosts ----------------------------------------------------------------------------- */

/* All-gather inside of the machine, in x itself.  Where shares differ, some have one element more
 * than the others: those go by themselves, and the others as blocks of one length at the end of x,
 * from where the longer shares then move down to their places. */
static weir_status gather_shares(hier *h) {
  const int ranks = weir_comm_size(h->inner), own = weir_comm_rank(h->inner);
  const weir_values values = weir_values_of(h->x, h->error, h->format);
  const size_t each = h->n / (size_t)ranks, longer = h->n % (size_t)ranks;
  const weir_chunk mine = weir_ring_chunk(h->n, ranks, own);
  float *const blocks = h->x + longer, *const place = blocks + (size_t)own * each;
  void *memory = NULL;
  weir_status status = WEIR_OK;
  (void)weir_values_pack(&values, mine); /* rounds what nobody has: sums of one machine only */
  weir_values_unpack(&values, mine);
  if (longer > 0) {
    status = weir_comm_scratch(h->comm, WEIR_SCRATCH_A, (size_t)ranks * sizeof(float), &memory);
    if (status != WEIR_OK) return status;
    ((float *)memory)[own] = mine.count > each ? h->x[mine.begin + each] : 0;
    status = weir_gather_inside(h->comm, h->choice->gather, memory, sizeof(float), sizeof(float),
                                "a last value");
    if (status != WEIR_OK) return status;
    if (each > 0) memmove(place, h->x + mine.begin, each * sizeof *place);
  }
  (void)weir_values_pack_settled(&values, (weir_chunk){(size_t)(place - h->x), each});
  if (each > 0)
    status = weir_gather_inside(h->comm, h->choice->gather, blocks, each * sizeof(float),
                                each * values.width, "its share");
  for (int r = 0; status == WEIR_OK && r < ranks; r++) {
    const weir_chunk c = weir_ring_chunk(h->n, ranks, r);
    const float *from = blocks + (size_t)r * each;
    if (from != h->x + c.begin && each > 0) memmove(h->x + c.begin, from, each * values.width);
    weir_values_unpack(&values, (weir_chunk){c.begin, each});
    if (c.count > each) h->x[c.begin + each] = ((float *)memory)[r];
  }
  return status;
}

/* The all-reduce between machines, with the headers of this column. */
static weir_status between(hier *h, weir_chunk share) {
  if (!h->outer) return WEIR_OK;
  void *memory = NULL;
  weir_status status =
      weir_comm_scratch(h->comm, WEIR_SCRATCH_A, weir_columns_bytes(h->comm, h->headers), &memory);
  if (status != WEIR_OK) return status;
  weir_headers column = weir_columns_begin(h->comm, h->headers, memory);
  weir_headers *const headers = column.bytes > 0 ? &column : NULL;
  float *const x = h->x + share.begin;
  status =
      h->coder
          ? weir_compressed_sra(h->outer, h->coder, x, share.count, h->lost + share.begin, headers)
          : weir_allreduces[h->choice->between].run(h->outer, x, share.count, h->format,
                                                    h->error ? h->error + share.begin : NULL,
                                                    headers);
  if (status == WEIR_OK) weir_columns_end(h->comm, h->headers, &column);
  return status;
}

static weir_status even_hosts(hier *h) {
  weir_chunk share = {0, h->n};
  weir_status status = WEIR_OK;
  if (h->inner) {
    status = h->choice->native ? weir_comm_sum_inside(h->comm, h->x, h->n)
                               : weir_reduce_scatters[h->choice->scatter].run(h->inner, h->x, h->n,
                                                                              h->format, h->error);
    share = weir_ring_chunk(h->n, weir_comm_size(h->inner), weir_comm_rank(h->inner));
  }
  if (h->lost && h->n > 0) memset(h->lost, 0, h->n * sizeof *h->lost);
  if (status == WEIR_OK) status = between(h, share);
  if (status != WEIR_OK || !h->inner) return status;
  status = gather_shares(h);
  return status == WEIR_OK ? weir_columns_share(h->comm, h->headers, h->choice->gather) : status;
}

/* --- uneven hosts --------------------------------------------------------------------------- */

/* The headers of a machine to its first rank, and from there those of all ranks. */
static weir_status local_headers(hier *h, bool up) {
  const size_t header = weir_headers_bytes(h->headers), size = (size_t)h->size;
  if (header == 0) return WEIR_OK;
  if (!up) {
    size_t bytes = size * header;
    const weir_status status =
        weir_broadcast(h->inner, 0, h->headers->block, size * header, &bytes);
    return status == WEIR_OK && bytes != size * header
               ? weir_refuse_length(h->inner, 0, "headers", bytes, size * header)
               : status;
  }
  const int own = weir_comm_rank(h->inner), ranks = weir_comm_size(h->inner);
  void *all = NULL, *lengths = NULL;
  weir_status status =
      weir_comm_scratch(h->comm, WEIR_SCRATCH_B, (size_t)ranks * sizeof(size_t), &lengths);
  if (status == WEIR_OK)
    status = weir_comm_scratch(h->comm, WEIR_SCRATCH_A, (size_t)ranks * header, &all);
  if (status != WEIR_OK) return status;
  size_t *bytes = lengths;
  memcpy((unsigned char *)all + (size_t)own * header, weir_headers_at(h->headers, h->rank), header);
  bytes[own] = header;
  status = weir_gathers[WEIR_GATHER_DIRECT].run(h->inner, 0, all, header, bytes);
  const int host = weir_comm_host_of(h->comm, h->rank);
  for (int p = 0; status == WEIR_OK && own == 0 && p < ranks; p++) {
    if (bytes[p] != header) {
      h->inner->transport->ops->abort(h->inner->transport, p);
      return weir_fail(WEIR_E_PROTOCOL,
                       "a rank of this machine sent a header of %zu bytes, not %zu", bytes[p],
                       header);
    }
    memcpy(weir_headers_at(h->headers, weir_columns_rank(h->comm, host, p)),
           (unsigned char *)all + (size_t)p * header, header);
  }
  return status;
}

/* Between the first ranks: every machine's headers as one block, then the values. */
static weir_status leaders(hier *h) {
  if (!h->outer) return WEIR_OK;
  const size_t header = weir_headers_bytes(h->headers), size = (size_t)h->size;
  const int hosts = h->comm->hosts.count, own = weir_comm_rank(h->outer);
  weir_status status = WEIR_OK;
  if (header > 0) {
    const size_t stride = size * header; /* more than any machine has */
    void *all = NULL, *lengths = NULL;
    status = weir_comm_scratch(h->comm, WEIR_SCRATCH_B, (size_t)hosts * sizeof(size_t), &lengths);
    if (status == WEIR_OK)
      status = weir_comm_scratch(h->comm, WEIR_SCRATCH_A, (size_t)hosts * stride, &all);
    if (status != WEIR_OK) return status;
    size_t *bytes = lengths;
    /* The whole table: each machine's own entries in it are true. */
    memcpy((unsigned char *)all + (size_t)own * stride, h->headers->block, stride);
    bytes[own] = stride;
    status = weir_allgather(h->outer, all, stride, bytes, NULL);
    for (int r = 0; status == WEIR_OK && r < h->size; r++) {
      const int host = weir_comm_host_of(h->comm, r);
      if (bytes[host] != stride) {
        h->outer->transport->ops->abort(h->outer->transport, host);
        return weir_fail(WEIR_E_PROTOCOL, "machine %d sent %zu bytes of headers, not %zu", host,
                         bytes[host], stride);
      }
      memcpy(weir_headers_at(h->headers, r),
             (unsigned char *)all + (size_t)host * stride + (size_t)r * header, header);
    }
  }
  if (status != WEIR_OK) return status;
  return weir_allreduces[h->choice->between].run(h->outer, h->x, h->n, h->format, h->error, NULL);
}

static weir_status spread_values(hier *h) {
  const weir_values values = weir_values_of(h->x, h->error, h->format);
  const weir_chunk all = {0, h->n};
  const size_t due = weir_values_bytes(&values, all);
  size_t bytes = due;
  if (weir_comm_rank(h->inner) == 0) (void)weir_values_pack(&values, all);
  const weir_status status = weir_broadcast(h->inner, 0, h->x, due, &bytes);
  if (status != WEIR_OK) return status;
  if (bytes != due) return weir_refuse_length(h->inner, 0, "sums", bytes, due);
  weir_values_unpack(&values, all);
  return WEIR_OK;
}

static weir_status uneven_hosts(hier *h) {
  weir_status status = WEIR_OK;
  if (h->inner) {
    status = local_headers(h, true);
    if (status == WEIR_OK)
      status = h->choice->native ? weir_comm_sum_inside(h->comm, h->x, h->n)
                                 : weir_reduces[WEIR_REDUCE_BINOMIAL].run(h->inner, 0, h->x, h->n,
                                                                          h->format, h->error);
  }
  if (status == WEIR_OK && (!h->inner || weir_comm_rank(h->inner) == 0)) status = leaders(h);
  if (status == WEIR_OK && h->inner) status = spread_values(h);
  return status == WEIR_OK && h->inner ? local_headers(h, false) : status;
}

/* --- rows ----------------------------------------------------------------------------------- */

weir_status weir_allreduce_hier(weir_comm *comm, const weir_hier_choice *choice, float *x, size_t n,
                                weir_value_format format, float *error, weir_headers *headers) {
  if (choice->scatter >= WEIR_REDUCE_SCATTER_COUNT || choice->between >= WEIR_ALLREDUCE_COUNT ||
      choice->gather >= WEIR_ALLGATHER_COUNT)
    return weir_fail(WEIR_E_INVALID, "no hierarchical all-reduce of rows %u, %u, %u",
                     choice->scatter, choice->between, choice->gather);
  weir_status status = weir_comm_begin(comm, headers);
  hier h = {.comm = comm,
            .choice = choice,
            .x = x,
            .n = n,
            .format = format,
            .error = error,
            .headers = headers};
  h.rank = weir_comm_rank(comm);
  h.size = weir_comm_size(comm);
  if (status != WEIR_OK || h.size == 1) return status;
  if (choice->native) status = weir_comm_sums_inside(comm);
  if (status == WEIR_OK) status = weir_comm_levels(comm);
  if (status != WEIR_OK) return status;
  h.inner = comm->hosts.inner;
  h.outer = comm->hosts.outer;
  return comm->hosts.even ? even_hosts(&h) : uneven_hosts(&h);
}

weir_status weir_compressed_hier_sra(weir_comm *comm, const weir_coder *coder, float *x, size_t n,
                                     float *error, weir_headers *headers) {
  const weir_hier_choice choice = {
      .scatter = WEIR_REDUCE_SCATTER_RING, .gather = WEIR_ALLGATHER_RING, .native = coder->native};
  if (!weir_comm_levelled(comm)) return weir_compressed_sra(comm, coder, x, n, error, headers);
  weir_status status = weir_comm_begin(comm, headers);
  if (status == WEIR_OK && choice.native) status = weir_comm_sums_inside(comm);
  if (status == WEIR_OK) status = weir_comm_levels(comm);
  if (status != WEIR_OK) return status;
  hier h = {.comm = comm,
            .choice = &choice,
            .x = x,
            .n = n,
            .format = WEIR_VALUE_FP32,
            .coder = coder,
            .lost = error,
            .headers = headers,
            .inner = comm->hosts.inner,
            .outer = comm->hosts.outer,
            .rank = weir_comm_rank(comm),
            .size = weir_comm_size(comm)};
  return even_hosts(&h);
}
