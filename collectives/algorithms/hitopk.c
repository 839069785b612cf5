/* HiTopKComm: top-k of the sums of machines, gathered between machines. */
#include <string.h>

#include "base/base.h"
#include "collectives/algorithms/columns.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"
#include "kernels/number.h"

/* n elements in `inside` shares of about as many, a rank of each machine's. */
typedef struct hitopk {
  weir_comm *comm;
  weir_comm *inner, *outer; /* NULL: nobody else there */
  const weir_codec *codec;
  weir_codec_context *context;
  double cr;
  weir_wire_format wire;
  size_t n;
  int inside, hosts; /* ranks of a machine, machines */
  float *e, *sum;
  float *velocity;  /* of momentum correction; NULL: none */
  weir_chunk share; /* this rank's, of its machine's sum */
  int place, host;  /* of this rank inside of its machine; the machine's */
  size_t stride;    /* of a machine's message */
  size_t spread;    /* of a column of machines' messages, each with its length in front */
  weir_headers *headers;
  unsigned char *own;    /* the headers of the own column */
  unsigned char *column; /* [hosts]: messages for this place */
  unsigned char *blocks; /* [inside]: the columns of all places */
  size_t *bytes;         /* of columns: inside entries, then hosts entries of the own column */
  weir_hitopk_told told;
} hitopk;

static size_t kept_of(const weir_codec *codec, double cr, size_t count) {
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  return count > 0 ? codec->kept(&layout, cr) : 0;
}

static size_t kept(const hitopk *h, size_t count) { return kept_of(h->codec, h->cr, count); }

static int ranks_inside(const weir_comm *comm) {
  return weir_comm_levelled(comm) ? weir_comm_size(comm) / weir_comm_hosts(comm) : 1;
}

size_t weir_hitopk_most(const weir_comm *comm, const weir_codec *codec, double cr, size_t n) {
  const int inside = ranks_inside(comm);
  size_t most = 0;
  for (int p = 0; p < inside; p++) most += kept_of(codec, cr, weir_ring_chunk(n, inside, p).count);
  return most;
}

size_t weir_hitopk_stride(const weir_comm *comm, const weir_codec *codec, double cr,
                          weir_wire_format wire, size_t n) {
  const size_t longest = weir_ring_chunk(n, ranks_inside(comm), 0).count;
  return weir_wire_bound(longest, kept_of(codec, cr, longest), wire);
}

size_t weir_hitopk_room(const weir_comm *comm, const weir_codec *codec, double cr,
                        weir_wire_format wire, size_t n) {
  const size_t hosts = (size_t)weir_comm_hosts(comm), inside = (size_t)ranks_inside(comm),
               stride = weir_hitopk_stride(comm, codec, cr, wire, n);
  return hosts * stride + inside * hosts * (stride + sizeof(uint64_t));
}

/* Select from the share, take what is sent out of e, and encode.  Rounding stays behind too. */
static weir_status encode_own(hitopk *h, void *out, size_t *bytes) {
  const size_t offset[2] = {0, h->share.count};
  const weir_layout layout = {1, offset};
  const size_t room = kept(h, h->share.count);
  float *const e = h->e + h->share.begin;
  const weir_hitopk_away *away = h->told.away;
  void *memory = NULL;
  if (away != NULL)
    return away->select(away->user, h->share, e, out, h->stride, bytes, &h->told.share);
  weir_status status =
      weir_comm_scratch(h->comm, WEIR_SCRATCH_B, (3 * room + 1) * sizeof(float), &memory);
  if (status != WEIR_OK) return status;
  uint32_t *const index = memory;
  float *const value = (float *)memory + room, *const error = value + room;
  size_t k = 0;
  const double whole = weir_sum_square(e, h->share.count);
  weir_codec_context_lend(h->context, h->sum, h->n * sizeof *h->sum); /* nothing is there yet */
  if (room > 0) status = h->codec->select(h->context, e, &layout, h->cr, index, room, &k);
  weir_codec_context_lend(h->context, NULL, 0);
  if (status != WEIR_OK) return status;
  weir_gather(e, index, k, value);
  h->told.share = whole > 0 ? weir_sum_square(value, k) / whole : 1;
  memset(error, 0, (k + 1) * sizeof *error);
  status = weir_wire_encode(h->share.count, index, value, k, h->wire, out, h->stride, bytes, error);
  if (status != WEIR_OK) return status;
  weir_scatter_zero(e, index, k);
  weir_scatter_add(e, index, error, k);
  return WEIR_OK;
}

