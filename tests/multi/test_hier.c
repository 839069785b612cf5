/* Hierarchical all-reduce over pretended machines, and views: groups inside of a group. */
#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>

#include "../sampled.h"
#include "collectives/algorithms/columns.h"
#include "collectives/comm.h"
#include "ranks.h"
#include "said_headers.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Which machine each rank is on: a letter each. */
static const char *const layouts[] = {
    "a",   "ab",      "aabb",     "abab",     "aaaa",         "aaabbb",       "abcabc",
    "aab", "abbbcca", "abcdefgh", "aaaabbbb", "aabbccddeeff", "abcabcabcabcd"};
static const size_t lengths[] = {0, 1, 5, 1000, 30011};

typedef struct job {
  const char *layout;
  bool torus; /* whose rows and columns follow the machines; else by the choice */
  weir_hier_choice choice;
  weir_value_format format;
  size_t n;
  float *x, *error;       /* size * n */
  unsigned char *headers; /* size * size * HEADER */
} job;

/* The longest case's, drawn once; a rank's begin behind those of the rank before. */
#define LONGEST 300008
#define APART 7919
#define DRAWN (LONGEST + GROUP_MAX * APART)
static float *inputs;
static float input_at(int rank, size_t i) { return inputs[(size_t)rank * APART + i]; }

static void draw_inputs(void) {
  inputs = malloc(DRAWN * sizeof *inputs);
  weir_rng rng = weir_rng_of(1000003);
  for (size_t i = 0; i < DRAWN; i++) inputs[i] = (float)(2 * weir_rng_uniform(&rng) - 1);
}

static void drop_inputs(void) { free(inputs); }

TestSuite(hier, .init = draw_inputs, .fini = drop_inputs);

static weir_status body(weir_transport *t, void *user) {
  const job *j = user;
  const size_t at = (size_t)t->rank * j->n;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status != WEIR_OK) return status;
  status = weir_comm_find_hosts(comm, (uint64_t)j->layout[t->rank]);
  unsigned char *block = j->headers + (size_t)t->rank * (size_t)t->size * HEADER;
  for (int pass = 0; status == WEIR_OK && pass < 2; pass++) { /* twice: the same bits again */
    FREED float *x = malloc(j->n * sizeof *x + 1);
    for (size_t i = 0; i < j->n; i++) x[i] = input_at(t->rank, i);
    if (j->n) memset(j->error + at, 0, j->n * sizeof(float));
    weir_headers headers = headers_of(block, t->rank, t->size);
    weir_comm_step(comm, 77, (uint64_t)pass);
    status = j->torus ? weir_allreduces[WEIR_ALLREDUCE_TORUS].run(comm, x, j->n, j->format,
                                                                  j->error + at, &headers)
                      : weir_allreduce_hier(comm, &j->choice, x, j->n, j->format, j->error + at,
                                            &headers);
    if (status == WEIR_OK && pass == 1 && j->n && memcmp(x, j->x + at, j->n * sizeof *x) != 0)
      status = weir_fail(WEIR_E_INTERNAL, "the second run gave other bits");
    if (j->n) memcpy(j->x + at, x, j->n * sizeof *x);
  }
  return status;
}

/* Against a sum in double precision, and sum of inputs = result + sum of errors. */
static void check(const job *j, int size) {
  for (size_t i = 0; i < j->n; i++) {
    double sum = 0, magnitude = 0, error = 0;
    for (int r = 0; r < size; r++) {
      sum += (double)input_at(r, i);
      magnitude += fabs((double)input_at(r, i));
      error += (double)j->error[(size_t)r * j->n + i];
      cr_assert_eq(memcmp(&j->x[i], &j->x[(size_t)r * j->n + i], sizeof(float)), 0,
                   "%s: element %zu differs on rank %d", j->layout, i, r);
    }
    const double result = (double)j->x[i];
    cr_assert_leq(fabs(sum - (result + error)), 1e-6 * magnitude * size + 1e-30, "%s: element %zu",
                  j->layout, i);
    if (j->format == WEIR_VALUE_FP32) cr_assert_eq(error, 0.0);
    cr_assert_leq(fabs(sum - result), 1.04 * magnitude * size / 256.0 + 1e-30);
  }
  for (int r = 0; r < size; r++)
    cr_assert_eq(header_missing(j->headers + r * size * HEADER, size), -1, "%s: rank %d", j->layout,
                 r);
}

