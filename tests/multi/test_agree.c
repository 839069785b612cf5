/* Survivors that agree on who they are: one rank of ours, the others' words written beforehand. */
#include <criterion/criterion.h>
#include <endian.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transports/tcp_agree.h"

#define RANKS 3
#define GENERATION 4
#define ALL 7u   /* ranks 0, 1 and 2 */
#define FIRST 3u /* ranks 0 and 1 */

/* Our end and the other's, of each connection. */
static int ours[RANKS], theirs[RANKS];

static void connect_all(void) {
  ours[0] = theirs[0] = -1;
  for (int r = 1; r < RANKS; r++) {
    int pair[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    ours[r] = pair[0];
    theirs[r] = pair[1];
  }
}

static void close_all(void) {
  for (int r = 1; r < RANKS; r++) {
    (void)close(ours[r]);
    (void)close(theirs[r]);
  }
}

static void say(int rank, int kind, uint32_t round, uint64_t met) {
  tcp_view v = {.kind = htole16((uint16_t)kind),
                .generation = htole64(GENERATION),
                .round = htole32(round),
                .size = htole32(RANKS)};
  v.met.word[0] = htole64(met);
  tcp_view_seal(&v);
  cr_assert_eq(send(theirs[rank], &v, sizeof v, MSG_NOSIGNAL), (ssize_t)sizeof v);
}

/* It says no more; our words still reach it. */
static void fall_silent(int rank) { (void)shutdown(theirs[rank], SHUT_WR); }

static void heard(int rank, int kind, uint32_t round, uint64_t met) {
  tcp_view v;
  cr_assert_eq(recv(theirs[rank], &v, sizeof v, 0), (ssize_t)sizeof v);
  cr_assert(tcp_view_is(&v, GENERATION, RANKS));
  cr_assert_eq(le16toh(v.kind), kind);
  cr_assert_eq(le32toh(v.round), round);
  cr_assert_eq(le64toh(v.met.word[0]), met, "met %llx", (unsigned long long)le64toh(v.met.word[0]));
}

static weir_status agree(uint64_t *met_word) {
  tcp_ranks met = {{ALL}}, dead = {{0}};
  const weir_status status = tcp_agree(ours, 0, RANKS, GENERATION, 1.0, &met, &dead);
  *met_word = met.word[0];
  return status;
}

Test(agree, at_once) {
  uint64_t met;
  connect_all();
  for (int r = 1; r < RANKS; r++) {
    say(r, VIEW_TELL, 1, ALL);
    say(r, VIEW_CONFIRM, 1, ALL);
  }
  cr_assert_eq(agree(&met), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(met, ALL);
  close_all();
}

/* Rank 2 says nothing: the others go on without it, and it finds their words when it wakes. */
Test(agree, one_that_is_silent_is_told) {
  uint64_t met;
  connect_all();
  say(1, VIEW_TELL, 1, ALL);
  say(1, VIEW_TELL, 2, FIRST);
  say(1, VIEW_CONFIRM, 2, FIRST);
  fall_silent(2);
  cr_assert_eq(agree(&met), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(met, FIRST);
  heard(2, VIEW_TELL, 1, ALL);
  heard(2, VIEW_TELL, 2, FIRST);
  heard(2, VIEW_CONFIRM, 2, FIRST);
  close_all();
}

/* The same as it looks to the one that wakes: both others had gone on without it. */
Test(agree, one_that_wakes_stays_out) {
  uint64_t met;
  connect_all();
  for (int r = 1; r < RANKS; r++) {
    say(r, VIEW_TELL, 1, ALL);
    say(r, VIEW_TELL, 2, ALL & ~1u);
    say(r, VIEW_CONFIRM, 2, ALL & ~1u);
    fall_silent(r);
  }
  cr_assert_eq(agree(&met), WEIR_E_PEER);
  close_all();
}

/* Rank 2 has not met rank 1: they have to part, and rank 0 stays with whom it may. */
Test(agree, who_has_not_been_met_by_all_drops_out) {
  uint64_t met;
  connect_all();
  say(1, VIEW_TELL, 1, ALL);
  fall_silent(1); /* it has learnt that rank 2 has not met it */
  say(2, VIEW_TELL, 1, 5u);
  say(2, VIEW_TELL, 2, 5u);
  say(2, VIEW_CONFIRM, 2, 5u);
  cr_assert_eq(agree(&met), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(met, 5u);
  close_all();
}
