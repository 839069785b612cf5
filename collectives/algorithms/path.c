/* The interpreter of paths: one function a task. */
#include "collectives/path.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "collectives/algorithms/columns.h"
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

/* In front of every message, in the byte order of wire messages. */
typedef struct front {
  uint64_t begin, count; /* elements of the gradient */
  uint64_t bytes;        /* of the message behind it */
} front;
_Static_assert(sizeof(front) == 24, "it goes out as it lies in memory");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fronts are little-endian");

typedef struct walk {
  weir_path_run *run;
  const weir_codec *codec;
  weir_path path;
  weir_group_shape shape;
  weir_path_held held;
  weir_chunk range;
  weir_chunk whole[2]; /* as weir_path_held's */
  int place, host;     /* in its machine; the machine's */
  size_t bytes;        /* of messages, in the buffer that held says */
  weir_site idle; /* between the steps there, for want of being the root; WEIR_SITES: it is not */
  weir_headers *headers; /* NULL once they have been carried */
  weir_headers *column;  /* those of which this rank's column has come; or NULL */
} walk;

static walk begin(weir_path_run *run) {
  weir_comm *comm = run->comm;
  const int ranks = weir_comm_size(comm), rank = weir_comm_rank(comm);
  const bool levels = weir_comm_levelled(comm);
  walk w = {.run = run,
            .codec = weir_codec_find(run->plan->codec),
            .shape = {ranks, levels ? weir_comm_hosts(comm) : ranks, false, 0},
            .range = {0, run->n},
            .host = levels ? weir_comm_host_of(comm, rank) : rank,
            .bytes = run->bytes,
            .idle = WEIR_SITES};
  for (int r = 0; levels && r < rank; r++) w.place += weir_comm_host_of(comm, r) == w.host;
  w.held = weir_path_begins(w.shape, run->n);
  return w;
}

/* --- compressing ------------------------------------------------------------------------------ */

/* Where every machine has the same sums, and compresses them to send them on inside. */
static bool repeated(const walk *w, size_t task) {
  return w->path.step[task + 1].task == WEIR_TASK_COMM2_COMP &&
         w->path.step[task + 1].place == WEIR_SITE_INTRA;
}

static weir_status encode(const walk *w, size_t task, weir_chunk c, unsigned char *out, size_t room,
                          size_t *bytes) {
  const weir_path_run *run = w->run;
  const size_t offset[2] = {0, c.count};
  const weir_layout layout = {1, offset};
  const int who = repeated(w, task) ? w->place : weir_comm_rank(run->comm);
  const uint64_t words[4] = {run->seed, (uint64_t)who, task, c.begin};
  float *const x = run->x + c.begin;
  const weir_status status =
      weir_plan_encode(run->plan, run->context, x, &layout,
                       weir_hash(WEIR_HASH_INIT, words, sizeof words), out, room, bytes);
  return status == WEIR_OK
             ? w->codec->decode(run->context, out, *bytes, &layout, x, WEIR_DECODE_SUBTRACT)
             : status;
}

static weir_status choose(const walk *w, weir_chunk c, unsigned char *out, size_t room,
                          size_t *bytes) {
  const weir_path_run *run = w->run;
  const size_t offset[2] = {0, c.count};
  const weir_layout layout = {1, offset};
  float *const x = run->x + c.begin;
  size_t k = 0;
  weir_codec_context_lend(run->context, run->buffer[1 - w->held.at],
                          run->room.bytes[1 - w->held.at]);
  weir_status status =
      w->codec->select(run->context, x, &layout, run->plan->cr, run->index, run->room.kept, &k);
  weir_codec_context_lend(run->context, NULL, 0);
  if (status != WEIR_OK) return status;
  weir_gather(x, run->index, k, run->value);
  memset(run->rounded, 0, k * sizeof *run->rounded);
  status = weir_wire_encode(c.count, run->index, run->value, k, (weir_wire_format)run->plan->wire,
                            out, room, bytes, run->rounded);
  if (status != WEIR_OK) return status;
  weir_scatter_zero(x, run->index, k);
  weir_scatter_add(x, run->index, run->rounded, k);
  return WEIR_OK;
}