static void run_case(enum group_kind kind, job j) {
  const int size = (int)strlen(j.layout);
  const size_t bytes = (size_t)size * j.n * sizeof(float), headers = (size_t)(size * size * HEADER);
  j.x = group_shared(bytes);
  j.error = group_shared(bytes);
  j.headers = group_shared(headers);
  ENDED group g = group_new(kind, size, body, &j);
  group_run(&g);
  for (int r = 0; r < size; r++)
    cr_assert_eq(g.result[r].status, WEIR_OK, "%s between %u n %zu rank %d: %s", j.layout,
                 j.choice.between, j.n, r, g.result[r].message);
  check(&j, size);
  (void)munmap(j.x, bytes ? bytes : 1);
  (void)munmap(j.error, bytes ? bytes : 1);
  (void)munmap(j.headers, headers);
}

Test(hier, every_row_on_every_layout) {
  for (uint32_t between = 0; between < WEIR_ALLREDUCE_COUNT; between++)
    for (size_t l = 0; l < COUNT(layouts); l++)
      for (size_t k = 0; k < COUNT(lengths); k++)
        for (int f = 0; f < 2; f++)
          if (sampled(4))
            run_case(GROUP_THREADS, (job){.layout = layouts[l],
                                          .choice.between = between,
                                          .n = lengths[k],
                                          .format = (weir_value_format)f});
}

Test(hier, torus_on_every_layout) {
  for (size_t l = 0; l < COUNT(layouts); l++)
    for (size_t k = 0; k < COUNT(lengths); k++)
      for (int f = 0; f < 2; f++)
        if (sampled(4))
          run_case(GROUP_THREADS, (job){.layout = layouts[l],
                                        .torus = true,
                                        .n = lengths[k],
                                        .format = (weir_value_format)f});
  run_case(GROUP_TCP, (job){.layout = "abab", .torus = true, .n = 300008});
}

Test(hier, any_choice_inside_and_between) {
  const char *const some[] = {"aabb", "abcabc", "aab"};
  for (uint32_t s = 0; s < WEIR_REDUCE_SCATTER_COUNT; s++)
    for (uint32_t b = 0; b < WEIR_ALLREDUCE_COUNT; b++)
      for (uint32_t g = 0; g < WEIR_ALLGATHER_COUNT; g++)
        for (size_t l = 0; l < COUNT(some); l++)
          for (int f = 0; f < 2; f++)
            if (sampled(4))
              run_case(GROUP_THREADS, (job){.layout = some[l],
                                            .choice = {s, b, g, false},
                                            .n = 1003,
                                            .format = (weir_value_format)f});
}

Test(hier, processes) {
  for (uint32_t between = 0; between < WEIR_ALLREDUCE_COUNT; between++)
    for (int kind = GROUP_TCP; kind <= GROUP_SHM; kind++) {
      if (!sampled(3)) continue;
      run_case((enum group_kind)kind,
               (job){.layout = "aabb", .choice.between = between, .n = LONGEST});
      run_case(
          (enum group_kind)kind,
          (job){
              .layout = "abbab", .choice.between = between, .n = 30011, .format = WEIR_VALUE_BF16});
    }
}

/* --- headers by columns ----------------------------------------------------------------------- */

/* Half of what is due, in the place of weir_columns_share. */
static weir_status share_less(weir_comm *comm) {
  unsigned char all[GROUP_MAX * HEADER] = {0};
  size_t bytes[GROUP_MAX] = {0};
  const size_t due = (size_t)comm->hosts.count * HEADER;
  bytes[weir_comm_rank(comm->hosts.inner)] = due / 2;
  return weir_allgathers[WEIR_ALLGATHER_RING].run(comm->hosts.inner, all, due, bytes, NULL);
}

