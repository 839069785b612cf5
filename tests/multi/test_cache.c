/* A cache of samples among ranks: each epoch is divided, each sample is read once by anybody, and
 * whatever goes wrong costs time and no sample. */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cache_ranks.h"
#include "session/state.h"

static bool three_epochs(rank_job *job) {
  weir_cache *c = NULL;
  job->session->options.rendezvous = "127.0.0.3:1,127.0.0.2:1"; /* as of one that has joined */
  bool good = weir_cache_open(&c, job->session, &job->options) == WEIR_OK;
  good = good && c->peer[0].address.sin_addr.s_addr == htonl(0x7f000002); /* as of the session */
  for (uint64_t e = 0; e < 3 && good; e++) good = take_epoch(c, job, e);
  arrive(job->b, 0, job->ranks);
  const weir_cache_stats s = good ? stats_of(c) : (weir_cache_stats){0};
  good = good && s.lost == 0 && s.strangers == 0 && s.from_disk == 0 &&
         s.from_memory + s.from_peers + s.from_source == 3 * SAMPLES / (uint64_t)job->ranks;
  arrive(job->b, 1, job->ranks);
  weir_cache_close(c);
  return good;
}

Test(cache, every_epoch_is_divided_and_every_sample_is_read_once, .timeout = WATCHDOG_S) {
  board *b = new_board();
  run_ranks(b, 3, -1, three_epochs);
  for (int i = 0; i < SAMPLES; i++) {
    for (int e = 0; e < 3; e++) cr_assert_eq(b->taken[e][i], 1, "sample %d, epoch %d", i, e);
    cr_assert_eq(b->reads[i], 1, "sample %d was read %d times", i, b->reads[i]);
  }
  cr_assert_neq(memcmp(b->order[0], b->order[1], sizeof b->order[0]), 0);
}

static bool one_epoch(rank_job *job) {
  weir_cache *c = NULL;
  bool good = weir_cache_open(&c, job->session, &job->options) == WEIR_OK && take_epoch(c, job, 0);
  arrive(job->b, 0, job->ranks);
  weir_cache_close(c);
  return good;
}
static bool with_another_seed(rank_job *job) {
  job->options.seed = 2;
  return one_epoch(job);
}

Test(cache, order_follows_from_the_seed, .timeout = WATCHDOG_S) {
  board *three = new_board(), *two = new_board(), *other = new_board();
  run_ranks(three, 3, -1, one_epoch);
  run_ranks(two, 2, -1, one_epoch);
  run_ranks(other, 2, -1, with_another_seed);
  cr_assert_eq(memcmp(three->order[0], two->order[0], sizeof two->order[0]), 0,
               "the order depends on the number of ranks");
  cr_assert_neq(memcmp(two->order[0], other->order[0], sizeof two->order[0]), 0);
  int in_place = 0; /* of a random permutation about one is */
  for (uint32_t i = 0; i < SAMPLES; i++) in_place += two->order[0][i] == i;
  cr_assert_lt(in_place, 10);
}

/* --- lost ranks ----------------------------------------------------------------------------- */

/* All samples, after rank 1 of 3 has gone: what it owned is read once more, by one of the two. */
static bool all_without_rank_1(weir_cache *c, const rank_job *job, double most_s) {
  const double begin = weir_now_s();
  bool good = true;
  for (uint32_t i = 0; i < SAMPLES && good; i++) good = sample_is_right(c, i);
  const double took_s = weir_now_s() - begin;
  if (took_s > most_s) fprintf(stderr, "took %g s\n", took_s);
  arrive(job->b, 2, 2);
  good = good && took_s < most_s && stats_of(c).lost == 1;
  arrive(job->b, 3, 2);
  return good;
}

static bool lose_rank_1(rank_job *job, int signal) {
  weir_cache *c = NULL;
  job->options.timeout_s = 2;
  bool good = weir_cache_open(&c, job->session, &job->options) == WEIR_OK && take_epoch(c, job, 0);
  arrive(job->b, 0, job->ranks);
  if (job->rank == 1) (void)raise(signal);
  tcp_sleep(0.1);
  good = good && all_without_rank_1(c, job, 20); /* 40 samples' time-outs would be 80 s */
  weir_cache_close(c);
  return good;
}
static bool killed(rank_job *job) { return lose_rank_1(job, SIGKILL); }
static bool frozen(rank_job *job) { return lose_rank_1(job, SIGSTOP); }

