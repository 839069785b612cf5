/* Memory inside of machines and TCP between them: every row comes to the bits that it comes to over
 * TCP alone, whatever has gone wrong on the way to sharing memory or goes wrong in it. */
#include <criterion/criterion.h>
#include <sys/resource.h>

#include "collectives/transports/tcp.h"
#include "ranks.h"

#include "every_row.h"
#include "random_ops.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TIMEOUT_S 20.0

static const struct { int size, per_machine; } layouts[] = {{4, 2}, {8, 4}, {4, 3}, {4, 4}, {5, 2}};

/* --- the same bits ---------------------------------------------------------------------------- */

typedef struct told {
  int per_machine;
  size_t n;
  bool mixed;
  uint64_t digest[GROUP_MAX][ROWS_ALL];
} told;

static weir_status rows_body(weir_transport *t, void *user) {
  told *out = user;
  const bool mixed = strcmp(t->ops->name, "mixed") == 0;
  if (mixed != out->mixed) return weir_fail(WEIR_E_INTERNAL, "transport %s", t->ops->name);
  return rows_digest(t, out->per_machine, out->n, TIMEOUT_S, out->digest[t->rank]);
}

static told *run_rows(bool mixed, int size, int per_machine, size_t n, int streams,
                      const char *secret) {
  told *out = group_shared(sizeof *out);
  *out = (told){.per_machine = per_machine, .n = n, .mixed = mixed};
  ENDED group g = group_new(mixed ? GROUP_MIXED : GROUP_TCP, size, rows_body, out);
  g.per_machine = per_machine;
  g.streams = streams;
  g.secret = secret;
  group_run(&g);
  group_well(&g);
  return out;
}

static void compare(size_t layout, size_t n, int streams, const char *secret) {
  const int size = layouts[layout].size, per_machine = layouts[layout].per_machine;
  told *alone = run_rows(false, size, per_machine, n, 1, NULL);
  told *mixed = run_rows(true, size, per_machine, n, streams, secret);
  for (int r = 0; r < size; r++)
    for (int row = 0; row < ROWS_ALL; row++)
      cr_assert_eq(mixed->digest[r][row], alone->digest[r][row],
                   "layout %zu, n %zu, rank %d, row %d", layout, n, r, row);
  (void)munmap(alone, sizeof *alone);
  (void)munmap(mixed, sizeof *mixed);
}

/* Longer than a ring, and shorter than a frame. */
Test(mixed, every_row_has_the_bits_of_tcp) {
  for (size_t l = 0; l < COUNT(layouts); l++) {
    compare(l, 3, 1, NULL);
    compare(l, l == 0 ? 150007 : 20011, 1, NULL);
  }
}

Test(mixed, over_several_streams) { compare(0, 300007, 3, NULL); }
Test(mixed, with_a_secret) { compare(1, 40009, 1, "known"); }

/* Sums of whole numbers and bytes, drawn at random and worked out by each rank alone. */
static weir_status random_body(weir_transport *t, void *user) {
  random_ops ops;
  int name[GROUP_MAX];
  for (int r = 0; r < t->size; r++) name[r] = r;
  if (strcmp(t->ops->name, "mixed") != 0) return weir_fail(WEIR_E_INTERNAL, "not mixed");
  weir_status status = ops_open(&ops, t, name, *(const uint64_t *)user, TIMEOUT_S);
  for (uint64_t step = 0; status == WEIR_OK && step < 150; step++) status = ops_next(&ops, step);
  ops_close(&ops);
  return status;
}

Test(mixed, random_operations) {
  for (uint64_t seed = 0; seed < COUNT(layouts); seed++) {
    ENDED group g = group_new(GROUP_MIXED, layouts[seed].size, random_body, &seed);
    g.per_machine = layouts[seed].per_machine;
    group_run(&g);
    group_well(&g);
  }
}

/* --- coming to share -------------------------------------------------------------------------- */

/* Of ranks 0 and 1 of one machine, and 2 and 3 of another, `victim` has no descriptor left when
 * memory is made and opened. */
typedef struct lack {
  int victim;
} lack;

static weir_status lacking_body(weir_transport *t, void *user) {
  const lack *l = user;
  static const int machine[] = {7, 7, 3, 3};
  const bool apart = l->victim / 2 == t->rank / 2;
  struct rlimit files;
  const int before = group_descriptors(), next = dup(STDERR_FILENO);
  (void)close(next);
  (void)getrlimit(RLIMIT_NOFILE, &files);
  const struct rlimit none = {(rlim_t)next, files.rlim_max};
  if (t->rank == l->victim) (void)setrlimit(RLIMIT_NOFILE, &none);
  weir_status status = weir_transport_share(t, machine, TIMEOUT_S);
  (void)setrlimit(RLIMIT_NOFILE, &files);
  if (status != WEIR_OK) return status;
  tcp *self = (tcp *)t;
  /* All go by one name; but the machine of the victim has no memory. */
  if (strcmp(t->ops->name, "mixed") != 0 || (self->shared.memory == NULL) != apart ||
      (self->shared.segment == NULL) != apart || group_descriptors() != before)
    return weir_fail(WEIR_E_INTERNAL, "rank %d: %s, %p, %d descriptors of %d", t->rank,
                     t->ops->name, (void *)self->shared.memory, group_descriptors(), before);
  return group_talk(t, NULL);
}

