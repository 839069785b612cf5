/* libFuzzer: a group's shared memory, which other processes write.  The first byte says what the
 * input is a program (shm_peers.h) for:
 *   - a transfer, whose peers put frames into their rings and take what comes, piece by piece;
 *   - a sum in the segment itself;
 *   - a segment that a rank finds under its group's name;
 *   - what survivors propose to one another;
 *   - messages of a transfer below which ranks share memory (memory.h), as over shm+mpi.
 * Whatever the program does, the rank neither reads nor writes outside of the segment, nor writes
 * what is another rank's, nor beyond the room of a message; a group that was not spoilt gets
 * through, with the right bytes. */
#include "collectives/transports/memory.h"
#include "shm_peers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* A spoilt group may ring for ever and bring nothing: then a call ends here, and no sooner. */
#define PATIENCE_S 10

static bool is_end(weir_status status) {
  return status == WEIR_E_PEER || status == WEIR_E_TIMEOUT || status == WEIR_E_MISMATCH ||
         status == WEIR_E_PROTOCOL;
}

/* --- a transfer ----------------------------------------------------------------------------- */

static unsigned char byte_of(int from, size_t message, size_t i) {
  return (unsigned char)(i * 3 + message * 17 + (size_t)from * 71);
}

static void add_message(unsigned char *stream, size_t *bytes, const weir_frame *frame, int from,
                        size_t message) {
  memcpy(stream + *bytes, frame, sizeof *frame);
  *bytes += sizeof *frame;
  for (size_t i = 0; i < frame->length && *bytes < STREAM; i++)
    stream[(*bytes)++] = byte_of(from, message, i);
}

/* What a peer is going to say.  One bit of the program makes a frame odd. */
static void compose(int rank) {
  peer_rank *p = &run.peer[rank];
  for (size_t m = 0; m < MESSAGES; m++) {
    const uint8_t odd = next();
    p->length[m] = ((size_t)next() << 8 | next()) % ROOM;
    weir_frame frame = weir_frame_of(rank, &due, (uint32_t)m, p->length[m]);
    if (odd >= 248) {
      const size_t at = next() % sizeof frame;
      ((unsigned char *)&frame)[at] ^= (unsigned char)(1 << (odd & 7));
      run.odd = run.odd || at < offsetof(weir_frame, length);
      run.spoilt = true;
    }
    if (p->sends_bytes + sizeof frame <= STREAM)
      add_message(p->sends, &p->sends_bytes, &frame, rank, m);
  }
}

typedef struct mail {
  unsigned char in[RANKS][MESSAGES][ROOM + 1], out[RANKS][LONGEST];
  weir_send send[RANKS];
  weir_recv recv[RANKS * MESSAGES];
  size_t sends, recvs;
} mail;

static void prepare_mail(mail *m) {
  memset(m, 0, sizeof *m);
  memset(m->in, CANARY, sizeof m->in);
  for (int r = 1; r < RANKS; r++) {
    const size_t length = ((size_t)next() << 8 | next()) % LONGEST;
    for (size_t i = 0; i < length; i++) m->out[r][i] = byte_of(0, (size_t)r, i);
    m->send[m->sends++] = (weir_send){r, m->out[r], length, (uint32_t)r};
    for (size_t k = 0; k < MESSAGES; k++)
      m->recv[m->recvs++] = (weir_recv){r, m->in[r][k], ROOM, (uint32_t)k, 0};
  }
}

static void check_mail(const mail *m) {
  for (int r = 1; r < RANKS; r++) {
    const peer_rank *p = &run.peer[r];
    unsigned char all[STREAM];
    size_t bytes = 0;
    const weir_send *sent = &m->send[r - 1];
    for (size_t k = 0; k < MESSAGES; k++) {
      demand(m->recv[(size_t)(r - 1) * MESSAGES + k].bytes == p->length[k], "another length");
      for (size_t i = 0; i < p->length[k]; i++)
        demand(m->in[r][k][i] == byte_of(r, k, i), "another byte than was sent");
    }
    const weir_frame frame = weir_frame_of(0, &due, (uint32_t)r, sent->bytes);
    add_message(all, &bytes, &frame, 0, (size_t)r);
    if (run.mode == TRANSFER) take_some(r, STREAM);
    demand(p->taken == bytes && memcmp(all, p->takes, bytes) == 0, "sent something else");
  }
}

static void check_transfer(const mail *m, weir_status status) {
  demand(status == WEIR_OK ? true : is_end(status) && run.spoilt, "a transfer's status");
  for (int r = 1; r < RANKS; r++)
    for (size_t k = 0; k < MESSAGES; k++)
      demand(m->in[r][k][ROOM] == CANARY, "written beyond a message's room");
  demand(status != WEIR_OK || !run.odd, "took an odd frame");
  if (status == WEIR_OK && !run.spoilt) check_mail(m);
}

