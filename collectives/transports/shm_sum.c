/* All-reduce and all-gather in the segment itself, without messages.
 *
 * The elements go through in chunks, and a chunk through three stages:
 *
 *   in       every rank copies its part into a slot of its own
 *   reduced  every rank adds up one slice of all ranks' parts, and leaves it in its slot
 *   out      every rank takes the other slices from where they lie
 *
 * A rank does of any chunk what can be done next, so that one that shares its processor runs
 * several chunks ahead before it has to wait.  A short message takes one wait only: every rank adds
 * up all of it.  Ranks are added in the order of their numbers: the same bits everywhere, always.
 *
 * Of an all-gather the chunks are pieces of each rank's block, and there is nothing to add: what
 * is in can be taken out, so that every byte is copied once into the segment and once, by each of
 * the others, to where it belongs.
 *
 * Each rank tells by counters on its board how many chunks are through a stage; a slot is written
 * again once all have taken out what was in it.  Before it uses anything of another rank, a rank
 * compares the other's record of the operation with its own, tag and length. */
#include <stddef.h>
#include <string.h>

#include "base/base.h"
#include "collectives/transports/shm.h"
#include "kernels/codec.h"

#define SLICE_S 0.02 /* how long a rank sleeps before it looks whether a process has ended */
#define WAITS_A_CLOCK 8
#define WHOLE_MAX ((size_t)16 * 1024) /* bytes that every rank adds up by itself */
#define BLOCK ((size_t)2048)          /* elements that stay in the first cache */
#define PAST_LEAST ((size_t)16 << 20) /* bytes of a gather that will not be found in caches again */
#define LANES ((size_t)16)            /* slices begin at multiples of a cache line */

typedef struct sum {
  shm *self;
  const weir_tag *tag;
  float *x;
  size_t n, chunk;           /* elements; of a full chunk */
  const weir_places *places; /* of an all-gather, whose n is bytes of all ranks; NULL: a sum */
  unsigned char *blocks;
  size_t block_bytes;
  double deadline_s;
  bool whole;                /* short: one wait */
  bool compared;             /* all records are what they shall be */
  uint64_t first, count;     /* number of its first chunk; chunks */
  uint64_t done[SHM_STAGES]; /* of its chunks, by this rank */
  unsigned waited;
} sum;

typedef struct range {
  size_t begin, count;
} range;

/* --- where things lie ----------------------------------------------------------------------- */

static range chunk_of(const sum *s, uint64_t c) {
  const size_t begin = (size_t)c * s->chunk, left = s->n - begin;
  return (range){begin, left < s->chunk ? left : s->chunk};
}

/* The slice of a chunk of `count` elements that a rank adds up. */
static range slice_of(const sum *s, size_t count, int rank) {
  const size_t ranks = (size_t)s->self->base.size;
  const size_t width = ((count + ranks - 1) / ranks + LANES - 1) / LANES * LANES;
  const size_t begin = width * (size_t)rank < count ? width * (size_t)rank : count;
  return (range){begin, count - begin < width ? count - begin : width};
}

static float *slot_of(const sum *s, int rank, uint64_t c) {
  const size_t number = (size_t)rank * SHM_SLOTS + (size_t)((s->first + c) % SHM_SLOTS);
  return (float *)(void *)(s->self->slots + number * s->self->slot_bytes);
}

/* --- adding --------------------------------------------------------------------------------- */

static void add_two(float *restrict to, const float *restrict a, const float *restrict b,
                    size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = (to[i] + a[i]) + b[i];
}

static void add_one(float *restrict to, const float *restrict a, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] += a[i];
}

/* to[0..n) = the sum over ranks of elements [at, at + n) of chunk c, in the order of ranks.  own:
 * this rank's elements, NULL when they lie in its slot, too. */
static void add_up(const sum *s, uint64_t c, size_t at, const float *own, size_t n, float *to) {
  const int size = s->self->base.size, rank = s->self->base.rank;
  const float *from[SHM_RANKS_MAX];
  for (int r = 0; r < size; r++) from[r] = r == rank && own ? own : slot_of(s, r, c) + at;
  for (size_t i = 0; i < n; i += BLOCK) {
    const size_t part = n - i < BLOCK ? n - i : BLOCK;
    int r = 1;
    memcpy(to + i, from[0] + i, part * sizeof *to);
    for (; r + 1 < size; r += 2) add_two(to + i, from[r] + i, from[r + 1] + i, part);
    if (r < size) add_one(to + i, from[r] + i, part);
  }
}

