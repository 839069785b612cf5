/* What a path holds on its way, and what it costs: the models of "ByteComp", section 4.3. */
#include "collectives/compressed.h"
#include "collectives/path.h"
#include "collectives/patterns/patterns.h"

/* In front of every message: its place, its elements and its length (algorithms/path.c). */
#define FRONT ((size_t)24)

weir_path_held weir_path_begins(weir_group_shape shape, size_t elements) {
  return (weir_path_held){.elements = elements,
                          .senders = (size_t)weir_path_group(shape, WEIR_SITE_INTRA)};
}

int weir_path_group(weir_group_shape shape, weir_site place) {
  const bool even = weir_shape_even(shape);
  if (place == WEIR_SITE_FLAT) return shape.ranks;
  if (place == WEIR_SITE_INTER) return even ? shape.hosts : shape.ranks;
  return even ? shape.ranks / shape.hosts : 1;
}

static size_t divided(size_t elements, int ranks) {
  return weir_ring_chunk(elements, ranks, 0).count;
}

/* The cells that what task i compresses is divided into until it is decompressed. */
static void cut(const weir_path *path, size_t i, weir_group_shape shape, weir_path_held *held) {
  held->messages = held->cells = 1;
  held->longest = held->elements;
  for (i++; path->step[i].task != WEIR_TASK_DECOMP; i++) {
    if (path->step[i].task != WEIR_TASK_COMM1_COMP || path->step[i].routine != 0) continue;
    const int ranks = weir_path_group(shape, (weir_site)path->step[i].place);
    held->cells *= (size_t)ranks;
    held->longest = divided(held->longest, ranks);
  }
}

void weir_path_advance(const weir_path *path, size_t i, weir_group_shape shape,
                       weir_path_held *held) {
  const weir_site place = (weir_site)path->step[i].place;
  const bool root = path->step[i].routine != 0;
  const int ranks = weir_path_group(shape, place);
  size_t *const whole = &held->whole[place == WEIR_SITE_INTER];
  const bool moves = ranks > 1; /* into the other buffer, one behind the other */
  switch ((weir_task)path->step[i].task) {
    case WEIR_TASK_COMP: cut(path, i, shape, held); break;
    case WEIR_TASK_DECOMP: held->messages = 0; break;
    case WEIR_TASK_COMM1:
    case WEIR_TASK_COMM1_COMP:
      *whole = held->elements;
      if (!root) held->elements = divided(held->elements, ranks);
      if (!root && held->messages > 0) held->cells /= (size_t)ranks;
      held->messages *= (size_t)ranks;
      if (moves && root) held->at = 1 - held->at;
      if (place == WEIR_SITE_INTRA && root) held->senders = 1;
      break;
    case WEIR_TASK_COMM2:
    case WEIR_TASK_COMM2_COMP:
      held->elements = *whole;
      if (!root) held->cells *= (size_t)ranks;
      if (moves && !root) held->at = 1 - held->at;
      break;
    case WEIR_TASK_COMM_COMP:
      held->messages *= (size_t)ranks;
      if (moves) held->at = 1 - held->at;
      break;
    default: break;
  }
}

/* Bytes of a cell's message at the most; what a selection keeps of it. */
static size_t cell_bytes(const weir_plan *plan, size_t elements, size_t *kept) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const size_t offset[2] = {0, elements};
  const weir_layout layout = {1, offset};
  if (codec->encode != NULL) return FRONT + weir_plan_bound(plan, &layout);
  const size_t k = codec->kept(&layout, plan->cr);
  if (kept != NULL && k > *kept) *kept = k;
  return FRONT + weir_wire_bound(elements, k, (weir_wire_format)plan->wire);
}

size_t weir_path_bytes(const weir_plan *plan, const weir_path_held *held) {
  return held->messages > 0 ? held->messages * held->cells * cell_bytes(plan, held->longest, NULL)
                            : 0;
}

static void at_least(size_t *room, size_t bytes) {
  if (bytes > *room) *room = bytes;
}

weir_path_room weir_path_room_of(const weir_plan *plan, weir_group_shape shape, size_t elements) {
  weir_path_room room = {{0, 0}, 0};
  weir_path path;
  if (!weir_path_of(plan, &path)) return room;
  weir_path_held held = weir_path_begins(shape, elements);
  for (size_t i = 0; i < path.count; i++) {
    weir_path_advance(&path, i, shape, &held);
    const size_t bytes = weir_path_bytes(plan, &held);
    at_least(&room.bytes[held.at], bytes);
    if (path.step[i].task == WEIR_TASK_COMP) (void)cell_bytes(plan, held.longest, &room.kept);
    /* An all-to-all sorts messages into the other buffer. */
    if (path.step[i].task == WEIR_TASK_COMM1_COMP && path.step[i].routine == 0)
      at_least(&room.bytes[1 - held.at], bytes);
  }
  return room;
}