static void feed_transfer(void) {
  static mail m;
  for (int r = 1; r < RANKS; r++) compose(r);
  prepare_mail(&m);
  run.running = true;
  const weir_status status =
      shm_transfer(&self.base, &due, m.send, m.sends, m.recv, m.recvs, weir_now_s() + PATIENCE_S);
  run.running = false;
  check_transfer(&m, status);
}

/* --- messages in memory --------------------------------------------------------------------- */

static _Alignas(64) unsigned char rings[RANKS][2][sizeof(weir_memory_ring) + RING];
static weir_memory sides[RANKS];

static void open_sides(void) {
  memset(rings, 0, sizeof rings);
  for (int r = 1; r < RANKS; r++)
    sides[r] = (weir_memory){.out = (weir_memory_ring *)(void *)rings[r][0],
                             .in = (weir_memory_ring *)(void *)rings[r][1],
                             .ring_bytes = RING,
                             .bell = -1};
}

/* A peer puts the next bytes of its stream into its ring, and takes what has come, as far as it
 * may. */
static void peer_moves(int rank, size_t wanted) {
  peer_rank *p = &run.peer[rank];
  weir_memory_ring *ring = sides[rank].in;
  const uint64_t head = atomic_load(&ring->head), used = head - atomic_load(&ring->tail);
  size_t count =
      least(least(wanted, used > RING ? 0 : RING - (size_t)used), p->sends_bytes - p->sent);
  weir_ring_write((unsigned char *)(ring + 1), RING, head, p->sends + p->sent, count);
  atomic_store(&ring->head, head + count);
  p->sent += count;
  ring = sides[rank].out;
  const uint64_t tail = atomic_load(&ring->tail), there = atomic_load(&ring->head) - tail;
  count = least(least(wanted, there > RING ? 0 : (size_t)there), STREAM - p->taken);
  weir_ring_read((unsigned char *)(ring + 1), RING, tail, p->takes + p->taken, count);
  atomic_store(&ring->tail, tail + count);
  p->taken += count;
}

/* Whatever a ring holds, and its positions and flags. */
static void spoil_side(void) {
  const size_t which = next();
  unsigned char *ring = rings[some_peer((unsigned)which)][which & 2 ? 0 : 1];
  const size_t at = ((size_t)next() << 8 | next()) % sizeof rings[0][0];
  ring[at] = next();
  run.spoilt = true;
  run.odd = false; /* it may be right now */
}

static void peers_turn(void) {
  const uint8_t what = next();
  if (run.left == 0) {
    run.after++;
    for (int r = 1; r < RANKS; r++) peer_moves(r, RING);
  } else if (what % 8 == 7) {
    spoil_side();
  } else {
    peer_moves(some_peer(what >> 3), next());
  }
}

static void feed_messages(void) {
  static mail m;
  static weir_memory_progress progress[RANKS];
  const weir_machine_memory shared = {.memory = sides};
  open_sides();
  for (int r = 1; r < RANKS; r++) compose(r);
  prepare_mail(&m);
  weir_memory_call call = {.t = &self.base,
                           .shared = &shared,
                           .tag = &due,
                           .send = m.send,
                           .sends = m.sends,
                           .recv = m.recv,
                           .recvs = m.recvs,
                           .progress = progress,
                           .active = active};
  weir_memory_begin(&call);
  weir_status status = WEIR_OK;
  while (status == WEIR_OK && call.open > 0 && run.after < 4 * STREAM / RING) {
    bool moved = false;
    status = weir_memory_turn(&call, &moved);
    demand(status == WEIR_OK || (call.culprit > 0 && call.culprit < RANKS), "nobody is to blame");
    demand(call.open == 0 || weir_memory_waits_for(&call) > 0, "waits for nobody");
    peers_turn();
  }
  demand(status != WEIR_OK || call.open == 0 || run.spoilt, "a transfer comes to no end");
  for (int r = 1; r < RANKS; r++) peer_moves(r, STREAM);
  check_transfer(&m, status == WEIR_OK && call.open > 0 ? WEIR_E_TIMEOUT : status);
}

/* --- a sum ---------------------------------------------------------------------------------- */