static void check_reads_without_rank_1(const board *b) {
  for (int i = 0; i < SAMPLES; i++)
    cr_assert_eq(b->reads[i], i % 3 == 1 ? 2 : 1, "sample %d was read %d times", i, b->reads[i]);
}

Test(cache, a_killed_rank_loses_nothing_but_time, .timeout = WATCHDOG_S) {
  board *b = new_board();
  run_ranks(b, 3, 1, killed);
  check_reads_without_rank_1(b);
}

Test(cache, a_frozen_rank_is_waited_for_once, .timeout = WATCHDOG_S) {
  board *b = new_board();
  run_ranks(b, 3, 1, frozen);
  check_reads_without_rank_1(b);
}

/* --- the source ----------------------------------------------------------------------------- */

static bool with_a_broken_sample(rank_job *job) {
  weir_cache *c = NULL;
  unsigned char buffer[ROOM];
  bool good = weir_cache_open(&c, job->session, &job->options) == WEIR_OK;
  const uint32_t order[] = {8, 7, 6};
  good = good && weir_cache_ahead(c, order, 3) == WEIR_OK && sample_is_right(c, 8);
  for (int again = 0; again < 2 && good; again++) { /* read ahead, then not */
    good = weir_cache_get(c, 7, buffer, ROOM, NULL) == WEIR_E_IO &&
           strstr(weir_last_error(), "reading of sample 7 failed: Input/output error") != NULL;
  }
  good = good && sample_is_right(c, 6);
  arrive(job->b, 0, job->ranks);
  atomic_store(&job->b->broken, -1);
  good = good && sample_is_right(c, 7) && stats_of(c).lost == 0;
  arrive(job->b, 1, job->ranks);
  weir_cache_close(c);
  return good;
}

Test(cache, a_failing_source_is_reported_and_asked_again, .timeout = WATCHDOG_S) {
  board *b = new_board();
  atomic_store(&b->broken, 7);
  run_ranks(b, 2, -1, with_a_broken_sample);
}

static int double_bytes(void *user, uint64_t index, const void *from, size_t count, void *buffer,
                        size_t *bytes) {
  (void)user;
  const unsigned char *in = from;
  unsigned char *out = buffer;
  if (index == 5) return EILSEQ;
  if (*bytes < 2 * count) return EMSGSIZE;
  for (size_t i = 0; i < count; i++) out[2 * i] = out[2 * i + 1] = in[i];
  *bytes = 2 * count;
  return 0;
}

Test(cache, samples_are_decoded_once) {
  board *b = new_board();
  weir_cache *c = NULL;
  weir_cache_options o = cache_over(b);
  unsigned char buffer[2 * ROOM];
  size_t bytes = 0;
  o.decode = double_bytes;
  o.source_bytes = ROOM;
  o.sample_bytes = 2 * ROOM;
  cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_OK, "%s", weir_last_error());
  for (int turn = 0; turn < 2; turn++) {
    cr_assert_eq(weir_cache_get(c, 9, buffer, sizeof buffer, &bytes), WEIR_OK);
    cr_assert_eq(bytes, 2 * bytes_of_sample(9));
    for (size_t i = 0; i < bytes; i++) cr_assert_eq(buffer[i], byte_of_sample(9, i / 2));
  }
  cr_assert_eq(b->reads[9], 1);
  cr_assert_eq(weir_cache_get(c, 5, buffer, sizeof buffer, NULL), WEIR_E_IO);
  cr_assert_not_null(strstr(weir_last_error(), "decoding of sample 5 failed"));
  cr_assert_eq(weir_cache_get(c, 9, buffer, 10, NULL), WEIR_E_CAPACITY);
  cr_assert_eq(weir_cache_get(c, SAMPLES, buffer, 10, NULL), WEIR_E_INVALID);
  weir_cache_close(c);
}

