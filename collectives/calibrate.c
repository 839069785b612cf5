#include "collectives/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "collectives/comm.h"

#define SMALL ((size_t)4)
#define REPEATS 5
#define LEAST ((size_t)16 << 10) /* a first message; the longest is FACTOR times one that took */
#define MOST ((size_t)2 << 20)
#define LONG_S 0.06   /* so long that clocks, wake-ups and bursts are small beside it */
#define SHORT_S 0.015 /* the same for a session, which wants to begin */
#define FAR_S 0.003   /* latencies that hide what messages cost */
#define SURELY 1.5    /* times the time one pair takes for bytes: a matter of processors */
#define SEVERAL 4096  /* bytes: more than two packets */
#define MEDIUM_HOPS 3
#define MOST_BURST 8 /* a bucket's depth is at most the long message by that */

typedef struct calibration {
  weir_comm *comm;
  unsigned char *out, *in; /* MOST bytes each, zeros */
  double *all;             /* a value a rank */
  size_t *bytes;           /* their lengths */
  uint64_t step;
} calibration;

static weir_status operation(calibration *c) {
  static const char name[] = "weir calibration";
  weir_comm_step(c->comm, weir_hash(WEIR_HASH_INIT, name, sizeof name), c->step++);
  return weir_comm_begin(c->comm, NULL);
}

/* All ranks learn rank root's value. */
static weir_status share(calibration *c, int root, double *value) {
  size_t bytes = sizeof *value;
  weir_status status = operation(c);
  if (status == WEIR_OK) status = weir_broadcast(c->comm, root, value, sizeof *value, &bytes);
  if (status == WEIR_OK && (bytes != sizeof *value || !isfinite(*value) || *value < 0))
    status = weir_fail(WEIR_E_PROTOCOL, "rank %d measured what cannot be", root);
  return status;
}

/* Until buckets are full again, that a message has emptied which took so long. */
static void rest(double seconds) {
  const double pause = fmin(seconds, 1.0) / MOST_BURST;
  const struct timespec time = {.tv_nsec = (long)(1e9 * pause)};
  if (pause > 0) (void)nanosleep(&time, NULL);
}

/* From rank a to rank b and a short answer back; the others are idle.  On all ranks: the median of
 * some of short messages, the least of long ones, which whatever else a machine does only makes
 * longer.  *seconds: what it took before, 0 at first; long messages wait for buckets to fill. */
static weir_status there_and_back(calibration *c, int a, int b, size_t bytes, int repeats,
                                  double *seconds) {
  const int rank = weir_comm_rank(c->comm);
  double taken[REPEATS];
  double last = *seconds;
  weir_status status = operation(c);
  *seconds = 0;
  for (uint32_t i = 0; (rank == a || rank == b) && i < (uint32_t)repeats && status == WEIR_OK;
       i++) {
    const int peer = rank == a ? b : a;
    const weir_send send = {peer, c->out, rank == a ? bytes : SMALL, 2 * i + (rank == b)};
    weir_recv recv = {peer, c->in, rank == a ? SMALL : bytes, 2 * i + (rank == a), 0};
    if (rank == a && bytes > SMALL) rest(last);
    const double begin_s = weir_now_s();
    if (rank == b) status = weir_comm_exchange(c->comm, NULL, 0, &recv, 1);
    if (status == WEIR_OK) status = weir_comm_exchange(c->comm, &send, 1, NULL, 0);
    if (status == WEIR_OK && rank == a) status = weir_comm_exchange(c->comm, NULL, 0, &recv, 1);
    taken[i] = weir_now_s() - begin_s;
    last = fmax(last, taken[i]);
  }
  if (status != WEIR_OK) return status;
  if (rank == a) {
    weir_sort(taken, (size_t)repeats);
    *seconds = taken[bytes > SMALL ? 0 : repeats / 2];
  }
  return share(c, a, seconds);
}

/* One link: alpha from short messages, beta from the difference between two long ones, and what a
 * bucket lets through at once. */
static weir_status measure_pair(calibration *c, int a, int b, double *alpha, double *beta,
                                double *burst) {
  double small = 0, again = 0, shorter = 0, longer = 0;
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
  shorter = longer; /* which was sent before it */
  if (status == WEIR_OK) status = there_and_back(c, a, b, bytes / 4, REPEATS, &shorter);
  if (status == WEIR_OK) status = there_and_back(c, a, b, SMALL, REPEATS, &again);
  if (status != WEIR_OK) return status;
  small = fmin(small, again); /* a machine that was busy the one time may not be the other time */
  *alpha = small / 2;
  *beta = fmax(longer - shorter, 1e-9 * (double)bytes / 8) / (0.75 * (double)bytes);
  *burst = fmax(0.0, (double)bytes - (longer - small) / *beta);
  *burst = fmin(*burst, (double)bytes / MOST_BURST); /* more is a mistake of measuring */
  return WEIR_OK;
}