/* One message after the other, its length in front (in the byte order of the machine, which they do
 * not leave): a column's messages travel inside as one block. */
static size_t pack(const hitopk *h, const unsigned char *column, const size_t *bytes,
                   unsigned char *to) {
  size_t at = 0;
  for (int m = 0; m < h->hosts; m++) {
    const uint64_t length = bytes[m];
    memcpy(to + at, &length, sizeof length);
    memcpy(to + at + sizeof length, column + (size_t)m * h->stride, bytes[m]);
    at += sizeof length + bytes[m];
  }
  return at;
}

static weir_status malformed(const hitopk *h, int place) {
  h->inner->transport->ops->abort(h->inner->transport, place);
  return weir_fail(WEIR_E_PROTOCOL, "place %d of this machine sent lengths that do not fit", place);
}

/* For who has the velocity. */
static void list_sent(hitopk *h, weir_chunk part, const uint32_t *index, size_t k) {
  uint32_t *const to = h->told.sent + h->told.sent_count;
  for (size_t i = 0; i < k; i++) to[i] = (uint32_t)part.begin + index[i];
  h->told.sent_count += k;
}

/* What this machine has sent of a part of its sum was of all its ranks: the momentum of each is
 * stale there (kernels/decorate.h). */
static weir_status mask(hitopk *h, weir_chunk part, const void *message, size_t bytes) {
  const size_t room = kept(h, part.count);
  void *memory = NULL;
  size_t k = 0;
  if ((h->velocity == NULL && h->told.sent == NULL) || room == 0) return WEIR_OK;
  weir_status status =
      weir_comm_scratch(h->comm, WEIR_SCRATCH_B, 2 * room * sizeof(float), &memory);
  if (status != WEIR_OK) return status;
  uint32_t *const index = memory;
  status = weir_wire_decode(message, bytes, part.count, index, (float *)memory + room, room, &k);
  if (status == WEIR_OK && h->velocity != NULL)
    weir_scatter_zero(h->velocity + part.begin, index, k);
  if (status == WEIR_OK && h->told.sent != NULL) list_sent(h, part, index, k);
  return status;
}

/* Devices have room for as many elements as the codec keeps, and for no more. */
static weir_status check_message(const hitopk *h, size_t count, const void *message, size_t bytes) {
  double peak;
  const weir_status status = weir_wire_check(NULL, message, bytes, count, &peak);
  return status == WEIR_OK ? weir_wire_made(kept(h, count), message) : status;
}

/* One of them. */
static weir_status add_message(hitopk *h, weir_chunk part, const void *message, size_t bytes,
                               bool *good) {
  const weir_hitopk_away *away = h->told.away;
  *good = true;
  if (away == NULL) {
    weir_status status =
        weir_wire_decode_add(NULL, message, bytes, part.count, h->sum + part.begin);
    if (status == WEIR_OK) status = weir_wire_made(kept(h, part.count), message);
    *good = status == WEIR_OK;
    return status;
  }
  const weir_status status = check_message(h, part.count, message, bytes);
  *good = status == WEIR_OK;
  return *good ? away->add(away->user, part, message, bytes) : status;
}

static void begin_sum(hitopk *h) {
  if (h->told.away == NULL) memset(h->sum, 0, h->n * sizeof *h->sum);
}

/* Add a place's messages to its part of the sum, in the order of machines. */
static weir_status add_block(hitopk *h, int place, const unsigned char *block, size_t bytes) {
  const weir_chunk part = weir_ring_chunk(h->n, h->inside, place);
  size_t at = 0;
  for (int m = 0; m < h->hosts; m++) {
    uint64_t length;
    if (bytes - at < sizeof length) return malformed(h, place);
    memcpy(&length, block + at, sizeof length);
    at += sizeof length;
    if (length > bytes - at) return malformed(h, place);
    bool good;
    weir_status status = add_message(h, part, block + at, (size_t)length, &good);
    if (good && status != WEIR_OK) return status;
    if (status == WEIR_OK && m == h->host) status = mask(h, part, block + at, (size_t)length);
    if (status != WEIR_OK) {
      (void)malformed(h, place);
      return weir_fail(WEIR_E_PROTOCOL, "place %d of this machine sent a malformed message", place);
    }
    at += (size_t)length;
  }
  return at == bytes ? WEIR_OK : malformed(h, place);
}

