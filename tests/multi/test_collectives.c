/* All-reduces, all-gathers and broadcasts of every row, over threads and shared memory. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "../sampled.h"
#include "collectives/comm.h"
#include "ranks.h"
#include "said_headers.h"

static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
static const size_t lengths[] = {0, 1, 5, 1000, 100003};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Threads go through all sizes and lengths, which is what the algorithms differ in; between
 * processes, where a group takes longer to come together, 2, 4 and 7 ranks have no element, fewer
 * than ranks and many. */
static size_t first_size(enum group_kind kind) { return kind == GROUP_THREADS ? 0 : 1; }
static size_t stride_of(enum group_kind kind) { return kind == GROUP_THREADS ? 1 : 2; }

/* One case: every rank's input, result, error and headers lie in shared memory. */
typedef struct job {
  uint32_t algorithm;
  weir_value_format format;
  size_t n;
  int size;
  float *input;           /* size * n */
  float *output;          /* size * n */
  float *error;           /* size * n */
  unsigned char *headers; /* size * size * HEADER */
} job;

static weir_status allreduce_body(weir_transport *t, void *user) {
  const job *j = user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status != WEIR_OK) return status;
  const size_t at = (size_t)t->rank * j->n;
  unsigned char *block = j->headers + (size_t)t->rank * (size_t)j->size * HEADER;
  for (int pass = 0; pass < 2 && status == WEIR_OK; pass++) { /* twice: the same bits again */
    FREED float *x = malloc(j->n * sizeof *x + 1);
    if (j->n) memcpy(x, j->input + at, j->n * sizeof *x);
    if (j->n) memset(j->error + at, 0, j->n * sizeof(float));
    weir_headers headers = headers_of(block, t->rank, j->size);
    weir_comm_step(comm, 77, (uint64_t)pass);
    status = weir_allreduces[j->algorithm].run(comm, x, j->n, j->format, j->error + at, &headers);
    if (status == WEIR_OK && pass == 1 && j->n && memcmp(x, j->output + at, j->n * sizeof *x) != 0)
      status = weir_fail(WEIR_E_INTERNAL, "the second run gave other bits");
    if (j->n) memcpy(j->output + at, x, j->n * sizeof *x);
  }
  return status;
}

/* Against a sum in double precision; and sum of inputs = result + sum of errors.  Millions of
 * elements: an assertion each would take longer than everything else. */
static void check_sums(const job *j) {
  for (size_t i = 0; i < j->n; i++) {
    double sum = 0.0, magnitude = 0.0, error = 0.0;
    for (int r = 0; r < j->size; r++) {
      sum += (double)j->input[(size_t)r * j->n + i];
      magnitude += fabs((double)j->input[(size_t)r * j->n + i]);
      error += (double)j->error[(size_t)r * j->n + i];
    }
    const double rounding = 1e-6 * magnitude * j->size + 1e-30;
    const double result = (double)j->output[i];
    if (!(fabs(sum - (result + error)) <= rounding))
      cr_assert_fail("element %zu: %g is lost", i, sum - (result + error));
    if (j->format == WEIR_VALUE_FP32 && error != 0.0)
      cr_assert_fail("element %zu: error %g", i, error);
    /* a significand of 8 bits: each of at most N roundings loses at most 2^-8 of what passes, which
     * the earlier ones may have swollen by (1 + 2^-8)^N < 1.04 */
    if (j->format == WEIR_VALUE_BF16 &&
        !(fabs(sum - result) <= 1.04 * magnitude * j->size / 256.0 + 1e-30))
      cr_assert_fail("element %zu: %g, not %g", i, result, sum);
  }
  for (int r = 1; r < j->size; r++)
    cr_assert_eq(memcmp(j->output, j->output + (size_t)r * j->n, j->n * sizeof(float)), 0,
                 "rank %d has other bits", r);
  /* 16-bit results: the lower half of each float is zero, on every rank of a group that talks. */
  for (size_t i = 0; j->size > 1 && j->format == WEIR_VALUE_BF16 && i < j->n; i++) {
    uint32_t bits;
    memcpy(&bits, &j->output[i], sizeof bits);
    if ((bits & 0xffffu) != 0) cr_assert_fail("element %zu is no bf16", i);
  }
}