/* --- memory and disk ------------------------------------------------------------------------ */

static void take_all(weir_cache *c) {
  for (uint64_t i = 0; i < SAMPLES; i++) cr_assert(sample_is_right(c, i));
}

static int all_reads(const board *b) {
  int sum = 0;
  for (int i = 0; i < SAMPLES; i++) sum += b->reads[i];
  return sum;
}

/* Room for the window and about so many bytes of samples. */
static uint64_t limit_for(const weir_cache_options *o, uint64_t samples) {
  weir_cache *c = NULL;
  weir_cache_options none = *o;
  none.folder = NULL;
  none.memory_limit = 0;
  if (weir_cache_open(&c, NULL, &none) != WEIR_OK) abort();
  const uint64_t least = stats_of(c).memory_bytes;
  weir_cache_close(c);
  return least + samples;
}

Test(cache, what_memory_has_no_room_for_is_read_again) {
  board *b = new_board();
  weir_cache *c = NULL;
  weir_cache_options o = cache_over(b);
  o.memory_limit = limit_for(&o, 10000);
  cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_OK, "%s", weir_last_error());
  take_all(c);
  const weir_cache_stats first = stats_of(c);
  cr_assert_leq(first.memory_bytes, o.memory_limit);
  cr_assert_gt(first.memory_bytes, o.memory_limit - ROOM);
  cr_assert_eq(all_reads(b), SAMPLES);
  take_all(c);
  const weir_cache_stats second = stats_of(c);
  cr_assert_leq(second.memory_bytes, o.memory_limit);
  cr_assert_eq((uint64_t)all_reads(b), SAMPLES + second.from_source - first.from_source);
  cr_assert_gt(second.from_memory, 20);
  cr_assert_eq(second.from_memory + second.from_source, 2 * SAMPLES);
  weir_cache_close(c);
  o.memory_limit = limit_for(&o, 0) - 1;
  cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "memory_limit is"));
}

static char *new_folder(void) {
  static char name[32];
  (void)snprintf(name, sizeof name, "/tmp/weir-cache-XXXXXX");
  if (mkdtemp(name) == NULL) abort();
  return name;
}

static void spoil(const char *path, long from_end) {
  FILE *file = fopen(path, "r+b");
  cr_assert_not_null(file);
  cr_assert_eq(fseek(file, -from_end, SEEK_END), 0);
  const int byte = fgetc(file);
  cr_assert_eq(fseek(file, -from_end, SEEK_END), 0);
  cr_assert_neq(fputc(byte ^ 1, file), EOF);
  cr_assert_eq(fclose(file), 0);
}

Test(cache, the_disk_takes_what_memory_does_not) {
  board *b = new_board();
  weir_cache *c = NULL;
  weir_cache_options o = cache_over(b);
  o.memory_limit = limit_for(&o, 10000);
  o.folder = new_folder();
  cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_OK, "%s", weir_last_error());
  for (int turn = 0; turn < 3; turn++) take_all(c);
  cr_assert_eq(all_reads(b), SAMPLES);
  cr_assert_gt(stats_of(c).from_disk, 100);
  cr_assert_leq(stats_of(c).memory_bytes, o.memory_limit);
  weir_cache_close(c);
  cr_assert_eq(rmdir(o.folder), 0, "a file is left behind");
}

