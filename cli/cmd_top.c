/* `weir top`: what the ranks of a running job are at. */
#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"
#include "lab/doc.h"
#include "session/slow.h"
#include "session/status.h"

/* A rank that runs on this machine. */
typedef struct top_here {
  weir_status_block *block;
  weir_status_facts facts;
  int rank;
  char phase[9];
  double phase_s, waits_s; /* for how long */
  guint waits;             /* ranks it waits for */
  int peer[WEIR_LIVE_PEERS];
} top_here;

typedef struct top_job {
  guint64 run, job_id;
  GArray *here;           /* of top_here, by rank */
  const top_here *teller; /* whose facts are shown: rank 0, if it is here */
  weir_status_rank *row;  /* of all ranks, as the teller has them */
  size_t rows;
  int held_by; /* the rank at the end of the chain of those who wait; -1: none */
} top_job;

typedef enum top_found { TOP_ONE, TOP_NONE, TOP_MANY } top_found;

/* Finds a job's status blocks.  Nothing of a file is believed: weir_status_load checks the
 * block, this file what the block says. */

#define HELD_S 1.0 /* a wait that is worth a word */

/* JOB-RANK-PID-SERIAL, as sessions name them (session/status_file.c). */
static gboolean is_ours(const char *name) {
  unsigned long long job;
  int rank, pid, end = 0;
  unsigned serial;
  return sscanf(name, "%16llx-%d-%d-%u%n", &job, &rank, &pid, &serial, &end) == 4 && !name[end];
}

static double age_s(guint64 since_us) { return fmax(0, weir_now_s() - 1e-6 * (double)since_us); }

static void read_live(top_here *h) {
  weir_live *live = &h->block->live;
  h->rank = atomic_load(&live->rank);
  h->waits = MIN(atomic_load(&live->waits), WEIR_STATUS_RANKS);
  h->phase_s = age_s(atomic_load(&live->phase_since_us));
  h->waits_s = h->waits ? age_s(atomic_load(&live->wait_since_us)) : 0;
  for (guint i = 0; i < WEIR_LIVE_PEERS; i++) h->peer[i] = atomic_load(&live->wait_peer[i]);
  weir_status_phase(live, h->phase);
}

static void read_folder(GArray *all, const char *folder) {
  g_autoptr(GDir) directory = g_dir_open(folder, 0, NULL);
  for (const char *name; directory && (name = g_dir_read_name(directory));) {
    g_autofree char *path = g_build_filename(folder, name, NULL);
    top_here h = {.block = is_ours(name) ? weir_status_load(path) : NULL};
    size_t rows;
    if (!h.block) continue;
    weir_status_rank none;
    if (weir_status_read(h.block, &h.facts, &none, 0, &rows)) {
      read_live(&h);
      g_array_append_val(all, h);
    } else {
      free(h.block);
    }
  }
}

/* All ranks' blocks on this machine. */
static GArray *read_all(void) {
  GArray *all = g_array_new(FALSE, TRUE, sizeof(top_here));
  struct stat seen[WEIR_STATUS_FOLDERS];
  int count = 0;
  for (int which = 0; which < WEIR_STATUS_FOLDERS; which++) {
    char folder[400];
    bool again = false;
    if (weir_status_folder(which, folder, sizeof folder, false) || stat(folder, &seen[count]))
      continue;
    for (int i = 0; i < count; i++)
      again |= seen[i].st_dev == seen[count].st_dev && seen[i].st_ino == seen[count].st_ino;
    if (again) continue;
    read_folder(all, folder);
    count++;
  }
  return all;
}

static guint64 run_of(const top_here *h) { return atomic_load(&h->block->run); }