Test(mixed, a_machine_that_cannot_share_goes_over_tcp) {
  for (int victim = 0; victim < 4; victim++) {
    lack l = {.victim = victim};
    group_passes(GROUP_TCP, 4, lacking_body, &l);
  }
}

/* What memory_share.c's ranks tell one another, and how large the memory of two is. */
typedef struct word {
  uint64_t nonce;
  int32_t pid, fd;
  uint32_t made, open;
} word;
#define OF_TWO (3 * sizeof(weir_memory_ring) + ((size_t)1 << 20))

/* A file that rank 0 could cut off under the other's hands: it has the size and the number that are
 * due, and no seals. */
static weir_status file_body(weir_transport *t, void *user) {
  static const char name[] = "weir shared memory";
  static const int machine[] = {0, 0};
  (void)user;
  if (t->rank == 0) {
    FILE *file = tmpfile();
    word all[2] = {{7, (int32_t)getpid(), file != NULL ? fileno(file) : -1, 1, 1}};
    weir_tag tag = {.plan = weir_hash(WEIR_HASH_INIT, name, sizeof name)};
    if (file == NULL || fwrite(&all[0].nonce, 8, 1, file) != 1 || fflush(file) != 0 ||
        ftruncate(fileno(file), OF_TWO) != 0 || fcntl(fileno(file), F_GET_SEALS) != -1)
      return weir_fail(WEIR_E_INTERNAL, "there is no file without seals");
    for (; tag.op < 2; tag.op++) {
      const weir_status status =
          weir_transport_tell(t, &tag, all, sizeof *all, weir_now_s() + TIMEOUT_S);
      if (status != WEIR_OK) return status;
    }
    (void)fclose(file);
    return all[1].open == 0 ? WEIR_OK : weir_fail(WEIR_E_INTERNAL, "rank 1 has mapped the file");
  }
  const weir_status status = weir_transport_share(t, machine, TIMEOUT_S);
  if (status != WEIR_OK || strcmp(t->ops->name, "tcp") == 0) return status;
  return weir_fail(WEIR_E_INTERNAL, "rank 1 goes on over %s", t->ops->name);
}

Test(mixed, a_file_is_no_memory_to_share) { group_passes(GROUP_TCP, 2, file_body, NULL); }

static weir_status alone_body(weir_transport *t, void *user) {
  (void)user;
  const int apart[] = {2, 1, 0};
  const uint64_t before = t->bytes_sent;
  const weir_status status = weir_transport_share(t, apart, TIMEOUT_S);
  if (status != WEIR_OK) return status;
  if (strcmp(t->ops->name, "tcp") != 0 || t->bytes_sent != before)
    return weir_fail(WEIR_E_INTERNAL, "%s, %d bytes", t->ops->name, (int)(t->bytes_sent - before));
  return group_talk(t, NULL);
}

Test(mixed, ranks_that_are_alone_say_nothing) { group_passes(GROUP_TCP, 3, alone_body, NULL); }

Test(mixed, other_transports_share_nothing) {
  weir_transport *t = NULL;
  const int machine = 0;
  cr_assert_eq(weir_transport_inproc(&t, "shares nothing", 0, 1, TIMEOUT_S), WEIR_OK);
  cr_assert_eq(weir_transport_share(t, &machine, TIMEOUT_S), WEIR_E_UNSUPPORTED);
  cr_assert_not_null(strstr(weir_last_error(), "ranks over inproc cannot share memory"), "%s",
                     weir_last_error());
  t->ops->destroy(t);
}

/* One has ended before: the others are told by name, in time. */
static weir_status ended_body(weir_transport *t, void *user) {
  (void)user;
  static const int machine[] = {0, 0, 1, 1};
  if (t->rank == 3) return WEIR_OK;
  return weir_transport_share(t, machine, 3.0);
}

Test(mixed, a_rank_that_ends_before_it_shares_is_named) {
  ENDED group g = group_new(GROUP_TCP, 4, ended_body, NULL);
  group_run(&g);
  for (int r = 0; r < 3; r++) {
    cr_assert_eq(g.result[r].status, WEIR_E_PEER, "rank %d: %d %s", r, (int)g.result[r].status,
                 g.result[r].message);
    cr_assert_eq(strncmp(g.result[r].message, "rank 3", 6), 0, "%s", g.result[r].message);
  }
}

