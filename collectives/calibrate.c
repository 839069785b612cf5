#include "collectives/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/comm.h"

#define SMALL ((size_t)4)
#define REPEATS 5
#define LEAST ((size_t)16 << 10)  /* a first message; the longest is FACTOR times one that took */
#define MOST ((size_t)2 << 20)
#define LONG_S 0.06               /* so long that clocks, wake-ups and bursts are small beside it */

typedef struct calibration {
  weir_comm *comm;
  unsigned char *out, *in; /* MOST bytes each */
  uint64_t step;
} calibration;

static int ascending(const void *pa, const void *pb) {
  const double a = *(const double *)pa, b = *(const double *)pb;
  return (a > b) - (a < b);
}

static weir_status operation(calibration *c) {
  static const char name[] = "weir calibration";
  weir_comm_step(c->comm, weir_hash(WEIR_HASH_INIT, name, sizeof name), c->step++);
  return weir_comm_begin(c->comm, NULL);
}

/* All ranks learn rank root's value; they also begin what follows together, about. */
static weir_status share(calibration *c, int root, double *value) {
  size_t bytes = sizeof *value;
  weir_status status = operation(c);
  if (status == WEIR_OK) status = weir_broadcast(c->comm, root, value, sizeof *value, &bytes);
  if (status == WEIR_OK && (bytes != sizeof *value || !isfinite(*value) || *value < 0))
    status = weir_fail(WEIR_E_PROTOCOL, "rank %d measured what cannot be", root);
  return status;
}

/* From rank a to rank b and a short answer back; the others are idle.  On all ranks: the median of some
 * of short messages, the least of long ones, which whatever else a machine does only makes longer. */
static weir_status there_and_back(calibration *c, int a, int b, size_t bytes, int repeats,
                                  double *seconds) {
  const int rank = weir_comm_rank(c->comm);
  double taken[REPEATS];
  weir_status status = operation(c);
  *seconds = 0;
  for (uint32_t i = 0; (rank == a || rank == b) && i < (uint32_t)repeats && status == WEIR_OK; i++) {
    const int peer = rank == a ? b : a;
    const weir_send send = {peer, c->out, rank == a ? bytes : SMALL, 2 * i + (rank == b)};
    weir_recv recv = {peer, c->in, rank == a ? SMALL : bytes, 2 * i + (rank == a), 0};
    const double begin_s = weir_now_s();
    if (rank == b) status = weir_comm_exchange(c->comm, NULL, 0, &recv, 1);
    if (status == WEIR_OK) status = weir_comm_exchange(c->comm, &send, 1, NULL, 0);
    if (status == WEIR_OK && rank == a) status = weir_comm_exchange(c->comm, NULL, 0, &recv, 1);
    taken[i] = weir_now_s() - begin_s;
  }
  if (status != WEIR_OK) return status;
  if (rank == a) {
    qsort(taken, (size_t)repeats, sizeof *taken, ascending);
    *seconds = taken[bytes > SMALL ? 0 : repeats / 2];
  }
  return share(c, a, seconds);
}

/* One link: alpha from short messages, beta from the difference between two long ones, and what a
 * bucket lets through at once. */
static weir_status measure_pair(calibration *c, int a, int b, double *alpha, double *beta,
                                double *burst) {
  double small = 0, shorter = 0, longer = 0;
  size_t bytes = LEAST;
  weir_status status = there_and_back(c, a, b, SMALL, REPEATS, &small);
  if (status == WEIR_OK) status = there_and_back(c, a, b, bytes, 1, &longer); /* opens windows */
  while (status == WEIR_OK) {
    status = there_and_back(c, a, b, bytes, 1, &longer);
    if (longer - small > LONG_S || bytes >= MOST) break;
    const double wanted = 1.5 * LONG_S / fmax(longer - small, 1e-6);
    bytes = wanted < 4 ? bytes * 2 : bytes * 4;
    if (bytes > MOST) bytes = MOST;
  }
  if (status == WEIR_OK) status = there_and_back(c, a, b, bytes, REPEATS, &longer);
  if (status == WEIR_OK) status = there_and_back(c, a, b, bytes / 4, REPEATS, &shorter);
  if (status != WEIR_OK) return status;
  *alpha = small / 2;
  *beta = fmax(longer - shorter, 1e-9 * (double)bytes / 8) / (0.75 * (double)bytes);
  *burst = fmax(0.0, (double)bytes - (longer - small) / *beta);
  *burst = fmin(*burst, (double)bytes / 8); /* more is a mistake of measuring */
  return WEIR_OK;
}

