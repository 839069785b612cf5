/* Every row of every table but all-reduce's: what arrives is a function of (rank, position), worked
 * out by each receiver for itself. */
#include <criterion/criterion.h>
#include <math.h>

#include "collectives/patterns/patterns.h"
#include "ranks.h"
#include "said_headers.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 13};
static const size_t lengths[] = {0, 1, 5, 1000, 100003};

typedef struct job {
  uint32_t row;
  size_t length; /* bytes, or elements */
  weir_value_format format;
  float *x, *error; /* size * length, in shared memory: results and what rounding lost */
} job;

static unsigned char data_byte(int from, int to, size_t i) {
  return (unsigned char)((size_t)from * 131 + (size_t)to * 29 + i * 17 + (i >> 8) + 3);
}
/* Some blocks are empty, some as long as the stride. */
static size_t block_bytes(int from, int to, size_t stride) {
  return (from + to) % 3 == 1 ? 0 : stride - (size_t)(from * 5 + to) % (stride + 1);
}

static void fill(unsigned char *block, int from, int to, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) block[i] = data_byte(from, to, i);
}

static weir_status check_block(const unsigned char *block, size_t bytes, int from, int to,
                               size_t due) {
  if (bytes != due)
    return weir_fail(WEIR_E_INTERNAL, "%zu bytes from %d, not %zu", bytes, from, due);
  for (size_t i = 0; i < bytes; i++)
    if (block[i] != data_byte(from, to, i))
      return weir_fail(WEIR_E_INTERNAL, "block of %d, byte %zu", from, i);
  return WEIR_OK;
}

static weir_status broadcast_rank(weir_comm *comm, const job *j) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  FREED unsigned char *data = calloc(1, j->length + 8);
  weir_status status = WEIR_OK;
  for (int root = 0; status == WEIR_OK && root < size; root++) {
    size_t bytes = rank == root ? j->length : 77;
    if (rank == root) fill(data, root, 0, j->length);
    status = weir_broadcasts[j->row].run(comm, root, data, j->length + 8, &bytes);
    if (status == WEIR_OK) status = check_block(data, bytes, root, 0, j->length);
  }
  return status;
}

static weir_status allgather_rank(weir_comm *comm, const job *j) {
  const int rank = weir_comm_rank(comm);
  const size_t size = (size_t)weir_comm_size(comm), stride = j->length;
  FREED unsigned char *all = calloc(size + 1, stride + 1), *block = calloc(size, HEADER);
  FREED size_t *bytes = calloc(size, sizeof *bytes);
  weir_headers headers = headers_of(block, rank, (int)size);
  bytes[rank] = block_bytes(rank, 0, stride);
  fill(all + (size_t)rank * stride, rank, 0, bytes[rank]);
  weir_status status = weir_allgathers[j->row].run(comm, all, stride, bytes, &headers);
  for (int r = 0; status == WEIR_OK && r < (int)size; r++)
    status = check_block(all + (size_t)r * stride, bytes[r], r, 0, block_bytes(r, 0, stride));
  const int missing = header_missing(block, (int)size);
  if (status == WEIR_OK && missing >= 0) status = weir_fail(WEIR_E_INTERNAL, "header %d", missing);
  /* and without headers */
  if (status == WEIR_OK) status = weir_allgathers[j->row].run(comm, all, stride, bytes, NULL);
  return status;
}

static weir_status gather_rank(weir_comm *comm, const job *j) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  const size_t stride = j->length;
  FREED unsigned char *all = calloc((size_t)size + 1, stride + 1);
  FREED size_t *bytes = calloc((size_t)size, sizeof *bytes);
  weir_status status = WEIR_OK;
  for (int root = 0; status == WEIR_OK && root < size; root++) {
    memset(bytes, 0, (size_t)size * sizeof *bytes);
    bytes[rank] = block_bytes(rank, root, stride);
    fill(all + (size_t)rank * stride, rank, root, bytes[rank]);
    status = weir_gathers[j->row].run(comm, root, all, stride, bytes);
    for (int r = 0; status == WEIR_OK && rank == root && r < size; r++)
      status =
          check_block(all + (size_t)r * stride, bytes[r], r, root, block_bytes(r, root, stride));
  }
  return status;
}

/* Of all ranks; the longest case's, drawn once. */
#define LONGEST 30011
static float *inputs;
static float input_at(int rank, size_t i) { return inputs[(size_t)rank * LONGEST + i]; }

static void draw_inputs(void) {
  inputs = malloc(GROUP_MAX * LONGEST * sizeof *inputs);
  weir_rng rng = weir_rng_of(1000003);
  for (size_t i = 0; i < (size_t)GROUP_MAX * LONGEST; i++) inputs[i] = (float)weir_rng_normal(&rng);
}