Test(cache, a_kept_file_serves_the_next_cache_and_no_other_data_set) {
  board *b = new_board();
  weir_cache *c = NULL, *second = NULL;
  weir_cache_options o = cache_over(b);
  char path[64];
  struct stat file;
  o.memory_limit = limit_for(&o, 0);
  o.folder = new_folder();
  o.keep_disk = true;
  o.disk_limit = 20000;
  (void)snprintf(path, sizeof path, "%s/weir-cache-0", o.folder);
  cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_cache_open(&second, NULL, &o), WEIR_E_STATE);
  take_all(c);
  const int first = all_reads(b);
  take_all(c);
  const int on_disk = 2 * first - all_reads(b);
  cr_assert_gt(on_disk, 40);
  weir_cache_close(c);
  cr_assert_eq(stat(path, &file), 0);
  cr_assert(file.st_size <= 20000 && file.st_size > 19000 - ROOM);
  /* The next: two samples are damaged, the last record is cut off. */
  spoil(path, 500);
  cr_assert_eq(truncate(path, file.st_size - 1), 0);
  const int before = all_reads(b);
  cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_OK, "%s", weir_last_error());
  take_all(c);
  cr_assert_eq(all_reads(b) - before, SAMPLES - on_disk + 2);
  cr_assert_eq(stats_of(c).corrupt, 1);
  weir_cache_close(c);
  /* One that may take less keeps what there is room for. */
  o.disk_limit = 5000;
  cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_OK, "%s", weir_last_error());
  take_all(c);
  cr_assert(stats_of(c).from_disk > 10 && stats_of(c).disk_bytes <= 5000);
  weir_cache_close(c);
  cr_assert_eq(stat(path, &file), 0);
  cr_assert_leq(file.st_size, 5000);
  o.dataset = 1;
  const int other = all_reads(b);
  cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_OK, "%s", weir_last_error());
  take_all(c);
  cr_assert_eq(all_reads(b) - other, SAMPLES);
  weir_cache_close(c);
  (void)unlink(path);
  cr_assert_eq(rmdir(o.folder), 0);
}

/* --- strangers, and ranks that lie ---------------------------------------------------------- */

static int dial(const weir_cache *c, int rank) {
  int fd = -1;
  if (tcp_connect_once(&c->peer[rank].address, NULL, weir_now_s() + 5, &fd) != WEIR_OK || fd < 0)
    abort();
  return fd;
}

/* Say this, and be hung up on without a word that helps. */
static bool is_turned_away(int fd, const void *what, size_t bytes) {
  unsigned char answer[256];
  const double deadline_s = weir_now_s() + 10;
  if (bytes > 0) (void)tcp_write_all(fd, what, bytes, deadline_s);
  (void)shutdown(fd, SHUT_WR);
  const bool told = tcp_read_all(fd, answer, 1, deadline_s);
  (void)close(fd);
  return !told && weir_now_s() < deadline_s;
}

static bool refuses_strangers(const weir_cache *c) {
  cache_greeting g = {0}, challenge;
  unsigned char noise[2000];
  bool good = true;
  weir_rng rng = weir_rng_of(5);
  for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)weir_rng_next(&rng);
  for (size_t n = 0; n < sizeof noise && good; n = 3 * n + 1)
    good = is_turned_away(dial(c, 0), noise, n);
  cache_greeting_seal(&g, CACHE_HELLO, 2, 0); /* there is no rank 2 */
  good = good && is_turned_away(dial(c, 0), &g, sizeof g);
  cache_greeting_seal(&g, CACHE_HELLO, 1, 1); /* means another */
  good = good && is_turned_away(dial(c, 0), &g, sizeof g);
  const int fd = dial(c, 0); /* knows the form, but not the key */
  const double deadline_s = weir_now_s() + 10;
  cache_greeting_seal(&g, CACHE_HELLO, 1, 0);
  good = good && tcp_write_all(fd, &g, sizeof g, deadline_s) &&
         tcp_read_all(fd, &challenge, sizeof challenge, deadline_s);
  cache_greeting_seal(&g, CACHE_PROOF, 1, 0);
  return good && is_turned_away(fd, &g, sizeof g);
}

/* Of the job, but damaged: each request ends its connection. */
static bool refuses_bad_requests(const weir_cache *c) {
  const uint64_t wrong[] = {SAMPLES, UINT32_MAX};
  bool good = true;
  for (int i = 0; i < 4 && good; i++) {
    cache_word word;
    const int fd = dial(c, 0);
    good = cache_greet(c, fd, 0, weir_now_s() + 10);
    cache_word_write(&word, &(cache_message){.kind = i == 2 ? CACHE_HERE : CACHE_ASK,
                                             .index = i < 2 ? (uint32_t)wrong[i] : 3});
    if (i == 3) word.index ^= 1;
    good = good && is_turned_away(fd, &word, sizeof word);
  }
  return good;
}

