#include "collectives/transports/tcp_agree.h"

#include <endian.h>
#include <string.h>

#include "base/base.h"

#define VIEW_MAGIC UINT32_C(0x56494557) /* "WEIV" */
#define SPARE_S 2.0                     /* others begin a round later than this rank */

typedef struct council {
  const int *fd;
  int rank, size;
  uint64_t generation;
  double timeout_s;
  uint32_t round;
  tcp_ranks met, dead;
  tcp_ranks early; /* whose word of this round came in place of a confirmation of the last */
  tcp_ranks early_met, early_dead; /* what they said: the common part, and all of it */
} council;

void tcp_view_seal(tcp_view *v) {
  v->magic = htole32(VIEW_MAGIC);
  v->version = htole16(TCP_VERSION);
  v->checksum = htole32(tcp_checksum(v, offsetof(tcp_view, checksum)));
}

bool tcp_view_is(const tcp_view *v, uint64_t generation, int size) {
  const int kind = le16toh(v->kind);
  return le32toh(v->magic) == VIEW_MAGIC && le16toh(v->version) == TCP_VERSION &&
         le32toh(v->checksum) == tcp_checksum(v, offsetof(tcp_view, checksum)) &&
         le64toh(v->generation) == generation && le32toh(v->size) == (uint32_t)size &&
         (kind == VIEW_TELL || kind == VIEW_CONFIRM);
}

static void merge(tcp_ranks *all, const tcp_ranks *more) {
  for (int w = 0; w < TCP_WORDS; w++) all->word[w] |= more->word[w];
}
static void cut(tcp_ranks *common, const tcp_ranks *other) {
  for (int w = 0; w < TCP_WORDS; w++) common->word[w] &= other->word[w];
}
static bool equal(const tcp_ranks *a, const tcp_ranks *b) { return memcmp(a, b, sizeof *a) == 0; }
static void from_wire(tcp_ranks *set) {
  for (int w = 0; w < TCP_WORDS; w++) set->word[w] = le64toh(set->word[w]);
}
static void to_wire(tcp_ranks *set) {
  for (int w = 0; w < TCP_WORDS; w++) set->word[w] = htole64(set->word[w]);
}

/* To all it has had a connection to, those too that have dropped out: one that wakes up must see
 * that the others have gone on without it.  Who cannot be told shows when its word is due. */
static void tell_all(const council *c, int kind, double deadline_s) {
  tcp_view v = {.kind = htole16((uint16_t)kind),
                .generation = htole64(c->generation),
                .round = htole32(c->round),
                .size = htole32((uint32_t)c->size),
                .met = c->met,
                .dead = c->dead};
  to_wire(&v.met);
  to_wire(&v.dead);
  tcp_view_seal(&v);
  for (int r = 0; r < c->size; r++)
    if (r != c->rank && c->fd[r] >= 0) (void)tcp_write_all(c->fd[r], &v, sizeof v, deadline_s);
}

static bool hear(const council *c, int rank, tcp_view *v, double deadline_s) {
  if (!tcp_read_all(c->fd[rank], v, sizeof *v, deadline_s) ||
      !tcp_view_is(v, c->generation, c->size))
    return false;
  from_wire(&v->met);
  from_wire(&v->dead);
  return true;
}

/* A rank's word of this round, past what it still had to say about earlier ones. */
static bool hear_round(const council *c, int rank, tcp_view *v, double deadline_s) {
  do {
    if (!hear(c, rank, v, deadline_s)) return false;
  } while (le32toh(v->round) < c->round);
  return le32toh(v->round) == c->round && le16toh(v->kind) == VIEW_TELL;
}

/* One round; true when all have said the same. */
static bool hold_round(council *c) {
  const double deadline_s = weir_now_s() + c->timeout_s + SPARE_S;
  const tcp_ranks before = c->met;
  bool alike = true;
  tell_all(c, VIEW_TELL, deadline_s);
  for (int r = 0; r < c->size; r++) {
    tcp_view v;
    if (r == c->rank || !tcp_ranks_has(&before, r) || tcp_ranks_has(&c->early, r)) continue;
    if (!hear_round(c, r, &v, deadline_s)) {
      tcp_ranks_drop(&c->met, r);
      alike = false;
      continue;
    }
    alike = alike && equal(&v.met, &before);
    cut(&c->met, &v.met);
    merge(&c->dead, &v.dead);
  }
  for (int r = 0; r < c->size; r++)
    if (tcp_ranks_has(&c->early, r)) {
      alike = alike && equal(&c->early_met, &before);
      cut(&c->met, &c->early_met);
      merge(&c->dead, &c->early_dead);
      break;
    }
  memset(&c->early, 0, sizeof c->early);
  return alike;
}

/* After a round in which all said the same: did they all see that? */
static bool confirm(council *c) {
  const double deadline_s = weir_now_s() + c->timeout_s + SPARE_S;
  tell_all(c, VIEW_CONFIRM, deadline_s);
  memset(&c->early_met, 0xff, sizeof c->early_met);
  memset(&c->early_dead, 0, sizeof c->early_dead);
  for (int r = 0; r < c->size; r++) {
    tcp_view v;
    if (r == c->rank || !tcp_ranks_has(&c->met, r) || !hear(c, r, &v, deadline_s)) continue;
    if (le16toh(v.kind) == VIEW_CONFIRM && le32toh(v.round) == c->round) continue;
    tcp_ranks_add(&c->early, r);
    cut(&c->early_met, &v.met);
    merge(&c->early_dead, &v.dead);
  }
  for (int w = 0; w < TCP_WORDS; w++)
    if (c->early.word[w] != 0) return false;
  return true;
}

weir_status tcp_agree(const int *fd, int rank, int size, uint64_t generation, double timeout_s,
                      tcp_ranks *met, tcp_ranks *dead) {
  council c = {.fd = fd,
               .rank = rank,
               .size = size,
               .generation = generation,
               .timeout_s = timeout_s,
               .met = *met,
               .dead = *dead};
  for (c.round = 1; c.round <= (uint32_t)size + 2; c.round++) {
    const bool alike = hold_round(&c);
    if (!tcp_ranks_has(&c.met, rank)) break;
    if (alike && confirm(&c)) {
      *met = c.met;
      *dead = c.dead;
      return WEIR_OK;
    }
  }
  return weir_fail(WEIR_E_PEER, "the other ranks go on without rank %d (this rank)", rank);
}