static void drop_inputs(void) { free(inputs); }

TestSuite(rows, .init = draw_inputs, .fini = drop_inputs);

static float *load(const job *j, int rank) {
  float *x = j->x + (size_t)rank * j->length;
  for (size_t i = 0; i < j->length; i++) x[i] = input_at(rank, i);
  memset(j->error + (size_t)rank * j->length, 0, j->length * sizeof *x);
  return x;
}

static weir_status reduce_scatter_rank(weir_comm *comm, const job *j) {
  const int rank = weir_comm_rank(comm);
  float *x = load(j, rank);
  return weir_reduce_scatters[j->row].run(comm, x, j->length, j->format,
                                          j->error + (size_t)rank * j->length);
}

static weir_status reduce_rank(weir_comm *comm, const job *j) {
  const int rank = weir_comm_rank(comm), root = weir_comm_size(comm) / 2;
  float *x = load(j, rank);
  return weir_reduces[j->row].run(comm, root, x, j->length, j->format,
                                  j->error + (size_t)rank * j->length);
}

typedef struct call {
  weir_status (*rank)(weir_comm *, const job *);
  job job;
} call;

static weir_status body(weir_transport *t, void *user) {
  const call *c = user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status != WEIR_OK) return status;
  weir_comm_step(comm, 5, 1);
  status = c->rank(comm, &c->job);
  return status;
}

static void run_case(enum group_kind kind, int size, call *c) {
  ENDED group g = group_new(kind, size, body, c);
  group_run(&g);
  for (int r = 0; r < size; r++)
    cr_assert_eq(g.result[r].status, WEIR_OK, "row %u N %d length %zu rank %d: %s", c->job.row,
                 size, c->job.length, r, g.result[r].message);
}

static void bytes_all(weir_status (*rank)(weir_comm *, const job *), uint32_t rows) {
  for (uint32_t row = 0; row < rows; row++) {
    for (size_t s = 0; s < COUNT(sizes); s++)
      for (size_t l = 0; l < COUNT(lengths); l++) {
        call c = {rank, {.row = row, .length = lengths[l]}};
        run_case(GROUP_THREADS, sizes[s], &c);
      }
    for (int kind = GROUP_TCP; kind <= GROUP_SHM; kind++) {
      call c = {rank, {.row = row, .length = 300007}};
      run_case((enum group_kind)kind, 6, &c);
    }
  }
}

Test(rows, broadcast) { bytes_all(broadcast_rank, WEIR_BROADCAST_COUNT); }
Test(rows, allgather) { bytes_all(allgather_rank, WEIR_ALLGATHER_COUNT); }
Test(rows, gather) { bytes_all(gather_rank, WEIR_GATHER_COUNT); }

/* Who holds element i of the result. */
static int owner_scatter(int size, size_t n, size_t i) {
  for (int r = 0; r < size; r++) {
    const size_t begin = n / (size_t)size * (size_t)r +
                         ((size_t)r < n % (size_t)size ? (size_t)r : n % (size_t)size);
    if (i < begin) return r - 1;
  }
  return size - 1;
}

static void check_sums(const job *j, int size, bool scatter) {
  for (size_t i = 0; i < j->length; i++) {
    double sum = 0, magnitude = 0, error = 0;
    for (int r = 0; r < size; r++) {
      const double value = (double)input_at(r, i);
      sum += value;
      magnitude += fabs(value);
      error += (double)j->error[(size_t)r * j->length + i];
    }
    const int owner = scatter ? owner_scatter(size, j->length, i) : size / 2;
    const double result = (double)j->x[(size_t)owner * j->length + i];
    cr_assert_leq(fabs(sum - (result + error)), 1e-6 * magnitude * size + 1e-30,
                  "row %u N %d element %zu: %g, not %g", j->row, size, i, result, sum);
    if (j->format == WEIR_VALUE_FP32) cr_assert_eq(error, 0.0);
    cr_assert_leq(fabs(sum - result), 1.04 * magnitude * size / 256.0 + 1e-30);
  }
}

static void sums_case(enum group_kind kind, int size, bool scatter, uint32_t row, size_t n,
                      weir_value_format format) {
  const size_t bytes = (size_t)size * n * sizeof(float);
  call c = {scatter ? reduce_scatter_rank : reduce_rank,
            {.row = row, .length = n, .format = format}};
  c.job.x = group_shared(bytes);
  c.job.error = group_shared(bytes);
  run_case(kind, size, &c);
  check_sums(&c.job, size, scatter);
  (void)munmap(c.job.x, bytes ? bytes : 1);
  (void)munmap(c.job.error, bytes ? bytes : 1);
}