static void allreduce_case(enum group_kind kind, uint32_t algorithm, int size, size_t n,
                           weir_value_format format) {
  if (!sampled(5)) return;
  job j = {.algorithm = algorithm, .format = format, .n = n, .size = size};
  const size_t bytes = (size_t)size * n * sizeof(float);
  j.input = group_shared(bytes);
  j.output = group_shared(bytes);
  j.error = group_shared(bytes);
  j.headers = group_shared((size_t)(size * size * HEADER));
  weir_rng rng = weir_rng_of(1000 * n + (uint64_t)size);
  for (size_t i = 0; i < (size_t)size * n; i++)
    j.input[i] = (float)(2 * weir_rng_uniform(&rng) - 1);
  ENDED group g = group_new(kind, size, allreduce_body, &j);
  group_run(&g);
  for (int r = 0; r < size; r++)
    cr_assert_eq(g.result[r].status, WEIR_OK, "N %d n %zu rank %d: %s", size, n, r,
                 g.result[r].message);
  check_sums(&j);
  for (int r = 0; r < size; r++)
    cr_assert_eq(header_missing(j.headers + r * size * HEADER, size), -1, "rank %d", r);
  (void)munmap(j.input, bytes ? bytes : 1);
  (void)munmap(j.output, bytes ? bytes : 1);
  (void)munmap(j.error, bytes ? bytes : 1);
  (void)munmap(j.headers, (size_t)(size * size * HEADER));
}

static void allreduce_all(enum group_kind kind, uint32_t algorithm) {
  for (size_t s = first_size(kind); s < COUNT(sizes); s += stride_of(kind))
    for (size_t l = 0; l < COUNT(lengths); l += stride_of(kind)) {
      allreduce_case(kind, algorithm, sizes[s], lengths[l], WEIR_VALUE_FP32);
      allreduce_case(kind, algorithm, sizes[s], lengths[l], WEIR_VALUE_BF16);
    }
}

Test(allreduce, ring_threads) { allreduce_all(GROUP_THREADS, WEIR_ALLREDUCE_RING); }
Test(allreduce, tree_threads) { allreduce_all(GROUP_THREADS, WEIR_ALLREDUCE_TREE); }
Test(allreduce, ring_shm) { allreduce_all(GROUP_SHM, WEIR_ALLREDUCE_RING); }
Test(allreduce, tree_shm) { allreduce_all(GROUP_SHM, WEIR_ALLREDUCE_TREE); }
Test(allreduce, ring_shm_threads) { allreduce_all(GROUP_SHM_THREADS, WEIR_ALLREDUCE_RING); }

Test(allreduce, halving_threads) { allreduce_all(GROUP_THREADS, WEIR_ALLREDUCE_HALVING); }
Test(allreduce, double_tree_threads) { allreduce_all(GROUP_THREADS, WEIR_ALLREDUCE_DOUBLE_TREE); }
Test(allreduce, torus_threads) { allreduce_all(GROUP_THREADS, WEIR_ALLREDUCE_TORUS); }
Test(allreduce, doubling_threads) { allreduce_all(GROUP_THREADS, WEIR_ALLREDUCE_DOUBLING); }
Test(allreduce, direct_threads) { allreduce_all(GROUP_THREADS, WEIR_ALLREDUCE_DIRECT); }
Test(allreduce, star_threads) { allreduce_all(GROUP_THREADS, WEIR_ALLREDUCE_STAR); }

/* Shapes the sizes above do not have (a torus of 2 x 6 and 3 x 3, three levels of folding, deep
 * trees), and lengths at which the double tree has several chunks. */
Test(allreduce, larger_groups_and_chunks_threads) {
  for (uint32_t a = 0; a < WEIR_ALLREDUCE_COUNT; a++)
    for (int f = 0; f < 2; f++) {
      allreduce_case(GROUP_THREADS, a, 9, 1000, (weir_value_format)f);
      allreduce_case(GROUP_THREADS, a, 12, 11, (weir_value_format)f);
      allreduce_case(GROUP_THREADS, a, 13, 1000, (weir_value_format)f);
      allreduce_case(GROUP_THREADS, a, 6, 200001, (weir_value_format)f);
      allreduce_case(GROUP_THREADS, a, 3, 600001, (weir_value_format)f);
    }
}

static void allreduce_some(enum group_kind kind) {
  for (uint32_t a = WEIR_ALLREDUCE_HALVING; a < WEIR_ALLREDUCE_COUNT; a++)
    for (int f = 0; f < 2; f++) {
      allreduce_case(kind, a, 2, 0, (weir_value_format)f);
      allreduce_case(kind, a, 4, 100003, (weir_value_format)f);
      allreduce_case(kind, a, 7, 5, (weir_value_format)f);
      allreduce_case(kind, a, 6, 300007, (weir_value_format)f);
    }
}
Test(allreduce, others_tcp) { allreduce_some(GROUP_TCP); }
Test(allreduce, others_shm) { allreduce_some(GROUP_SHM); }

