/* Finds a job's status blocks.  Nothing of a file is believed: weir_status_load checks the block,
 * this file what the block says. */
#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "top.h"

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

/* All ranks' blocks on this machine; NULL: there is no folder to look in. */
static GArray *read_all(void) {
  char folder[400];
  if (weir_status_folder(folder, sizeof folder, false)) return NULL;
  g_autoptr(GDir) directory = g_dir_open(folder, 0, NULL);
  if (!directory) return NULL;
  GArray *all = g_array_new(FALSE, TRUE, sizeof(top_here));
  for (const char *name; (name = g_dir_read_name(directory));) {
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
  return all;
}

static guint64 run_of(const top_here *h) { return atomic_load(&h->block->run); }

static int by_run_and_rank(gconstpointer a, gconstpointer b) {
  const top_here *x = a, *y = b;
  if (x->block->job_id != y->block->job_id) return x->block->job_id < y->block->job_id ? -1 : 1;
  if (run_of(x) != run_of(y)) return run_of(x) < run_of(y) ? -1 : 1;
  return x->rank - y->rank;
}

/* A run's folder holds the job's id, as `weir run` has written it. */
static char *job_of_folder(const char *folder) {
  g_autofree char *path = g_build_filename(folder, "job", NULL), *text = NULL;
  gsize length = 0;
  if (!g_file_get_contents(path, &text, &length, NULL) || length > 64) return NULL;
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

/* --- one job --------------------------------------------------------------------------------- */

const top_here *top_rank(const top_job *job, int rank) {
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

void top_forget(top_job *job) {
  if (job->here) {
    drop(job->here, 0, job->here->len);
    g_array_free(job->here, TRUE);
  }
  g_free(job->row);
  *job = (top_job){0};
}

top_found top_find(const char *wanted, top_job *job, char **why) {
  g_autofree char *of_folder = NULL;
  *job = (top_job){.here = read_all()};
  *why = NULL;
  if (wanted && g_file_test(wanted, G_FILE_TEST_IS_DIR)) {
    wanted = of_folder = job_of_folder(wanted);
    if (!wanted) {
      *why = g_strdup("the folder holds no file `job`, as `weir run` writes it");
      return TOP_ERROR;
    }
  }
  if (job->here) keep_wanted(job->here, wanted);
  if (!job->here || job->here->len == 0) {
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
