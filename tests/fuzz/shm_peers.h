/* The other ranks of a group in shared memory, played by a program of bytes: between good turns it
 * may write anything anywhere, in the middle of the rank's own work; whenever that rings a bell or
 * waits, the program goes on.  For fuzz_shm.c alone, whose state this is. */
#ifndef WEIR_FUZZ_SHM_PEERS_H
#define WEIR_FUZZ_SHM_PEERS_H

#include <string.h>

/* For what they keep to themselves; bells, sleep and new groups are this file's. */
#define shm_ring_bell bell_of_shm
#define shm_pause pause_of_shm
#define shm_sleep sleep_of_shm
#define weir_transport_shm transport_of_shm
#include "collectives/transports/shm.c"
#undef shm_ring_bell
#undef shm_pause
#undef shm_sleep
#undef weir_transport_shm
void shm_ring_bell(shm *self, int rank);
bool shm_pause(shm *self, uint32_t seen, double seconds);
bool shm_sleep(shm *self, uint32_t seen, double seconds);
#include "collectives/transports/shm_join.c"
#include "demand.h"

enum { RANKS = 3, MESSAGES = 2, LONGEST = 600, ROOM = 500, STREAM = 2048, HEADER = 8 };
#define RING ((size_t)256)
#define SLOT ((size_t)1024)
#define CHUNK (SLOT / sizeof(float))
#define ELEMENTS (7 * CHUNK)
#define CANARY 0xa5

static const weir_tag due = {11, 12, 13, 0};
static shm self;
static shm_peer peers[RANKS];
static int active[RANKS];
static unsigned char *shadow; /* what the segment holds but for what this rank may write */
static size_t segment_bytes;

/* --- the program ---------------------------------------------------------------------------- */

typedef struct peer_rank {
  unsigned char sends[STREAM]; /* what it is going to send */
  size_t sends_bytes, sent, length[MESSAGES];
  unsigned char takes[STREAM]; /* what has come from this rank */
  size_t taken;
  uint64_t done[SHM_STAGES];
} peer_rank;

enum { TRANSFER, SUM, SEGMENT, REUNION, MESSAGES_IN_MEMORY, MODES };
static struct {
  const uint8_t *at;
  size_t left;
  unsigned mode;
  bool spoilt;    /* something has been written that no rank would write */
  bool odd;       /* a frame says something else than is due */
  bool running;   /* the rank is at work */
  unsigned after; /* turns since the program is over */
  peer_rank peer[RANKS];
  size_t elements;
} run;

static uint8_t next(void) {
  if (run.left == 0) return 0;
  run.left--;
  return *run.at++;
}

/* As a peer: into the segment and its shadow. */
static void put(void *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
  memcpy(shadow + ((unsigned char *)to - self.segment), from, bytes);
}

static void put_word(_Atomic uint64_t *to, uint64_t value) { put(to, &value, sizeof value); }

static int some_peer(unsigned byte) { return 1 + (int)(byte % (RANKS - 1)); }

/* --- peers of a transfer -------------------------------------------------------------------- */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Put the next bytes of a peer's stream into its ring, as far as there is room. */
static void send_some(int rank, size_t wanted) {
  peer_rank *p = &run.peer[rank];
  shm_ring *ring = peers[rank].in;
  const uint64_t head = atomic_load(&ring->head), used = head - atomic_load(&ring->tail);
  const size_t room = used > RING ? 0 : RING - (size_t)used;
  const size_t count = least(least(wanted, room), p->sends_bytes - p->sent);
  for (size_t i = 0; i < count; i++)
    put(peers[rank].in_bytes + (size_t)(head + i) % RING, p->sends + p->sent + i, 1);
  p->sent += count;
  put_word(&ring->head, head + count);
}

static void take_some(int rank, size_t wanted) {
  peer_rank *p = &run.peer[rank];
  shm_ring *ring = peers[rank].out;
  const uint64_t tail = atomic_load(&ring->tail), there = atomic_load(&ring->head) - tail;
  const size_t count = least(least(wanted, there > RING ? 0 : (size_t)there), STREAM - p->taken);
  for (size_t i = 0; i < count; i++)
    p->takes[p->taken + i] = peers[rank].out_bytes[(size_t)(tail + i) % RING];
  p->taken += count;
  put_word(&ring->tail, tail + count);
}

/* --- peers of a sum ------------------------------------------------------------------------- */

static float element(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 5) % 32); }

static size_t chunks(void) { return run.elements <= CHUNK ? 1 : (run.elements - 1) / CHUNK + 1; }

static bool all_through(int stage, uint64_t number) {
  for (int r = 0; r < RANKS; r++)
    if (atomic_load(&self.board[r].done[stage]) < number) return false;
  return true;
}

static float *slot(int rank, uint64_t c) {
  const size_t number = (size_t)rank * SHM_SLOTS + (size_t)(c % SHM_SLOTS);
  return (float *)(void *)(self.slots + number * SLOT);
}

static void sum_slice(int rank, uint64_t c, size_t count) {
  const size_t width = ((count + RANKS - 1) / RANKS + 15) / 16 * 16;
  for (size_t i = width * (size_t)rank; i < least(width * ((size_t)rank + 1), count); i++) {
    float sum = 0;
    for (int r = 0; r < RANKS; r++) sum += r == rank ? element(r, c * CHUNK + i) : slot(r, c)[i];
    put(slot(rank, c) + i, &sum, sizeof sum);
  }
}

