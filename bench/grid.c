/* `weir bench grid`: cost rows against measurement over shaped links, and what the selector's
 * choices cost.  Workers are processes in network namespaces, inside User-Mode Linux where the
 * kernel has no netem. */
#include "grid.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"
#include "lab/shaper.h"
#include "lab/stage.h"
#include "lab/uml.h"

#define ROOM (8.0 * (1 << 20)) /* in flight beyond a link's bandwidth times delay */
#define BUDGET_S 60.0
#define LONGEST_S 7200.0 /* of the clock outside; machines that end nothing are ended then */

/* Every number of workers with every shape. */
typedef struct grid {
  int worker_counts, shapes;
  int workers[GRID_WORKERS];
  weir_shape shape[GRID_SHAPES];
  weir_uml_clock clock;
  double budget_s;
  gboolean json;
  grid_plan *plan; /* [worker count * shapes + shape], in shared memory */
} grid;

typedef struct grid_run {
  grid *g;
  int count; /* index of workers[] */
} grid_run;

/* --- running -------------------------------------------------------------------------------- */

static weir_status run_shape(grid_plan *p, weir_topology *topology) {
  pid_t pid[GRID_RANKS];
  pthread_barrierattr_t shared;
  (void)pthread_barrierattr_init(&shared);
  (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  (void)pthread_barrier_init(&p->board->barrier, &shared, (unsigned)p->workers);
  (void)pthread_barrierattr_destroy(&shared);
  (void)fflush(NULL);
  int started = 0;
  for (; started < p->workers; started++) {
    p->board->rank[started].status = WEIR_E_PEER; /* unless it says otherwise */
    pid[started] = fork();
    if (pid[started] < 0) break;
    if (pid[started] > 0) continue;
    weir_stage_die_with_parent();
    weir_status status = weir_topology_join(topology, started);
    if (status == WEIR_OK) status = weir_grid_rank(p, started);
    p->board->rank[started].status = status;
    (void)g_strlcpy(p->board->rank[started].message, weir_last_error(),
                    sizeof p->board->rank[started].message);
    _exit(status == WEIR_OK ? 0 : 1);
  }
  gboolean good = started == p->workers;
  for (int left = started; left > 0; left--) { /* one that fails ends the others: they would wait */
    if (!good)
      for (int r = 0; r < started; r++)
        if (pid[r] > 0) (void)kill(pid[r], SIGKILL);
    int state = 0;
    const pid_t ended = wait(&state);
    for (int r = 0; r < started; r++)
      if (pid[r] == ended) pid[r] = 0;
    good = good && WIFEXITED(state) && WEXITSTATUS(state) == 0;
  }
  (void)pthread_barrier_destroy(&p->board->barrier);
  if (good) return WEIR_OK;
  for (int r = 0; r < started; r++)
    if (p->board->rank[r].status != WEIR_OK && p->board->rank[r].message[0])
      return weir_fail(p->board->rank[r].status, "rank %d: %s", r, p->board->rank[r].message);
  return weir_fail(WEIR_E_PEER, "a worker ended without reporting an error");
}

static void tell(const grid *g, const grid_plan *p, double seconds) {
  int measured = 0;
  for (int i = 0; i < p->ops; i++) measured += p->op[i].measured_s > 0;
  fprintf(stderr,
          "shape %d of %d: %d workers, %g ms, %g Mbit/s: alpha %.3f ms, %.2f Mbit/s one way, %.2f "
          "both ways, burst "
          "%.0f "
          "bytes, %.1f us a message, %.3f ns a byte, %.3f/%.3f ns to add one; %d of %d operations "
          "in %.0f "
          "s\n",
          (int)(p - g->plan) + 1, g->worker_counts * g->shapes, p->workers, p->shape.delay_s * 1e3,
          p->shape.rate_bytes_s * 8e-6, p->link.alpha * 1e3, 8e-6 / p->link.beta,
          8e-6 / p->link.duplex_beta, p->link.burst, p->link.message_s * 1e6, p->link.byte_s * 1e9,
          p->link.sum_s * 1e9, p->link.sums_s * 1e9, measured, p->ops, seconds);
}

static weir_status run_workers(void *user) {
  const grid_run *run = user;
  grid *g = run->g;
  const int workers = g->workers[run->count];
  double window = 0;
  for (int s = 0; s < g->shapes; s++)
    window = fmax(window, g->shape[s].rate_bytes_s * 2 * g->shape[s].delay_s);
  window += ROOM; /* answers wait behind data that goes the other way */
  weir_topology *topology = NULL;
  weir_stage_open_signals();
  weir_status status = weir_topology_enter();
  if (status == WEIR_OK) status = weir_topology_create(&topology, workers, window);
  for (int s = 0; s < g->shapes && status == WEIR_OK; s++) {
    grid_plan *p = &g->plan[run->count * g->shapes + s];
    const double begin_s = weir_now_s();
    status = weir_topology_shape(topology, &g->shape[s]);
    if (status == WEIR_OK)
      status = weir_topology_shape_arrivals(topology, g->shape[s].rate_bytes_s);
    p->workers = workers;
    p->shape = g->shape[s];
    p->clock = g->clock;
    p->budget_s = g->budget_s;
    p->job = (guint64)(1 + run->count * g->shapes + s);
    weir_grid_operations(p);
    if (status == WEIR_OK && getrandom(p->secret, sizeof p->secret, 0) != (ssize_t)sizeof p->secret)
      status = weir_fail(WEIR_E_IO, "no random bytes for the ranks' secret");
    if (status == WEIR_OK) status = run_shape(p, topology);
    if (status != WEIR_OK) break;
    weir_grid_collect(p);
    tell(g, p, weir_now_s() - begin_s);
    if (g->json) weir_grid_print(p);
  }
  weir_topology_free(topology);
  return status;
}

/* --- the command line ----------------------------------------------------------------------- */

static int run_here(grid *g) {
  const gsize plans = (gsize)(g->worker_counts * g->shapes);
  const gsize bytes = plans * (sizeof(grid_plan) + sizeof(grid_board) + 64);
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "weir bench grid: out of memory\n");
    return WEIR_EXIT_FAILED;
  }
  grid_board *boards = memory;
  g->plan = (grid_plan *)(void *)(boards + plans);
  for (gsize i = 0; i < plans; i++) g->plan[i].board = &boards[i];
  weir_status status = WEIR_OK;
  for (int c = 0; c < g->worker_counts && status == WEIR_OK; c++) {
    grid_run run = {g, c};
    status = weir_stage_run(run_workers, &run);
  }
  if (status != WEIR_OK)
    fprintf(stderr, "weir bench grid: %s\n", weir_last_error());
  else if (!g->json)
    weir_grid_report(g->plan, (int)plans);
  (void)munmap(memory, bytes);
  return status == WEIR_OK ? WEIR_EXIT_DONE : WEIR_EXIT_FAILED;
}

