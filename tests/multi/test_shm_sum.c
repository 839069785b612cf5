/* All-reduce in shared memory: exact sums at every length around its chunks, and what happens to
 * the others when a rank means something else, dies or freezes. */
#include <criterion/criterion.h>
#include <time.h>

#include "collectives/transports/shm.h"
#include "ranks.h"

#define HEADER 40
#define COUNT(a) (sizeof(a) / sizeof *(a))

static weir_status native(weir_comm *comm, float *x, size_t n, weir_headers *headers) {
  return weir_allreduces[WEIR_ALLREDUCE_NATIVE].run(comm, x, n, WEIR_VALUE_FP32, NULL, headers);
}

/* --- sums ----------------------------------------------------------------------------------- */

/* A value with all bits of the significand in use: sums in another order give other bits.  Two
 * multiplications: every rank works it out for each of the others, hundreds of millions of
 * times. */
static float input(int rank, size_t i) {
  uint32_t bits = ((uint32_t)i + (uint32_t)rank * 0x85ebca6bU) * 0x9e3779b1U;
  bits = (bits ^ bits >> 15) * 0xc2b2ae35U;
  return ((float)(int32_t)bits) * 1e-6f;
}

static unsigned char header_byte(int rank, int i) { return (unsigned char)(rank * 37 + i * 5 + 1); }

static weir_status check_headers(const unsigned char *block, int size) {
  for (int r = 0; r < size; r++)
    for (int i = 0; i < HEADER; i++)
      if (block[r * HEADER + i] != header_byte(r, i))
        return weir_fail(WEIR_E_INTERNAL, "header of %d, byte %d", r, i);
  return WEIR_OK;
}

static weir_status sum_once(weir_comm *comm, float *x, size_t n) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  unsigned char block[GROUP_MAX * HEADER] = {0};
  weir_headers headers = {block, HEADER};
  for (size_t i = 0; i < n; i++) x[i] = input(rank, i);
  for (int i = 0; i < HEADER; i++) block[rank * HEADER + i] = header_byte(rank, i);
  const weir_status status = native(comm, x, n, &headers);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < n; i++) {
    float due = input(0, i);
    for (int r = 1; r < size; r++) due += input(r, i);
    if (memcmp(&x[i], &due, sizeof due) != 0)
      return weir_fail(WEIR_E_INTERNAL, "element %zu of %zu is %.9g, not %.9g", i, n, (double)x[i],
                       (double)due);
  }
  return check_headers(block, size);
}

/* Around a vector, the length every rank adds up whole, one chunk, all slots, and many of them. */
static const size_t lengths[] = {0,     1,     3,     16,     17,     1000,   4096,   4097,
                                 32767, 32768, 32769, 131072, 131073, 163841, 300007, 5};

static weir_status sums_body(weir_transport *t, void *user) {
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  FREED float *x = malloc(300007 * sizeof *x);
  (void)user;
  if (status != WEIR_OK || !x) abort();
  for (size_t l = 0; l < COUNT(lengths) && status == WEIR_OK; l++)
    for (int pass = 0; pass < 2 && status == WEIR_OK; pass++) {
      weir_comm_step(comm, 7, 2 * l + (size_t)pass);
      const uint64_t before = t->bytes_sent;
      status = sum_once(comm, x, lengths[l]);
      /* what it wrote for the others: the numbers, a header, 32 bytes about them */
      const uint64_t due = t->size > 1 ? 4 * lengths[l] + HEADER + 32 : 0;
      if (status == WEIR_OK && t->bytes_sent - before != due)
        status = weir_fail(WEIR_E_INTERNAL, "%zu elements: %llu bytes", lengths[l],
                           (unsigned long long)(t->bytes_sent - before));
      float one = 1;
      if (status == WEIR_OK) /* messages in between */
        status =
            weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, &one, 1, WEIR_VALUE_FP32, NULL, NULL);
      if (status == WEIR_OK && one != (float)t->size)
        status = weir_fail(WEIR_E_INTERNAL, "messages in between: %g", (double)one);
    }
  return status;
}

Test(shm_sum, the_sum_in_the_order_of_ranks) {
  static const int sizes[] = {1, 2, 3, 4, 5, 8};
  for (size_t s = 0; s < COUNT(sizes); s++) group_passes(GROUP_SHM, sizes[s], sums_body, NULL);
}

Test(shm_sum, among_threads) { group_passes(GROUP_SHM_THREADS, 3, sums_body, NULL); }

/* Ranks that come late and go early, so that the others wait at every stage. */
static weir_status uneven_body(weir_transport *t, void *user) {
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  static float x[40000];
  (void)user;
  for (uint64_t step = 0; step < 60 && status == WEIR_OK; step++) {
    const struct timespec nap = {0, step % (uint64_t)t->size == (uint64_t)t->rank ? 3000000 : 0};
    (void)nanosleep(&nap, NULL);
    const size_t n = step % 3 == 0 ? 40000 : 7;
    for (size_t i = 0; i < n; i++) x[i] = (float)(t->rank + (int)step);
    weir_comm_step(comm, 7, step);
    status = native(comm, x, n, NULL);
    const float due = (float)(t->size * (t->size - 1) / 2 + t->size * (int)step);
    for (size_t i = 0; i < n && status == WEIR_OK; i++)
      if (x[i] != due) status = weir_fail(WEIR_E_INTERNAL, "step %d: %g", (int)step, (double)x[i]);
  }
  return status;
}

