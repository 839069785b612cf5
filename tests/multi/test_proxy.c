/* Somebody between two ranks who flips a bit of what passes, drops, repeats, reorders or delays
 * some of it, at a place drawn at random: no sum is ever wrong, and what was flipped is found and
 * named.
 *
 * WEIR_PROXY_ROUNDS: how often, instead of 100 times; WEIR_PROXY_SEED: others. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>

#include "collectives/transports/tcp.h"
#include "ranks.h"

#define SUMS 4
#define PATIENCE_S 60.0 /* however busy the machine is */
#define SHORT_S 1.0     /* where bytes are missing, they do not come */
#define AT_ONCE 8       /* groups */
#define CHUNK 4096

typedef enum trick_kind { FLIP, DROP, REPEAT, REORDER, DELAY, TRICKS } trick_kind;
static const char *const names[TRICKS] = {"flip", "drop", "repeat", "reorder", "delay"};

typedef struct trick {
  trick_kind kind;
  int to;          /* the rank that is played it on */
  size_t at;       /* of the bytes that pass on the way there */
  size_t bytes;    /* this and, when reordered, the next so many */
  int bit;         /* flipped */
  size_t number;   /* of elements that are summed up */
  atomic_bool set; /* somebody is between: before that nothing is sent, as rank 0 reads ahead */
  bool played;     /* out */
} trick;

/* --- who sits between ------------------------------------------------------------------------- */

typedef struct between {
  trick *t;
  int end[2]; /* where what is for rank 0, or for rank 1, goes on */
  size_t passed;
  unsigned char kept[2 * CHUNK]; /* of what is tampered with */
  size_t held;
} between;

static bool pass(const between *b, int to, const void *bytes, size_t count) {
  return count == 0 || tcp_write_all(b->end[to], bytes, count, weir_now_s() + 20.0);
}

/* All that is tampered with has come. */
static bool play(between *b, int to) {
  trick *t = b->t;
  unsigned char *kept = b->kept;
  const size_t bytes = t->bytes;
  t->played = true;
  switch (t->kind) {
    case FLIP: kept[0] ^= (unsigned char)(1u << t->bit); return pass(b, to, kept, b->held);
    case DROP: return true;
    case REPEAT: return pass(b, to, kept, bytes) && pass(b, to, kept, bytes);
    case REORDER: return pass(b, to, kept + bytes, bytes) && pass(b, to, kept, bytes);
    default: group_nap(0.02); return pass(b, to, kept, b->held);
  }
}

static bool carry(between *b, int to) {
  unsigned char buffer[CHUNK];
  const trick *t = b->t;
  const size_t wanted = t->kind == REORDER ? 2 * t->bytes : t->bytes;
  const ssize_t got = recv(b->end[1 - to], buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  for (size_t i = 0; i < (size_t)got;) {
    const size_t left = (size_t)got - i;
    if (to != t->to || b->held == wanted || b->passed + left <= t->at) {
      b->passed += to == t->to ? left : 0;
      return pass(b, to, buffer + i, left);
    }
    if (b->passed < t->at) { /* up to there as it is */
      const size_t before = t->at - b->passed;
      if (!pass(b, to, buffer + i, before)) return false;
      b->passed += before;
      i += before;
      continue;
    }
    const size_t room = wanted - b->held, part = left < room ? left : room;
    memcpy(b->kept + b->held, buffer + i, part);
    b->held += part;
    i += part;
    if (b->held == wanted && !play(b, to)) return false;
  }
  return true;
}

static void *between_main(void *argument) {
  between *b = argument;
  for (bool on = true; on;) {
    struct pollfd fds[2] = {{.fd = b->end[0], .events = POLLIN},
                            {.fd = b->end[1], .events = POLLIN}};
    if (poll(fds, 2, 60000) < 1) break;
    for (int from = 0; on && from < 2; from++)
      if (fds[from].revents) on = carry(b, 1 - from);
  }
  (void)shutdown(b->end[0], SHUT_RDWR);
  (void)shutdown(b->end[1], SHUT_RDWR);
  return NULL;
}

/* --- the ranks -------------------------------------------------------------------------------- */

static weir_status sum_up(weir_transport *t, const trick *how) {
  const size_t n = how->number;
  const bool whole = how->kind == FLIP || how->kind == DELAY;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, whole ? PATIENCE_S : SHORT_S);
  FREED float *x = malloc(n * sizeof *x);
  for (int s = 0; status == WEIR_OK && s < SUMS; s++) {
    for (size_t i = 0; i < n; i++)
      x[i] = (float)((i * 7919 + (size_t)s) % 4093) * (float)(1 + t->rank);
    weir_comm_step(comm, 3, (uint64_t)s);
    status = weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, x, n, WEIR_VALUE_FP32, NULL, NULL);
    for (size_t i = 0; status == WEIR_OK && i < n; i++)
      if (x[i] != 3.0f * (float)((i * 7919 + (size_t)s) % 4093))
        status = weir_fail(WEIR_E_INTERNAL, "a wrong sum: %g at %zu of sum %d", (double)x[i], i, s);
  }
  return status;
}