weir_cost_terms weir_cost_path_task(weir_task task, unsigned routine, int n, double bytes) {
  switch (task) {
    case WEIR_TASK_COMM: return weir_cost_allreduce(WEIR_ALLREDUCE_RING, n, bytes);
    case WEIR_TASK_COMM1:
      return routine ? weir_cost_reduce(WEIR_REDUCE_BINOMIAL, n, bytes)
                     : weir_cost_reduce_scatter(WEIR_REDUCE_SCATTER_RING, n, bytes);
    case WEIR_TASK_COMM1_COMP:
      return routine ? weir_cost_gather(WEIR_GATHER_DIRECT, n, bytes)
                     : weir_cost_exchange(n, n - 1, bytes / n);
    case WEIR_TASK_COMM2:
    case WEIR_TASK_COMM2_COMP:
      return routine ? weir_cost_broadcast(WEIR_BROADCAST_BINOMIAL, n, bytes)
                     : weir_cost_allgather(WEIR_ALLGATHER_RING, n, bytes);
    default: return weir_cost_allgather(WEIR_ALLGATHER_RING, n, bytes);
  }
}

/* The row that runs a task; of an exchange in as many rounds as there are ranks one that has the
 * same messages. */
static weir_kind row_of(weir_task task, unsigned routine, uint32_t *row) {
  const bool root = routine != 0;
  switch (task) {
    case WEIR_TASK_COMM: *row = WEIR_ALLREDUCE_RING; return WEIR_KIND_ALLREDUCE;
    case WEIR_TASK_COMM1:
      *row = root ? WEIR_REDUCE_BINOMIAL : WEIR_REDUCE_SCATTER_RING;
      return root ? WEIR_KIND_REDUCE : WEIR_KIND_REDUCE_SCATTER;
    case WEIR_TASK_COMM1_COMP:
      *row = root ? WEIR_GATHER_DIRECT : WEIR_REDUCE_SCATTER_PAIRWISE;
      return root ? WEIR_KIND_GATHER : WEIR_KIND_REDUCE_SCATTER;
    case WEIR_TASK_COMM2:
    case WEIR_TASK_COMM2_COMP:
      *row = root ? WEIR_BROADCAST_BINOMIAL : WEIR_ALLGATHER_RING;
      return root ? WEIR_KIND_BROADCAST : WEIR_KIND_ALLGATHER;
    default: *row = WEIR_ALLGATHER_RING; return WEIR_KIND_ALLGATHER;
  }
}

/* Among machines as many ranks of each at once as hold something: they share its link. */
static weir_cost_terms task_terms(const weir_path *path, size_t i, weir_group_shape shape,
                                  const weir_link *link, const weir_path_held *held, double bytes) {
  const weir_task task = (weir_task)path->step[i].task;
  const unsigned routine = path->step[i].routine;
  const weir_site place = (weir_site)path->step[i].place;
  const int ranks = weir_path_group(shape, place);
  uint32_t row;
  const weir_kind kind = row_of(task, routine, &row);
  if (ranks == shape.ranks && shape.hosts > 1 && shape.hosts < ranks)
    return weir_cost_machines(kind, row, shape, link, bytes, 0);
  if (place == WEIR_SITE_INTER && held->senders > 1)
    return weir_cost_columns(kind, row, ranks, (int)held->senders, link, bytes);
  return weir_cost_path_task(task, routine, ranks, bytes);
}

/* Of what goes on inside of machines, or of all else. */
static weir_cost_terms terms_of(const weir_plan *plan, weir_group_shape shape,
                                const weir_link *link, size_t elements, bool inside) {
  weir_cost_terms all = {0.0, 0.0, 0.0};
  weir_path path;
  if (!weir_path_of(plan, &path)) return all;
  weir_path_held held = weir_path_begins(shape, elements);
  for (size_t i = 0; i < path.count; i++) {
    const weir_path_held before = held;
    const weir_site place = (weir_site)path.step[i].place;
    const int ranks = weir_path_group(shape, place);
    weir_path_advance(&path, i, shape, &held);
    if (place < WEIR_SITE_FLAT || ranks < 2) continue;
    if ((place == WEIR_SITE_INTRA && shape.hosts > 1) != inside) continue;
    const double bytes = before.messages > 0 ? (double)(before.messages * before.cells) *
                                                   (double)cell_bytes(plan, before.longest, NULL)
                                             : 4.0 * (double)before.elements;
    const weir_cost_terms one = task_terms(&path, i, shape, link, &before, bytes);
    all.alpha_terms += one.alpha_terms;
    all.byte_terms += one.byte_terms;
    all.spread_terms += one.spread_terms;
  }
  return all;
}

weir_cost_terms weir_cost_path(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                               size_t elements) {
  return terms_of(plan, shape, link, elements, false);
}

weir_cost_terms weir_cost_path_inside(const weir_plan *plan, weir_group_shape shape,
                                      size_t elements) {
  return terms_of(plan, shape, NULL, elements, true);
}