/* One cell becomes one message; x is what that loses then. */
static weir_status compress_cell(walk *w, size_t task, weir_chunk c, double *whole, double *lost) {
  weir_path_run *run = w->run;
  unsigned char *const out = run->buffer[w->held.at] + w->bytes;
  const size_t room = run->room.bytes[w->held.at] - w->bytes;
  if (c.count == 0) return WEIR_OK;
  if (room < sizeof(front))
    return weir_fail(WEIR_E_INTERNAL, "a path's messages take more than %zu bytes",
                     run->room.bytes[w->held.at]);
  float *const x = run->x + c.begin;
  size_t bytes = 0;
  weir_hold_finite(x, c.count);
  *whole += weir_sum_square(x, c.count);
  const weir_status status =
      w->codec->encode != NULL
          ? encode(w, task, c, out + sizeof(front), room - sizeof(front), &bytes)
          : choose(w, c, out + sizeof(front), room - sizeof(front), &bytes);
  if (status != WEIR_OK) return status;
  weir_hold_finite(x, c.count);
  *lost += weir_sum_square(x, c.count);
  const front f = {c.begin, c.count, bytes};
  memcpy(out, &f, sizeof f);
  w->bytes += sizeof f + bytes;
  return WEIR_OK;
}

/* The parts that the next division of what task i compresses makes; 1: it is not divided again. */
static int parts_after(const walk *w, size_t *i) {
  while (w->path.step[++*i].task != WEIR_TASK_DECOMP)
    if (w->path.step[*i].task == WEIR_TASK_COMM1_COMP && w->path.step[*i].routine == 0)
      return weir_path_group(w->shape, (weir_site)w->path.step[*i].place);
  --*i;
  return 1;
}

static weir_chunk part_of(weir_chunk range, int parts, int part) {
  const weir_chunk c = weir_ring_chunk(range.count, parts, part);
  return (weir_chunk){range.begin + c.begin, c.count};
}

static weir_status compress(walk *w, size_t task) {
  weir_path_run *run = w->run;
  double whole = 0, lost = 0;
  size_t i = task;
  const int outer = parts_after(w, &i), inner = parts_after(w, &i);
  weir_status status = WEIR_OK;
  w->bytes = 0;
  for (int o = 0; o < outer; o++)
    for (int p = 0; p < inner && status == WEIR_OK; p++)
      status =
          compress_cell(w, task, part_of(part_of(w->range, outer, o), inner, p), &whole, &lost);
  if (status != WEIR_OK) return status;
  if (whole > 0) run->share *= lost < whole ? 1 - lost / whole : 0;
  if (!repeated(w, task) || w->host == w->place % weir_path_group(w->shape, WEIR_SITE_INTER))
    weir_add_fp32(run->error + w->range.begin, run->x + w->range.begin, w->range.count);
  return WEIR_OK;
}

/* --- messages --------------------------------------------------------------------------------- */

/* The message at *at of so many bytes of them; false: there is none, or no whole one. */
static bool next(const unsigned char *messages, size_t bytes, size_t *at, front *f,
                 const unsigned char **message) {
  if (bytes - *at < sizeof *f) return false;
  memcpy(f, messages + *at, sizeof *f);
  if (f->bytes > bytes - *at - sizeof *f) return false;
  *message = messages + *at + sizeof *f;
  *at += sizeof *f + (size_t)f->bytes;
  return true;
}

static bool inside(const front *f, weir_chunk range) {
  return f->begin >= range.begin && f->begin - range.begin <= range.count &&
         f->count <= range.count - (f->begin - range.begin);
}

static weir_status decompress(walk *w) {
  const weir_path_run *run = w->run;
  const unsigned char *message;
  weir_status status = WEIR_OK;
  front f;
  memset(run->x + w->range.begin, 0, w->range.count * sizeof *run->x);
  for (size_t at = 0;
       status == WEIR_OK && next(run->buffer[w->held.at], w->bytes, &at, &f, &message);) {
    const size_t offset[2] = {0, (size_t)f.count};
    const weir_layout layout = {1, offset};
    float *const to = run->x + f.begin;
    status =
        w->codec->encode != NULL
            ? w->codec->decode(run->context, message, (size_t)f.bytes, &layout, to, WEIR_DECODE_ADD)
            : weir_wire_decode_add(run->context, message, (size_t)f.bytes, layout.offset[1], to);
  }
  w->bytes = 0;
  return status;
}