/* user: a layout in small letters; the rank of a capital one shares less than is due. */
static weir_status columns_body(weir_transport *t, void *user) {
  const char *const layout = user;
  const bool liar = layout[t->rank] < 'a';
  unsigned char block[GROUP_MAX * HEADER], memory[GROUP_MAX * HEADER];
  weir_headers headers = headers_of(block, t->rank, t->size);
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 5.0);
  if (status != WEIR_OK) return status;
  status = weir_comm_find_hosts(comm, (uint64_t)(layout[t->rank] | 0x20));
  weir_comm_step(comm, 77, 1);
  if (status == WEIR_OK) status = weir_comm_begin(comm, &headers);
  if (status == WEIR_OK) status = weir_comm_levels(comm);
  if (status != WEIR_OK) return status;
  weir_headers column = weir_columns_begin(comm, &headers, memory);
  if (comm->hosts.outer != NULL) status = weir_comm_meet(comm->hosts.outer, &column);
  if (status == WEIR_OK) weir_columns_end(comm, &headers, &column);
  if (status == WEIR_OK)
    status = liar ? share_less(comm) : weir_columns_share(comm, &headers, WEIR_ALLGATHER_RING);
  const int missing = header_missing(block, t->size);
  return status == WEIR_OK && !liar && missing >= 0
             ? weir_fail(WEIR_E_INTERNAL, "rank %d's header has not come", missing)
             : status;
}

Test(hier, headers_go_by_columns_and_then_inside) {
  static char even[][GROUP_MAX] = {"aabb",     "abab",     "abcabc",
                                   "aaaabbbb", "abcdefgh", "aabbccddeeff"};
  for (size_t l = 0; l < COUNT(even); l++)
    group_passes(GROUP_THREADS, (int)strlen(even[l]), columns_body, even[l]);
}

Test(hier, fewer_headers_are_refused) {
  ENDED group g = group_new(GROUP_THREADS, 4, columns_body, (char[]){"aaBb"});
  group_run(&g);
  cr_assert_eq(g.result[3].status, WEIR_E_PROTOCOL, "%s", g.result[3].message);
  cr_assert_str_eq(g.result[3].message, "a rank of this machine sent 24 bytes of headers, not 48");
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* Bytes between machines, counted at the parent less what went inside: "aaaabbbb", ring between two
 * machines of four: each rank's share is 1/4, 2 (2-1)/2 of which cross: n / 4 floats a rank. */
static weir_status traffic_body(weir_transport *t, void *user) {
  (void)user;
  enum { N = 80000 };
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status != WEIR_OK) return status;
  FREED float *x = calloc(N, sizeof *x);
  status = weir_comm_find_hosts(comm, (uint64_t) "aaaabbbb"[t->rank]);
  weir_comm_step(comm, 1, 1);
  const uint64_t before = t->bytes_sent;
  if (status == WEIR_OK)
    status = weir_allreduce_hier(comm, &(weir_hier_choice){0}, x, N, WEIR_VALUE_FP32, NULL, NULL);
  const double all = (double)(t->bytes_sent - before);
  if (status == WEIR_OK && comm->hosts.count != 2) status = weir_fail(WEIR_E_INTERNAL, "hosts");
  if (status == WEIR_OK) {
    const double outer = (double)comm->hosts.outer_view->bytes_sent;
    const double inner = (double)comm->hosts.inner_view->bytes_sent;
    const double headers = 64 * 48;
    if (outer < N || outer > N + headers || inner < 6 * N || inner > 6 * N + headers ||
        all != outer + inner)
      status =
          weir_fail(WEIR_E_INTERNAL, "%g bytes between, %g inside, %g in all", outer, inner, all);
  }
  return status;
}

Test(hier, bytes_between_machines) { group_passes(GROUP_THREADS, 8, traffic_body, NULL); }

/* --- hosts and views ------------------------------------------------------------------------ */

Test(hosts, identity_is_stable_and_can_be_overridden) {
  unsetenv("WEIR_HOST");
  const uint64_t here = weir_host_identity(NULL);
  cr_assert_eq(here, weir_host_identity(NULL));
  cr_assert_eq(here, weir_host_identity(""), "an empty name is none");
  const uint64_t a = weir_host_identity("a"), b = weir_host_identity("b");
  cr_assert_neq(a, b);
  cr_assert_neq(a, here);
  setenv("WEIR_HOST", "a", 1);
  cr_assert_eq(weir_host_identity(NULL), a);
  cr_assert_eq(weir_host_identity("b"), b, "the argument goes first");
  unsetenv("WEIR_HOST");
}

