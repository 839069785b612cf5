/* All-gathers into places: by the transport's own, around a ring, and packed; in whatever pieces
 * blocks lie, and whatever their lengths. */
#include "collectives/comm.h"
#include "ranks.h"

enum { PIECES = 24, HEADER = 12 };

/* How the blocks are cut: bytes of every piece, and whose the pieces are. */
typedef struct shape {
  size_t bytes[PIECES];
  size_t first[GROUP_MAX + 1];
  size_t all;
} shape;

/* What pieces hold: a part each of these bytes, so that they are compared and not worked out
 * again. */
enum { LONGEST = 9000064, APART = 101 };
static unsigned char pattern[LONGEST + PIECES * APART];

static const unsigned char *due(size_t piece) { return pattern + piece * APART; }

static void make_pattern(size_t bytes) {
  for (size_t i = 0; i < bytes; i++) pattern[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + 1);
}

/* Pieces of none, of one byte, around a chunk of the segment and of several; ranks without any. */
static void make_shape(shape *s, int size, uint64_t seed) {
  static const size_t lengths[] = {0, 1, 3, 64, 131071, 131072, 131073, 300001};
  weir_rng rng = weir_rng_of(seed);
  *s = (shape){.all = 0};
  for (size_t i = 0; i < PIECES; i++) {
    s->bytes[i] = lengths[weir_rng_below(&rng, sizeof lengths / sizeof *lengths)];
    s->all += s->bytes[i];
  }
  for (int r = 1; r < size; r++) {
    const size_t at = s->first[r - 1] + (size_t)weir_rng_below(&rng, 2 * PIECES / (size_t)size + 1);
    s->first[r] = at < PIECES ? at : PIECES;
  }
  for (int r = size; r <= GROUP_MAX; r++) s->first[r] = PIECES;
}

typedef struct maker {
  weir_block_part *part;
  size_t made[PIECES]; /* bytes; they must come in order, and each once */
  bool wrong;
} maker;

static void make(void *user, size_t piece, size_t begin, size_t bytes) {
  maker *m = user;
  unsigned char *to = m->part[piece].data;
  m->wrong = m->wrong || begin != m->made[piece] || bytes == 0;
  memcpy(to + begin, due(piece) + begin, bytes);
  m->made[piece] += bytes;
}

static weir_status check(const shape *s, const maker *m, int rank, const unsigned char *block,
                         int size) {
  for (size_t i = 0; i < PIECES; i++) {
    const unsigned char *data = m->part[i].data;
    const bool own = i >= s->first[rank] && i < s->first[rank + 1];
    if (m->made[i] != (own ? s->bytes[i] : 0))
      return weir_fail(WEIR_E_INTERNAL, "%zu bytes of piece %zu were made", m->made[i], i);
    if (memcmp(data, due(i), s->bytes[i]) != 0)
      return weir_fail(WEIR_E_INTERNAL, "other bytes in piece %zu", i);
    if (data[s->bytes[i]] != 0xA5) return weir_fail(WEIR_E_INTERNAL, "written behind piece %zu", i);
  }
  for (int i = 0; i < size * HEADER; i++)
    if (block[i] != (unsigned char)(i / HEADER * 31 + 7))
      return weir_fail(WEIR_E_INTERNAL, "header byte %d", i);
  return m->wrong ? weir_fail(WEIR_E_INTERNAL, "not made in order") : WEIR_OK;
}

static weir_status gather(weir_comm *comm, uint32_t row, uint64_t seed) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  shape s;
  make_shape(&s, size, seed);
  weir_block_part part[PIECES];
  unsigned char block[GROUP_MAX * HEADER] = {0}, *memory = malloc(s.all + PIECES);
  if (!memory) return WEIR_E_NOMEM;
  memset(memory, 0xA5, s.all + PIECES);
  for (size_t i = 0, at = 0; i < PIECES; at += s.bytes[i++] + 1)
    part[i] = (weir_block_part){memory + at, s.bytes[i]};
  maker m = {.part = part};
  weir_headers headers = {block, HEADER};
  memset(block + rank * HEADER, rank * 31 + 7, HEADER);
  const weir_places places = {part, s.first, make, &m};
  weir_comm_step(comm, 5, seed);
  weir_status status = weir_allgather_places(comm, &places, row, &headers);
  if (status == WEIR_OK) status = check(&s, &m, rank, block, size);
  free(memory);
  return status;
}