static weir_status tricked_body(weir_transport *t, void *user) {
  trick *how = user;
  const double end_s = weir_now_s() + PATIENCE_S;
  while (t->rank == 1 && !atomic_load(&how->set) && weir_now_s() < end_s) group_nap(1e-3);
  if (t->rank == 1) return sum_up(t, how);
  FREED between *b = calloc(1, sizeof *b);
  tcp_peer *p = &((tcp *)t)->peer[1];
  int pair[2];
  pthread_t thread;
  if (b == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) abort();
  b->t = how;
  b->end[1] = p->fd; /* on from here to rank 1 */
  b->end[0] = pair[0];
  p->fd = pair[1];
  if (pthread_create(&thread, NULL, between_main, b) != 0) abort();
  atomic_store(&how->set, true);
  const weir_status status = sum_up(t, how);
  (void)shutdown(pair[1], SHUT_WR); /* what is under way still arrives */
  (void)pthread_join(thread, NULL);
  (void)close(b->end[0]);
  (void)close(b->end[1]);
  return status;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static trick draw(weir_rng *rng, int round) {
  trick t = {.kind = (trick_kind)(round % TRICKS),
             .to = (int)weir_rng_below(rng, 2),
             .bit = (int)weir_rng_below(rng, 8),
             .number = 2 * (1 + weir_rng_below(rng, 1u << weir_rng_below(rng, 15)))};
  /* A ring of two: a sum sends each way two messages of half of the elements. */
  const size_t all = SUMS * 2 * (t.number / 2 * sizeof(float) + 48 + 4);
  t.bytes = t.kind == FLIP ? 1 : 1 + weir_rng_below(rng, 64);
  /* What is held back until more comes must not be all that the next message but one waits for. */
  const size_t least = sizeof(tcp_frame) + sizeof(float) + TCP_TRAILER;
  if (t.kind == DELAY && t.bytes > least) t.bytes = least;
  t.at = weir_rng_below(rng, all - 2 * t.bytes);
  return t;
}

static void judge(const group *g, const trick *t, int round) {
  const group_result *hit = &g->result[t->to];
  const char *what = names[t->kind];
  for (int r = 0; r < 2; r++) {
    const weir_status status = g->result[r].status;
    cr_assert(status == WEIR_OK || status == WEIR_E_PROTOCOL || status == WEIR_E_MISMATCH ||
                  status == WEIR_E_TIMEOUT || status == WEIR_E_PEER,
              "round %d, %s: rank %d: %s %s", round, what, r, weir_status_name(status),
              g->result[r].message);
  }
  if (t->kind == FLIP || t->kind == DELAY)
    cr_assert(t->played, "round %d: nothing was done: %s", round, hit->message);
  if (t->kind == DELAY)
    cr_assert(hit->status == WEIR_OK && g->result[1 - t->to].status == WEIR_OK, "round %d: %s %s",
              round, g->result[0].message, g->result[1].message);
  if (t->kind == DROP) cr_assert_neq(hit->status, WEIR_OK, "round %d", round);
  if (t->kind != FLIP) return;
  char name[32];
  (void)snprintf(name, sizeof name, "rank %d", 1 - t->to);
  cr_assert_eq(hit->status, WEIR_E_PROTOCOL, "round %d, byte %zu: %s %s", round, t->at,
               weir_status_name(hit->status), hit->message);
  cr_assert(strstr(hit->message, name), "round %d: %s", round, hit->message);
}

static void start(group *g, trick *t, const char *secret) {
  atomic_store(&t->set, false);
  group_init(g, GROUP_TCP, 2, tricked_body, t);
  g->secret = secret;
  group_start(g);
}

static void play_all(const char *secret) {
  const char *said = getenv("WEIR_PROXY_ROUNDS"), *seed = getenv("WEIR_PROXY_SEED");
  const int rounds = said != NULL ? atoi(said) : 100;
  int apart = 0, failed[TRICKS] = {0}, played[TRICKS] = {0};
  trick *tricks = group_shared(AT_ONCE * sizeof *tricks);
  weir_rng rng = weir_rng_of(seed != NULL ? strtoull(seed, NULL, 10) : 17);
  for (int round = 0; round < rounds; round += AT_ONCE) {
    group g[AT_ONCE];
    const int count = rounds - round < AT_ONCE ? rounds - round : AT_ONCE;
    for (int i = 0; i < count; i++) {
      tricks[i] = draw(&rng, round + i);
      start(&g[i], &tricks[i], secret);
    }
    for (int i = 0; i < count; i++) {
      group_join(&g[i]);
      for (int more = 3; !atomic_load(&tricks[i].set) && more > 0; more--, apart++) {
        group_done(&g[i]); /* as when another program took the port at the same time */
        start(&g[i], &tricks[i], secret);
        group_join(&g[i]);
      }
      judge(&g[i], &tricks[i], round + i);
      played[tricks[i].kind]++;
      failed[tricks[i].kind] += g[i].result[tricks[i].to].status != WEIR_OK;
      group_done(&g[i]);
    }
  }
  for (int k = 0; k < TRICKS; k++)
    printf("%s: %d times, the step ended with an error %d times, no wrong sum\n", names[k],
           played[k], failed[k]);
  printf("%d times the ranks did not meet, and it was done again\n", apart);
  (void)fflush(stdout);
  (void)munmap(tricks, AT_ONCE * sizeof *tricks);
}

Test(proxy, no_sum_is_wrong) { play_all(NULL); }

/* Here it is the cipher that notices. */
Test(proxy, no_sum_is_wrong_under_tls) { play_all("nobody between knows it"); }
