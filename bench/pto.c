/* `weir bench pto`: what dividing an optimizer's work among the ranks is worth. */
#include "pto.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"
#include "collectives/cost.h"
#include "lab/doc.h"

#define WATCHDOG_S 580 /* for ranks that hang */

static const char *const names[] = {"lars scales", "lamb scales", "lamb step", "all of it"};

/* --- measuring -------------------------------------------------------------------------------- */

static pto_board *make_board(int ranks) {
  pto_board *board =
      mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_barrierattr_t shared;
  if (board == MAP_FAILED) return NULL;
  (void)pthread_barrierattr_init(&shared);
  (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  (void)pthread_barrier_init(&board->barrier, &shared, (unsigned)ranks);
  return board;
}

/* A rank that fails leaves the others at the barrier: they end with the first that does. */
static gboolean run_ranks(pto_plan *p) {
  pid_t pid[PTO_RANKS];
  gboolean well = TRUE;
  for (int r = 0; r < p->ranks; r++) {
    p->board->rank[r].status = WEIR_E_INTERNAL;
    pid[r] = fork();
    if (pid[r] == 0) {
      (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
      (void)alarm(WATCHDOG_S);
      weir_pto_rank(p, r);
      _exit(p->board->rank[r].status == WEIR_OK ? 0 : 1);
    }
  }
  for (int left = p->ranks; left > 0; left--) {
    int code = 1;
    if (wait(&code) < 0 || code == 0) continue;
    for (int r = 0; r < p->ranks && well; r++)
      if (pid[r] > 0) (void)kill(pid[r], SIGKILL);
    well = FALSE;
  }
  for (int r = 0; r < p->ranks && !well; r++)
    if (p->board->rank[r].message[0])
      fprintf(stderr, "weir bench pto: rank %d: %s\n", r, p->board->rank[r].message);
  return well;
}

/* Ranks begin one after the other where they share processors; the mean stands for that. */
static double median_s(const pto_plan *p, pto_work work, pto_form form) {
  const pto_cell *c = &p->board->cell[work][form];
  double seconds[PTO_REPEATS];
  for (int i = 0; i < p->repeats; i++) {
    double begin = 0, end = 0;
    if (form == PTO_ALONE) {
      seconds[i] = c->end_s[i][0] - c->begin_s[i][0];
      continue;
    }
    for (int r = 0; r < p->ranks; r++) {
      begin += c->begin_s[i][r] / p->ranks;
      end = fmax(end, c->end_s[i][r]);
    }
    seconds[i] = end - begin;
  }
  weir_sort(seconds, (size_t)p->repeats);
  return seconds[p->repeats / 2];
}

/* Of all ranks' processors, as much as a processor each would have to do. */
static double median_cpu_s(const pto_plan *p, pto_work work, pto_form form) {
  const pto_cell *c = &p->board->cell[work][form];
  double seconds[PTO_REPEATS];
  for (int i = 0; i < p->repeats; i++) {
    seconds[i] = 0;
    for (int r = 0; r < p->ranks; r++) seconds[i] += c->cpu_s[i][r];
  }
  weir_sort(seconds, (size_t)p->repeats);
  return seconds[p->repeats / 2];
}

static gboolean same_bits(const pto_plan *p, pto_work work) {
  const guint64 *digest = p->board->digest[work][PTO_DIVIDED];
  for (int r = 0; r < p->ranks; r++)
    if (digest[r] != p->board->digest[work][PTO_EVERY][0]) return FALSE;
  return p->board->digest[work][PTO_ALONE][0] == digest[0];
}

static gboolean measured(const pto_plan *p, int work) {
  return p->work == PTO_WORKS || p->work == work;
}

/* --- the model -------------------------------------------------------------------------------- */

/* Equations 13 and 14: a processor a rank, which does 1/N of what is divided, and an all-gather of
 * 16 bytes a piece.  Of LAMB's step the scales are divided, or all of it, and new weights gathered,
 * too. */
static double modelled_s(const pto_plan *p, pto_work work, int ranks, double alpha, double beta) {
  const double whole = median_s(p, work, PTO_ALONE), scales = median_s(p, PTO_LAMB, PTO_ALONE);
  const double divided = work == PTO_STEP && measured(p, PTO_LAMB) ? fmin(scales, whole) : whole;
  const double bytes = 16.0 * ((double)p->elements / 65536.0 + p->tensors);
  const double weights = work == PTO_MOVE ? 4.0 * (double)p->elements : 0;
  return whole - divided + divided / ranks +
         weir_cost_paper_allgather(ranks, alpha, beta, bytes / ranks) +
         (weights > 0 ? weir_cost_paper_allgather(ranks, alpha, beta, weights / ranks) : 0);
}

/* --- printing --------------------------------------------------------------------------------- */

static void print_table(const pto_plan *p, double alpha, double beta) {
  printf("# %zu elements in %d tensors, %d ranks on %ld processors over %s; median of %d, ms\n",
         p->elements, p->tensors, p->ranks, sysconf(_SC_NPROCESSORS_ONLN), p->transport,
         p->repeats);
  printf("%-12s %9s %10s %9s %7s %10s %9s %7s %6s\n", "work", "one rank", "every rank", "divided",
         "ratio", "every, cpu", "divided", "ratio", "bits");
  for (int w = 0; w < PTO_WORKS; w++) {
    if (!measured(p, w)) continue;
    const double every = median_s(p, (pto_work)w, PTO_EVERY);
    const double divided = median_s(p, (pto_work)w, PTO_DIVIDED);
    const double every_cpu = median_cpu_s(p, (pto_work)w, PTO_EVERY);
    const double divided_cpu = median_cpu_s(p, (pto_work)w, PTO_DIVIDED);
    printf("%-12s %9.2f %10.2f %9.2f %7.3f %10.2f %9.2f %7.3f %6s\n", names[w],
           1e3 * median_s(p, (pto_work)w, PTO_ALONE), 1e3 * every, 1e3 * divided, divided / every,
           1e3 * every_cpu, 1e3 * divided_cpu, divided_cpu / every_cpu,
           same_bits(p, (pto_work)w) ? "same" : "OTHER");
  }
  printf(
      "# modelled (equations 13, 14): a processor a rank, %g ms one way, %g Gbit/s; speed-up over "
      "every rank doing all\n",
      1e3 * alpha, 8e-9 / beta);
  printf("%-12s", "ranks");
  for (int n = 4; n <= 128; n *= 2) printf(" %7d", n);
  printf("\n");
  for (int w = 0; w < PTO_WORKS; w++) {
    if (!measured(p, w)) continue;
    printf("%-12s", names[w]);
    for (int n = 4; n <= 128; n *= 2)
      printf(" %7.2f",
             median_s(p, (pto_work)w, PTO_ALONE) / modelled_s(p, (pto_work)w, n, alpha, beta));
    printf("\n");
  }
}

static void print_json(const pto_plan *p, double alpha, double beta) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_whole(builder, "elements", (gint64)p->elements);
  weir_doc_whole(builder, "tensors", p->tensors);
  weir_doc_whole(builder, "ranks", p->ranks);
  weir_doc_whole(builder, "processors", sysconf(_SC_NPROCESSORS_ONLN));
  weir_doc_list(builder, "works");
  for (int w = 0; w < PTO_WORKS; w++) {
    if (!measured(p, w)) continue;
    weir_doc_object(builder, NULL);
    weir_doc_text(builder, "work", names[w]);
    weir_doc_number(builder, "one_ms", 1e3 * median_s(p, (pto_work)w, PTO_ALONE));
    weir_doc_number(builder, "every_ms", 1e3 * median_s(p, (pto_work)w, PTO_EVERY));
    weir_doc_number(builder, "divided_ms", 1e3 * median_s(p, (pto_work)w, PTO_DIVIDED));
    weir_doc_number(builder, "every_cpu_ms", 1e3 * median_cpu_s(p, (pto_work)w, PTO_EVERY));
    weir_doc_number(builder, "divided_cpu_ms", 1e3 * median_cpu_s(p, (pto_work)w, PTO_DIVIDED));
    weir_doc_flag(builder, "same_bits", same_bits(p, (pto_work)w));
    weir_doc_list(builder, "modelled");
    for (int n = 4; n <= 128; n *= 2) {
      weir_doc_object(builder, NULL);
      weir_doc_whole(builder, "ranks", n);
      weir_doc_number(builder, "ms", 1e3 * modelled_s(p, (pto_work)w, n, alpha, beta));
      weir_doc_end(builder);
    }
    weir_doc_end_list(builder);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
  weir_doc_print(builder);
}

typedef struct arguments {
  int ranks, tensors, repeats;
  gint64 elements;
  double latency_ms, bandwidth_gbps;
  char *work;
  gboolean json;
} arguments;

static int work_of(const arguments *a) {
  for (int w = 0; w < PTO_WORKS; w++)
    if (a->work && !strcmp(a->work, names[w])) return w;
  return a->work ? -1 : PTO_WORKS;
}

/* What was expected instead of the first option that is out of its range; NULL: none is. */
static const char *expected(const arguments *a) {
  if (a->ranks < 1 || a->ranks > PTO_RANKS) return "--ranks: 1 to 128";
  if (a->tensors < 1 || a->tensors > 100000) return "--tensors: 1 to 100000";
  if (a->elements < a->tensors || a->elements > UINT32_MAX)
    return "--elements: at least one a tensor, at most 2^32 - 1";
  if (a->repeats < 1 || a->repeats > PTO_REPEATS) return "--repeats: 1 to 31";
  if (work_of(a) < 0) return "--work: lars scales, lamb scales, lamb step or all of it";
  if (!(a->latency_ms >= 0 && isfinite(a->latency_ms))) return "--latency-ms: a number from 0";
  return a->bandwidth_gbps > 0 && isfinite(a->bandwidth_gbps)
             ? NULL
             : "--bandwidth-gbps: a number above 0";
}

static int bench(const arguments *a) {
  pto_plan p = {.ranks = a->ranks,
                .tensors = a->tensors,
                .repeats = a->repeats,
                .work = work_of(a),
                .elements = (gsize)a->elements,
                .transport = "shm",
                .job = (guint64)getpid()};
  (void)g_snprintf(p.where, sizeof p.where, "bench-pto-%d", (int)getpid());
  p.board = make_board(a->ranks);
  if (!p.board) {
    fprintf(stderr, "weir bench pto: no memory\n");
    return WEIR_EXIT_FAILED;
  }
  const gboolean well = run_ranks(&p);
  const double alpha = a->latency_ms / 1e3, beta = 8e-9 / a->bandwidth_gbps;
  if (well && a->json) print_json(&p, alpha, beta);
  if (well && !a->json) print_table(&p, alpha, beta);
  (void)munmap(p.board, sizeof *p.board);
  return well ? WEIR_EXIT_DONE : WEIR_EXIT_FAILED;
}

static void clear(arguments *a) { g_free(a->work); }
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(arguments, clear)

int main(int argc, char **argv) {
  g_auto(arguments) a = {.ranks = 4,
                         .tensors = 200,
                         .repeats = 7,
                         .elements = 25000000,
                         .latency_ms = 0.05,
                         .bandwidth_gbps = 25};
  const GOptionEntry entries[] = {
      {"ranks", 0, 0, G_OPTION_ARG_INT, &a.ranks, "1 to 128 (default 4)", "N"},
      {"tensors", 0, 0, G_OPTION_ARG_INT, &a.tensors,
       "1 to 100000, of which the first has half of all elements (default 200)", "N"},
      {"elements", 0, 0, G_OPTION_ARG_INT64, &a.elements,
       "of all tensors, at most 2^32 - 1 (default 25000000)", "N"},
      {"repeats", 0, 0, G_OPTION_ARG_INT, &a.repeats, "1 to 31 (default 7)", "N"},
      {"work", 0, 0, G_OPTION_ARG_STRING, &a.work,
       "lars scales, lamb scales, lamb step or all of it (default: each of them)", "NAME"},
      {"latency-ms", 0, 0, G_OPTION_ARG_DOUBLE, &a.latency_ms,
       "one way, of the model (default 0.05)", "MS"},
      {"bandwidth-gbps", 0, 0, G_OPTION_ARG_DOUBLE, &a.bandwidth_gbps, "of the model (default 25)",
       "GBPS"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL};
  const cli_help help = {
      "weir bench pto", NULL,
      "What LARS and LAMB take when their work is divided among the ranks (weir/parallel.h), "
      "beside\n"
      "every rank doing all of it.",
      "Ranks are processes of this machine, over shared memory. Where there are fewer processors\n"
      "than ranks, every rank doing all takes ranks / processors times what one rank takes, and\n"
      "divided work 1 / processors: the ratio of the two is what it is where each rank has a\n"
      "processor, but for what gathering takes, which is copying here. The model is for those.\n"
      "Exit codes: 0 done; 1 a rank failed; 2 bad usage."};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  const char *wanted = expected(&a);
  if (wanted) {
    fprintf(stderr, "weir bench pto: expected %s\n", wanted);
    return WEIR_EXIT_USAGE;
  }
  return cli_end(bench(&a));
}