static weir_comm *group_at(const walk *w, weir_site place) {
  weir_comm *const comm = w->run->comm;
  if (weir_path_group(w->shape, place) < 2) return NULL;
  if (place == WEIR_SITE_INTRA) return comm->hosts.inner;
  const bool own = place == WEIR_SITE_FLAT || w->shape.hosts == w->shape.ranks;
  return own ? comm : comm->hosts.outer;
}

/* Ranks are numbered by their group; the message tells which. */
static weir_status refuse(const walk *w, weir_site place, int peer) {
  weir_comm *const group = group_at(w, place);
  char why[256];
  (void)snprintf(why, sizeof why, "%s", weir_last_error());
  if (group == w->run->comm) return weir_comm_refuse(group, peer, WEIR_E_PROTOCOL);
  group->transport->ops->abort(group->transport, peer);
  if (place == WEIR_SITE_INTRA)
    return weir_fail(WEIR_E_PROTOCOL, "place %d of this machine sent a %s", peer, why);
  return weir_fail(WEIR_E_PROTOCOL, "machine %d sent a %s", peer, why);
}

/* Would decoding take it, and is it one of this plan's? */
static weir_status check_message(const walk *w, const unsigned char *message, size_t bytes,
                                 size_t count) {
  const weir_path_run *run = w->run;
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  double peak;
  const bool encodes = w->codec->encode != NULL;
  const weir_status status = encodes ? w->codec->check(message, bytes, &layout, &peak)
                                     : weir_wire_check(run->context, message, bytes, count, &peak);
  if (status != WEIR_OK) return status;
  return encodes ? weir_plan_made(run->plan, message)
                 : weir_wire_made(w->codec->kept(&layout, run->plan->cr), message);
}

/* Is what has come from a rank the messages that are due, `due` of each cell of the range and none
 * of anything else?  Second steps put together what is of one cell, all others what is of one rank.
 * Whoever passes messages on is answerable for them: afterwards they can be sorted by their places,
 * have room wherever they go, and nothing can be wrong when they are added up. */
static weir_status check(const walk *w, weir_site place, int peer, const unsigned char *messages,
                         size_t bytes, weir_chunk range, size_t cells, size_t due, bool second) {
  const size_t most = weir_path_bytes(w->run->plan, &w->held) / w->held.messages / w->held.cells;
  const unsigned char *message;
  size_t at = 0;
  weir_status status = WEIR_OK;
  front f;
  for (size_t i = 0; i < cells * due && status == WEIR_OK; i++) {
    const weir_chunk c = part_of(range, (int)cells, (int)(second ? i / due : i % cells));
    if (c.count == 0) continue;
    if (!next(messages, bytes, &at, &f, &message) || f.begin != c.begin || f.count != c.count ||
        f.bytes > most - sizeof f)
      status = weir_fail(WEIR_E_PROTOCOL, "malformed message, of other elements than are due");
    else
      status = check_message(w, message, (size_t)f.bytes, c.count);
  }
  if (status == WEIR_OK && at != bytes)
    status =
        weir_fail(WEIR_E_PROTOCOL, "malformed message, %zu bytes behind what is due", bytes - at);
  return status == WEIR_OK ? WEIR_OK : refuse(w, place, peer);
}

/* --- communication ---------------------------------------------------------------------------- */

/* Around a ring, in place: part r of the range goes from rank r to all, with its header. */
static weir_status gather_floats(const walk *w, weir_comm *group, weir_headers *headers,
                                 weir_chunk whole) {
  const int size = weir_comm_size(group), rank = weir_comm_rank(group);
  const size_t header = weir_headers_bytes(headers), messages = header > 0 ? 2 : 1;
  weir_status status = weir_comm_begin(group, headers);
  for (int hop = 0; hop < size - 1 && status == WEIR_OK; hop++) {
    const int from = (rank - hop + size) % size, to = (rank - hop - 1 + size) % size;
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    const weir_chunk out = part_of(whole, size, from), in = part_of(whole, size, to);
    const weir_send send[2] = {
        {next, w->run->x + out.begin, out.count * sizeof(float), (uint32_t)hop},
        {next, weir_headers_at(headers, from), header, (uint32_t)(size + hop)}};
    weir_recv recv[2] = {{last, w->run->x + in.begin, in.count * sizeof(float), (uint32_t)hop, 0},
                         {last, weir_headers_at(headers, to), header, (uint32_t)(size + hop), 0}};
    status = weir_comm_exchange(group, send, messages, recv, messages);
  }
  return status;
}