/* --- stages --------------------------------------------------------------------------------- */

/* The first rank that has not brought as many chunks through a stage; -1: all have. */
static int behind(const sum *s, int stage, uint64_t due) {
  for (int r = 0; r < s->self->base.size; r++)
    if (atomic_load_explicit(&s->self->board[r].done[stage], memory_order_acquire) < due) return r;
  return -1;
}

static void finish_stage(sum *s, int stage, bool tell) {
  shm *self = s->self;
  atomic_store_explicit(&self->board[self->base.rank].done[stage], s->first + ++s->done[stage],
                        memory_order_release);
  if (tell) shm_ring_all(self);
}

static void copy_in(sum *s) {
  const uint64_t c = s->done[SHM_IN];
  const range chunk = chunk_of(s, c);
  const range own =
      s->whole ? (range){chunk.count, 0} : slice_of(s, chunk.count, s->self->base.rank);
  float *slot = slot_of(s, s->self->base.rank, c);
  const float *x = s->x + chunk.begin;
  const size_t behind_own = own.begin + own.count;
  if (own.begin > 0) memcpy(slot, x, own.begin * sizeof *x);
  if (behind_own < chunk.count)
    memcpy(slot + behind_own, x + behind_own, (chunk.count - behind_own) * sizeof *x);
  finish_stage(s, SHM_IN, true);
}

/* The own slice's place in the slot is free: its sum goes there, for the others, and to x. */
static void reduce(sum *s) {
  const uint64_t c = s->done[SHM_REDUCED];
  const range chunk = chunk_of(s, c), own = slice_of(s, chunk.count, s->self->base.rank);
  float *to = slot_of(s, s->self->base.rank, c) + own.begin, *x = s->x + chunk.begin + own.begin;
  for (size_t i = 0; i < own.count; i += BLOCK) {
    const size_t part = own.count - i < BLOCK ? own.count - i : BLOCK;
    add_up(s, c, own.begin + i, x + i, part, to + i);
    memcpy(x + i, to + i, part * sizeof *x);
  }
  finish_stage(s, SHM_REDUCED, true);
}

static void copy_out(sum *s) {
  const uint64_t c = s->done[SHM_OUT];
  const range chunk = chunk_of(s, c);
  for (int r = 0; r < s->self->base.size; r++) {
    const range slice = slice_of(s, chunk.count, r);
    if (r != s->self->base.rank && slice.count > 0)
      memcpy(s->x + chunk.begin + slice.begin, slot_of(s, r, c) + slice.begin,
             slice.count * sizeof *s->x);
  }
  /* After an operation of one chunk nobody can be waiting for its slot: with more than two slots,
   * all have begun the operation in between. */
  finish_stage(s, SHM_OUT, s->count > 1);
}

static void reduce_whole(sum *s) {
  if (s->n > 0) add_up(s, 0, 0, NULL, s->n, s->x);
  finish_stage(s, SHM_REDUCED, false);
  finish_stage(s, SHM_OUT, false);
}
_Static_assert(SHM_SLOTS > 2, "slots of short operations are free without a wait");

/* --- gathering ------------------------------------------------------------------------------ */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Chunk c of a rank's block, to its slot or from it. */
static void copy_block(const sum *s, int rank, uint64_t c, bool in) {
  const weir_places *p = s->places;
  unsigned char *slot = (unsigned char *)slot_of(s, rank, c);
  size_t skip = (size_t)c * s->self->slot_bytes, room = s->self->slot_bytes;
  for (size_t i = p->first[rank]; i < p->first[rank + 1] && room > 0; i++) {
    const weir_block_part *span = &p->span[i];
    const size_t from = least(skip, span->bytes), part = least(span->bytes - from, room);
    unsigned char *at = part > 0 ? (unsigned char *)span->data + from : NULL;
    skip -= from;
    if (part == 0) continue;
    if (in && p->make) p->make(p->user, i, from, part);
    if (in)
      memcpy(slot, at, part);
    else if (s->n >= PAST_LEAST)
      weir_copy_past(at, slot, part);
    else
      memcpy(at, slot, part);
    slot += part;
    room -= part;
  }
}

static void put_block(sum *s) {
  copy_block(s, s->self->base.rank, s->done[SHM_IN], true);
  finish_stage(s, SHM_IN, false);
  finish_stage(s, SHM_REDUCED, true);
}

