/* HiTopKComm where machines' messages are longer than what lies idle: they travel in windows of the
 * share, each as long as all machines' messages of it surely have room, and a rank adds up its
 * share before it goes inside of the machine, where the sum is then shorter than the messages. Of
 * the sum and of e are in use, beside each other,
 *
 *   sum     the share: what is summed | indices to come      beside it: values, errors
 *   e       the share                                        beside it: a window's messages
 *
 * An index of a share is never before its place in a list that ends where the share does, so that
 * the sums of a window only take the place of indices that have been used. */
#include <string.h>

#include "collectives/algorithms/hitopk.h"

/* --- what has room ---------------------------------------------------------------------------- */

static size_t share_of(const weir_hitopk_form *form) {
  return weir_ring_chunk(form->n, form->inside, 0).count;
}

size_t weir_hitopk_stride(const weir_hitopk_form *form, size_t elements) {
  const size_t kept = form->kept < elements ? form->kept : elements;
  return weir_wire_bound(elements, kept, form->wire);
}

size_t weir_hitopk_spread(const weir_hitopk_form *form) {
  return (size_t)form->hosts * (weir_hitopk_stride(form, share_of(form)) + sizeof(uint64_t));
}

size_t weir_hitopk_lists(const weir_hitopk_form *form) { return 3 * form->kept + 1; }

size_t weir_hitopk_column(const weir_hitopk_form *form) {
  const size_t bytes = (size_t)form->hosts * weir_hitopk_stride(form, share_of(form));
  return (bytes + sizeof(float) - 1) / sizeof(float);
}

bool weir_hitopk_in_sum(const weir_hitopk_form *form) {
  return weir_hitopk_lists(form) + weir_hitopk_column(form) <= form->n;
}

size_t weir_hitopk_beside(weir_chunk share, size_t n, size_t *begin) {
  const size_t end = share.begin + share.count;
  const bool before = share.begin >= n - end;
  *begin = before ? 0 : end;
  return before ? share.begin : n - end;
}

/* Floats that every rank has beside its share. */
static size_t least_beside(const weir_hitopk_form *form) {
  size_t least = form->n, begin;
  for (int p = 0; p < form->inside; p++) {
    const weir_chunk share = weir_ring_chunk(form->n, form->inside, p);
    const size_t room = weir_hitopk_beside(share, form->n, &begin);
    if (room < least) least = room;
  }
  return least;
}

static bool has_room(const weir_hitopk_form *form, size_t window, size_t room) {
  const size_t kept = form->kept < window ? form->kept : window;
  return 2 * kept <= room &&
         (size_t)form->hosts * weir_hitopk_stride(form, window) <= room * sizeof(float);
}

size_t weir_hitopk_window(const weir_hitopk_form *form) {
  const size_t room = least_beside(form), share = share_of(form);
  if (form->inside == 1) return 0;
  if (weir_hitopk_in_sum(form) &&
      (size_t)form->inside * weir_hitopk_spread(form) <= room * sizeof(float))
    return 0;
  for (size_t count = 1; count <= share; count++) {
    const size_t window = (share + count - 1) / count;
    if (has_room(form, window, room)) return window;
  }
  return 0;
}

/* --- between machines ------------------------------------------------------------------------- */

/* A share's indices, on their way. */
typedef struct windows {
  weir_hitopk_run *run;
  size_t *bytes;
  uint32_t *index; /* those to come */
  size_t left;
  float *value;
  unsigned char *messages; /* stride apart */
  size_t stride;
  double sent;
} windows;

/* Into the end of the sum, with all before it for searching; from there to the end of the share. */
static weir_status select_share(windows *w) {
  weir_hitopk_run *run = w->run;
  const size_t n = run->form.n, count = run->share.count;
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  const size_t kept = count > 0 ? run->codec->kept(&layout, run->cr) : 0;
  uint32_t *const list = (uint32_t *)(void *)run->sum + (n - kept);
  if (kept == 0) return WEIR_OK;
  weir_codec_context_lend(run->context, run->sum, (n - kept) * sizeof(float));
  const weir_status status = run->codec->select(run->context, run->e + run->share.begin, &layout,
                                                run->cr, list, kept, &w->left);
  weir_codec_context_lend(run->context, NULL, 0);
  if (status != WEIR_OK) return status;
  w->index = (uint32_t *)(void *)run->sum + (run->share.begin + count - w->left);
  memmove(w->index, list, w->left * sizeof *list);
  return WEIR_OK;
}