/* What earlier runs found, predicted anew. */
static int report_files(char **path) {
  g_autofree grid_plan *plan = g_new0(grid_plan, GRID_PLANS);
  int plans = 0, code = WEIR_EXIT_DONE;
  for (; *path && code == WEIR_EXIT_DONE; path++) {
    g_autofree char *error = NULL;
    int count = 0;
    if (!weir_grid_read(*path, plan + plans, GRID_PLANS - plans, &count, &error)) {
      fprintf(stderr, "weir bench grid: %s\n", error);
      code = WEIR_EXIT_USAGE;
    }
    plans += count;
  }
  if (code == WEIR_EXIT_DONE) weir_grid_report(plan, plans);
  return code;
}

typedef struct arguments {
  char *workers, *latencies, *rates, *network, *clock, **files;
  double budget_s;
  gboolean json, inside_uml;
} arguments;

static int run_in_uml(const arguments *a, weir_uml_clock clock) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0) return WEIR_EXIT_FAILED;
  self[length] = '\0';
  char budget[32];
  (void)g_ascii_dtostr(budget, sizeof budget, a->budget_s);
  const char *const argv[] = {self,
                              "--network",
                              "tc",
                              "--inside-uml",
                              "--clock",
                              weir_uml_clock_name(clock),
                              "--workers",
                              a->workers,
                              "--latency-ms",
                              a->latencies,
                              "--mbit",
                              a->rates,
                              "--budget-s",
                              budget,
                              a->json ? "--json" : NULL,
                              NULL};
  const weir_uml_config config = {
      .argv = argv, .memory_mib = 3072, .timeout_s = LONGEST_S, .clock = clock};
  int code = 0;
  const weir_status status = weir_uml_run(&config, &code);
  if (status == WEIR_OK) return code;
  fprintf(stderr, "weir bench grid: %s\n", weir_last_error());
  return WEIR_EXIT_FAILED;
}

/* "1,5,50": numbers in (0, most]; how many, 0 when that is not what the text is. */
static int parse_list(const char *text, double most, double *value, int room) {
  g_auto(GStrv) parts = g_strsplit(text, ",", -1);
  int count = 0;
  for (char **part = parts; *part; part++) {
    char *end = NULL;
    if (count == room || !g_ascii_isdigit(**part)) return 0;
    value[count] = g_ascii_strtod(*part, &end);
    if (*end != '\0' || !(value[count] > 0) || value[count] > most) return 0;
    count++;
  }
  return count;
}

