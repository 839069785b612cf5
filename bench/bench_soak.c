/* Training for hours, to see whether anything grows: memory, descriptors, threads, the journal.
 *
 *   bench_soak tcp SECONDS DIR       three processes on the loopback, a secret (TLS); real time
 *   bench_soak virtual SECONDS DIR   three threads in virtual time, so that a day takes minutes
 *
 * Policy weir, with probes, trials and decisions, a network that changes in virtual time, a state
 * saved every 500 steps.  DIR gets soak.csv, a sample of every process 120 times, and the journal.
 * Exit code 1: something has grown over the second half, or a rank has failed. */
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/base.h"

enum { RANKS = 3, N = 20000, SAMPLES = 120, WATCHED = 2 * RANKS, EVERY = 16, SAVE_EVERY = 500 };
#define JOURNAL_BYTES (UINT64_C(1) << 20)
#define STEP_S 0.012 /* of waiting, as if a device computed; in virtual time: of computing */
#define VIRTUAL_STEP_S 0.2

enum { RESIDENT_KB, DESCRIPTORS, THREADS, FIGURES };
static const char *const figure[FIGURES] = {"resident kB", "descriptors", "threads"};
/* Over the second half; a page that is touched late is no leak. */
static const double allowed[FIGURES] = {256, 0.5, 0.5};

typedef struct soak { /* shared by the processes */
  bool is_virtual;
  double seconds;
  char where[64], journal[512], secret[32];
  _Atomic double elapsed_s; /* rank 0's */
  atomic_bool over, failed;
  _Atomic uint64_t steps, saves, switches, trials;
} soak;

/* What a gradient follows from beside the weights; a trial puts it back. */
typedef struct source {
  weir_rng rng;
  uint64_t tick;
} source;

typedef struct rank_of {
  soak *s;
  int rank;
} rank_of;