static weir_status broadcast_floats(const walk *w, weir_comm *group) {
  const size_t due = w->range.count * sizeof(float);
  size_t bytes = due;
  const weir_status status = weir_broadcast(group, 0, w->run->x + w->range.begin, due, &bytes);
  if (status != WEIR_OK || bytes == due) return status;
  group->transport->ops->abort(group->transport, 0);
  return weir_fail(WEIR_E_PROTOCOL, "a root sent %zu bytes of sums, not %zu", bytes, due);
}

/* Blocks at multiples of stride move together. */
static void close_ranks(walk *w, unsigned char *blocks, size_t stride, int size,
                        const size_t *bytes) {
  w->bytes = 0;
  for (int r = 0; r < size; r++) {
    memmove(blocks + w->bytes, blocks + (size_t)r * stride, bytes[r]);
    w->bytes += bytes[r];
  }
}

/* For every rank the messages of its part, in a row of hops in which each rank sends one and gets
 * one. */
static weir_status all_to_all(walk *w, weir_comm *group, weir_site place, size_t messages,
                              size_t *bytes) {
  const int size = weir_comm_size(group), rank = weir_comm_rank(group);
  const size_t stride = weir_path_bytes(w->run->plan, &w->held) / (size_t)size;
  unsigned char *const from = w->run->buffer[w->held.at], *const to =
                                                              w->run->buffer[1 - w->held.at];
  const unsigned char *message;
  weir_status status = weir_comm_begin(group, NULL);
  for (int r = 0; r < size; r++) {
    const weir_chunk part = part_of(w->range, size, r);
    front f;
    bytes[r] = 0;
    for (size_t at = 0; next(from, w->bytes, &at, &f, &message);) {
      if (!inside(&f, part)) continue;
      if (sizeof f + f.bytes > stride - bytes[r])
        return weir_fail(WEIR_E_PROTOCOL, "more messages of a part than there is room for");
      memcpy(to + (size_t)r * stride + bytes[r], message - sizeof f, sizeof f + (size_t)f.bytes);
      bytes[r] += sizeof f + (size_t)f.bytes;
    }
  }
  memcpy(from + (size_t)rank * stride, to + (size_t)rank * stride, bytes[rank]);
  weir_recv *const recv = group->recv; /* by rank: what is still to be sent keeps its length */
  for (int hop = 1; hop < size && status == WEIR_OK; hop++) {
    const int there = weir_rotation_to(rank, size, hop), here = weir_rotation_from(rank, size, hop);
    const weir_send send = {there, to + (size_t)there * stride, bytes[there], (uint32_t)hop};
    recv[here] = (weir_recv){here, from + (size_t)here * stride, stride, (uint32_t)hop, 0};
    status = weir_comm_transfer(group, &send, 1, &recv[here], 1);
  }
  for (int r = 0; r < size && status == WEIR_OK; r++) {
    if (r == rank) continue;
    bytes[r] = recv[r].bytes;
    status = check(w, place, r, from + (size_t)r * stride, bytes[r], part_of(w->range, size, rank),
                   w->held.cells, messages, false);
  }
  if (status == WEIR_OK) close_ranks(w, from, stride, size, bytes);
  return status;
}

/* All messages of all ranks to all, or to the root; of the second of two steps, each rank's of its
 * part. */