/* From the next rank on, so that not all read one slot. */
static void take_blocks(sum *s) {
  const int size = s->self->base.size, rank = s->self->base.rank;
  for (int i = 1; i < size; i++) copy_block(s, (rank + i) % size, s->done[SHM_OUT], false);
  finish_stage(s, SHM_OUT, s->count > 1);
}

/* --- records -------------------------------------------------------------------------------- */

static void write_record(const sum *s) {
  shm *self = s->self;
  shm_record *record = &self->board[self->base.rank].record[self->sums % 2];
  record->plan = s->tag->plan;
  record->step = s->tag->step;
  record->op = s->tag->op;
  record->header_bytes = (uint32_t)s->block_bytes;
  record->elements = s->n;
  if (s->block_bytes > 0)
    memcpy(record->header, s->blocks + (size_t)self->base.rank * s->block_bytes, s->block_bytes);
}

static weir_status compare_with(const sum *s, int rank) {
  const shm_record *record = &s->self->board[rank].record[s->self->sums % 2];
  weir_tag due = *s->tag;
  due.hop = 0;
  const weir_tag got = {record->plan, record->step, record->op, 0};
  const weir_status status = weir_tag_check(rank, &due, &got);
  if (status != WEIR_OK) return status;
  if (record->elements != s->n || record->header_bytes != s->block_bytes)
    return weir_fail(
        WEIR_E_PROTOCOL,
        "rank %d sums up %llu elements with headers of %u bytes, this rank %zu with %zu", rank,
        (unsigned long long)record->elements, record->header_bytes, s->n, s->block_bytes);
  if (s->block_bytes > 0)
    memcpy(s->blocks + (size_t)rank * s->block_bytes, record->header, s->block_bytes);
  return WEIR_OK;
}

/* Once all have copied in their first chunk, and with it written their records. */
static weir_status compare(sum *s) {
  for (int r = 0; r < s->self->base.size; r++) {
    if (r == s->self->base.rank) continue;
    const weir_status status = compare_with(s, r);
    if (status == WEIR_OK) continue;
    shm_end(s->self, status, r);
    return status;
  }
  s->compared = true;
  return WEIR_OK;
}

/* --- waiting -------------------------------------------------------------------------------- */

bool shm_sum_ahead(const shm *self, int peer) {
  return atomic_load_explicit(&self->board[peer].done[SHM_IN], memory_order_acquire) > self->chunks;
}

/* What a chunk's next stage waits for: all ranks through another stage of some chunk. */
typedef struct need {
  int stage;
  uint64_t due;
} need;

static need need_of(const sum *s, int stage) {
  const uint64_t number = s->first + s->done[stage] + 1;
  if (stage > SHM_IN) return (need){stage - 1, number};
  return (need){SHM_OUT, number > SHM_SLOTS ? number - SHM_SLOTS : 0}; /* of what was in the slot */
}

static bool has_come(const sum *s, int rank, const need *due) {
  return atomic_load(&s->self->board[rank].done[due->stage]) >= due->due;
}

/* A peer that has not come this far and sends messages means another operation. */
static weir_status check_messages(const sum *s, int rank, const need *due) {
  shm *self = s->self;
  const shm_peer *p = &self->peer[rank];
  if (atomic_load(&p->in->head) == p->tail || has_come(s, rank, due)) return WEIR_OK;
  shm_end(self, WEIR_E_MISMATCH, rank);
  return weir_fail(WEIR_E_MISMATCH, "rank %d sends messages where this rank sums up (step %llu)",
                   rank, (unsigned long long)s->tag->step);
}

static weir_status check_gone(const sum *s, int rank, const need *due, bool look) {
  if (!shm_gone(s->self, rank, look)) return WEIR_OK;
  /* What it did before it went counts. */
  if (has_come(s, rank, due)) return WEIR_OK;
  return shm_blame_gone(s->self, rank, s->tag->step);
}

