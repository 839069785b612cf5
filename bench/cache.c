/* `weir bench cache`: epochs over samples that are slow to read, with a cache of them and
 * without. */
#include <weir/cache.h>

#include <errno.h>
#include <glib.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"
#include "collectives/transports/tcp.h"
#include "lab/doc.h"

#define RANKS_MOST 16
#define EPOCHS 3
#define WATCHDOG_S 600

/* What is measured, and the source: so long until the first byte of a sample comes, and a rate that
 * all ranks share. */
typedef struct shape {
  gint ranks, samples, kilobytes, readers;
  double latency_ms, mb_s;
} shape;

/* Epochs: of a loop that reads one sample after the other, of the same reading ahead but keeping
 * nothing, and of the cache. */
enum { LOOP, AHEAD, FIRST, SECOND, THIRD, TIMES };
static const char *const names[TIMES] = {"source", "source read ahead", "cache, epoch 1",
                                         "cache, epoch 2", "cache, epoch 3"};

/* Shared by all ranks' processes. */
typedef struct board {
  atomic_int_fast64_t busy_until_ns; /* the source's line */
  atomic_int arrived;
  double seconds[TIMES][RANKS_MOST];
} board;

typedef struct job {
  const shape *shape;
  board *board;
  int rank;
  weir_session *session;
  unsigned char *sample;
} job;

static size_t bytes_of(const shape *s) { return (size_t)s->kilobytes * 1000; }

/* The line is taken for as long as the bytes need, after those before; then the latency. */
static int read_slowly(void *user, uint64_t index, void *buffer, size_t *bytes) {
  const job *j = user;
  const int64_t now = (int64_t)(weir_now_s() * 1e9);
  const int64_t takes = (int64_t)(1e3 * (double)bytes_of(j->shape) / j->shape->mb_s);
  int64_t free_at = atomic_load(&j->board->busy_until_ns), end;
  do end = (free_at > now ? free_at : now) + takes;
  while (!atomic_compare_exchange_weak(&j->board->busy_until_ns, &free_at, end));
  tcp_sleep(1e-9 * (double)(end - now) + 1e-3 * j->shape->latency_ms);
  if (*bytes < bytes_of(j->shape)) return EMSGSIZE;
  *bytes = bytes_of(j->shape);
  memset(buffer, (int)(index % 251), *bytes);
  return 0;
}

static weir_cache_options options_of(job *j) {
  weir_cache_options o;
  weir_cache_options_init(&o);
  o.samples = (uint64_t)j->shape->samples;
  o.sample_bytes = bytes_of(j->shape);
  o.readers = (uint32_t)j->shape->readers;
  o.ahead = 32;
  o.read = read_slowly;
  o.user = j;
  return o;
}

/* Ranks begin an epoch together. */
static void meet(job *j) {
  const int ranks = j->shape->ranks;
  const int due = (atomic_fetch_add(&j->board->arrived, 1) / ranks + 1) * ranks;
  while (atomic_load(&j->board->arrived) < due) tcp_sleep(1e-3);
}

static bool is_right(const job *j, uint32_t index) {
  const size_t bytes = bytes_of(j->shape);
  return j->sample[0] == index % 251 && j->sample[bytes - 1] == index % 251;
}

static bool take_all(job *j, weir_cache *cache, const uint32_t *order, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (weir_cache_get(cache, order[i], j->sample, bytes_of(j->shape), NULL) != WEIR_OK ||
        !is_right(j, order[i]))
      return false;
  return true;
}

static bool loop(job *j, const uint32_t *order, size_t count) {
  bool good = true;
  meet(j);
  const double begin = weir_now_s();
  for (size_t i = 0; i < count && good; i++) {
    size_t bytes = bytes_of(j->shape);
    good = read_slowly(j, order[i], j->sample, &bytes) == 0 && is_right(j, order[i]);
  }
  j->board->seconds[LOOP][j->rank] = weir_now_s() - begin;
  return good;
}

