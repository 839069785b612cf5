/* Prints the results of `weir profile`, as text and JSON. */
#include <math.h>
#include <stdio.h>

#include "lab/out.h"
#include "profile.h"

/* Predictions closer than this are not told apart. */
static const double alike = 0.05;

static double off(const profile_turn *turn) { return turn->predicted_s / turn->mean.period_s - 1; }

void profile_judge(const profile_job *job, profile_verdict *verdict) {
  const profile_turn *turns = job->turns, *planned = &turns[job->count - 1];
  *verdict = (profile_verdict){.off_at = turns};
  for (size_t i = 0; i < job->count; i++) {
    if (fabs(off(&turns[i])) > fabs(off(verdict->off_at))) verdict->off_at = &turns[i];
    for (size_t j = 0; j < job->count; j++) {
      if (turns[i].predicted_s >= (1 - alike) * turns[j].predicted_s) continue;
      verdict->pairs++;
      verdict->right += turns[i].mean.period_s < turns[j].mean.period_s;
    }
  }
  /* Of the first plan. */
  const profile_turn *one = &turns[0], *layers = &turns[job->layers];
  verdict->off = fabs(off(verdict->off_at));
  verdict->over_one = one->mean.period_s / planned->mean.period_s;
  verdict->over_layers = layers->mean.period_s / planned->mean.period_s;
  verdict->bound_over_one = one->predicted_s / job->least_s;
  verdict->bound_over_layers = layers->predicted_s / job->least_s;
}

static void print_table(const profile_job *job, const profile_verdict *v) {
  printf("%-12s %-30s %7s %6s %13s %12s %8s\n", "division", "plan", "groups", "steps",
         "predicted_ms", "measured_ms", "error");
  for (size_t i = 0; i < job->count; i++) {
    const profile_turn *turn = &job->turns[i];
    printf("%-12s %-30s %7zu %6zu %13.3f %12.3f %7.1f%%\n", turn->division, turn->plan,
           turn->buckets, turn->steps, turn->predicted_s * 1e3, turn->mean.period_s * 1e3,
           100 * off(turn));
  }
  printf("predicted within %.1f %% (%s is furthest off); order: %zu of %zu pairs as predicted\n",
         100 * v->off, v->off_at->division, v->right, v->pairs);
  printf("planned is %.2f times as fast as one bucket; no division could be more than %.2f times\n",
         v->over_one, v->bound_over_one);
  printf(
      "planned is %.2f times as fast as every tensor alone; no division could be more than %.2f "
      "times\n",
      v->over_layers, v->bound_over_layers);
  printf("planned.csv holds %s, the fastest as measured; %s/report.html has pictures\n",
         job->kept->division, job->out);
}

static void add_runs(const profile_job *job, weir_doc *builder) {
  weir_doc_list(builder, "runs");
  for (size_t i = 0; i < job->count; i++) {
    const profile_turn *turn = &job->turns[i];
    weir_doc_object(builder, NULL);
    weir_doc_text(builder, "division", turn->division);
    weir_doc_text(builder, "plan", turn->plan);
    weir_doc_whole(builder, "groups", (gint64)turn->buckets);
    weir_doc_whole(builder, "steps", (gint64)turn->steps);
    weir_doc_number(builder, "predicted_ms", turn->predicted_s * 1e3);
    weir_doc_number(builder, "measured_ms", turn->mean.period_s * 1e3);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
}

/* One line. */
static char *make_json(const profile_job *job, const profile_verdict *v) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  add_runs(job, builder);
  weir_doc_number(builder, "over_one", v->over_one);
  weir_doc_number(builder, "bound_over_one", v->bound_over_one);
  weir_doc_number(builder, "over_layers", v->over_layers);
  weir_doc_number(builder, "bound_over_layers", v->bound_over_layers);
  weir_doc_text(builder, "kept", job->kept->division);
  weir_doc_number(builder, "rest_ms", job->rest_s * 1e3);
  weir_doc_number(builder, "least_ms", job->least_s * 1e3);
  weir_doc_number(builder, "off_percent", 100 * v->off);
  weir_doc_number(builder, "order_right", (double)v->right);
  weir_doc_number(builder, "order_pairs", (double)v->pairs);
  return weir_doc_line(builder);
}

weir_status profile_print(const profile_job *job) {
  profile_verdict verdict;
  profile_judge(job, &verdict);
  g_autofree char *text = make_json(job, &verdict);
  if (job->json)
    fputs(text, stdout);
  else
    print_table(job, &verdict);
  return weir_out_write(job->out, "profile.json", text);
}

gboolean profile_holds(const profile_job *job) {
  profile_verdict v;
  if (!(job->within > 0)) return TRUE;
  profile_judge(job, &v);
  if (v.off <= job->within && v.right == v.pairs) return TRUE;
  fprintf(stderr,
          "weir profile: %s is predicted %.1f %% off, and %zu of %zu pairs are in the order "
          "predicted; expected within %g %% and all\n",
          v.off_at->division, 100 * v.off, v.right, v.pairs, 100 * job->within);
  return FALSE;
}