static bool meet_strangers(rank_job *job) {
  weir_cache *c = NULL;
  bool good = weir_cache_open(&c, job->session, &job->options) == WEIR_OK;
  if (job->rank == 1) good = good && refuses_strangers(c) && refuses_bad_requests(c);
  arrive(job->b, 0, 2);
  good = good && take_epoch(c, job, 0) && stats_of(c).lost == 0;
  if (job->rank == 0) good = good && stats_of(c).strangers == 11;
  arrive(job->b, 1, 2);
  weir_cache_close(c);
  return good;
}

Test(cache, strangers_and_damaged_requests_are_refused, .timeout = WATCHDOG_S) {
  board *b = new_board();
  run_ranks(b, 2, -1, meet_strangers);
}

enum { CROWD = 20, PLACES = 16 };

static void *leave_soon(void *argument) {
  struct pollfd *crowd = argument;
  tcp_sleep(0.1);
  for (int i = 0; i < CROWD; i++) (void)close(crowd[i].fd);
  return NULL;
}

/* Whoever has proved nothing yet has one of 16 places; who comes then is hung up on at once, and a
 * rank comes again. */
static bool turns_a_crowd_away(weir_cache *c) {
  struct pollfd crowd[CROWD];
  pthread_t leaving;
  const double deadline_s = weir_now_s() + 5;
  int gone = 0;
  for (int i = 0; i < CROWD; i++) crowd[i] = (struct pollfd){.fd = dial(c, 0), .events = POLLIN};
  while (gone < CROWD - PLACES && weir_now_s() < deadline_s) {
    (void)poll(crowd, CROWD, 50);
    gone = 0;
    for (int i = 0; i < CROWD; i++) gone += crowd[i].revents != 0;
  }
  if (pthread_create(&leaving, NULL, leave_soon, crowd) != 0) abort();
  const bool served = sample_is_right(c, 4) && stats_of(c).from_peers == 1;
  (void)pthread_join(leaving, NULL);
  return gone == CROWD - PLACES && served && stats_of(c).lost == 0;
}

static bool meet_a_crowd(rank_job *job) {
  weir_cache *c = NULL;
  bool good = weir_cache_open(&c, job->session, &job->options) == WEIR_OK;
  if (job->rank == 1) good = good && turns_a_crowd_away(c);
  arrive(job->b, 0, 2);
  weir_cache_close(c);
  return good;
}

Test(cache, a_crowd_of_strangers_is_turned_away, .timeout = WATCHDOG_S) {
  board *b = new_board();
  run_ranks(b, 2, -1, meet_a_crowd);
}

/* A rank 0 that lets rank 1 in and then answers one request with these bytes. */
static bool survives_answer(weir_cache *c, int listener, const cache_word *word, size_t behind) {
  struct pollfd wait = {.fd = listener, .events = POLLIN};
  static const unsigned char zeros[4096];
  const pid_t liar = fork();
  if (liar == 0) {
    weir_cache *as_0 = c;
    as_0->rank = 0;
    (void)poll(&wait, 1, 10000);
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    const double deadline_s = weir_now_s() + 10;
    cache_word request;
    const bool asked =
        cache_admit(as_0, fd, deadline_s) && tcp_read_all(fd, &request, sizeof request, deadline_s);
    (void)tcp_write_all(fd, word, sizeof *word, deadline_s);
    (void)tcp_write_all(fd, zeros, behind, deadline_s);
    _exit(asked ? 0 : 1);
  }
  int code = 1;
  const uint64_t before = stats_of(c).lost;
  const bool right = sample_is_right(c, 4); /* rank 0's, and so read from the source after all */
  (void)waitpid(liar, &code, 0);
  const bool lost = stats_of(c).lost == before + 1;
  if (!right || !lost || code != 0)
    fprintf(stderr, "right %d, lost %d, asked %d\n", right, lost, code);
  atomic_store(&c->peer[0].lost, false);
  c->held[4] = (cache_held){0}; /* forget it (a leak of the test's own process) */
  return right && lost && code == 0;
}