/* A clock that is not real is one of User-Mode Linux's, and its kernel must have it. */
static gboolean parse_clock(const arguments *a, weir_uml_clock *clock) {
  char why[512] = "";
  if (!weir_uml_clock_parse(a->clock, clock))
    (void)g_strlcpy(why, "expected --clock: real, skip-idle or free-cpu", sizeof why);
  else if (*clock == WEIR_UML_CLOCK_REAL || a->inside_uml || a->files)
    return TRUE;
  else if (strcmp(a->network, "uml") != 0)
    (void)g_strlcpy(why, "expected --network uml with this --clock", sizeof why);
  else if (weir_uml_available(*clock, why))
    return TRUE;
  fprintf(stderr, "weir bench grid: %s\n", why);
  return FALSE;
}

static int parse(const arguments *a, grid *g) {
  double workers[GRID_WORKERS], latency[4], rate[4];
  g->worker_counts = parse_list(a->workers, GRID_RANKS, workers, GRID_WORKERS);
  const int latencies = parse_list(a->latencies, 10000, latency, 4);
  const int rates = parse_list(a->rates, 100000, rate, 4);
  for (int i = 0; i < g->worker_counts; i++) {
    g->workers[i] = (int)workers[i];
    if (workers[i] < 2 || workers[i] != g->workers[i]) g->worker_counts = 0;
  }
  const char *wrong =
      g->worker_counts == 0                       ? "--workers: up to 4 whole numbers from 2 to 16"
      : latencies == 0                            ? "--latency-ms: up to 4 numbers above 0"
      : rates == 0                                ? "--mbit: up to 4 numbers above 0"
      : !(a->budget_s > 0 && a->budget_s <= 3600) ? "--budget-s: seconds above 0, at most 3600"
      : strcmp(a->network, "uml") && strcmp(a->network, "tc") ? "--network: uml or tc"
                                                              : NULL;
  if (wrong) {
    fprintf(stderr, "weir bench grid: expected %s\n", wrong);
    return WEIR_EXIT_USAGE;
  }
  if (!parse_clock(a, &g->clock)) return WEIR_EXIT_USAGE;
  g->budget_s = a->budget_s;
  for (int l = 0; l < latencies; l++)
    for (int r = 0; r < rates; r++)
      g->shape[g->shapes++] =
          (weir_shape){.rate_bytes_s = rate[r] * 125e3, .delay_s = latency[l] * 1e-3};
  return WEIR_EXIT_DONE;
}

int main(int argc, char **argv) {
  arguments a = {.budget_s = BUDGET_S};
  const GOptionEntry entries[] = {
      {"workers", 0, 0, G_OPTION_ARG_STRING, &a.workers,
       "sizes of groups, up to 4 from 2 to 16 (default 4,8)", "LIST"},
      {"latency-ms", 0, 0, G_OPTION_ARG_STRING, &a.latencies, "one way, up to 4 (default 1,5,50)",
       "LIST"},
      {"mbit", 0, 0, G_OPTION_ARG_STRING, &a.rates, "link rates, up to 4 (default 10,100,1000)",
       "LIST"},
      {"network", 0, 0, G_OPTION_ARG_STRING, &a.network,
       "uml (default): inside User-Mode Linux; tc: this kernel's traffic control", "NAME"},
      cli_option_clock(&a.clock),
      {"inside-uml", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &a.inside_uml, NULL, NULL},
      {"budget-s", 0, 0, G_OPTION_ARG_DOUBLE, &a.budget_s,
       "how long measuring a shape may take, about: long operations are measured once or left out "
       "(default 60)",
       "S"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON, a line a shape, every cell", NULL},
      {"read", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &a.files,
       "report what --json printed, with the predictions of this program's rows; may be repeated",
       "FILE"},
      G_OPTION_ENTRY_NULL,
  };
  const cli_help help = {
      "weir bench grid", NULL,
      "Compares Weir's cost rows with measurements on links of given latency and rate: how far\n"
      "each prediction is off, and what the selector's choice costs beyond the best.",
      "A shape is one number of workers, one latency and one rate. All combinations are measured:\n"
      "by default 18 shapes, which take about 18 minutes.\n"
      "Exit codes: 0 done; 1 a shape failed; 2 bad usage or bad input."};
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&help, entries, &argc, &argv)) {
    grid g = {.json = a.json};
    if (!a.workers) a.workers = g_strdup("4,8");
    if (!a.latencies) a.latencies = g_strdup("1,5,50");
    if (!a.rates) a.rates = g_strdup("10,100,1000");
    if (!a.network) a.network = g_strdup("uml");
    if (!a.clock) a.clock = g_strdup("real");
    code = parse(&a, &g);
    if (code == WEIR_EXIT_DONE && a.files)
      code = report_files(a.files);
    else if (code == WEIR_EXIT_DONE)
      code = strcmp(a.network, "uml") ? run_here(&g) : run_in_uml(&a, g.clock);
  }
  cli_forget(entries);
  return cli_end(code);
}