/* What this rank sends of elements [at, end) of its share is taken off e; rounding stays behind. */
static weir_status encode(windows *w, size_t at, size_t end) {
  const weir_hitopk_run *run = w->run;
  float *const e = run->e + run->share.begin + at;
  size_t k = 0;
  for (; k < w->left && w->index[k] < end; k++) w->index[k] -= (uint32_t)at;
  float *const error = w->value + k;
  weir_gather(e, w->index, k, w->value);
  w->sent += weir_sum_square(w->value, k);
  memset(error, 0, k * sizeof *error);
  const weir_status status = weir_wire_encode(end - at, w->index, w->value, k, run->form.wire,
                                              w->messages + (size_t)run->host * w->stride,
                                              w->stride, &w->bytes[run->host], error);
  if (status != WEIR_OK) return status;
  weir_scatter_zero(e, w->index, k);
  weir_scatter_add(e, w->index, error, k);
  w->index += k;
  w->left -= k;
  return WEIR_OK;
}

static weir_status exchange(windows *w, size_t at, size_t end) {
  weir_hitopk_run *run = w->run;
  float *const sum = run->sum + run->share.begin + at;
  weir_status status = encode(w, at, end);
  /* Each window is a collective of its own, and numbered as one. */
  if (status == WEIR_OK) status = weir_comm_begin(run->comm, NULL);
  if (status == WEIR_OK) status = weir_comm_levels(run->comm);
  if (status == WEIR_OK && run->outer)
    status = weir_allgather(run->outer, w->messages, w->stride, w->bytes, NULL);
  if (status != WEIR_OK) return status;
  weir_hitopk_count(run, w->bytes);
  memset(sum, 0, (end - at) * sizeof *sum);
  for (int m = 0; m < run->form.hosts; m++)
    if (weir_wire_decode_add(NULL, w->messages + (size_t)m * w->stride, w->bytes[m], end - at,
                             sum) != WEIR_OK)
      return weir_hitopk_blame(run, m);
  return WEIR_OK;
}

/* --- inside of machines ----------------------------------------------------------------------- */

static void *bytes_of(const weir_hitopk_run *run, int place, size_t *bytes) {
  const weir_chunk share = weir_ring_chunk(run->form.n, run->form.inside, place);
  *bytes = share.count * sizeof *run->sum;
  return run->sum + share.begin;
}

/* All shares of the sum, around a ring, each in its place. */
static weir_status gather_inside(const weir_hitopk_run *run) {
  const int size = run->form.inside, place = run->place;
  weir_status status = weir_comm_begin(run->inner, NULL);
  for (int hop = 0; status == WEIR_OK && hop < size - 1; hop++) {
    weir_send send = {.peer = (place + 1) % size, .hop = (uint32_t)hop};
    weir_recv recv = {.peer = (place + size - 1) % size, .hop = (uint32_t)hop};
    send.data = bytes_of(run, weir_ring_reduce_send(place, size, hop), &send.bytes);
    recv.data = bytes_of(run, weir_ring_reduce_recv(place, size, hop), &recv.capacity);
    status = weir_comm_exchange(run->inner, &send, 1, &recv, 1);
  }
  return status;
}

weir_status weir_hitopk_windows(weir_hitopk_run *run, size_t window, size_t *bytes) {
  size_t begin;
  (void)weir_hitopk_beside(run->share, run->form.n, &begin);
  windows w = {.run = run,
               .bytes = bytes,
               .value = run->sum + begin,
               .messages = (unsigned char *)(run->e + begin),
               .stride = weir_hitopk_stride(&run->form, window)};
  const double whole = weir_sum_square(run->e + run->share.begin, run->share.count);
  weir_status status = select_share(&w);
  /* A share may have one element less than others, and no window for that one. */
  for (size_t at = 0; at < share_of(&run->form) && status == WEIR_OK; at += window) {
    const size_t count = run->share.count, end = at + window < count ? at + window : count;
    status = exchange(&w, at < count ? at : count, end);
  }
  run->told.share = whole > 0 ? w.sent / whole : 1;
  return status == WEIR_OK ? gather_inside(run) : status;
}