/* --- in memory -------------------------------------------------------------------------------- */

static const weir_tag tag = {1, 2, 3, 0};

/* What was sent before a rank ended arrives, and then its end does. */
static weir_status last_body(weir_transport *t, void *user) {
  (void)user;
  enum { BYTES = 200000 };
  static unsigned char data[BYTES];
  const weir_send send = {1, data, BYTES, 0};
  weir_recv recv = {0, data, BYTES, 0, 0};
  const double deadline_s = weir_now_s() + TIMEOUT_S;
  for (int i = 0; t->rank == 0 && i < BYTES; i++) data[i] = (unsigned char)(i * 7 + i / 300);
  if (t->rank == 0) return t->ops->transfer(t, &tag, &send, 1, NULL, 0, deadline_s);
  group_nap(0.3);
  weir_status status = t->ops->transfer(t, &tag, NULL, 0, &recv, 1, deadline_s);
  for (int i = 0; status == WEIR_OK && i < BYTES; i++)
    if (data[i] != (unsigned char)(i * 7 + i / 300))
      return weir_fail(WEIR_E_INTERNAL, "byte %d is wrong", i);
  if (status != WEIR_OK) return status;
  status = t->ops->transfer(t, &tag, NULL, 0, &recv, 1, deadline_s);
  return status == WEIR_E_PEER && weir_now_s() < deadline_s - TIMEOUT_S / 2
             ? WEIR_OK
             : weir_fail(WEIR_E_INTERNAL, "status %d", (int)status);
}

Test(mixed, what_was_sent_before_the_end_arrives) { group_passes(GROUP_MIXED, 2, last_body, NULL); }

/* Rank 1 writes into a ring's positions what cannot be. */
static weir_status spoilt_body(weir_transport *t, void *user) {
  const bool of_reader = *(const bool *)user;
  static unsigned char data[1000];
  const weir_memory *m = ((tcp *)t)->peer[1 - t->rank].memory;
  const weir_send send = {1 - t->rank, data, sizeof data, 0};
  weir_recv recv = {1 - t->rank, data, sizeof data, 0, 0};
  const double deadline_s = weir_now_s() + TIMEOUT_S;
  if (t->rank == 1 && of_reader) atomic_store(&m->in->tail, m->ring_bytes + 9);
  if (t->rank == 1 && !of_reader) atomic_store(&m->out->head, m->ring_bytes + 1);
  if (t->rank == 0) group_nap(0.3);
  return t->ops->transfer(t, &tag, t->rank == 0 ? &send : NULL, t->rank == 0,
                          t->rank == 0 && of_reader ? NULL : &recv, t->rank == 1 || !of_reader,
                          deadline_s);
}

Test(mixed, a_spoilt_ring_ends_the_group) {
  for (int i = 0; i < 2; i++) {
    bool of_reader = i == 1;
    ENDED group g = group_new(GROUP_MIXED, 2, spoilt_body, &of_reader);
    group_run(&g);
    cr_assert_eq(g.result[0].status, WEIR_E_PROTOCOL, "%d: %d %s", i, (int)g.result[0].status,
                 g.result[0].message);
    cr_assert_not_null(strstr(g.result[0].message, "rank 1"), "%s", g.result[0].message);
  }
}

/* Who sleeps is woken when something comes, and does not only look now and then. */
static weir_status woken_body(weir_transport *t, void *user) {
  double *worst = user;
  enum { TIMES = 21 };
  double taken[TIMES];
  for (int i = 0; i < TIMES; i++) {
    double now_s = 0;
    const weir_send send = {1, &now_s, sizeof now_s, 0};
    weir_recv recv = {0, &now_s, sizeof now_s, 0, 0};
    const double deadline_s = weir_now_s() + TIMEOUT_S;
    if (t->rank == 0) group_nap(0.01);
    now_s = weir_now_s();
    const weir_status status =
        t->ops->transfer(t, &tag, &send, t->rank == 0, &recv, t->rank == 1, deadline_s);
    if (status != WEIR_OK) return status;
    taken[i] = weir_now_s() - now_s;
  }
  weir_sort(taken, TIMES);
  if (t->rank == 1) *worst = taken[TIMES / 2];
  return WEIR_OK;
}

Test(mixed, who_sleeps_is_woken) {
  double *median_s = group_shared(sizeof *median_s);
  group_passes(GROUP_MIXED, 2, woken_body, median_s);
  cr_assert_lt(*median_s, 0.02, "%g s", *median_s);
}