static void nap(double seconds) {
  const struct timespec pause = {(time_t)seconds,
                                 (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&pause, NULL);
}

/* --- a rank ----------------------------------------------------------------------------------- */

/* Another network every 3000 steps, some 20 minutes. */
static void network(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  static const double latency[] = {0.001, 0.05, 0.01}, rate[] = {12.5e6, 1e5, 1.25e6, 2.5e5};
  (void)user;
  *latency_s = latency[step / 3000 % 3];
  *bandwidth = rate[step / 3000 % 4];
}

static bool count(void *user, const void *data, size_t bytes) {
  (void)data;
  *(size_t *)user += bytes;
  return true;
}

/* The weights follow a target that moves, so that there is something to learn for ever. */
static double gradient(const float *w, float *g, source *from) {
  const double at = 1e-3 * (double)from->tick++;
  double loss = 0;
  for (size_t i = 0; i < N; i++) {
    const float off = w[i] - sinf((float)(at + (double)i));
    g[i] = off + 0.3F * ((float)weir_rng_uniform(&from->rng) - 0.5F); /* of a batch */
    loss += (double)g[i] * (double)g[i] / N;
  }
  return loss;
}

static weir_status open_session(weir_session **session, const rank_of *r, float *w, source *from) {
  const soak *s = r->s;
  weir_options options;
  weir_options_init(&options);
  options.rank = r->rank;
  options.world_size = RANKS;
  options.transport = s->is_virtual ? "inproc" : "tcp";
  options.rendezvous = s->where;
  options.secret = s->is_virtual ? NULL : s->secret;
  options.timeout_s = 60; /* other work on the machine is no fault */
  options.journal_path = r->rank ? NULL : s->journal;
  options.journal_bytes = JOURNAL_BYTES;
  options.virtual_network = s->is_virtual ? network : NULL;
  options.active_probes = !s->is_virtual;
  weir_status status = weir_session_create(session, &options);
  uint32_t tensor;
  if (!status) status = weir_register_matrix(*session, "a", N / 200, 100, &tensor);
  if (!status) status = weir_register_tensor(*session, "b", N / 2, &tensor);
  if (!status) status = weir_register_state(*session, "w", w, N * sizeof *w);
  return status ? status : weir_register_state(*session, "source", from, sizeof *from);
}

/* What a step adds to the clock; in virtual time computing is a constant. */
static double took(const soak *s, const weir_step_info *info, double begun_s) {
  if (s->is_virtual) return VIRTUAL_STEP_S + info->exchange_s;
  return weir_now_s() - begun_s;
}

static weir_status one_step(weir_session *session, const rank_of *r, float *w, source *from,
                            weir_step_info *info) {
  static _Thread_local float g[N];
  weir_status status = weir_step_begin(session, info);
  if (status) return status;
  status = weir_report_loss(session, gradient(w, g, from));
  if (!r->s->is_virtual) nap(STEP_S);
  if (!status) status = weir_submit(session, 0, g);
  if (!status) status = weir_submit(session, 1, g + N / 2);
  if (!status) status = weir_step_end(session, info);
  for (size_t i = 0; !status && i < N; i++) w[i] -= 0.05F * g[i];
  return status;
}

static void note(soak *s, const weir_step_info *info, weir_plan *last) {
  (void)atomic_fetch_add(&s->steps, 1);
  if (info->trial)
    (void)atomic_fetch_add(&s->trials, 1);
  else if (memcmp(last, &info->plan, sizeof *last) != 0)
    (void)atomic_fetch_add(&s->switches, 1);
  if (!info->trial) *last = info->plan;
}

static weir_status train(const rank_of *r, weir_session *session, float *w, source *from) {
  soak *s = r->s;
  weir_plan last = {0};
  unsigned char said[RANKS] = {0};
  double elapsed_s = 0;
  weir_status status = WEIR_OK;
  for (uint64_t i = 1; !status && !said[0]; i++) {
    const double begun_s = weir_now_s();
    weir_step_info info = {.struct_size = sizeof info};
    status = one_step(session, r, w, from, &info);
    if (status) break;
    elapsed_s += took(s, &info, begun_s);
    if (r->rank == 0) atomic_store(&s->elapsed_s, elapsed_s), note(s, &info, &last);
    size_t bytes = 0;
    if (i % SAVE_EVERY == 0 && !info.trial) {
      const weir_status saved = weir_session_save(session, count, &bytes);
      if (saved != WEIR_OK && saved != WEIR_E_STATE) return saved; /* a trial may begin */
      (void)atomic_fetch_add(&s->saves, saved == WEIR_OK && r->rank == 0);
    }
    const unsigned char over = elapsed_s >= s->seconds || atomic_load(&s->over);
    if (i % EVERY == 0) status = weir_allgather_bytes(session, &over, 1, said);
  }
  return status;
}

static void *run_rank(void *argument) {
  const rank_of *r = argument;
  static _Thread_local float w[N];
  weir_session *session = NULL;
  source from = {.tick = 0};
  from.rng = weir_rng_of((uint64_t)r->rank + 1);
  weir_status status = open_session(&session, r, w, &from);
  if (!status) status = weir_session_start(session);
  if (!status) status = train(r, session, w, &from);
  if (status) {
    fprintf(stderr, "bench_soak: rank %d: %s: %s\n", r->rank, weir_status_name(status),
            weir_last_error());
    atomic_store(&r->s->failed, true);
  }
  weir_session_free(session);
  return NULL;
}

/* --- what is watched -------------------------------------------------------------------------- */

typedef struct record {
  pid_t pid[WATCHED];
  int processes, samples;
  double at_s[SAMPLES];
  double value[SAMPLES][WATCHED][FIGURES];
  double journal[SAMPLES];
} record;

static int entries(const char *path) {
  int number = 0;
  DIR *folder = opendir(path);
  for (const struct dirent *e; folder && (e = readdir(folder)) != NULL;)
    number += e->d_name[0] != '.';
  if (folder) (void)closedir(folder);
  return number;
}

/* The process that a process has started (weir-netprobe); 0: none. */
static pid_t child_of(pid_t parent) {
  pid_t found = 0;
  DIR *folder = opendir("/proc");
  for (const struct dirent *e; folder && !found && (e = readdir(folder)) != NULL;) {
    char path[300];
    int pid = atoi(e->d_name), its = 0;
    if (pid <= 0) continue;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) continue;
    if (fscanf(file, "%*d (%*[^)]) %*c %d", &its) == 1 && its == parent) found = pid;
    (void)fclose(file);
  }
  if (folder) (void)closedir(folder);
  return found;
}