static void feed_sum(void) {
  static float x[ELEMENTS + 1];
  static unsigned char header[RANKS * HEADER + 1];
  run.elements = ((size_t)next() << 8 | next()) % ELEMENTS;
  for (size_t i = 0; i < run.elements; i++) x[i] = element(0, i);
  x[run.elements] = -1;
  memset(header, 0, sizeof header);
  run.running = true;
  const weir_status status =
      shm_sum(&self.base, &due, x, run.elements, header, HEADER, weir_now_s() + PATIENCE_S);
  run.running = false;
  demand(status == WEIR_OK ? true : is_end(status) && run.spoilt, "a sum's status");
  demand(x[run.elements] == -1 && header[RANKS * HEADER] == 0, "written beyond what is summed up");
  for (size_t i = 0; status == WEIR_OK && !run.spoilt && i < run.elements; i++)
    demand(x[i] == element(0, i) + element(1, i) + element(2, i), "another sum");
  for (size_t i = 0; status == WEIR_OK && !run.spoilt && i < sizeof header - 1; i++)
    demand(header[i] == i / HEADER, "another header");
}

/* --- a segment that was found --------------------------------------------------------------- */

static void feed_segment(void) {
  const size_t whole = shm_segment_size(RANKS);
  shm_header good = {.magic = SHM_MAGIC,
                     .version = SHM_VERSION,
                     .job = self.job,
                     .bytes = whole,
                     .ring_bytes = RING,
                     .pid_space = pid_space(),
                     .size = RANKS};
  shm_header found = good;
  const size_t changes = next() % 4, bytes = next() < 200 ? whole : whole + next() - 128;
  for (size_t i = 0; i < changes; i++) {
    const size_t at = next() % offsetof(shm_header, open);
    ((unsigned char *)&found)[at] = next();
  }
  good.nonce = found.nonce; /* may be anything */
  self.header = &found;
  const weir_status status = judge(&self, bytes);
  self.header = (shm_header *)(void *)self.segment;
  const bool same = bytes == whole && memcmp(&found, &good, offsetof(shm_header, open)) == 0;
  demand(same ? status == WEIR_OK : status != WEIR_OK,
         "took another group's segment, or not its own");
}

/* --- survivors ------------------------------------------------------------------------------ */

static int met_rank, met_size;

weir_status weir_transport_shm(weir_transport **out, const char *group, uint64_t job_id, int rank,
                               int size, double timeout_s) {
  (void)out, (void)job_id, (void)timeout_s;
  demand(strlen(group) < SHM_NAME_MAX && rank >= 0 && rank < size && size <= RANKS, "a group");
  met_rank = rank;
  met_size = size;
  return WEIR_OK;
}

static void feed_reunion(void) {
  weir_transport *out = NULL;
  int old_rank[RANKS + 1] = {-1, -1, -1, 77};
  run.running = true;
  const weir_status status = shm_shrink(&self.base, 0.05, &out, old_rank);
  run.running = false;
  demand(old_rank[RANKS] == 77, "more survivors than there were ranks");
  if (status != WEIR_OK) {
    demand(run.spoilt && (is_end(status) || status == WEIR_E_STATE), "a reunion's status");
    return;
  }
  for (int r = 0; r < met_size; r++)
    demand(old_rank[r] < RANKS && old_rank[r] > (r > 0 ? old_rank[r - 1] : -1), "an odd group");
  demand(old_rank[met_rank] == 0, "another rank's place");
  demand(run.spoilt || met_size == RANKS, "a rank is missing");
}

/* --- */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  const size_t n = RANKS;
  segment_bytes = sizeof(shm_header) + n * sizeof(shm_member) + n * n * (sizeof(shm_ring) + RING) +
                  n * (sizeof(shm_board) + SHM_SLOTS * SLOT);
  self.segment = aligned_alloc(SHM_LINE, segment_bytes);
  shadow = aligned_alloc(SHM_LINE, segment_bytes);
  demand(self.segment != NULL && shadow != NULL, "no memory");
  return 0;
}

static void begin(void) {
  memset(self.segment, 0, segment_bytes);
  memset(peers, 0, sizeof peers);
  self = (shm){.base = {.ops = &shm_ops, .size = RANKS},
               .job = 7,
               .fd = -1,
               .segment = self.segment,
               .bytes = segment_bytes,
               .ring_bytes = RING,
               .header = (shm_header *)(void *)self.segment,
               .peer = peers,
               .active = active};
  self.member = (shm_member *)(self.header + 1);
  for (int r = 0; r < RANKS; r++) {
    peers[r].pidfd = -1;
    atomic_store(&self.member[r].waiting_on, -1);
  }
  connect_parts(&self);
  self.slot_bytes = SLOT;
  memcpy(shadow, self.segment, segment_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static void (*const feed[MODES])(void) = {feed_transfer, feed_sum, feed_segment, feed_reunion,
                                            feed_messages};
  memset(&run, 0, sizeof run);
  run.at = data;
  run.left = size;
  begin();
  const uint8_t mode = next(); /* a quarter of all are the last one's */
  run.mode = mode < 192 ? mode % MESSAGES_IN_MEMORY : MESSAGES_IN_MEMORY;
  feed[run.mode]();
  check_segment();
  return 0;
}