static void sums_all(bool scatter, uint32_t rows) {
  const size_t some[] = {0, 1, 5, 10007};
  for (uint32_t row = 0; row < rows; row++)
    for (int f = 0; f < 2; f++) {
      for (size_t s = 0; s < COUNT(sizes); s++)
        for (size_t l = 0; l < COUNT(some); l++)
          sums_case(GROUP_THREADS, sizes[s], scatter, row, some[l], (weir_value_format)f);
      sums_case(GROUP_TCP, 5, scatter, row, LONGEST, (weir_value_format)f);
      sums_case(GROUP_SHM, 5, scatter, row, LONGEST, (weir_value_format)f);
    }
}

Test(rows, reduce_scatter) { sums_all(true, WEIR_REDUCE_SCATTER_COUNT); }
Test(rows, reduce) { sums_all(false, WEIR_REDUCE_COUNT); }

Test(rows, are_in_order) {
  for (uint32_t i = 0; i < WEIR_BROADCAST_COUNT; i++) cr_assert_eq(weir_broadcasts[i].id, i);
  for (uint32_t i = 0; i < WEIR_ALLGATHER_COUNT; i++) cr_assert_eq(weir_allgathers[i].id, i);
  for (uint32_t i = 0; i < WEIR_REDUCE_SCATTER_COUNT; i++)
    cr_assert_eq(weir_reduce_scatters[i].id, i);
  for (uint32_t i = 0; i < WEIR_REDUCE_COUNT; i++) cr_assert_eq(weir_reduces[i].id, i);
  for (uint32_t i = 0; i < WEIR_GATHER_COUNT; i++) cr_assert_eq(weir_gathers[i].id, i);
}

/* --- what is refused ------------------------------------------------------------------------ */

static weir_status refuse_body(weir_transport *t, void *user) {
  (void)user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 5.0);
  if (status != WEIR_OK) return status;
  unsigned char data[16] = {0};
  size_t bytes[2] = {9, 9};
  float x[2] = {0, 0};
  int wrong = 0;
  weir_comm_step(comm, 5, 1);
  for (int root = -1; root <= 2; root += 3) {
    for (int i = 0; i < WEIR_BROADCAST_COUNT; i++)
      wrong += weir_broadcasts[i].run(comm, root, data, 8, bytes) != WEIR_E_INVALID;
    for (int i = 0; i < WEIR_GATHER_COUNT; i++)
      wrong += weir_gathers[i].run(comm, root, data, 9, bytes) != WEIR_E_INVALID;
    wrong += weir_reduces[0].run(comm, root, x, 2, WEIR_VALUE_FP32, NULL) != WEIR_E_INVALID;
  }
  for (int i = 0; i < WEIR_BROADCAST_COUNT; i++)
    wrong += weir_broadcasts[i].run(comm, t->rank, data, 8, bytes) != WEIR_E_INVALID;
  for (int i = 0; i < WEIR_ALLGATHER_COUNT; i++)
    wrong += weir_allgathers[i].run(comm, data, 8, bytes, NULL) != WEIR_E_INVALID;
  for (int i = 0; i < WEIR_GATHER_COUNT; i++)
    wrong += weir_gathers[i].run(comm, 0, data, 8, bytes) != WEIR_E_INVALID;
  return wrong == 0 ? WEIR_OK : weir_fail(WEIR_E_INTERNAL, "%d were not refused", wrong);
}

Test(rows, bad_arguments_are_refused_before_anything_is_sent) {
  group_passes(GROUP_THREADS, 2, refuse_body, NULL);
}

/* The root broadcasts more than the others have room for: they say so, and nobody waits. */
static weir_status too_long_body(weir_transport *t, void *user) {
  const uint32_t row = *(const uint32_t *)user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 5.0);
  if (status != WEIR_OK) return status;
  unsigned char data[64] = {0};
  size_t bytes = 64;
  weir_comm_step(comm, 5, 1);
  status = weir_broadcasts[row].run(comm, 0, data, t->rank == 0 ? 64 : 32, &bytes);
  return status;
}

Test(rows, a_broadcast_too_long_is_refused) {
  for (uint32_t row = 0; row < WEIR_BROADCAST_COUNT; row++) {
    ENDED group g = group_new(GROUP_SHM, 3, too_long_body, &row);
    group_run(&g);
    int told = 0; /* whoever is first tells the other, which may not get to look for itself */
    for (int r = 1; r < 3; r++) {
      const weir_status status = g.result[r].status;
      cr_assert(status == WEIR_E_PROTOCOL || status == WEIR_E_PEER, "%s", g.result[r].message);
      told += strstr(g.result[r].message, "64 bytes where at most 32") != NULL;
    }
    cr_assert_geq(told, 1, "%s; %s", g.result[1].message, g.result[2].message);
  }
}