static void sample_process(pid_t pid, double value[FIGURES]) {
  char path[64], line[256];
  (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file)) {
    if (strncmp(line, "VmRSS:", 6) == 0) value[RESIDENT_KB] = atof(line + 6);
    if (strncmp(line, "Threads:", 8) == 0) value[THREADS] = atof(line + 8);
  }
  if (file) (void)fclose(file);
  (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  value[DESCRIPTORS] = entries(path);
}

static double journal_bytes(const soak *s) {
  double bytes = 0;
  for (int part = 0; part < 4; part++) {
    char path[520];
    struct stat about;
    (void)snprintf(path, sizeof path, part ? "%s.%d" : "%s", s->journal, part);
    if (stat(path, &about) == 0) bytes += (double)about.st_size;
  }
  return bytes;
}

static void sample(record *all, const soak *s, FILE *out) {
  const int at = all->samples++;
  all->at_s[at] = atomic_load(&s->elapsed_s);
  all->journal[at] = journal_bytes(s);
  for (int p = 0; p < all->processes; p++) {
    sample_process(all->pid[p], all->value[at][p]);
    (void)fprintf(out, "%.0f,%llu,%d,%.0f,%.0f,%.0f,%.0f\n", all->at_s[at],
                  (unsigned long long)atomic_load(&s->steps), p, all->value[at][p][RESIDENT_KB],
                  all->value[at][p][DESCRIPTORS], all->value[at][p][THREADS], all->journal[at]);
  }
  (void)fflush(out);
}

/* What a line through the second half's samples rises by. */
static double rise(const record *all, int process, int which) {
  const int first = all->samples / 2, n = all->samples - first;
  double at = 0, mean = 0, over = 0, under = 0;
  for (int i = first; i < all->samples; i++) {
    at += all->at_s[i] / n;
    mean += all->value[i][process][which] / n;
  }
  for (int i = first; i < all->samples; i++) {
    over += (all->at_s[i] - at) * (all->value[i][process][which] - mean);
    under += (all->at_s[i] - at) * (all->at_s[i] - at);
  }
  return under > 0 ? over / under * (all->at_s[all->samples - 1] - all->at_s[first]) : 0;
}

static bool judge(const record *all, const soak *s) {
  bool flat = !atomic_load(&s->failed) && all->samples >= 4;
  double most = 0;
  for (int i = 0; i < all->samples; i++) most = fmax(most, all->journal[i]);
  for (int p = 0; p < all->processes; p++)
    for (int f = 0; f < FIGURES; f++) {
      const double by = rise(all, p, f);
      if (by > allowed[f]) flat = false;
      printf("%s %d: %-11s %8.0f %8.0f %8.0f, over the second half %+.1f%s\n",
             p < all->processes / 2 || s->is_virtual ? "rank  " : "helper", p % RANKS, figure[f],
             all->value[0][p][f], all->value[all->samples / 2][p][f],
             all->value[all->samples - 1][p][f], by, by > allowed[f] ? " GROWS" : "");
    }
  if (most > 1.1 * (double)JOURNAL_BYTES) flat = false;
  printf("journal: %.0f bytes at the most, %.0f are kept\n", most, (double)JOURNAL_BYTES);
  printf("%.0f s, %llu steps (%llu of trials), %llu changes of plan, %llu saves: %s\n",
         atomic_load(&s->elapsed_s), (unsigned long long)atomic_load(&s->steps),
         (unsigned long long)atomic_load(&s->trials), (unsigned long long)atomic_load(&s->switches),
         (unsigned long long)atomic_load(&s->saves), flat ? "flat" : "NOT FLAT");
  return flat;
}