static int by_run_and_rank(gconstpointer a, gconstpointer b) {
  const top_here *x = a, *y = b;
  if (x->block->job_id != y->block->job_id) return x->block->job_id < y->block->job_id ? -1 : 1;
  if (run_of(x) != run_of(y)) return run_of(x) < run_of(y) ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

/* A run's folder holds the job's id, as `weir run` has written it. */
static char *job_of_folder(const char *folder) {
  g_autofree char *path = g_build_filename(folder, "job", NULL), *text = NULL;
  gsize length = 0;
  if (!g_file_test(path, G_FILE_TEST_IS_REGULAR) || /* a pipe would hold us up */
      !g_file_get_contents(path, &text, &length, NULL) || length > 64)
    return NULL;
  return g_strdup(g_strstrip(text));
}

/* As the list shows them: a job id in 16 digits, a run in 8; or a job id as the program set it. */
static gboolean matches(const top_here *h, const char *wanted) {
  char job[20], run[12], decimal[24];
  g_snprintf(job, sizeof job, "%016" PRIx64, h->block->job_id);
  g_snprintf(run, sizeof run, "%08" PRIx64, run_of(h) >> 32);
  g_snprintf(decimal, sizeof decimal, "%" PRIu64, h->block->job_id);
  return !strcmp(wanted, job) || !strcmp(wanted, run) || !strcmp(wanted, decimal);
}

static void drop(GArray *all, guint from, guint count) {
  for (guint i = from; i < from + count; i++) free(g_array_index(all, top_here, i).block);
  g_array_remove_range(all, from, count);
}

static void keep_wanted(GArray *all, const char *wanted) {
  for (guint i = all->len; wanted && i-- > 0;)
    if (!matches(&g_array_index(all, top_here, i), wanted)) drop(all, i, 1);
}

/* Those who have not met are of the run that their job has already, if it has one. */
static gboolean same_run(const top_here *a, const top_here *b) {
  return a->block->job_id == b->block->job_id && run_of(a) == run_of(b);
}

static char *list_runs(const GArray *all) {
  GString *text = g_string_new("several jobs run; name one:");
  for (guint i = 0; i < all->len; i++) {
    const top_here *h = &g_array_index(all, top_here, i);
    if (i > 0 && same_run(h, h - 1)) continue;
    g_string_append_printf(text, "\n  %08" PRIx64 "  job %016" PRIx64 "  policy %s  plan %s",
                           run_of(h) >> 32, h->block->job_id, h->facts.policy, h->facts.plan);
  }
  return g_string_free(text, FALSE);
}

/* --- one job ---------------------------------------------------------------------------------- */

/* NULL: the rank is not on this machine. */
static const top_here *top_rank(const top_job *job, int rank) {
  for (guint i = 0; i < job->here->len; i++) {
    const top_here *h = &g_array_index(job->here, top_here, i);
    if (h->rank == rank) return h;
  }
  return NULL;
}

/* From whoever waits longest to whom it waits for, and so on, to one that waits for nobody, or that
 * cannot be seen from here. */
static int end_of_chain(const top_job *job) {
  const top_here *at = NULL;
  for (guint i = 0; i < job->here->len; i++) {
    const top_here *h = &g_array_index(job->here, top_here, i);
    if (h->waits > 0 && h->waits_s >= HELD_S && (!at || h->waits_s > at->waits_s)) at = h;
  }
  if (!at) return -1;
  int rank = at->rank;
  for (guint hops = 0; hops <= job->here->len && at && at->waits > 0; hops++) {
    rank = at->peer[0];
    at = top_rank(job, rank);
  }
  return at && at->waits > 0 ? -1 : rank; /* a circle: they wait for messages on their way */
}

static void complete(top_job *job) {
  weir_status_facts facts;
  job->teller = &g_array_index(job->here, top_here, 0);
  for (guint i = 1; i < job->here->len; i++) {
    const top_here *h = &g_array_index(job->here, top_here, i);
    if (job->teller->rank != 0 && h->facts.steps > job->teller->facts.steps) job->teller = h;
  }
  job->run = run_of(job->teller);
  job->job_id = job->teller->block->job_id;
  job->row = g_new0(weir_status_rank, (gsize)job->teller->block->capacity);
  if (!weir_status_read(job->teller->block, &facts, job->row, job->teller->block->capacity,
                        &job->rows))
    job->rows = 0;
  job->held_by = end_of_chain(job);
}

static void top_forget(top_job *job) {
  if (job->here) {
    drop(job->here, 0, job->here->len);
    g_array_free(job->here, TRUE);
  }
  g_free(job->row);
  *job = (top_job){0};
}

/* The job that `wanted` names: a job id, a run's folder, NULL if there is but one.  Not TOP_ONE:
 * *why says what there is instead, to be freed. */
static top_found top_find(const char *wanted, top_job *job, char **why) {
  g_autofree char *of_folder = NULL;
  *job = (top_job){.here = read_all()};
  *why = NULL;
  if (wanted && g_file_test(wanted, G_FILE_TEST_IS_DIR)) {
    of_folder = job_of_folder(wanted);
    if (!of_folder) {
      *why = g_strdup_printf(
          "no run goes on in %s: it holds no file `job`, which `weir run` keeps there meanwhile",
          wanted);
      return TOP_NONE;
    }
    wanted = of_folder;
  }
  keep_wanted(job->here, wanted);
  if (job->here->len == 0) {
    *why = wanted ? g_strdup_printf("job %s does not run on this machine", wanted)
                  : g_strdup("no job runs on this machine");
    return TOP_NONE;
  }
  g_array_sort(job->here, by_run_and_rank);
  const top_here *first = &g_array_index(job->here, top_here, 0);
  if (!same_run(first, &g_array_index(job->here, top_here, job->here->len - 1))) {
    *why = list_runs(job->here);
    return TOP_MANY;
  }
  complete(job);
  return TOP_ONE;
}

/* A job's ranks, as a table and as JSON. */

static double since_s(const weir_status_facts *f) {
  return f->steps > 0 ? fmax(0, weir_now_s() - f->time_s) : 0;
}

/* "2", "0 1 3", "0 1 2 3 and 12 more"; empty: for nobody. */
static char *peers(const top_here *h) {
  GString *text = g_string_new(NULL);
  for (guint i = 0; h && i < h->waits && i < WEIR_LIVE_PEERS; i++)
    g_string_append_printf(text, "%s%d", i ? " " : "", h->peer[i]);
  if (h && h->waits > WEIR_LIVE_PEERS)
    g_string_append_printf(text, " and %u more", h->waits - WEIR_LIVE_PEERS);
  return g_string_free(text, FALSE);
}

/* --- table ----------------------------------------------------------------------------------- */

static void print_network(const weir_status_facts *f) {
  char latency[32] = "latency not measured yet", rate[40] = "bandwidth not measured yet";
  if (f->latency_s > 0) (void)g_snprintf(latency, sizeof latency, "%.3f ms", 1e3 * f->latency_s);
  if (f->bandwidth_bytes_s > 0)
    (void)g_snprintf(rate, sizeof rate, "%.3f Gbit/s", 8e-9 * f->bandwidth_bytes_s);
  printf("network %s, %s\n", latency, rate);
}

static void print_head(const top_job *job) {
  const weir_status_facts *f = &job->teller->facts;
  char slow[160];
  printf("job %016" PRIx64 "  run %08" PRIx64 "  policy %s  %s  %d ranks, %u here\n", job->job_id,
         job->run >> 32, f->policy, f->transport, f->world_size, job->here->len);
  if (!f->plan[0]) {
    printf("it has not started yet\n");
  } else {
    printf("plan %s%s, for %" PRIu64 " steps; step %.1f ms, the last %.1f s ago; gain %.3f\n",
           f->plan, f->trial ? " (on trial)" : "", f->plan_steps, 1e3 * f->step_s, since_s(f),
           f->gain);
    print_network(f);
  }
  if (f->decision[0]) printf("%s\n", f->decision);
  weir_slow_say(&f->slow, slow, sizeof slow);
  if (f->slow.rank >= 0) printf("%s\n", slow);
  const top_here *held = job->held_by >= 0 ? top_rank(job, job->held_by) : NULL;
  if (held)
    printf("all wait for rank %d, which is in %s for %.1f s\n", held->rank, held->phase,
           held->phase_s);
  else if (job->held_by >= 0)
    printf("all wait for rank %d\n", job->held_by);
  if (f->failed) printf("the group has ended: %s\n", weir_status_name((weir_status)f->failed));
}

static void print_rank(const top_job *job, int rank) {
  static const weir_status_rank unknown;
  const weir_status_rank *row = (size_t)rank < job->rows ? &job->row[rank] : &unknown;
  const top_here *h = top_rank(job, rank);
  g_autofree char *waits = peers(h);
  printf("%4d  %-8s %9.2f %9.2f %9.2f %9.2f %9.3f %8.3f  %s", rank, h ? h->phase : "elsewhere",
         1e3 * row->compute_s, 1e3 * row->compress_s, 1e3 * row->comm_s, 1e3 * row->wait_s,
         1e3 * row->latency_s, 8e-9 * row->bandwidth_bytes_s, waits);
  if (h && h->waits > 0) printf(", %.2f s", h->waits_s);
  printf("\n");
}

static int ranks_of(const top_job *job) {
  int most = job->teller->facts.world_size;
  for (guint i = 0; i < job->here->len; i++)
    most = MAX(most, MIN(g_array_index(job->here, top_here, i).rank, WEIR_STATUS_RANKS - 1) + 1);
  return most;
}

static void top_print_table(const top_job *job) {
  print_head(job);
  printf(
      "rank  phase      compute  compress  exchange   waiting   latency     rate  waits for\n"
      "                      ms        ms        ms        ms        ms   Gbit/s\n");
  for (int r = 0; r < ranks_of(job); r++) print_rank(job, r);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static const char *slow_name(guint kind) {
  return kind == WEIR_SLOW_COMPUTE     ? "compute"
         : kind == WEIR_SLOW_LATENCY   ? "latency"
         : kind == WEIR_SLOW_BANDWIDTH ? "bandwidth"
                                       : "";
}

/* null where nobody is. */
static void add_rank(weir_doc *b, const char *name, int rank) {
  if (rank >= 0)
    weir_doc_whole(b, name, rank);
  else
    weir_doc_number(b, name, NAN);
}

static void add_slow(weir_doc *b, const weir_slow_verdict *slow) {
  char text[160];
  if (slow->rank < 0) {
    weir_doc_number(b, "slow", NAN);
    return;
  }
  weir_slow_say(slow, text, sizeof text);
  weir_doc_object(b, "slow");
  weir_doc_whole(b, "rank", slow->rank);
  weir_doc_text(b, "what", slow_name(slow->kind));
  weir_doc_number(b, "ratio", slow->ratio);
  weir_doc_text(b, "text", text);
  weir_doc_end(b);
}

static void add_here(weir_doc *b, const top_here *h) {
  weir_doc_flag(b, "here", h != NULL);
  if (!h) return;
  weir_doc_whole(b, "pid", h->block->pid);
  weir_doc_whole(b, "step", (gint64)atomic_load(&h->block->live.step));
  weir_doc_text(b, "phase", h->phase);
  weir_doc_number(b, "phase_s", h->phase_s);
  weir_doc_list(b, "waits_for");
  for (guint i = 0; i < h->waits && i < WEIR_LIVE_PEERS; i++) weir_doc_whole(b, NULL, h->peer[i]);
  weir_doc_end_list(b);
  weir_doc_number(b, "waits_s", h->waits_s);
}

static void add_ranks(weir_doc *b, const top_job *job) {
  weir_doc_list(b, "ranks");
  for (int r = 0; r < ranks_of(job); r++) {
    weir_doc_object(b, NULL);
    weir_doc_whole(b, "rank", r);
    if ((size_t)r < job->rows) {
      const weir_status_rank *row = &job->row[r];
      weir_doc_number(b, "compute_ms", 1e3 * row->compute_s);
      weir_doc_number(b, "compress_ms", 1e3 * row->compress_s);
      weir_doc_number(b, "exchange_ms", 1e3 * row->comm_s);
      weir_doc_number(b, "wait_ms", 1e3 * row->wait_s);
      weir_doc_number(b, "latency_ms", 1e3 * row->latency_s);
      weir_doc_number(b, "bandwidth_gbps", 8e-9 * row->bandwidth_bytes_s);
    }
    add_here(b, top_rank(job, r));
    weir_doc_end(b);
  }
  weir_doc_end_list(b);
}

static void top_print_json(const top_job *job) {
  const weir_status_facts *f = &job->teller->facts;
  g_autoptr(JsonBuilder) b = json_builder_new();
  char id[20];
  weir_doc_object(b, NULL);
  g_snprintf(id, sizeof id, "%016" PRIx64, job->job_id);
  weir_doc_text(b, "job", id);
  g_snprintf(id, sizeof id, "%08" PRIx64, job->run >> 32);
  weir_doc_text(b, "run", id);
  weir_doc_text(b, "policy", f->policy);
  weir_doc_text(b, "transport", f->transport);
  weir_doc_whole(b, "world_size", f->world_size);
  weir_doc_whole(b, "steps", (gint64)f->steps);
  weir_doc_number(b, "last_step_age_s", since_s(f));
  weir_doc_number(b, "step_ms", 1e3 * f->step_s);
  weir_doc_text(b, "plan", f->plan);
  weir_doc_whole(b, "plan_steps", (gint64)f->plan_steps);
  weir_doc_flag(b, "trial", f->trial != 0);
  weir_doc_text(b, "decision", f->decision);
  weir_doc_number(b, "latency_ms", 1e3 * f->latency_s);
  weir_doc_number(b, "bandwidth_gbps", 8e-9 * f->bandwidth_bytes_s);
  weir_doc_number(b, "gain", f->gain);
  weir_doc_text(b, "ended", f->failed ? weir_status_name((weir_status)f->failed) : "");
  add_slow(b, &f->slow);
  add_rank(b, "held_up_by", job->held_by);
  add_ranks(b, job);
  weir_doc_print(b);
}

static const char *const description =
    "JOB is a job id or a run as the list of several shows them, or the --out folder of a\n"
    "`weir run`; it may be left out where one job runs.  Ranks of other machines are shown as\n"
    "their telemetry tells them.  Reads what sessions keep in WEIR_STATUS_DIR, or in\n"
    "$XDG_RUNTIME_DIR/weir, /run/user/UID/weir and /tmp/weir-UID (docs/guide/inside.md); asks\n"
    "nobody, and disturbs nobody.\n"
    "Exit codes: 0 shown, or the job has ended; 1 no such job runs; 2 bad usage, or several jobs "
    "run.";

static int complain(top_found found, const char *why) {
  fprintf(stderr, "weir top: %s\n", why);
  return found == TOP_NONE ? WEIR_EXIT_FAILED : WEIR_EXIT_USAGE;
}

/* Again each second on a terminal, until the job is gone. */
static int show(const char *wanted, gboolean json, gboolean once) {
  gboolean seen = FALSE;
  for (;; seen = TRUE) {
    top_job job;
    g_autofree char *why = NULL;
    const top_found found = top_find(wanted, &job, &why);
    if (found == TOP_ONE && !once && !json) fputs("\033[H\033[2J", stdout);
    if (found == TOP_ONE) (json ? top_print_json : top_print_table)(&job);
    top_forget(&job);
    if (found == TOP_NONE && seen) return WEIR_EXIT_DONE;
    if (found != TOP_ONE) return complain(found, why);
    if (once || fflush(stdout) != 0) return WEIR_EXIT_DONE;
    g_usleep(G_USEC_PER_SEC);
  }
}

int weir_cmd_top(int argc, char **argv) {
  gboolean once = FALSE, json = FALSE;
  const cli_help help = {
      "weir top", "[JOB]",
      "Shows the ranks of a running job: plan, network, times, and who waits for "
      "whom; again each second.",
      description};
  const GOptionEntry entries[] = {
      {"once", 0, 0, G_OPTION_ARG_NONE, &once, "show it once; so it is where nobody watches", NULL},
      {"json", 0, 0, G_OPTION_ARG_NONE, &json, "as JSON, one line each time", NULL},
      G_OPTION_ENTRY_NULL};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  if (argc > 2) {
    fprintf(stderr, "weir top: expected one job; see `weir top --help`\n");
    return WEIR_EXIT_USAGE;
  }
  return show(argc == 2 ? argv[1] : NULL, json, once || (!json && !isatty(STDOUT_FILENO)));
}