/* A cache of this rank's own that has room for what it reads ahead only. */
static bool ahead_alone(job *j, const uint32_t *order, size_t count) {
  weir_cache *cache = NULL;
  weir_cache_stats stats = {.struct_size = sizeof stats};
  weir_cache_options o = options_of(j);
  bool good = weir_cache_open(&cache, NULL, &o) == WEIR_OK &&
              weir_cache_statistics(cache, &stats) == WEIR_OK;
  weir_cache_close(cache);
  o.memory_limit = stats.memory_bytes;
  good = good && weir_cache_open(&cache, NULL, &o) == WEIR_OK;
  meet(j);
  const double begin = weir_now_s();
  good =
      good && weir_cache_ahead(cache, order, count) == WEIR_OK && take_all(j, cache, order, count);
  j->board->seconds[AHEAD][j->rank] = weir_now_s() - begin;
  if (good) weir_cache_close(cache);
  return good;
}

static bool with_cache(job *j, weir_cache *cache) {
  bool good = true;
  for (int e = 0; e < EPOCHS && good; e++) {
    const uint32_t *order;
    size_t count;
    meet(j);
    const double begin = weir_now_s();
    good = weir_cache_epoch(cache, (uint64_t)e, &order, &count) == WEIR_OK &&
           take_all(j, cache, order, count);
    j->board->seconds[FIRST + e][j->rank] = weir_now_s() - begin;
  }
  meet(j); /* nobody leaves while others ask */
  return good;
}

static bool measure(job *j) {
  weir_cache *cache = NULL;
  const size_t count = (size_t)(j->shape->samples / j->shape->ranks);
  uint32_t *order = calloc(count, sizeof *order);
  const weir_cache_options o = options_of(j);
  j->sample = malloc(bytes_of(j->shape));
  bool good = order != NULL && j->sample != NULL;
  for (size_t i = 0; i < count && good; i++)
    order[i] = (uint32_t)(i * (size_t)j->shape->ranks + (size_t)j->rank);
  good = good && loop(j, order, count) && ahead_alone(j, order, count) &&
         weir_cache_open(&cache, j->session, &o) == WEIR_OK && with_cache(j, cache);
  weir_cache_close(cache);
  free(order);
  free(j->sample);
  return good;
}

static weir_status join(job *j, const char *where) {
  weir_options o;
  uint32_t tensor;
  weir_options_init(&o);
  o.rank = j->rank;
  o.world_size = j->shape->ranks;
  o.rendezvous = where;
  o.policy = "fixed:none:1:dense-ring";
  o.active_probes = false;
  o.timeout_s = 60;
  weir_status status = weir_session_create(&j->session, &o);
  if (status == WEIR_OK) status = weir_register_tensor(j->session, "gradient", 16, &tensor);
  return status == WEIR_OK ? weir_session_start(j->session) : status;
}

static void run_rank(const shape *s, board *b, int rank, const char *where) {
  job j = {.shape = s, .board = b, .rank = rank};
  (void)alarm(WATCHDOG_S);
  const bool good = join(&j, where) == WEIR_OK && measure(&j);
  if (!good) fprintf(stderr, "weir bench cache: rank %d: %s\n", rank, weir_last_error());
  weir_session_free(j.session);
  _exit(good ? 0 : 1);
}

/* A rank that fails ends the others, who would wait for it. */
static bool run_all(const shape *s, board *b) {
  char where[32];
  pid_t pid[RANKS_MOST];
  bool good = true;
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", weir_free_port());
  for (int r = 0; r < s->ranks; r++) {
    pid[r] = fork();
    if (pid[r] == 0) run_rank(s, b, r, where);
  }
  for (int left = 0; left < s->ranks; left++) {
    int code = 1;
    if (wait(&code) > 0 && code == 0) continue;
    for (int r = 0; r < s->ranks && good; r++)
      if (pid[r] > 0) (void)kill(pid[r], SIGKILL);
    good = false;
  }
  return good;
}

/* An epoch takes as long as its slowest rank. */
static double epoch_s(const shape *s, const board *b, int which) {
  double most = 0;
  for (int r = 0; r < s->ranks; r++) most = MAX(most, b->seconds[which][r]);
  return most;
}