/* All ranks learn the mean of what each has found. */
static weir_status agree(calibration *c, double *value) {
  const int rank = weir_comm_rank(c->comm), size = weir_comm_size(c->comm);
  weir_status status = operation(c);
  c->all[rank] = *value;
  c->bytes[rank] = sizeof *value;
  if (status == WEIR_OK) status = weir_allgather(c->comm, c->all, sizeof *value, c->bytes, NULL);
  *value = 0;
  for (int r = 0; r < size && status == WEIR_OK; r++) {
    if (c->bytes[r] != sizeof *value || !isfinite(c->all[r]) || c->all[r] < 0)
      status = weir_fail(WEIR_E_PROTOCOL, "rank %d measured what cannot be", r);
    *value += c->all[r] / size;
  }
  return status;
}

/* A short message from everyone to everyone. */
static weir_status crowd(calibration *c, uint32_t round) {
  const int rank = weir_comm_rank(c->comm), size = weir_comm_size(c->comm);
  const size_t others = (size_t)size - 1;
  weir_send *send = c->comm->send;
  weir_recv *recv = c->comm->recv;
  for (size_t i = 0; i < others; i++) { /* nearest first, so that not all begin with rank 0 */
    send[i] = (weir_send){(rank + 1 + (int)i) % size, c->out, SMALL, round};
    recv[i] = (weir_recv){(rank + size - 1 - (int)i) % size, c->in, SMALL, round, 0};
  }
  return weir_comm_exchange(c->comm, send, others, recv, others);
}

/* Who waits for everyone twice goes on when everyone does: a rank that was late has held up the
 * others the first time, and they it the second time. */
enum { MEETING = 2 };
static weir_status meet(calibration *c) {
  weir_status status = operation(c);
  for (uint32_t round = 0; round < MEETING && status == WEIR_OK; round++) status = crowd(c, round);
  return status;
}

static void add(calibration *c, size_t bytes) {
  weir_add_fp32((float *)(void *)c->out, (const float *)(const void *)c->in, bytes / sizeof(float));
}

typedef struct hop_kind {
  size_t bytes;
  uint32_t hops;
  bool adds; /* what has come in */
} hop_kind;

/* Every rank to the next at once: a hop's time.  Ranks of one processor come out of a meeting one
 * after the other; that goes round the ring from hop to hop, so that some ranks seem slow and
 * others fast by as much: the mean over ranks is what a hop takes. */
static weir_status all_at_once(calibration *c, const hop_kind *kind, double *seconds) {
  const int rank = weir_comm_rank(c->comm), size = weir_comm_size(c->comm);
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  weir_status status = meet(c);
  const double begin_s = weir_now_s();
  for (uint32_t hop = 0; hop < kind->hops && status == WEIR_OK; hop++) {
    const weir_send send = {next, c->out, kind->bytes, MEETING + hop};
    weir_recv recv = {previous, c->in, kind->bytes, MEETING + hop, 0};
    status = weir_comm_exchange(c->comm, &send, 1, &recv, 1);
    if (kind->adds) add(c, kind->bytes);
  }
  *seconds = (weir_now_s() - begin_s) / kind->hops;
  return status == WEIR_OK ? agree(c, seconds) : status;
}

/* The median of some. */
static weir_status hop_of_all(calibration *c, hop_kind kind, double *seconds) {
  double taken[REPEATS];
  for (int i = 0; i < REPEATS; i++) {
    const weir_status status = all_at_once(c, &kind, &taken[i]);
    if (status != WEIR_OK) return status;
  }
  weir_sort(taken, REPEATS);
  *seconds = taken[REPEATS / 2];
  return WEIR_OK;
}

/* Seconds to add up a byte of what has just come in, on a processor of one's own: the least of
 * some. */