static void tell(int rank, int stage) {
  put_word(&self.board[rank].done[stage], ++run.peer[rank].done[stage]);
}

/* The next stage of whatever chunk can be brought on. */
static void sum_some(int rank) {
  const peer_rank *p = &run.peer[rank];
  const bool whole = run.elements <= CHUNK;
  const uint64_t in = p->done[SHM_IN], reduced = p->done[SHM_REDUCED], out = p->done[SHM_OUT];
  if (out < reduced && (whole || all_through(SHM_REDUCED, out + 1))) {
    tell(rank, SHM_OUT);
  } else if (reduced < in && all_through(SHM_IN, reduced + 1)) {
    if (!whole) sum_slice(rank, reduced, least(run.elements - (size_t)reduced * CHUNK, CHUNK));
    tell(rank, SHM_REDUCED);
  } else if (in < chunks() && (in < SHM_SLOTS || all_through(SHM_OUT, in + 1 - SHM_SLOTS))) {
    shm_record record = {due.plan, due.step, due.op, HEADER, run.elements, {0}};
    memset(record.header, rank, HEADER);
    if (in == 0) put(&self.board[rank].record[0], &record, sizeof record);
    for (size_t i = 0; i < least(run.elements - (size_t)in * CHUNK, CHUNK); i++) {
      const float x = element(rank, (size_t)in * CHUNK + i);
      put(slot(rank, in) + i, &x, sizeof x);
    }
    tell(rank, SHM_IN);
  }
}

/* --- turns ---------------------------------------------------------------------------------- */

static void write_anywhere(void) {
  unsigned char bytes[8];
  const size_t at = (size_t)next() << 8 | next(), count = 1 + next() % sizeof bytes;
  for (size_t i = 0; i < count; i++) bytes[i] = next();
  put(self.segment + at % (segment_bytes - sizeof bytes), bytes, count);
  run.spoilt = true;
  run.odd = false; /* it may be right now */
}

/* A position or flag of a ring, moved a little or set to anything. */
static void turn_ring(void) {
  const unsigned which = next();
  const shm_peer *p = &peers[some_peer(which)];
  shm_ring *ring = which & 2 ? p->in : p->out;
  _Atomic uint64_t *word = which & 4 ? &ring->head : &ring->tail;
  uint64_t value = atomic_load(word) + (uint64_t)(int8_t)next();
  for (int i = 0; which & 8 && i < 8; i++) value = value << 8 | next();
  put_word(word, value);
  run.spoilt = true;
  run.odd = false;
}

static void end_group(void) {
  uint64_t word = UINT64_C(1) << 63;
  for (int i = 0; i < 6; i++) word |= (uint64_t)next() << 8 * i;
  put_word(&self.header->end, word);
  run.spoilt = true;
}

static void good_turn(int rank, size_t bytes) {
  if (run.mode == TRANSFER) {
    send_some(rank, bytes);
    take_some(rank, bytes);
  } else if (run.mode == SUM) {
    sum_some(rank);
  } else if (run.mode == REUNION) {
    const uint32_t once = 1;
    put(&self.member[rank].asks, &once, sizeof once);
  }
}

/* What is left to do once the program is over; a spoilt group then loses its other ranks. */
static void finish(void) {
  const uint32_t yes = 1;
  run.after++;
  for (int r = 1; r < RANKS; r++) {
    good_turn(r, RING);
    if (run.spoilt && run.after > 2 * STREAM / RING) put(&self.member[r].gone, &yes, sizeof yes);
  }
}

static void turn(void) {
  if (!run.running) return;
  if (run.left == 0) finish();
  for (bool on = true; on && run.left > 0;) {
    const uint8_t what = next();
    switch (what % 8) {
      case 0: on = false; break;
      case 5: turn_ring(); break;
      case 6: write_anywhere(); break;
      case 7:
        if (what > 240) end_group();
        break;
      default: good_turn(some_peer(what >> 3), next()); break;
    }
  }
}

void shm_ring_bell(shm *of, int rank) {
  (void)atomic_fetch_add(&of->member[rank].bell, 1);
  turn();
}

bool shm_pause(shm *of, uint32_t seen, double seconds) {
  (void)of, (void)seen, (void)seconds;
  turn();
  return true;
}

bool shm_sleep(shm *of, uint32_t seen, double seconds) { return shm_pause(of, seen, seconds); }

/* --- the segment ---------------------------------------------------------------------------- */

static void take_over(void *at, size_t bytes) {
  memcpy(shadow + ((unsigned char *)at - self.segment), at, bytes);
}

/* What rank 0 may write, and nothing else has changed. */
static void check_segment(void) {
  take_over(&self.header->end, sizeof self.header->end);
  take_over(&self.header->decided, sizeof self.header->decided);
  take_over(&self.member[0], sizeof *self.member);
  take_over(&self.board[0], sizeof *self.board);
  take_over(self.slots, SHM_SLOTS * SLOT);
  for (int r = 1; r < RANKS; r++) {
    take_over(&self.member[r].bell, sizeof self.member[r].bell);
    take_over(&peers[r].out->head, sizeof peers[r].out->head);
    take_over(&peers[r].out->starved, sizeof peers[r].out->starved);
    take_over(peers[r].out_bytes, RING);
    take_over(&peers[r].in->tail, sizeof peers[r].in->tail);
    take_over(&peers[r].in->starved, sizeof peers[r].in->starved);
  }
  demand(memcmp(shadow, self.segment, segment_bytes) == 0, "wrote what is another rank's");
}

#endif