/* Until the bell rings; `rank` is one that has not brought what is due. */
static weir_status wait(sum *s, uint32_t seen, int rank, const need *due) {
  shm *self = s->self;
  weir_end end;
  atomic_store(&self->member[self->base.rank].waiting_on, rank);
  if (shm_ended(self, &end)) return weir_end_fail(&end, self->base.rank);
  weir_status status = check_gone(s, rank, due, false);
  if (status != WEIR_OK) return status;
  if (++s->waited % WAITS_A_CLOCK == 0 && weir_now_s() >= s->deadline_s)
    return shm_blame_silence(self, rank, s->tag->step);
  if (shm_pause(self, seen, SLICE_S)) return WEIR_OK;
  status = check_messages(s, rank, due);
  if (status == WEIR_OK) status = check_gone(s, rank, due, true);
  if (status != WEIR_OK || weir_now_s() < s->deadline_s) return status;
  return shm_blame_silence(self, rank, s->tag->step);
}

static weir_status take(sum *s, int stage) {
  if (stage == SHM_IN) {
    if (s->places)
      put_block(s);
    else
      copy_in(s);
  } else {
    const weir_status status = s->compared ? WEIR_OK : compare(s);
    if (status != WEIR_OK) return status;
    if (stage == SHM_OUT && s->places)
      take_blocks(s);
    else if (stage == SHM_OUT)
      copy_out(s);
    else if (s->whole)
      reduce_whole(s);
    else
      reduce(s);
  }
  return WEIR_OK;
}

/* One stage of one chunk, or a wait for what the oldest chunk needs. */
static weir_status advance(sum *s, uint32_t seen) {
  int waits_for = -1;
  need oldest = {SHM_IN, 0};
  for (int stage = SHM_OUT; stage >= SHM_IN; stage--) {
    if (s->done[stage] == (stage == SHM_IN ? s->count : s->done[stage - 1])) continue;
    const need next = need_of(s, stage);
    const int rank = behind(s, next.stage, next.due);
    if (rank < 0) return take(s, stage);
    if (waits_for < 0) oldest = next;
    if (waits_for < 0) waits_for = rank;
  }
  return wait(s, seen, waits_for, &oldest);
}

static weir_status run(sum *s) {
  shm *self = s->self;
  shm_member *own = &self->member[self->base.rank];
  weir_end end;
  if (shm_ended(self, &end)) return weir_end_fail(&end, self->base.rank);
  if (s->block_bytes > sizeof self->board->record->header)
    return weir_fail(WEIR_E_INVALID, "a header of %zu bytes is longer than %zu", s->block_bytes,
                     sizeof self->board->record->header);
  write_record(s);
  self->chunks += s->count;
  weir_status status = WEIR_OK;
  while (status == WEIR_OK && s->done[SHM_OUT] < s->count) {
    const uint32_t seen = atomic_load(&own->bell);
    (void)atomic_fetch_add_explicit(&own->beat, 1, memory_order_relaxed);
    status = advance(s, seen);
  }
  self->sums++;
  atomic_store(&own->waiting_on, -1);
  return status;
}

weir_status shm_sum(weir_transport *t, const weir_tag *tag, float *x, size_t n, void *blocks,
                    size_t block_bytes, double deadline_s) {
  shm *self = (shm *)t;
  sum s = {.self = self,
           .tag = tag,
           .x = x,
           .n = n,
           .chunk = self->slot_bytes / sizeof *x,
           .blocks = blocks,
           .block_bytes = block_bytes,
           .deadline_s = deadline_s,
           .first = self->chunks};
  s.whole = n * sizeof *x <= WHOLE_MAX && n <= s.chunk;
  s.count = n <= s.chunk ? 1 : (n + s.chunk - 1) / s.chunk;
  const weir_status status = run(&s);
  if (status == WEIR_OK)
    t->bytes_sent += offsetof(shm_record, header) + block_bytes + n * sizeof *x;
  return status;
}

weir_status shm_gather(weir_transport *t, const weir_tag *tag, const weir_places *places,
                       void *blocks, size_t block_bytes, double deadline_s) {
  shm *self = (shm *)t;
  sum s = {.self = self,
           .tag = tag,
           .places = places,
           .blocks = blocks,
           .block_bytes = block_bytes,
           .deadline_s = deadline_s,
           .first = self->chunks,
           .count = 1};
  for (int r = 0; r < t->size; r++) {
    const size_t bytes = weir_places_bytes(places, r), chunk = self->slot_bytes;
    const uint64_t chunks = bytes / chunk + (bytes % chunk > 0);
    s.n += bytes;
    if (chunks > s.count) s.count = chunks;
  }
  const weir_status status = run(&s);
  if (status == WEIR_OK)
    t->bytes_sent +=
        offsetof(shm_record, header) + block_bytes + weir_places_bytes(places, t->rank);
  return status;
}
