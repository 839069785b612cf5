/* A job's ranks, as a table and as JSON. */
#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "json.h"
#include "session/slow.h"
#include "top.h"

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

static void print_head(const top_job *job) {
  const weir_status_facts *f = &job->teller->facts;
  char slow[160];
  printf("job %016" PRIx64 "  run %08" PRIx64 "  policy %s  %s  %d ranks, %u here\n", job->job_id,
         job->run >> 32, f->policy, f->transport, f->world_size, job->here->len);
  printf("plan %s%s, for %" PRIu64 " steps; step %.1f ms, the last %.1f s ago; gain %.3f\n",
         f->plan, f->trial ? " (on trial)" : "", f->plan_steps, 1e3 * f->step_s, since_s(f),
         f->gain);
  printf("network %.3f ms, %.3f Gbit/s\n", 1e3 * f->latency_s, 8e-9 * f->bandwidth_bytes_s);
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
    most = MAX(most, MIN(g_array_index(job->here, top_here, i).rank + 1, WEIR_STATUS_RANKS));
  return most;
}

void top_print_table(const top_job *job) {
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

static void add_flag(JsonBuilder *b, const char *name, gboolean value) {
  json_builder_set_member_name(b, name);
  json_builder_add_boolean_value(b, value);
}

/* null where nobody is. */
static void add_rank(JsonBuilder *b, const char *name, int rank) {
  json_builder_set_member_name(b, name);
  if (rank >= 0)
    json_builder_add_int_value(b, rank);
  else
    json_builder_add_null_value(b);
}

static void add_slow(JsonBuilder *b, const weir_slow_verdict *slow) {
  char text[160];
  json_builder_set_member_name(b, "slow");
  if (slow->rank < 0) {
    json_builder_add_null_value(b);
    return;
  }
  weir_slow_say(slow, text, sizeof text);
  json_builder_begin_object(b);
  cli_json_whole(b, "rank", slow->rank);
  cli_json_text(b, "what", slow_name(slow->kind));
  cli_json_number(b, "ratio", slow->ratio);
  cli_json_text(b, "text", text);
  json_builder_end_object(b);
}

static void add_here(JsonBuilder *b, const top_here *h) {
  add_flag(b, "here", h != NULL);
  if (!h) return;
  cli_json_whole(b, "pid", h->block->pid);
  cli_json_whole(b, "step", (gint64)atomic_load(&h->block->live.step));
  cli_json_text(b, "phase", h->phase);
  cli_json_number(b, "phase_s", h->phase_s);
  cli_json_list(b, "waits_for");
  for (guint i = 0; i < h->waits && i < WEIR_LIVE_PEERS; i++)
    json_builder_add_int_value(b, h->peer[i]);
  json_builder_end_array(b);
  cli_json_number(b, "waits_s", h->waits_s);
}

static void add_ranks(JsonBuilder *b, const top_job *job) {
  cli_json_list(b, "ranks");
  for (int r = 0; r < ranks_of(job); r++) {
    json_builder_begin_object(b);
    cli_json_whole(b, "rank", r);
    if ((size_t)r < job->rows) {
      const weir_status_rank *row = &job->row[r];
      cli_json_number(b, "compute_ms", 1e3 * row->compute_s);
      cli_json_number(b, "compress_ms", 1e3 * row->compress_s);
      cli_json_number(b, "exchange_ms", 1e3 * row->comm_s);
      cli_json_number(b, "wait_ms", 1e3 * row->wait_s);
      cli_json_number(b, "latency_ms", 1e3 * row->latency_s);
      cli_json_number(b, "bandwidth_gbps", 8e-9 * row->bandwidth_bytes_s);
    }
    add_here(b, top_rank(job, r));
    json_builder_end_object(b);
  }
  json_builder_end_array(b);
}

void top_print_json(const top_job *job) {
  const weir_status_facts *f = &job->teller->facts;
  g_autoptr(JsonBuilder) b = json_builder_new();
  char id[20];
  json_builder_begin_object(b);
  g_snprintf(id, sizeof id, "%016" PRIx64, job->job_id);
  cli_json_text(b, "job", id);
  g_snprintf(id, sizeof id, "%08" PRIx64, job->run >> 32);
  cli_json_text(b, "run", id);
  cli_json_text(b, "policy", f->policy);
  cli_json_text(b, "transport", f->transport);
  cli_json_whole(b, "world_size", f->world_size);
  cli_json_whole(b, "steps", (gint64)f->steps);
  cli_json_number(b, "last_step_age_s", since_s(f));
  cli_json_number(b, "step_ms", 1e3 * f->step_s);
  cli_json_text(b, "plan", f->plan);
  cli_json_whole(b, "plan_steps", (gint64)f->plan_steps);
  add_flag(b, "trial", f->trial != 0);
  cli_json_text(b, "decision", f->decision);
  cli_json_number(b, "latency_ms", 1e3 * f->latency_s);
  cli_json_number(b, "bandwidth_gbps", 8e-9 * f->bandwidth_bytes_s);
  cli_json_number(b, "gain", f->gain);
  cli_json_text(b, "ended", f->failed ? weir_status_name((weir_status)f->failed) : "");
  add_slow(b, &f->slow);
  add_rank(b, "held_up_by", job->held_by);
  add_ranks(b, job);
  cli_json_print(b);
}