Test(allreduce, table_rows_are_in_order) {
  for (uint32_t i = 0; i < WEIR_ALLREDUCE_COUNT; i++) cr_assert_eq(weir_allreduces[i].id, i);
  cr_assert_str_eq(weir_allreduces[WEIR_ALLREDUCE_RING].name, "ring");
  cr_assert_str_eq(weir_allreduces[WEIR_ALLREDUCE_TREE].name, "tree");
  cr_assert_str_eq(weir_allreduces[WEIR_ALLREDUCE_HALVING].name, "halving");
  cr_assert_str_eq(weir_allreduces[WEIR_ALLREDUCE_DOUBLE_TREE].name, "double-tree");
  cr_assert_str_eq(weir_allreduces[WEIR_ALLREDUCE_TORUS].name, "torus");
  cr_assert_str_eq(weir_allreduces[WEIR_ALLREDUCE_STAR].name, "star");
  cr_assert_str_eq(weir_allreduces[WEIR_ALLREDUCE_DOUBLING].name, "doubling");
  cr_assert_str_eq(weir_allreduces[WEIR_ALLREDUCE_DIRECT].name, "direct");
}

/* Gathered and broadcast bytes are a function of (rank, position): every rank checks its own. */
static unsigned char data_byte(int rank, size_t i) {
  return (unsigned char)((size_t)rank * 131 + i * 17 + (i >> 8) + 3);
}
static size_t block_bytes(int rank, size_t stride) {
  return rank % 3 == 1 ? 0 : stride - (size_t)(rank * 5) % (stride + 1);
}

static weir_status gather_body(weir_transport *t, void *user) {
  const size_t stride = *(const size_t *)user;
  const size_t size = (size_t)t->size;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status != WEIR_OK) return status;
  FREED unsigned char *all = calloc(size + 1, stride + 1), *block = calloc(size, HEADER);
  FREED size_t *bytes = calloc(size, sizeof *bytes);
  weir_headers headers = headers_of(block, t->rank, t->size);
  bytes[t->rank] = block_bytes(t->rank, stride);
  for (size_t i = 0; i < bytes[t->rank]; i++)
    all[(size_t)t->rank * stride + i] = data_byte(t->rank, i);
  weir_comm_step(comm, 5, 1);
  status = weir_allgather(comm, all, stride, bytes, &headers);
  for (int r = 0; status == WEIR_OK && r < t->size; r++) {
    if (bytes[r] != block_bytes(r, stride)) status = weir_fail(WEIR_E_INTERNAL, "length of %d", r);
    for (size_t i = 0; i < bytes[r]; i++)
      if (all[(size_t)r * stride + i] != data_byte(r, i))
        status = weir_fail(WEIR_E_INTERNAL, "block %d byte %zu", r, i);
  }
  const int missing = header_missing(block, t->size);
  return status == WEIR_OK && missing >= 0 ? weir_fail(WEIR_E_INTERNAL, "header %d", missing)
                                           : status;
}

static weir_status broadcast_body(weir_transport *t, void *user) {
  const size_t length = *(const size_t *)user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status != WEIR_OK) return status;
  FREED unsigned char *data = calloc(1, length + 8);
  weir_comm_step(comm, 5, 1);
  for (int root = 0; status == WEIR_OK && root < t->size; root++) {
    size_t bytes = 0;
    if (t->rank == root) {
      bytes = length;
      for (size_t i = 0; i < length; i++) data[i] = data_byte(root, i);
    }
    status = weir_broadcast(comm, root, data, length + 8, &bytes);
    if (status != WEIR_OK) break;
    if (bytes != length) status = weir_fail(WEIR_E_INTERNAL, "%zu bytes from %d", bytes, root);
    for (size_t i = 0; i < length; i++)
      if (data[i] != data_byte(root, i)) status = weir_fail(WEIR_E_INTERNAL, "byte %zu", i);
  }
  return status;
}

static void bytes_all(enum group_kind kind, weir_status (*body)(weir_transport *, void *)) {
  for (size_t s = first_size(kind); s < COUNT(sizes); s += stride_of(kind))
    for (size_t l = 0; l < COUNT(lengths); l += stride_of(kind)) {
      if (!sampled(5)) continue;
      size_t length = lengths[l];
      ENDED group g = group_new(kind, sizes[s], body, &length);
      group_run(&g);
      for (int r = 0; r < g.size; r++)
        cr_assert_eq(g.result[r].status, WEIR_OK, "N %d length %zu rank %d: %s", g.size, length, r,
                     g.result[r].message);
    }
}