static bool ask_a_liar(rank_job *job) {
  weir_cache *c = NULL;
  job->options.timeout_s = 5;
  bool good = weir_cache_open(&c, job->session, &job->options) == WEIR_OK;
  if (job->rank == 1) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = -1;
    cache_word word;
    good = good && tcp_listen(&at, 0, &listener) == WEIR_OK;
    c->peer[0].address = at;
    const cache_message lies[] = {{CACHE_HERE, 4, ROOM + 1, 0},     /* too long */
                                  {CACHE_HERE, 4, UINT32_MAX, 0},   /* far too long */
                                  {CACHE_HERE, 5, 100, 0},          /* another's */
                                  {CACHE_HERE, 4, 100, 0xdeadbeef}, /* damaged */
                                  {CACHE_CANNOT, 4, 100, 0},        {CACHE_ASK, 4, 0, 0}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies && good; i++) {
      cache_word_write(&word, &lies[i]);
      good = survives_answer(c, listener, &word, 200);
    }
  }
  arrive(job->b, 0, 2);
  weir_cache_close(c);
  return good;
}

Test(cache, a_rank_that_lies_is_asked_no_more, .timeout = WATCHDOG_S) {
  board *b = new_board();
  run_ranks(b, 2, -1, ask_a_liar);
}

/* --- opening -------------------------------------------------------------------------------- */

static bool with_seeds_of_their_own(rank_job *job) {
  weir_cache *c = NULL;
  job->options.seed += (uint64_t)job->rank;
  return weir_cache_open(&c, job->session, &job->options) == WEIR_E_MISMATCH && c == NULL;
}
static bool where_rank_1_fails(rank_job *job) {
  weir_cache *c = NULL;
  if (job->rank == 1) job->options.folder = "/proc/nowhere";
  const weir_status due = job->rank == 1 ? WEIR_E_IO : WEIR_E_STATE;
  return weir_cache_open(&c, job->session, &job->options) == due && c == NULL &&
         (job->rank == 1 || strstr(weir_last_error(), "rank 1 could not") != NULL);
}

Test(cache, all_ranks_open_it_alike_or_none_does, .timeout = WATCHDOG_S) {
  board *b = new_board();
  run_ranks(b, 2, -1, with_seeds_of_their_own);
  run_ranks(b, 2, -1, where_rank_1_fails);
}

Test(cache, options_out_of_range_are_refused) {
  board *b = new_board();
  weir_cache *c = NULL;
  weir_cache_options o[9];
  for (int i = 0; i < 9; i++) o[i] = cache_over(b);
  o[0].samples = 0;
  o[1].sample_bytes = 0;
  o[2].read = NULL;
  o[3].readers = 65;
  o[4].ahead = 0;
  o[5].timeout_s = 0;
  o[6].struct_size = 0;
  o[7].memory_limit = 1;
  o[8].samples = (uint64_t)UINT32_MAX + 1;
  for (int i = 0; i < 9; i++)
    cr_assert_eq(weir_cache_open(&c, NULL, &o[i]), WEIR_E_INVALID, "options %d", i);
  cr_assert_null(c);
  weir_cache_close(NULL);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which end the process */
/* What is not there closes no descriptor of the process: 0 to 2 are the trainer's own. */
Test(cache, want_of_memory_is_an_error_and_nothing_else) {
  struct rlimit limit;
  board *b = new_board();
  weir_cache *c = NULL;
  weir_cache_options o = cache_over(b);
  o.ahead = 65536;
  o.sample_bytes = (size_t)1 << 30; /* 64 TiB */
  cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
  limit.rlim_cur = (rlim_t)1 << 36; /* also where the kernel promises all that is asked for */
  cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
  for (int fd = 0; fd < 3; fd++) cr_assert_geq(fcntl(fd, F_GETFD), 0, "descriptor %d", fd);
  for (int tries = 0; tries < 3; tries++) cr_assert_eq(weir_cache_open(&c, NULL, &o), WEIR_E_NOMEM);
  for (int fd = 0; fd < 3; fd++) cr_assert_geq(fcntl(fd, F_GETFD), 0, "descriptor %d", fd);
  cr_assert_null(c);
}
#endif
