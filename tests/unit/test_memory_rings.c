/* A connection through memory alone: bytes in random pieces, the bell, and the end of the other
 * side. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/memory.h"

#define RING 4096
#define BYTES 200000

typedef struct ends {
  _Alignas(64) unsigned char ring[2][sizeof(weir_memory_ring) + RING];
  weir_memory side[2];
} ends;

static void open_ends(ends *e) {
  int fd[2];
  memset(e, 0, sizeof *e);
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
  for (int side = 0; side < 2; side++) {
    e->side[side] = (weir_memory){.out = (weir_memory_ring *)(void *)e->ring[side],
                                  .in = (weir_memory_ring *)(void *)e->ring[1 - side],
                                  .ring_bytes = RING,
                                  .bell = fd[side]};
  }
}

static void close_ends(const ends *e) {
  for (int side = 0; side < 2; side++)
    if (e->side[side].bell >= 0) (void)close(e->side[side].bell);
}

/* How often has the other side rung? */
static int rung(const ends *e, int side) {
  unsigned char bells[9];
  const ssize_t got = recv(e->side[side].bell, bells, sizeof bells, MSG_DONTWAIT);
  return got < 0 ? 0 : (int)got;
}

/* Up to three pieces of random lengths from `at` on, of at most `left` bytes together. */
static size_t cut(weir_rng *rng, unsigned char *at, size_t left, struct iovec piece[3]) {
  size_t pieces = 0, end = 0;
  for (; pieces < 3; pieces++) {
    size_t bytes = (size_t)weir_rng_below(rng, weir_rng_below(rng, 3) ? 300 : 3 * RING);
    if (bytes > left - end) bytes = left - end;
    piece[pieces] = (struct iovec){at + end, bytes};
    end += bytes;
  }
  return pieces;
}

/* Both ways at once, more than a ring holds: what comes is what went, in its order. */
Test(memory_rings, bytes_come_as_they_went) {
  static ends e;
  static unsigned char out[2][BYTES], in[2][BYTES];
  size_t sent[2] = {0}, got[2] = {0};
  weir_rng rng;
  open_ends(&e);
  rng = weir_rng_of(7);
  for (int side = 0; side < 2; side++)
    for (size_t i = 0; i < BYTES; i++) out[side][i] = (unsigned char)weir_rng_next(&rng);
  while (got[0] < BYTES || got[1] < BYTES) {
    const int side = (int)weir_rng_below(&rng, 2);
    weir_memory *m = &e.side[side];
    struct iovec piece[3];
    const bool writes = weir_rng_below(&rng, 2) == 0;
    size_t *at = writes ? &sent[side] : &got[side];
    const size_t flying = sent[1 - side] - got[side], stored = sent[side] - got[1 - side];
    const size_t pieces = cut(&rng, (writes ? out : in)[side] + *at, BYTES - *at, piece);
    const ssize_t moved =
        writes ? weir_memory_send(m, piece, pieces) : weir_memory_recv(m, piece, pieces);
    const size_t room = writes ? RING - stored : flying;
    size_t asked = 0;
    for (size_t i = 0; i < pieces; i++) asked += piece[i].iov_len;
    const size_t due = asked < room ? asked : room;
    cr_assert(due > 0 ? moved == (ssize_t)due : moved == -1 && errno == EAGAIN, "%zd of %zu", moved,
              due);
    *at += due;
  }
  cr_assert_eq(memcmp(out[0], in[1], BYTES) | memcmp(out[1], in[0], BYTES), 0);
  close_ends(&e);
}

/* The bell rings for those who sleep, once, and for nobody else. */
Test(memory_rings, bell) {
  static ends e;
  static unsigned char data[2 * RING];
  struct iovec some = {data, 100}, all = {data, sizeof data};
  open_ends(&e);
  cr_assert_eq(weir_memory_send(&e.side[0], &some, 1), 100);
  cr_assert_eq(rung(&e, 1), 0);
  cr_assert(weir_memory_doze(&e.side[1], true, false)); /* there is something already */
  weir_memory_wake(&e.side[1], false);
  cr_assert_eq(weir_memory_recv(&e.side[1], &all, 1), 100);
  cr_assert_eq(rung(&e, 0), 0);
  cr_assert(!weir_memory_doze(&e.side[1], true, false));
  cr_assert_eq(weir_memory_send(&e.side[0], &some, 1), 100);
  cr_assert_eq(weir_memory_send(&e.side[0], &some, 1), 100);
  cr_assert_eq(rung(&e, 1), 1);
  weir_memory_wake(&e.side[1], false);
  cr_assert_eq(weir_memory_send(&e.side[0], &all, 1), RING - 200);
  cr_assert(!weir_memory_doze(&e.side[0], false, true)); /* no room */
  cr_assert_eq(weir_memory_recv(&e.side[1], &some, 1), 100);
  cr_assert_eq(rung(&e, 0), 1);
  cr_assert(weir_memory_ready(&e.side[0], false, true));
  close_ends(&e);
}

/* What the other side has written before its end comes before its end. */
Test(memory_rings, end) {
  static ends e;
  static unsigned char data[200];
  struct iovec some = {data, 100};
  open_ends(&e);
  cr_assert_eq(weir_memory_send(&e.side[0], &some, 1), 100);
  (void)close(e.side[0].bell);
  e.side[0].bell = -1;
  weir_memory_wake(&e.side[1], true);
  cr_assert(e.side[1].ended);
  cr_assert_eq(weir_memory_recv(&e.side[1], &some, 1), 100);
  cr_assert_eq(weir_memory_recv(&e.side[1], &some, 1), 0);
  cr_assert(weir_memory_ready(&e.side[1], true, false)); /* nothing more is to be waited for */
  cr_assert(
      !weir_memory_ready(&e.side[1], false, false)); /* by whom nothing is due: others may be */
  cr_assert_eq(weir_memory_send(&e.side[1], &some, 1), -1);
  cr_assert_eq(errno, EPIPE);
  close_ends(&e);
}

/* Positions that the other side cannot have come to. */
Test(memory_rings, spoilt) {
  static ends e;
  static unsigned char data[200];
  struct iovec some = {data, 100};
  open_ends(&e);
  atomic_store(&e.side[1].in->head, RING + 1);
  cr_assert_eq(weir_memory_recv(&e.side[1], &some, 1), -1);
  cr_assert_eq(errno, EBADMSG);
  atomic_store(&e.side[1].out->tail, 1); /* read before it was written */
  cr_assert_eq(weir_memory_send(&e.side[1], &some, 1), -1);
  cr_assert_eq(errno, EBADMSG);
  close_ends(&e);
}