Test(allgather, threads) { bytes_all(GROUP_THREADS, gather_body); }
Test(broadcast, threads) { bytes_all(GROUP_THREADS, broadcast_body); }
Test(allgather, shm) { bytes_all(GROUP_SHM, gather_body); }
Test(broadcast, shm) { bytes_all(GROUP_SHM, broadcast_body); }

Test(allreduce, ring_tcp) { allreduce_all(GROUP_TCP, WEIR_ALLREDUCE_RING); }
Test(allreduce, tree_tcp) { allreduce_all(GROUP_TCP, WEIR_ALLREDUCE_TREE); }
Test(allgather, tcp) { bytes_all(GROUP_TCP, gather_body); }
Test(broadcast, tcp) { bytes_all(GROUP_TCP, broadcast_body); }

/* What a communicator refuses changes nothing: it goes on. */
static weir_status refuse_body(weir_transport *t, void *user) {
  static const double never[] = {0, -1, NAN, INFINITY, 1e9};
  static unsigned char block[2 * (WEIR_HEADER_MAX + 1)];
  const weir_headers longest = {block, WEIR_HEADER_MAX},
                     bad[] = {{block, WEIR_HEADER_MAX + 1}, {NULL, 5}};
  (void)user;
  OWNED weir_comm *comm = NULL;
  int taken = 0;
  for (size_t i = 0; i < COUNT(never); i++)
    taken += weir_comm_create(&comm, t, never[i]) != WEIR_E_INVALID || comm != NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  float x = 1;
  for (uint32_t a = 0; a < WEIR_ALLREDUCE_NATIVE && status == WEIR_OK; a++) {
    weir_headers good = longest;
    for (size_t i = 0; i < COUNT(bad); i++) {
      weir_headers headers = bad[i];
      taken +=
          weir_allreduces[a].run(comm, &x, 1, WEIR_VALUE_FP32, NULL, &headers) != WEIR_E_INVALID;
    }
    weir_comm_step(comm, 77, a);
    status = weir_allreduces[a].run(comm, &x, 1, WEIR_VALUE_FP32, NULL, &good);
  }
  if (status == WEIR_OK && (taken > 0 || x != ldexpf(1, WEIR_ALLREDUCE_NATIVE)))
    status = weir_fail(WEIR_E_INTERNAL, "%d were taken, and the sum is %g", taken, (double)x);
  return status;
}

Test(comm, refuses_time_outs_and_headers_that_cannot_be) {
  group_passes(GROUP_THREADS, 2, refuse_body, NULL);
}

/* Rank 0 could not use what rank 1 sent. */
static weir_status unusable_body(weir_transport *t, void *user) {
  const weir_status why = *(const weir_status *)user;
  const char *culprit = why == WEIR_E_PROTOCOL ? "rank 1" : "rank 0";
  weir_comm *comm = NULL;
  unsigned char byte = 0;
  weir_recv recv = {0, &byte, 1, 0, 0};
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status != WEIR_OK) return status;
  if (t->rank == 0)
    status =
        weir_comm_refuse(comm, 1, weir_fail(why, "message")) == why ? WEIR_OK : WEIR_E_INTERNAL;
  else if (weir_comm_transfer(comm, NULL, 0, &recv, 1) != WEIR_E_PEER ||
           strncmp(weir_last_error(), culprit, strlen(culprit)) != 0)
    status = weir_fail(WEIR_E_INTERNAL, "%s is not to blame", culprit);
  weir_comm_free(comm);
  return status;
}

Test(comm, blames_who_sent_what_is_malformed_and_else_nobody_else) {
  weir_status why[] = {WEIR_E_PROTOCOL, WEIR_E_NOMEM};
  for (size_t i = 0; i < COUNT(why); i++) group_passes(GROUP_THREADS, 3, unusable_body, &why[i]);
}

/* Sums beyond the largest float are that, of either sign, so that they can be encoded again. */
Test(comm, sums_are_held_finite) {
  float x[] = {-INFINITY, INFINITY, -FLT_MAX, FLT_MAX, -1, 0, 2};
  static const float due[] = {-FLT_MAX, FLT_MAX, -FLT_MAX, FLT_MAX, -1, 0, 2};
  weir_hold_finite(x, COUNT(x));
  for (size_t i = 0; i < COUNT(x); i++) cr_assert_eq(x[i], due[i], "%zu: %g", i, (double)x[i]);
}