/* A message of this machine's sum to another was malformed: ends the group. */
static weir_status blame(const hitopk *h, int host) {
  const weir_comm *comm = h->outer ? h->outer : h->comm;
  comm->transport->ops->abort(comm->transport, host);
  return weir_fail(WEIR_E_PROTOCOL, "machine %d sent a malformed message", host);
}

/* Without others inside: the machines' messages are all there are. */
static weir_status add_column(hitopk *h, const size_t *bytes) {
  weir_status status = WEIR_OK;
  begin_sum(h);
  for (int m = 0; m < h->hosts && status == WEIR_OK; m++) {
    bool good;
    status = add_message(h, h->share, h->column + (size_t)m * h->stride, bytes[m], &good);
    if (!good) status = blame(h, m);
  }
  if (status == WEIR_OK)
    status = mask(h, h->share, h->column + (size_t)h->host * h->stride, bytes[h->host]);
  return status;
}

static weir_status prepare(hitopk *h) {
  const size_t inside = (size_t)h->inside, hosts = (size_t)h->hosts;
  const size_t longest = weir_ring_chunk(h->n, h->inside, 0).count;
  h->stride = weir_wire_bound(longest, kept(h, longest), h->wire);
  h->spread = hosts * (h->stride + sizeof(uint64_t));
  const size_t lengths = (inside + hosts) * sizeof(size_t), column = hosts * h->stride;
  const size_t headers = h->outer == h->comm ? 0 : weir_columns_bytes(h->comm, h->headers);
  const weir_hitopk_away *away = h->told.away;
  const size_t messages = column + inside * h->spread;
  void *memory = NULL;
  const weir_status status = weir_comm_scratch(h->comm, WEIR_SCRATCH_A,
                                               lengths + headers + (away ? 0 : messages), &memory);
  if (status != WEIR_OK) return status;
  h->bytes = memory;
  h->own = (unsigned char *)memory + lengths;
  h->column = away ? away->room : h->own + headers;
  h->blocks = h->column + column;
  return WEIR_OK;
}

/* What the other ranks of this machine now hold is no longer this rank's. */
static void hand_over(hitopk *h) {
  if (h->n == 0 || h->told.away != NULL) return;
  memset(h->e, 0, h->share.begin * sizeof *h->e);
  const size_t end = h->share.begin + h->share.count;
  memset(h->e + end, 0, (h->n - end) * sizeof *h->e);
}

static weir_status gather_inside(hitopk *h, const size_t *lengths) {
  h->bytes[h->place] = pack(h, h->column, lengths, h->blocks + (size_t)h->place * h->spread);
  weir_status status = weir_allgather(h->inner, h->blocks, h->spread, h->bytes, NULL);
  begin_sum(h);
  for (int p = 0; p < h->inside && status == WEIR_OK; p++)
    status = add_block(h, p, h->blocks + (size_t)p * h->spread, h->bytes[p]);
  return status;
}

/* What is passed on inside has been found good: who passes it on is not to blame for another
 * machine. */
static weir_status check_column(const hitopk *h, const size_t *lengths) {
  for (int m = 0; m < h->hosts; m++)
    if (check_message(h, h->share.count, h->column + (size_t)m * h->stride, lengths[m]) != WEIR_OK)
      return blame(h, m);
  return WEIR_OK;
}

/* Every machine sends all but one of the messages of a column on, its own or others'. */
static void count_bytes(hitopk *h, const size_t *bytes) {
  const int hosts = h->hosts;
  double column = 0;
  for (int m = 0; m < hosts; m++) column += (double)bytes[m];
  h->told.bytes += column * (hosts - 1) / hosts * h->inside;
}

/* With the headers, of this column or of all ranks. */
static weir_status gather_between(hitopk *h, size_t *lengths) {
  const weir_allgather_row *row = &weir_allgathers[WEIR_ALLGATHER_DIRECT];
  if (h->outer == h->comm) return row->run(h->outer, h->column, h->stride, lengths, h->headers);
  weir_headers own = weir_columns_begin(h->comm, h->headers, h->own);
  const weir_status status =
      row->run(h->outer, h->column, h->stride, lengths, own.bytes > 0 ? &own : NULL);
  if (status == WEIR_OK) weir_columns_end(h->comm, h->headers, &own);
  return status;
}