static weir_status adding(calibration *c, double *seconds) {
  *seconds = INFINITY;
  for (int i = 0; i < REPEATS; i++) {
    const double begin_s = weir_now_s();
    add(c, MOST);
    *seconds = fmin(*seconds, (weir_now_s() - begin_s) / (double)MOST);
  }
  return agree(c, seconds);
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

/* What all ranks at once take longer than one pair: both directions in use, and processors. */
typedef struct load {
  size_t bytes; /* of a medium and of a large message */
  size_t much;
  double small, medium, large; /* a hop's seconds */
} load;

static weir_status measure_hops(calibration *c, const weir_link *link, double long_s, load *l) {
  /* Passes a bucket of half the depth that was found, which is not known well. */
  l->bytes = (size_t)fmin(fmax(link->burst / 2, (double)SEVERAL), (double)MOST / 8);
  l->much = within(long_s / link->beta, MOST);
  const hop_kind small = {SMALL, 4, false}, medium = {l->bytes, MEDIUM_HOPS, false},
                 large = {l->much, 2, false};
  weir_status status = all_at_once(c, &large, &l->large); /* opens windows */
  if (status == WEIR_OK) status = hop_of_all(c, small, &l->small);
  if (status == WEIR_OK) status = hop_of_all(c, medium, &l->medium);
  return status == WEIR_OK ? hop_of_all(c, large, &l->large) : status;
}

static void find_load(const weir_comm *comm, const load *l, weir_link *link) {
  const double ranks = weir_comm_size(comm);
  /* The first hop finds buckets full, the others what came back while the ranks waited. */
  const double back = fmin(link->burst, link->alpha / link->beta);
  const double through = (link->burst + (MEDIUM_HOPS - 1) * back) / MEDIUM_HOPS;
  const double carried = fmax(0.0, (double)l->bytes - through) * link->beta;
  const double pace = (l->large - l->small) / (double)l->much;
  link->message_s = fmax(0.0, l->small - link->alpha) / (ranks - 1.0);
  link->answer_s = fmax(0.0, l->medium - l->small - carried) / (ranks - 1.0);
  link->duplex_beta = fmax(link->beta, pace);
  link->byte_s = pace > SURELY * link->beta ? pace / ranks : 0.0;
}

static weir_status measure_load(calibration *c, weir_link *link) {
  load l;
  double summed;
  weir_status status = measure_hops(c, link, LONG_S, &l);
  if (status == WEIR_OK) status = hop_of_all(c, (hop_kind){l.much, 2, true}, &summed);
  if (status == WEIR_OK) status = adding(c, &link->sum_s);
  if (status != WEIR_OK) return status;
  find_load(c->comm, &l, link);
  link->sums_s = fmax(link->sum_s, (summed - l.large) / (double)l.much) / weir_comm_size(c->comm);
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

/* Where there are links inside of machines beside those between them. */
static weir_status measure_inside(calibration *c, weir_link *link) {
  int a, b;
  double none;
  if (!find_pair(c->comm, false, &a, &b) || !find_pair(c->comm, true, &a, &b)) return WEIR_OK;
  return measure_pair(c, a, b, &link->inner_alpha, &link->inner_beta, &none);
}

/* Between machines, where there are several. */
static weir_status measure_rate(calibration *c, double *beta) {
  int a, b;
  double alpha, burst;
  if (!find_pair(c->comm, false, &a, &b) && !find_pair(c->comm, true, &a, &b)) return WEIR_OK;
  return measure_pair(c, a, b, &alpha, beta, &burst);
}

/* The same from a latency and a rate between machines that are known already, and in a fraction of
 * the time. */
static weir_status measure_processors(calibration *c, weir_link *link) {
  weir_link known = {.alpha = link->alpha, .beta = link->beta};
  load l;
  memset(link, 0, sizeof *link);
  weir_status status = measure_inside(c, link);
  if (status == WEIR_OK) status = share(c, 0, &known.alpha);
  if (status == WEIR_OK) status = share(c, 0, &known.beta);
  if (status != WEIR_OK || !(known.alpha > 0) || known.alpha > FAR_S) return status;
  if (!(known.beta > 0)) {
    status = measure_rate(c, &known.beta);
    link->beta = known.beta;
  }
  if (status == WEIR_OK) status = measure_hops(c, &known, SHORT_S, &l);
  if (status == WEIR_OK) status = adding(c, &link->sum_s);
  if (status != WEIR_OK) return status;
  find_load(c->comm, &l, &known);
  link->message_s = known.message_s;
  link->answer_s = known.answer_s;
  link->byte_s = known.byte_s;
  link->sums_s = link->sum_s / weir_comm_size(c->comm);
  return WEIR_OK;
}

static weir_status run(weir_comm *comm, weir_link *link,
                       weir_status (*body)(calibration *c, weir_link *link)) {
  if (weir_comm_size(comm) == 1) {
    memset(link, 0, sizeof *link);
    return WEIR_OK;
  }
  const size_t ranks = (size_t)weir_comm_size(comm);
  calibration c = {.comm = comm,
                   .out = calloc(1, MOST),
                   .in = calloc(1, MOST),
                   .all = calloc(ranks, sizeof *c.all),
                   .bytes = calloc(ranks, sizeof *c.bytes)};
  weir_status status = c.out && c.in && c.all && c.bytes
                           ? body(&c, link)
                           : weir_fail(WEIR_E_NOMEM, "no memory for messages of %zu bytes", MOST);
  free(c.bytes);
  free(c.all);
  free(c.in);
  free(c.out);
  return status;
}

weir_status weir_calibrate(weir_comm *comm, weir_link *link) {
  memset(link, 0, sizeof *link);
  return run(comm, link, measure);
}

weir_status weir_calibrate_processors(weir_comm *comm, weir_link *link) {
  return run(comm, link, measure_processors);
}
