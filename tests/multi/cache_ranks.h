/* Groups of processes with a cache among them, for tests: a data set that anybody can work out, and
 * a source that counts who reads what. */
#ifndef WEIR_TESTS_CACHE_RANKS_H
#define WEIR_TESTS_CACHE_RANKS_H

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/cache.h>

#include "../ports.h"
#include "cache/cache.h"
#include "collectives/transports/tcp.h"

#define SAMPLES 120
#define EPOCHS 4
#define ROOM 512
#define WATCHDOG_S 300

/* In memory that all processes share. */
typedef struct board {
  atomic_int reads[SAMPLES];         /* of the source, by all ranks */
  atomic_int taken[EPOCHS][SAMPLES]; /* by all ranks */
  uint32_t order[EPOCHS][SAMPLES];   /* of an epoch, ranks taking turns */
  atomic_int wrong, arrived[8];      /* ranks at a point of the test */
  atomic_int broken;                 /* sample that the source cannot read; -1: none */
  char message[4][256];
} board;

static inline board *new_board(void) {
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b == MAP_FAILED) abort();
  atomic_store(&b->broken, -1);
  return b;
}

/* What a sample is. */
static inline size_t bytes_of_sample(uint64_t index) { return 100 + index * 37 % 300; }
static inline unsigned char byte_of_sample(uint64_t index, size_t at) {
  return (unsigned char)(index * 131 + at * 7 + (at >> 3));
}

static inline int count_and_read(void *user, uint64_t index, void *buffer, size_t *bytes) {
  board *b = user;
  unsigned char *to = buffer;
  if (*bytes < bytes_of_sample(index)) return EMSGSIZE;
  if (index == (uint64_t)atomic_load(&b->broken)) return EIO;
  *bytes = bytes_of_sample(index);
  for (size_t i = 0; i < *bytes; i++) to[i] = byte_of_sample(index, i);
  atomic_fetch_add(&b->reads[index], 1);
  return 0;
}

static inline weir_cache_options cache_over(board *b) {
  weir_cache_options o;
  weir_cache_options_init(&o);
  o.samples = SAMPLES;
  o.sample_bytes = ROOM;
  o.read = count_and_read;
  o.user = b;
  o.ahead = 8;
  o.readers = 3;
  return o;
}

/* Get a sample and look at every byte. */
static inline bool sample_is_right(weir_cache *c, uint64_t index) {
  unsigned char buffer[ROOM];
  size_t bytes = 0;
  if (weir_cache_get(c, index, buffer, sizeof buffer, &bytes) != WEIR_OK) {
    fprintf(stderr, "sample %d: %s\n", (int)index, weir_last_error());
    return false;
  }
  bool right = bytes == bytes_of_sample(index);
  for (size_t i = 0; i < bytes && right; i++) right = buffer[i] == byte_of_sample(index, i);
  if (!right) fprintf(stderr, "sample %d is wrong\n", (int)index);
  return right;
}

static inline weir_cache_stats stats_of(weir_cache *c) {
  weir_cache_stats s = {.struct_size = sizeof s};
  if (weir_cache_statistics(c, &s) != WEIR_OK) abort();
  return s;
}

/* Wait until so many ranks have come to a point. */
static inline void arrive(board *b, int point, int ranks) {
  atomic_fetch_add(&b->arrived[point], 1);
  while (atomic_load(&b->arrived[point]) < ranks) tcp_sleep(0.002);
}

typedef struct rank_job {
  board *b;
  int rank, ranks;
  weir_session *session;
  weir_cache_options options;
} rank_job;

static inline weir_session *open_session(int rank, int ranks, const char *where) {
  weir_options o;
  weir_session *s = NULL;
  uint32_t tensor;
  weir_options_init(&o);
  o.rank = rank;
  o.world_size = ranks;
  o.rendezvous = where;
  o.secret = "of these samples";
  o.policy = "fixed:none:1:dense-ring";
  o.active_probes = false;
  o.timeout_s = 60;
  if (weir_session_create(&s, &o) != WEIR_OK ||
      weir_register_tensor(s, "t", 4, &tensor) != WEIR_OK || weir_session_start(s) != WEIR_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, weir_last_error());
    _exit(9);
  }
  return s;
}

/* Run body on every rank, a process each; it returns whether all was well.  A victim's end by
 * SIGKILL is no fault. */
static inline void run_ranks(board *b, int ranks, int victim, bool (*body)(rank_job *job)) {
  char where[32];
  pid_t pid[8];
  (void)snprintf(where, sizeof where, "127.0.0.2:%d", free_port());
  (void)fflush(NULL);
  for (int r = 0; r < ranks; r++) {
    pid[r] = fork();
    cr_assert_geq(pid[r], 0);
    if (pid[r] != 0) continue;
    (void)alarm(WATCHDOG_S);
    rank_job job = {.b = b, .rank = r, .ranks = ranks, .options = cache_over(b)};
    job.session = open_session(r, ranks, where);
    const bool good = body(&job);
    weir_session_free(job.session);
    _exit(good ? 0 : 1);
  }
  int code[8];
  for (int r = 0; r < ranks; r++)
    if (r != victim) (void)waitpid(pid[r], &code[r], 0);
  if (victim >= 0) (void)kill(pid[victim], SIGKILL);
  if (victim >= 0) (void)waitpid(pid[victim], &code[victim], 0);
  for (int r = 0; r < ranks; r++)
    if (r != victim)
      cr_assert(WIFEXITED(code[r]) && WEXITSTATUS(code[r]) == 0, "rank %d: %x", r, code[r]);
}

/* Take an epoch's share, note it on the board. */
static inline bool take_epoch(weir_cache *c, const rank_job *job, uint64_t epoch) {
  const uint32_t *order;
  size_t count;
  bool good = weir_cache_epoch(c, epoch, &order, &count) == WEIR_OK;
  for (size_t i = 0; i < count && good; i++) {
    const uint32_t index = order[i];
    job->b->order[epoch][i * (size_t)job->ranks + (size_t)job->rank] = index;
    atomic_fetch_add(&job->b->taken[epoch][index], 1);
    good = sample_is_right(c, index);
  }
  return good;
}

#endif