static weir_status gather_messages(walk *w, weir_comm *group, weir_headers *headers,
                                   weir_site place, bool root, bool parts, size_t messages,
                                   size_t *bytes) {
  const int size = weir_comm_size(group), rank = weir_comm_rank(group);
  const size_t stride = weir_path_bytes(w->run->plan, &w->held) / (size_t)size;
  unsigned char *const all = w->run->buffer[w->held.at];
  memcpy(all + (size_t)rank * stride, w->run->buffer[1 - w->held.at], w->bytes);
  bytes[rank] = w->bytes;
  weir_status status =
      root ? weir_gathers[WEIR_GATHER_DIRECT].run(group, 0, all, stride, bytes)
           : weir_allgathers[WEIR_ALLGATHER_RING].run(group, all, stride, bytes, headers);
  if (root && rank != 0) return status;
  for (int r = 0; r < size && status == WEIR_OK; r++)
    if (r != rank)
      status = check(w, place, r, all + (size_t)r * stride, bytes[r],
                     parts ? part_of(w->range, size, r) : w->range,
                     parts ? w->held.cells / (size_t)size : w->held.cells, messages, parts);
  if (status == WEIR_OK) close_ranks(w, all, stride, size, bytes);
  return status;
}

static weir_status broadcast_messages(walk *w, weir_comm *group, weir_site place, size_t messages) {
  const weir_status status = weir_broadcast(group, 0, w->run->buffer[w->held.at],
                                            w->run->room.bytes[w->held.at], &w->bytes);
  return status == WEIR_OK && weir_comm_rank(group) != 0
             ? check(w, place, 0, w->run->buffer[w->held.at], w->bytes, w->range, w->held.cells,
                     messages, true)
             : status;
}

/* Do all ranks take part in what goes on between machines, or their roots alone? */
static bool rooted_inside(const weir_path *path) {
  for (size_t i = 0; i < path->count; i++)
    if (path->step[i].place == WEIR_SITE_INTRA && path->step[i].routine != 0) return true;
  return false;
}

/* The headers go with the first all-reduce or all-gather among all ranks or between machines that
 * all ranks take part in. */
static bool carries(const walk *w, weir_task task, weir_site place, bool root) {
  return w->headers != NULL && place != WEIR_SITE_INTRA && !root && !rooted_inside(&w->path) &&
         task != WEIR_TASK_COMM1 && task != WEIR_TASK_COMM1_COMP;
}

/* headers: of the group; or NULL.  messages: of each element, before. */
static weir_status communicate(walk *w, weir_comm *group, weir_headers *headers, weir_task task,
                               weir_site place, bool root, size_t messages) {
  const weir_path_run *run = w->run;
  float *const x = run->x + w->range.begin;
  const size_t n = w->range.count;
  weir_chunk *const whole = &w->whole[place == WEIR_SITE_INTER];
  void *lengths = NULL;
  if (task == WEIR_TASK_COMM2 || task == WEIR_TASK_COMM2_COMP) w->range = *whole;
  if (task == WEIR_TASK_COMM1 || task == WEIR_TASK_COMM1_COMP) *whole = w->range;
  if (group == NULL) return WEIR_OK;
  weir_status status = WEIR_OK;
  if (task >= WEIR_TASK_COMM_COMP)
    status = weir_comm_scratch(run->comm, WEIR_SCRATCH_B, (size_t)w->shape.ranks * sizeof(size_t),
                               &lengths);
  if (status != WEIR_OK) return status;
  switch (task) {
    case WEIR_TASK_COMM:
      return weir_allreduces[WEIR_ALLREDUCE_RING].run(group, x, n, WEIR_VALUE_FP32, NULL, headers);
    case WEIR_TASK_COMM1:
      status = root ? weir_reduces[WEIR_REDUCE_BINOMIAL].run(group, 0, x, n, WEIR_VALUE_FP32, NULL)
                    : weir_reduce_scatters[WEIR_REDUCE_SCATTER_RING].run(group, x, n,
                                                                         WEIR_VALUE_FP32, NULL);
      break;
    case WEIR_TASK_COMM2:
      return root ? broadcast_floats(w, group) : gather_floats(w, group, headers, w->range);
    case WEIR_TASK_COMM_COMP:
      return gather_messages(w, group, headers, place, false, false, messages, lengths);
    case WEIR_TASK_COMM1_COMP:
      status = root ? gather_messages(w, group, NULL, place, true, false, messages, lengths)
                    : all_to_all(w, group, place, messages, lengths);
      break;
    case WEIR_TASK_COMM2_COMP:
      return root ? broadcast_messages(w, group, place, messages)
                  : gather_messages(w, group, headers, place, false, true, messages, lengths);
    default: return weir_fail(WEIR_E_INTERNAL, "task %d is no communication", (int)task);
  }
  if (root && weir_comm_rank(group) != 0) w->idle = place;
  if (!root) w->range = part_of(w->range, weir_comm_size(group), weir_comm_rank(group));
  return status;
}