static void watch(record *all, soak *s, FILE *out) {
  for (double due_s = s->seconds / SAMPLES; all->samples < SAMPLES && !atomic_load(&s->failed);
       due_s += s->seconds / SAMPLES) {
    while (atomic_load(&s->elapsed_s) < due_s && !atomic_load(&s->failed)) nap(0.01);
    if (all->samples == 0 && !s->is_virtual)
      for (int r = 0; r < RANKS; r++) {
        const pid_t helper = child_of(all->pid[r]);
        if (helper) all->pid[all->processes++] = helper;
      }
    if (!atomic_load(&s->failed) && all->samples < SAMPLES - 1) sample(all, s, out);
    if (due_s >= s->seconds * (1 - 1.5 / SAMPLES)) break; /* they are about to end */
  }
}

/* --- both kinds ------------------------------------------------------------------------------- */

static void start_processes(soak *s, rank_of r[RANKS], record *all) {
  for (int i = 0; i < RANKS; i++) {
    all->pid[i] = fork();
    if (all->pid[i] < 0) abort();
    if (all->pid[i] > 0) continue;
    (void)run_rank(&r[i]);
    _exit(atomic_load(&s->failed));
  }
  all->processes = RANKS;
}

static bool soak_for(soak *s, FILE *out) {
  static record all;
  rank_of r[RANKS];
  pthread_t thread[RANKS];
  for (int i = 0; i < RANKS; i++) r[i] = (rank_of){s, i};
  (void)fputs("elapsed_s,steps,process,resident_kb,descriptors,threads,journal_bytes\n", out);
  (void)fflush(out);
  if (s->is_virtual) {
    all.pid[0] = getpid();
    all.processes = 1;
    for (int i = 0; i < RANKS; i++)
      if (pthread_create(&thread[i], NULL, run_rank, &r[i]) != 0) abort();
  } else {
    start_processes(s, r, &all);
  }
  watch(&all, s, out);
  for (int i = 0; i < RANKS; i++) {
    int how = 0;
    if (s->is_virtual)
      (void)pthread_join(thread[i], NULL);
    else if (waitpid(all.pid[i], &how, 0) != all.pid[i] || how != 0)
      atomic_store(&s->failed, true);
  }
  return judge(&all, s);
}

int main(int argc, char **argv) {
  if (argc != 4 || (strcmp(argv[1], "tcp") != 0 && strcmp(argv[1], "virtual") != 0) ||
      !(atof(argv[2]) > 0))
    return fprintf(stderr, "usage: bench_soak tcp|virtual SECONDS DIR\n"), 2;
  char path[512];
  soak *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (s == MAP_FAILED) abort();
  s->is_virtual = strcmp(argv[1], "virtual") == 0;
  s->seconds = atof(argv[2]);
  (void)snprintf(s->where, sizeof s->where, "127.0.0.1:%d", weir_free_port());
  (void)snprintf(s->secret, sizeof s->secret, "soak of %d", (int)getpid());
  (void)mkdir(argv[3], 0777);
  (void)snprintf(s->journal, sizeof s->journal, "%s/decisions.jsonl", argv[3]);
  (void)snprintf(path, sizeof path, "%s/soak.csv", argv[3]);
  FILE *out = fopen(path, "we");
  if (!out) return perror(path), 2;
  const bool flat = soak_for(s, out);
  (void)fclose(out);
  return flat ? 0 : 1;
}