/* Every rank to the next at once: a hop's time.  Ranks come out of what went before at different times;
 * a few hops of short messages, of which each waits for the one before, bring that below a latency.  What
 * is left then goes round the ring from hop to hop, so that some ranks seem slow and others fast by as
 * much: the mean over ranks is what a hop takes. */
static weir_status all_at_once(calibration *c, size_t bytes, uint32_t hops, double *seconds) {
  const int rank = weir_comm_rank(c->comm), size = weir_comm_size(c->comm);
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const uint32_t before = (uint32_t)size;
  double begin_s = 0;
  weir_status status = operation(c);
  for (uint32_t hop = 0; hop < before + hops && status == WEIR_OK; hop++) {
    const size_t length = hop < before ? SMALL : bytes;
    const weir_send send = {next, c->out, length, hop};
    weir_recv recv = {previous, c->in, length, hop, 0};
    if (hop == before) begin_s = weir_now_s();
    status = weir_comm_exchange(c->comm, &send, 1, &recv, 1);
  }
  const double own = (weir_now_s() - begin_s) / hops;
  *seconds = 0;
  for (int r = 0; r < size && status == WEIR_OK; r++) {
    double theirs = own;
    status = share(c, r, &theirs);
    *seconds += theirs / size;
  }
  return status;
}

/* The first pair of ranks on the same host, or on different ones. */
static bool find_pair(const weir_comm *comm, bool same, int *a, int *b) {
  for (*a = 0; *a < weir_comm_size(comm); (*a)++)
    for (*b = *a + 1; *b < weir_comm_size(comm); (*b)++)
      if ((weir_comm_host_of(comm, *a) == weir_comm_host_of(comm, *b)) == same) return true;
  return false;
}

static size_t within(double bytes, size_t most) {
  return bytes < (double)LEAST ? LEAST : bytes > (double)most ? most : (size_t)bytes;
}

/* The least of some, which whatever else the machine does only makes longer. */
static weir_status all_at_best(calibration *c, size_t bytes, uint32_t hops, double *seconds) {
  *seconds = INFINITY;
  for (int i = 0; i < 3; i++) {
    double once;
    const weir_status status = all_at_once(c, bytes, hops, &once);
    if (status != WEIR_OK) return status;
    *seconds = fmin(*seconds, once);
  }
  return WEIR_OK;
}

/* Processors: what all ranks at once take longer than one pair on its own. */
static weir_status measure_load(calibration *c, weir_link *link) {
  const double ranks = weir_comm_size(c->comm);
  const size_t little = within(link->burst, MOST / 8), much = within(LONG_S / link->beta, MOST);
  double small, medium, large;
  weir_status status = all_at_once(c, much, 2, &large); /* opens windows */
  if (status == WEIR_OK) status = all_at_best(c, SMALL, 4, &small);
  if (status == WEIR_OK) status = all_at_best(c, little, 3, &medium);
  if (status == WEIR_OK) status = all_at_best(c, much, 2, &large);
  if (status != WEIR_OK) return status;
  link->message_s = fmax(0.0, small - link->alpha) / fmax(1.0, ranks - 1.0);
  /* Messages that the link lets through at once cost processors alone. */
  const double carried = fmax(0.0, (double)little - link->burst) * link->beta;
  const double light = fmax(0.0, medium - small - carried) / (double)little;
  const double pace = fmax(0.0, large - small) / (double)much;
  link->byte_s = fmax(pace > 1.03 * link->beta ? pace : 0.0, light) / ranks;
  return WEIR_OK;
}

static weir_status measure(calibration *c, weir_link *link) {
  int a, b;
  double none;
  weir_status status = WEIR_OK;
  const bool outer = find_pair(c->comm, false, &a, &b);
  if (outer) status = measure_pair(c, a, b, &link->alpha, &link->beta, &link->burst);
  const bool inner = find_pair(c->comm, true, &a, &b);
  if (inner && status == WEIR_OK)
    status = measure_pair(c, a, b, &link->inner_alpha, &link->inner_beta, &none);
  if (!outer) {
    link->alpha = link->inner_alpha;
    link->beta = link->inner_beta;
  }
  if (!inner) {
    link->inner_alpha = link->alpha;
    link->inner_beta = link->beta;
  }
  return status == WEIR_OK ? measure_load(c, link) : status;
}

weir_status weir_calibrate(weir_comm *comm, weir_link *link) {
  memset(link, 0, sizeof *link);
  if (weir_comm_size(comm) == 1) return WEIR_OK;
  calibration c = {.comm = comm, .out = calloc(1, MOST), .in = malloc(MOST)};
  weir_status status = c.out && c.in
                           ? measure(&c, link)
                           : weir_fail(WEIR_E_NOMEM, "no memory for messages of %zu bytes", MOST);
  free(c.in);
  free(c.out);
  return status;
}