static weir_status communicate_at(walk *w, weir_task task, weir_site place, bool root,
                                  size_t messages) {
  weir_comm *const comm = w->run->comm, *const group = group_at(w, place);
  void *memory = NULL;
  if (group == NULL || !carries(w, task, place, root))
    return communicate(w, group, NULL, task, place, root, messages);
  weir_headers *const all = w->headers;
  w->headers = NULL;
  if (group == comm) return communicate(w, group, all, task, place, root, messages);
  weir_status status =
      weir_comm_scratch(comm, WEIR_SCRATCH_A, weir_columns_bytes(comm, all), &memory);
  if (status != WEIR_OK) return status;
  weir_headers column = weir_columns_begin(comm, all, memory);
  status = communicate(w, group, &column, task, place, root, messages);
  if (status != WEIR_OK) return status;
  weir_columns_end(comm, all, &column);
  w->column = all;
  return WEIR_OK;
}

static weir_status finish_headers(const walk *w) {
  weir_comm *const comm = w->run->comm;
  return w->column != NULL ? weir_columns_share(comm, w->column, WEIR_ALLGATHER_RING)
                           : weir_comm_gather_headers(comm, w->headers);
}

/* --- the path --------------------------------------------------------------------------------- */

/* Ranks that are no roots pass over what roots do, until they get it. */
static bool sits_out(walk *w, weir_task task, weir_site place) {
  const bool second = task == WEIR_TASK_COMM2 || task == WEIR_TASK_COMM2_COMP;
  if (w->idle == WEIR_SITES) return false;
  if (!second || place != w->idle) return true;
  w->idle = WEIR_SITES;
  return false;
}

static weir_status step(walk *w, size_t i) {
  const weir_task task = (weir_task)w->path.step[i].task;
  const weir_site place = (weir_site)w->path.step[i].place;
  const size_t messages = w->held.messages;
  weir_path_advance(&w->path, i, w->shape, &w->held);
  if (sits_out(w, task, place)) return WEIR_OK;
  if (task == WEIR_TASK_COMP) return compress(w, i);
  if (task == WEIR_TASK_DECOMP) return decompress(w);
  return communicate_at(w, task, place, w->path.step[i].routine != 0, messages);
}

static weir_status open(weir_path_run *run, walk *w) {
  *w = begin(run);
  return weir_path_of(run->plan, &w->path)
             ? WEIR_OK
             : weir_fail(WEIR_E_INTERNAL, "algorithm %u, inside %u are no path",
                         run->plan->algorithm, run->plan->inside);
}

weir_status weir_path_run_first(weir_path_run *run) {
  walk w;
  weir_status status = open(run, &w);
  run->share = 1;
  run->bytes = 0;
  if (run->n > 0) memset(run->error, 0, run->n * sizeof *run->error);
  if (status == WEIR_OK && w.path.step[0].task == WEIR_TASK_COMP) status = step(&w, 0);
  run->bytes = w.bytes;
  return status;
}

weir_status weir_path_run_rest(weir_path_run *run, weir_headers *headers) {
  walk w;
  weir_status status = open(run, &w);
  size_t i = 0;
  w.headers = weir_headers_bytes(headers) > 0 ? headers : NULL;
  if (status == WEIR_OK) status = weir_comm_begin(run->comm, headers);
  if (status == WEIR_OK && weir_comm_levelled(run->comm)) status = weir_comm_levels(run->comm);
  if (status != WEIR_OK) return status;
  if (w.path.step[0].task == WEIR_TASK_COMP) weir_path_advance(&w.path, i++, w.shape, &w.held);
  for (; i < w.path.count && status == WEIR_OK; i++) status = step(&w, i);
  return status == WEIR_OK ? finish_headers(&w) : status;
}