static weir_status all_rows(weir_transport *t, void *user) {
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  (void)user;
  for (uint64_t seed = 1; seed <= 2 && status == WEIR_OK; seed++)
    for (uint32_t row = 0; row < WEIR_ALLGATHER_COUNT && status == WEIR_OK; row++)
      status = gather(comm, row, seed * 10 + row);
  return status;
}

Test(places, everybody_has_every_piece) {
  static const enum group_kind kinds[] = {GROUP_THREADS, GROUP_SHM, GROUP_SHM_THREADS, GROUP_TCP,
                                          GROUP_MIXED};
  static const int sizes[] = {2, 5, 1, 3, 8};
  make_pattern(300001 + PIECES * APART);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (size_t s = 0; s < (k < 2 ? 5 : 2); s++) group_passes(kinds[k], sizes[s], all_rows, NULL);
}

/* More than 16 MiB, which is copied past the caches, to places of any alignment. */
static weir_status long_ones(weir_transport *t, void *user) {
  static const size_t bytes[] = {9000001, 63, 9000064};
  const size_t first[] = {0, 1, 3};
  unsigned char behind[11], *memory = malloc(18000200);
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  (void)user;
  memset(behind, 0xA5, sizeof behind);
  if (status != WEIR_OK || !memory) abort();
  memset(memory, 0xA5, 18000200);
  weir_block_part part[3];
  for (size_t i = 0, at = 5; i < 3; at += bytes[i++] + 11)
    part[i] = (weir_block_part){memory + at, bytes[i]};
  maker m = {.part = part};
  const weir_places places = {part, first, make, &m};
  weir_comm_step(comm, 5, 1);
  status = weir_allgather_places(comm, &places, WEIR_ALLGATHER_RING, NULL);
  for (size_t i = 0, at = 5; i < 3 && status == WEIR_OK; at += bytes[i++] + 11)
    if (memcmp(memory + at, due(i), bytes[i]) != 0 ||
        memcmp(memory + at + bytes[i], behind, sizeof behind) != 0)
      status = weir_fail(WEIR_E_INTERNAL, "other bytes in or behind piece %zu", i);
  free(memory);
  return status;
}

Test(places, long_ones_go_past_the_caches) {
  make_pattern(sizeof pattern);
  group_passes(GROUP_SHM, 2, long_ones, NULL);
}

/* Rank 1 means shorter blocks, another operation, or is not there. */
static weir_status other_lengths(weir_transport *t, void *user) {
  const int how = *(const int *)user;
  const size_t first[] = {0, 1, 2};
  unsigned char memory[300];
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 3.0);
  if (status != WEIR_OK) abort();
  if (how == 2 && t->rank == 1) _exit(0);
  const size_t odd = how == 0 && t->rank == 1 ? 1 : 0;
  weir_block_part part[] = {{memory, 100}, {memory + 100, 100 - odd}};
  const weir_places places = {part, first, NULL, NULL};
  weir_comm_step(comm, 5, how == 1 && t->rank == 1 ? 2 : 1);
  status = weir_allgather_places(comm, &places, WEIR_ALLGATHER_RING, NULL);
  return status;
}

Test(places, ranks_that_mean_something_else_are_refused) {
  static const enum group_kind kinds[] = {GROUP_SHM, GROUP_TCP};
  for (size_t k = 0; k < 2; k++)
    for (int how = 0; how < 3; how++) {
      static const weir_status expected[] = {WEIR_E_PROTOCOL, WEIR_E_MISMATCH, WEIR_E_PEER};
      ENDED group g = group_new(kinds[k], 2, other_lengths, &how);
      group_run(&g);
      bool told = false;
      for (int r = 0; r < (how == 2 ? 1 : 2); r++) {
        /* Over TCP a rank that sent too little has all that it expects. */
        cr_assert(g.result[r].status != WEIR_OK || (kinds[k] == GROUP_TCP && how == 0 && r == 1));
        told = told || g.result[r].status == expected[how];
      }
      cr_assert(told, "kind %zu, how %d: %s, %s", k, how, g.result[0].message, g.result[1].message);
    }
}