static weir_status found_body(weir_transport *t, void *user) {
  (void)user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status != WEIR_OK) return status;
  int wrong = weir_comm_hosts(comm) != 3 || weir_comm_host_of(comm, 2) != 2;
  status = weir_comm_find_hosts(comm, weir_host_identity(NULL));
  wrong += weir_comm_hosts(comm) != 1 || weir_comm_host_of(comm, 2) != 0;
  if (status == WEIR_OK) status = weir_comm_find_hosts(comm, (uint64_t) "xyx"[t->rank]);
  wrong += weir_comm_hosts(comm) != 2 || weir_comm_host_of(comm, 0) != 0 ||
           weir_comm_host_of(comm, 1) != 1 || weir_comm_host_of(comm, 2) != 0;
  return status == WEIR_OK && wrong ? weir_fail(WEIR_E_INTERNAL, "%d wrong", wrong) : status;
}

typedef struct neighbours {
  const char *layout;
  int next[8];
} neighbours;

static weir_status neighbours_body(weir_transport *t, void *user) {
  const neighbours *due = user;
  weir_comm *comm = NULL;
  int next = -1, previous = -1;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status == WEIR_OK) status = weir_comm_find_hosts(comm, (uint64_t)due->layout[t->rank]);
  if (status == WEIR_OK) weir_comm_neighbours(comm, &next, &previous);
  weir_comm_free(comm);
  if (status != WEIR_OK) return status;
  if (next == due->next[t->rank] && due->next[previous] == t->rank) return WEIR_OK;
  return weir_fail(WEIR_E_INTERNAL, "%s: the next is %d, the one before %d", due->layout, next,
                   previous);
}

/* One kernel, and no link between them. */
Test(hosts, another_network_is_another_machine) {
  enum { SAME, OTHER, NOT_ALLOWED };
  const uint64_t here = weir_host_identity(NULL);
  const pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid == 0) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
      _exit(NOT_ALLOWED);
    _exit(weir_host_identity(NULL) == here ? SAME : OTHER);
  }
  int how = 0;
  cr_assert_eq(waitpid(pid, &how, 0), pid);
  cr_assert(WIFEXITED(how));
  if (WEXITSTATUS(how) == NOT_ALLOWED) cr_skip_test("no network of our own can be made here");
  cr_assert_eq(WEXITSTATUS(how), OTHER);
}

/* By hand: machine by machine, as many further on as the largest has. */
Test(hosts, neighbours_are_on_other_machines) {
  static const neighbours due[] = {{"a", {0}},
                                   {"ab", {1, 0}},
                                   {"aaaa", {1, 2, 3, 0}},
                                   {"abcd", {1, 2, 3, 0}},
                                   {"aabb", {2, 3, 0, 1}},
                                   {"abab", {1, 0, 3, 2}},
                                   {"abbcc", {2, 3, 4, 0, 1}},
                                   {"aab", {2, 0, 1}} /* two thirds are on one */};
  for (size_t i = 0; i < COUNT(due); i++) {
    group_passes(GROUP_THREADS, (int)strlen(due[i].layout), neighbours_body,
                 (void *)(uintptr_t)&due[i]);
  }
}

/* The processes of one machine find each other with no configuration. */
Test(hosts, are_found) {
  for (int kind = GROUP_THREADS; kind <= GROUP_SHM; kind++)
    group_passes((enum group_kind)kind, 3, found_body, NULL);
}