static void print_table(const shape *s, const board *b) {
  const double source_s = epoch_s(s, b, LOOP);
  printf("%d ranks, %d samples of %d kB from a source of %g ms and %g MB/s, %d readers a rank\n",
         s->ranks, s->samples, s->kilobytes, s->latency_ms, s->mb_s, s->readers);
  printf("%-18s %10s %12s %10s\n", "epoch", "seconds", "MB/s", "x source");
  for (int i = 0; i < TIMES; i++) {
    const double seconds = epoch_s(s, b, i);
    printf("%-18s %10.3f %12.1f %10.1f\n", names[i], seconds,
           1e-3 * s->samples * s->kilobytes / seconds, source_s / seconds);
  }
}

static void print_json(const shape *s, const board *b) {
  static const char *const keys[TIMES] = {"source_s", "source_ahead_s", "first_s", "second_s",
                                          "third_s"};
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_whole(builder, "ranks", s->ranks);
  weir_doc_whole(builder, "samples", s->samples);
  weir_doc_whole(builder, "sample_kb", s->kilobytes);
  for (int i = 0; i < TIMES; i++) weir_doc_number(builder, keys[i], epoch_s(s, b, i));
  weir_doc_print(builder);
}

/* What was expected instead of the first number that is out of its range; NULL: none is. */
static const char *expected(const shape *s) {
  if (s->ranks < 1 || s->ranks > RANKS_MOST) return "--ranks: 1 to 16";
  if (s->samples < s->ranks || s->samples > 1000000 || s->samples % s->ranks != 0)
    return "--samples: a multiple of the ranks, up to 1000000";
  if (s->kilobytes < 1 || s->kilobytes > 100000) return "--sample-kb: 1 to 100000";
  if (s->readers < 1 || s->readers > 64) return "--readers: 1 to 64";
  if (!(s->latency_ms >= 0 && s->latency_ms <= 1000)) return "--latency-ms: 0 to 1000";
  return s->mb_s > 0 ? NULL : "--mb-s: a number above 0";
}

int main(int argc, char **argv) {
  shape s = {
      .ranks = 2, .samples = 400, .kilobytes = 100, .readers = 4, .latency_ms = 20, .mb_s = 50};
  gboolean json = FALSE;
  const GOptionEntry entries[] = {
      {"ranks", 0, 0, G_OPTION_ARG_INT, &s.ranks, "ranks, 1 to 16 (2)", "N"},
      {"samples", 0, 0, G_OPTION_ARG_INT, &s.samples,
       "samples, a multiple of the ranks, up to 1000000 (400)", "N"},
      {"sample-kb", 0, 0, G_OPTION_ARG_INT, &s.kilobytes, "kB of a sample, 1 to 100000 (100)", "N"},
      {"readers", 0, 0, G_OPTION_ARG_INT, &s.readers, "threads a rank that read ahead, 1 to 64 (4)",
       "N"},
      {"latency-ms", 0, 0, G_OPTION_ARG_DOUBLE, &s.latency_ms, "of the source, 0 to 1000 (20)",
       "MS"},
      {"mb-s", 0, 0, G_OPTION_ARG_DOUBLE, &s.mb_s, "MB/s of the source, for all ranks (50)",
       "RATE"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL};
  const cli_help help = {"weir bench cache", NULL,
                         "Epochs over samples from an emulated source (it sleeps): each rank "
                         "reading its share one after\n"
                         "another, the same read ahead by several threads, and three epochs of a "
                         "cache that the ranks\n"
                         "share.  An epoch takes as long as its slowest rank.",
                         "Exit codes: 0 done; 1 a rank failed; 2 bad usage."};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  const char *wanted = expected(&s);
  if (wanted) {
    fprintf(stderr, "weir bench cache: expected %s\n", wanted);
    return WEIR_EXIT_USAGE;
  }
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b == MAP_FAILED) {
    fprintf(stderr, "weir bench cache: no memory\n");
    return WEIR_EXIT_FAILED;
  }
  if (!run_all(&s, b)) return WEIR_EXIT_FAILED;
  if (json)
    print_json(&s, b);
  else
    print_table(&s, b);
  return cli_end(WEIR_EXIT_DONE);
}