static weir_status gather(hitopk *h) {
  size_t *const lengths = h->bytes + h->inside;
  weir_status status = encode_own(h, h->column + (size_t)h->host * h->stride, &lengths[h->host]);
  if (status == WEIR_OK && h->outer) status = gather_between(h, lengths);
  if (status == WEIR_OK) count_bytes(h, lengths);
  if (status == WEIR_OK && h->inner) status = check_column(h, lengths);
  if (status != WEIR_OK) return status;
  return h->inner ? gather_inside(h, lengths) : add_column(h, lengths);
}

static weir_status exchange(hitopk *h) {
  weir_status status = prepare(h);
  if (status != WEIR_OK) return status;
  status = gather(h);
  hand_over(h); /* whatever came of it: nothing of this rank's is there any more */
  return status;
}

weir_status weir_hitopk(weir_comm *comm, const weir_codec *codec, weir_codec_context *context,
                        double cr, weir_wire_format wire, float *e, float *velocity, size_t n,
                        float *sum, weir_hitopk_told *told, weir_headers *headers) {
  if (!codec->select) return weir_fail(WEIR_E_INVALID, "codec %s selects nothing", codec->name);
  weir_status status = weir_comm_begin(comm, headers);
  hitopk h = {
      .comm = comm,
      .codec = codec,
      .context = context,
      .cr = cr,
      .wire = wire,
      .n = n,
      .inside = 1,
      .hosts = weir_comm_size(comm),
      .e = e,
      .sum = sum,
      .velocity = velocity,
      .headers = headers,
      .host = weir_comm_rank(comm),
      .told = {.sent = told != NULL ? told->sent : NULL, .away = told != NULL ? told->away : NULL}};
  if (status == WEIR_OK && comm->hosts.even && h.hosts > 1) {
    status = weir_comm_levels(comm);
    h.inner = comm->hosts.inner;
    h.outer = comm->hosts.outer;
    h.inside = h.inner ? weir_comm_size(h.inner) : 1;
    h.hosts = comm->hosts.count;
    h.place = h.inner ? weir_comm_rank(h.inner) : 0;
    h.host = weir_comm_host_of(comm, weir_comm_rank(comm));
  } else if (h.hosts > 1) {
    h.outer = comm;
  }
  if (status == WEIR_OK && h.inner)
    status =
        weir_reduce_scatters[WEIR_REDUCE_SCATTER_RING].run(h.inner, e, n, WEIR_VALUE_FP32, NULL);
  h.share = weir_ring_chunk(n, h.inside, h.place);
  if (h.share.count > 0) weir_hold_finite(e + h.share.begin, h.share.count);
  if (status == WEIR_OK) status = exchange(&h);
  if (told != NULL) *told = h.told;
  if (status != WEIR_OK || h.outer == comm) return status;
  return h.outer ? weir_columns_share(comm, headers, WEIR_ALLGATHER_RING)
                 : weir_comm_gather_headers(comm, headers);
}

/* Between machines, and inside of one at the end. */
weir_cost weir_cost_hitopk(weir_group_shape shape, const weir_link *link, size_t elements,
                           double cr, weir_wire_format wire) {
  const int m = shape.hosts < 1 ? 1 : shape.hosts, n = (shape.ranks + m - 1) / m;
  const weir_group_shape inside = {n, 1, false, 0, 0}, across = {m, m, false, 0, 0};
  const size_t share = weir_ring_chunk(elements, n, 0).count;
  const double message = weir_wire_expected(share, weir_kept_of(share, cr), wire, true);
  weir_cost cost = weir_cost_sum(
      weir_cost_row(WEIR_KIND_REDUCE_SCATTER, WEIR_REDUCE_SCATTER_RING, inside, link,
                    4.0 * (double)elements),
      weir_cost_row(WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, inside, link, m * message));
  cost.messages *= m;
  cost.traffic *= m;
  cost.sums *= m;
  weir_cost between =
      weir_cost_row(WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_DIRECT, across, link, message);
  between.outer.byte_terms *= n; /* the ranks of a machine share its link */
  between.messages *= n;
  between.traffic *= n;
  return weir_cost_sum(cost, between);
}