/* Ranks 3, 0, 2 of 4 as ranks 0, 1, 2: messages go where they should, lengths come back. */
static weir_status view_body(weir_transport *t, void *user) {
  (void)user;
  const uint64_t before = t->bytes_sent;
  const int member[] = {3, 0, 2}, twice[] = {0, 1, 2, 3, 0}, strange[] = {0, 1, 2, 4};
  weir_transport *view = NULL;
  int wrong = weir_transport_view(&view, t, twice, 5) != WEIR_E_INVALID || view != NULL;
  wrong += weir_transport_view(&view, t, strange, 4) != WEIR_E_INVALID;
  wrong += weir_transport_view(&view, t, member, 0) != WEIR_E_INVALID;
  if (t->rank == 1) {
    wrong += weir_transport_view(&view, t, member, 3) != WEIR_E_INVALID;
    return wrong ? weir_fail(WEIR_E_INTERNAL, "%d were not refused", wrong) : WEIR_OK;
  }
  weir_status status = weir_transport_view(&view, t, member, 3);
  if (status != WEIR_OK) return status;
  wrong += view->size != 3 || member[view->rank] != t->rank;
  const weir_tag tag = {1, 2, 3, 0};
  const int next = (view->rank + 1) % 3, previous = (view->rank + 2) % 3;
  const unsigned char out[2] = {(unsigned char)t->rank, 9};
  unsigned char in[8];
  const weir_send send = {next, out, 2, 5};
  weir_recv recv = {previous, in, sizeof in, 5, 0};
  status = view->ops->transfer(view, &tag, &send, 1, &recv, 1, weir_now_s() + 10);
  wrong += recv.bytes != 2 || in[0] != member[previous] || recv.peer != previous;
  wrong += view->bytes_sent == 0 || view->bytes_sent != t->bytes_sent - before;
  const weir_send self = {view->rank, out, 2, 6};
  wrong += view->ops->transfer(view, &tag, &self, 1, NULL, 0, weir_now_s() + 1) != WEIR_E_INVALID;
  double rtt = 0;
  wrong += view->ops->echo(view, 3, 0.1, &rtt) != WEIR_E_INVALID;
  view->ops->destroy(view);
  return status == WEIR_OK && wrong ? weir_fail(WEIR_E_INTERNAL, "%d wrong", wrong) : status;
}

Test(view, some_ranks_as_a_group) {
  for (int kind = GROUP_THREADS; kind <= GROUP_SHM; kind++)
    group_passes((enum group_kind)kind, 4, view_body, NULL);
}

/* Who ends a view's group names a rank of the view; others hear of it as a rank of the whole. */
static weir_status blame_body(weir_transport *t, void *user) {
  static const int member[] = {2, 0};
  const weir_tag tag = {1, 1, 1, 0};
  unsigned char byte;
  weir_recv recv = {0, &byte, 1, 0, 0};
  weir_transport *view = NULL;
  (void)user;
  if (t->rank == 0) {
    const weir_status status = weir_transport_view(&view, t, member, 2);
    if (status != WEIR_OK) return status;
    view->ops->abort(view, 0);
    view->ops->destroy(view);
    return WEIR_OK;
  }
  if (t->ops->transfer(t, &tag, NULL, 0, &recv, 1, weir_now_s() + 10) != WEIR_E_PEER ||
      strncmp(weir_last_error(), "rank 2", 6) != 0)
    return weir_fail(WEIR_E_INTERNAL, "another rank is to blame");
  return WEIR_OK;
}

Test(view, names_ranks_of_the_whole_group) { group_passes(GROUP_THREADS, 3, blame_body, NULL); }

/* A rank that is gone is named by its number in the whole group. */
static weir_status gone_body(weir_transport *t, void *user) {
  (void)user;
  if (t->rank == 2) _exit(0);
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 5.0);
  if (status != WEIR_OK) return status;
  float x[4] = {0};
  /* Rank 2 never said on which machine it is, so the others cannot even group. */
  status = weir_comm_find_hosts(comm, (uint64_t)t->rank);
  if (status == WEIR_OK)
    status = weir_allreduce_hier(comm, &(weir_hier_choice){0}, x, 4, WEIR_VALUE_FP32, NULL, NULL);
  return status;
}

Test(hier, a_dead_rank_is_named) {
  ENDED group g = group_new(GROUP_TCP, 3, gone_body, NULL);
  group_run(&g);
  for (int r = 0; r < 2; r++) {
    cr_assert_eq(g.result[r].status, WEIR_E_PEER, "%s", g.result[r].message);
    cr_assert(strstr(g.result[r].message, "rank 2"), "%s", g.result[r].message);
  }
}
