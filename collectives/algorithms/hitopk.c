/* HiTopKComm: top-k of the sums of machines, gathered between machines.
 *
 * What travels lies where nothing else does as long as it is needed: a machine's messages where the
 * sum will be, and those of all its ranks in what of e they have been handed over; or both go in
 * windows (hitopk_windows.c). */
#include <string.h>

#include "base/base.h"
#include "collectives/algorithms/hitopk.h"

typedef weir_hitopk_run hitopk;

static size_t kept(const hitopk *h, size_t count) {
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  return count > 0 ? h->codec->kept(&layout, h->cr) : 0;
}

/* Without others inside, the sum is made of the column itself, which cannot lie in it. */
static bool in_sum(const hitopk *h) { return h->inner != NULL && weir_hitopk_in_sum(&h->form); }

/* Select from the share, take what is sent out of e, and encode.  Rounding stays behind too. */
static weir_status encode_own(hitopk *h, void *out, size_t *bytes) {
  const size_t offset[2] = {0, h->share.count};
  const weir_layout layout = {1, offset};
  const size_t room = kept(h, h->share.count);
  float *e = h->e + h->share.begin;
  void *memory = h->sum; /* where there is nothing yet */
  const size_t used = 3 * room + 1,
               free_floats = h->form.n - (in_sum(h) ? weir_hitopk_column(&h->form) : 0);
  weir_status status = WEIR_OK;
  if (used > h->form.n)
    status = weir_comm_scratch(h->comm, WEIR_SCRATCH_B, used * sizeof(float), &memory);
  if (status != WEIR_OK) return status;
  uint32_t *index = memory;
  float *value = (float *)memory + room, *error = value + room;
  size_t k = 0;
  if (used < free_floats)
    weir_codec_context_lend(h->context, h->sum + used, (free_floats - used) * sizeof(float));
  const double whole = weir_sum_square(e, h->share.count);
  if (room > 0) status = h->codec->select(h->context, e, &layout, h->cr, index, room, &k);
  weir_codec_context_lend(h->context, NULL, 0);
  if (status != WEIR_OK) return status;
  weir_gather(e, index, k, value);
  h->told.share = whole > 0 ? weir_sum_square(value, k) / whole : 1;
  memset(error, 0, (k + 1) * sizeof *error);
  status =
      weir_wire_encode(h->share.count, index, value, k, h->form.wire, out, h->stride, bytes, error);
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
  for (int m = 0; m < h->form.hosts; m++) {
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

/* Add a place's messages to its part of the sum, in the order of machines. */
static weir_status add_block(hitopk *h, int place, const unsigned char *block, size_t bytes) {
  const weir_chunk part = weir_ring_chunk(h->form.n, h->form.inside, place);
  size_t at = 0;
  for (int m = 0; m < h->form.hosts; m++) {
    uint64_t length;
    if (bytes - at < sizeof length) return malformed(h, place);
    memcpy(&length, block + at, sizeof length);
    at += sizeof length;
    if (length > bytes - at) return malformed(h, place);
    const weir_status status =
        weir_wire_decode_add(NULL, block + at, (size_t)length, part.count, h->sum + part.begin);
    if (status != WEIR_OK) {
      (void)malformed(h, place);
      return weir_fail(WEIR_E_PROTOCOL, "place %d of this machine sent a malformed message", place);
    }
    at += (size_t)length;
  }
  return at == bytes ? WEIR_OK : malformed(h, place);
}

weir_status weir_hitopk_blame(const hitopk *h, int host) {
  const weir_comm *comm = h->outer ? h->outer : h->comm;
  comm->transport->ops->abort(comm->transport, host);
  return weir_fail(WEIR_E_PROTOCOL, "machine %d sent a malformed message", host);
}

/* Without others inside: the machines' messages are all there are. */
static weir_status add_column(hitopk *h, const size_t *bytes) {
  weir_status status = WEIR_OK;
  memset(h->sum, 0, h->form.n * sizeof *h->sum);
  for (int m = 0; m < h->form.hosts && status == WEIR_OK; m++) {
    status =
        weir_wire_decode_add(NULL, h->column + (size_t)m * h->stride, bytes[m], h->form.n, h->sum);
    if (status != WEIR_OK) status = weir_hitopk_blame(h, m);
  }
  return status;
}

static weir_status prepare(hitopk *h, size_t window) {
  const size_t inside = (size_t)h->form.inside, hosts = (size_t)h->form.hosts;
  const weir_hitopk_form *form = &h->form;
  h->stride = weir_hitopk_stride(form, weir_ring_chunk(form->n, form->inside, 0).count);
  h->spread = weir_hitopk_spread(form);
  const size_t lengths = (inside + hosts) * sizeof(size_t);
  size_t begin, column = window > 0 || in_sum(h) ? 0 : hosts * h->stride;
  const size_t room = weir_hitopk_beside(h->share, form->n, &begin) * sizeof *h->e;
  const bool lies = window > 0 || !h->inner || inside * h->spread <= room;
  void *memory = NULL;
  const weir_status status = weir_comm_scratch(
      h->comm, WEIR_SCRATCH_A, lengths + column + (lies ? 0 : inside * h->spread), &memory);
  if (status != WEIR_OK) return status;
  h->bytes = memory;
  h->column = (unsigned char *)memory + lengths;
  h->blocks = lies ? (unsigned char *)(h->e + begin) : h->column + column;
  if (in_sum(h)) h->column = (unsigned char *)(h->sum + (form->n - weir_hitopk_column(form)));
  return WEIR_OK;
}

/* What the other ranks of this machine now hold is no longer this rank's. */
static void hand_over(hitopk *h) {
  if (h->form.n == 0) return;
  memset(h->e, 0, h->share.begin * sizeof *h->e);
  const size_t end = h->share.begin + h->share.count;
  memset(h->e + end, 0, (h->form.n - end) * sizeof *h->e);
}

static weir_status gather_inside(hitopk *h, const size_t *lengths) {
  h->bytes[h->place] = pack(h, h->column, lengths, h->blocks + (size_t)h->place * h->spread);
  weir_status status = weir_allgather(h->inner, h->blocks, h->spread, h->bytes, NULL);
  memset(h->sum, 0, h->form.n * sizeof *h->sum);
  for (int p = 0; p < h->form.inside && status == WEIR_OK; p++)
    status = add_block(h, p, h->blocks + (size_t)p * h->spread, h->bytes[p]);
  return status;
}

/* What is passed on inside has been found good: who passes it on is not to blame for another
 * machine. */
static weir_status check_column(const hitopk *h, const size_t *lengths) {
  double peak;
  for (int m = 0; m < h->form.hosts; m++)
    if (weir_wire_check(NULL, h->column + (size_t)m * h->stride, lengths[m], h->share.count,
                        &peak) != WEIR_OK)
      return weir_hitopk_blame(h, m);
  return WEIR_OK;
}

/* Every machine sends all but one of the messages of a column on, its own or others'. */
void weir_hitopk_count(hitopk *h, const size_t *bytes) {
  const int hosts = h->form.hosts;
  double column = 0;
  for (int m = 0; m < hosts; m++) column += (double)bytes[m];
  h->told.bytes += column * (hosts - 1) / hosts * h->form.inside;
}

static weir_status at_once(hitopk *h, size_t *lengths) {
  weir_status status = encode_own(h, h->column + (size_t)h->host * h->stride, &lengths[h->host]);
  if (status == WEIR_OK && h->outer)
    status = weir_allgather(h->outer, h->column, h->stride, lengths, NULL);
  if (status == WEIR_OK) weir_hitopk_count(h, lengths);
  if (status == WEIR_OK && h->inner) status = check_column(h, lengths);
  if (status != WEIR_OK) return status;
  return h->inner ? gather_inside(h, lengths) : add_column(h, lengths);
}

static weir_status exchange(hitopk *h) {
  const size_t window = weir_hitopk_window(&h->form);
  weir_status status = prepare(h, window);
  if (status != WEIR_OK) return status;
  size_t *const lengths = h->bytes + h->form.inside;
  status = window > 0 ? weir_hitopk_windows(h, window, lengths) : at_once(h, lengths);
  hand_over(h); /* whatever came of it: nothing of this rank's is there any more */
  return status;
}

/* Notes of all ranks, in a small all-gather of their own. */
static weir_status gather_notes(weir_comm *comm, weir_notes *notes) {
  if (weir_notes_bytes(notes) == 0) return WEIR_OK;
  void *lengths = NULL;
  const size_t ranks = (size_t)weir_comm_size(comm);
  const weir_status status =
      weir_comm_scratch(comm, WEIR_SCRATCH_B, ranks * sizeof(size_t), &lengths);
  if (status != WEIR_OK) return status;
  memset(lengths, 0, ranks * sizeof(size_t));
  unsigned char nothing[1];
  return weir_allgather(comm, nothing, 0, lengths, notes);
}

weir_status weir_hitopk(weir_comm *comm, const weir_codec *codec, weir_codec_context *context,
                        double cr, weir_wire_format wire, float *e, size_t n, float *sum,
                        weir_hitopk_told *told, weir_notes *notes) {
  if (!codec->select) return weir_fail(WEIR_E_INVALID, "codec %s selects nothing", codec->name);
  weir_status status = weir_comm_begin(comm, notes);
  hitopk h = {.comm = comm,
              .codec = codec,
              .context = context,
              .cr = cr,
              .form = {.n = n, .inside = 1, .hosts = weir_comm_size(comm), .wire = wire},
              .e = e,
              .sum = sum,
              .host = weir_comm_rank(comm)};
  if (status == WEIR_OK && comm->hosts.even && h.form.hosts > 1) {
    status = weir_comm_levels(comm);
    h.inner = comm->hosts.inner;
    h.outer = comm->hosts.outer;
    h.form.inside = h.inner ? weir_comm_size(h.inner) : 1;
    h.form.hosts = comm->hosts.count;
    h.place = h.inner ? weir_comm_rank(h.inner) : 0;
    h.host = weir_comm_host_of(comm, weir_comm_rank(comm));
  } else if (h.form.hosts > 1) {
    h.outer = comm;
  }
  if (status == WEIR_OK && h.inner) {
    weir_comm_lend(h.inner, sum, n * sizeof *sum);
    status =
        weir_reduce_scatters[WEIR_REDUCE_SCATTER_RING].run(h.inner, e, n, WEIR_VALUE_FP32, NULL);
    weir_comm_lend(h.inner, NULL, 0);
  }
  h.form.kept = kept(&h, weir_ring_chunk(n, h.form.inside, 0).count);
  h.share = weir_ring_chunk(n, h.form.inside, h.place);
  if (h.share.count > 0) weir_hold_finite(e + h.share.begin, h.share.count);
  if (status == WEIR_OK) status = exchange(&h);
  if (status != WEIR_OK) return status;
  if (told) *told = h.told;
  return gather_notes(comm, notes);
}

static weir_cost times(weir_cost cost, double often) {
  cost.outer.alpha_terms *= often;
  cost.outer.byte_terms *= often;
  cost.outer.spread_terms *= often;
  cost.inner.alpha_terms *= often;
  cost.inner.byte_terms *= often;
  cost.inner.spread_terms *= often;
  cost.messages *= often;
  cost.traffic *= often;
  cost.rounds *= often;
  return cost;
}

/* Between machines, and inside of one at the end. */
weir_cost weir_cost_hitopk(weir_group_shape shape, const weir_link *link, size_t elements,
                           double cr, weir_wire_format wire) {
  const int m = shape.hosts < 1 ? 1 : shape.hosts, n = (shape.ranks + m - 1) / m;
  const weir_group_shape inside = {n, 1, shape.devices}, across = {m, m, shape.devices};
  const size_t share = elements / (size_t)n, asked = (size_t)(cr * (double)share);
  const size_t picked = asked > 0 ? asked : 1;
  const weir_hitopk_form form = {elements, picked, n, m, wire};
  const size_t window = weir_hitopk_window(&form);
  const size_t often = window > 0 ? (weir_ring_chunk(elements, n, 0).count - 1) / window + 1 : 1;
  const double message = weir_wire_expected(share / often, picked / often, wire, true);
  weir_cost cost = weir_cost_sum(
      weir_cost_row(WEIR_KIND_REDUCE_SCATTER, WEIR_REDUCE_SCATTER_RING, inside, link,
                    4.0 * (double)elements),
      weir_cost_row(WEIR_KIND_ALLGATHER, window > 0 ? WEIR_ALLGATHER_RING : WEIR_ALLGATHER_BRUCK,
                    inside, link, window > 0 ? 4.0 * (double)share : m * message));
  cost.messages *= m;
  cost.traffic *= m;
  cost.sums *= m;
  weir_cost between =
      times(weir_cost_row(WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, across, link, message),
            (double)often);
  between.outer.byte_terms *= n; /* the ranks of a machine share its link */
  between.messages *= n;
  between.traffic *= n;
  return weir_cost_sum(cost, between);
}