Test(shm_sum, ranks_out_of_step) { group_passes(GROUP_SHM, 5, uneven_body, NULL); }

Test(shm_sum, what_it_does_not_do) {
  weir_transport *t = NULL;
  weir_comm *comm = NULL;
  float x = 1, error = 0;
  unsigned char block[512];
  const weir_tag tag = {1, 1, 1, 0};
  cr_assert_eq(weir_transport_shm(&t, "alone", 1, 0, 1, 1.0), WEIR_OK);
  cr_assert_eq(weir_comm_create(&comm, t, 1.0), WEIR_OK);
  cr_assert(weir_comm_native(comm));
  cr_assert_eq(
      weir_allreduces[WEIR_ALLREDUCE_NATIVE].run(comm, &x, 1, WEIR_VALUE_BF16, &error, NULL),
      WEIR_E_UNSUPPORTED);
  cr_assert_eq(t->ops->allreduce(t, &tag, &x, 1, block, 257, weir_now_s() + 1), WEIR_E_INVALID);
  weir_comm_free(comm);
  t->ops->destroy(t);
}

/* --- what goes wrong ------------------------------------------------------------------------ */

typedef struct fault {
  enum { OTHER_PLAN, OTHER_LENGTH, OTHER_HEADER, MESSAGES, DIES, FREEZES } kind;
  size_t n;
} fault;

static weir_status fault_body(weir_transport *t, void *user) {
  const fault *f = user;
  const bool culprit = t->rank == 1;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, f->kind == FREEZES ? 1.0 : 10.0);
  FREED float *x = calloc(f->n + 1, sizeof *x);
  unsigned char block[GROUP_MAX * HEADER] = {0};
  weir_headers headers = {block, culprit && f->kind == OTHER_HEADER ? HEADER - 1 : HEADER};
  if (status != WEIR_OK || !x) abort();
  weir_comm_step(comm, 7, 1);
  status = native(comm, x, f->n, &headers);
  weir_comm_step(comm, culprit && f->kind == OTHER_PLAN ? 8 : 7, 2);
  if (status == WEIR_OK && culprit && f->kind == DIES) (void)kill(getpid(), SIGKILL);
  if (status == WEIR_OK && culprit && f->kind == FREEZES) (void)kill(getpid(), SIGSTOP);
  if (status == WEIR_OK && culprit && f->kind == MESSAGES)
    status =
        weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, x, f->n, WEIR_VALUE_FP32, NULL, &headers);
  else if (status == WEIR_OK)
    status = native(comm, x, culprit && f->kind == OTHER_LENGTH ? f->n + 1 : f->n, &headers);
  return status;
}

/* The first operation fails for other headers, else the second. */
static void fault_case(int kind, size_t n, weir_status due) {
  fault f = {.kind = kind, .n = n};
  ENDED group g = group_new(GROUP_SHM, 3, fault_body, &f);
  const double begun_s = weir_now_s();
  group_start(&g);
  for (int r = 0; r < 3; r++)
    if (r != 1) (void)waitpid(g.pid[r], NULL, 0);
  if (kind == FREEZES) (void)kill(g.pid[1], SIGKILL);
  (void)waitpid(g.pid[1], NULL, 0);
  for (int r = 0; r < 3; r++) {
    if (r == 1 && (kind == DIES || kind == FREEZES)) continue;
    cr_assert_eq(g.result[r].status, due, "fault %d, %zu elements, rank %d: %d %s", kind, n, r,
                 (int)g.result[r].status, g.result[r].message);
    if (r != 1 && kind != MESSAGES) /* there it may be seen from either side */
      cr_assert(strstr(g.result[r].message, "rank 1") != NULL, "%s", g.result[r].message);
  }
  cr_assert_lt(weir_now_s() - begun_s, 9.0, "it was found out, not waited for");
}

static void fault_both(int kind, weir_status due) {
  fault_case(kind, 10, due);
  fault_case(kind, 400000, due);
}

Test(shm_sum, another_plan) { fault_both(OTHER_PLAN, WEIR_E_MISMATCH); }
Test(shm_sum, another_length) { fault_both(OTHER_LENGTH, WEIR_E_PROTOCOL); }
Test(shm_sum, another_header) { fault_both(OTHER_HEADER, WEIR_E_PROTOCOL); }
Test(shm_sum, messages_instead) { fault_both(MESSAGES, WEIR_E_MISMATCH); }
Test(shm_sum, a_rank_that_dies) { fault_both(DIES, WEIR_E_PEER); }
Test(shm_sum, a_rank_that_freezes) { fault_both(FREEZES, WEIR_E_TIMEOUT); }
