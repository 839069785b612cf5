/* Reading compare.json, and the means over each policy's seeds. */
#include "lab/report_compared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Only what a policy is made of, file names of usual characters among it. */
static void check_policy(weir_report_place *place, const char *policy) {
  const char *allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:.-_=/+, ;";
  const size_t length = strlen(policy);
  if (!length || length > 300 || strspn(policy, allowed) != length)
    weir_report_refuse(place, "'%.100s' is no policy", policy);
}

static void read_run(weir_report_place *place, JsonObject *from, weir_report_entry *to) {
  to->policy = weir_report_text(place, from, "policy", WEIR_REQUIRED);
  to->status = weir_report_text(place, from, "status", WEIR_REQUIRED);
  to->error = weir_report_text(place, from, "error", WEIR_OPTIONAL);
  to->folder = weir_report_text(place, from, "folder", WEIR_OPTIONAL);
  to->seed = weir_report_number(place, from, "seed", WEIR_REQUIRED);
  to->time_to_accuracy_s = weir_report_number(place, from, "time_to_accuracy_s", WEIR_OPTIONAL);
  to->final_accuracy = weir_report_number(place, from, "final_accuracy", WEIR_OPTIONAL);
  to->elapsed_s = weir_report_number(place, from, "elapsed_s", WEIR_OPTIONAL);
  to->comm_s = weir_report_number(place, from, "comm_s", WEIR_OPTIONAL);
  to->wire_bytes = weir_report_number(place, from, "wire_bytes", WEIR_OPTIONAL);
  to->points = weir_report_points(place, from, "accuracy", &to->point_count);
  if (!place->status) check_policy(place, to->policy);
}

void weir_report_comparison_free(weir_report_comparison *c) {
  for (size_t i = 0; i < c->count; i++) {
    g_free(c->runs[i].policy);
    g_free(c->runs[i].status);
    g_free(c->runs[i].error);
    g_free(c->runs[i].folder);
    g_free(c->runs[i].points);
  }
  g_free(c->runs);
  g_free(c->scenario);
  *c = (weir_report_comparison){0};
}

weir_status weir_report_comparison_read(weir_report_comparison *c, const char *directory) {
  *c = (weir_report_comparison){0};
  weir_report_place place = {.file = "compare.json"};
  JsonParser *parser = json_parser_new_immutable();
  JsonObject *root = weir_report_load(&place, parser, directory);
  if (root) {
    c->scenario = weir_report_text(&place, root, "scenario", WEIR_OPTIONAL);
    c->target = weir_report_number(&place, root, "target_accuracy", WEIR_OPTIONAL);
    JsonArray *list = weir_report_array(&place, root, "runs", WEIR_REQUIRED);
    c->count = list ? json_array_get_length(list) : 0;
    c->runs = g_new0(weir_report_entry, c->count + 1);
    for (size_t i = 0; i < c->count && !place.status; i++) {
      JsonObject *run = weir_report_element(&place, list, "runs", i);
      if (run) read_run(&place, run, &c->runs[i]);
    }
    if (!c->count) weir_report_refuse(&place, "'runs' is empty");
  }
  g_object_unref(parser);
  if (place.status) weir_report_comparison_free(c);
  return place.status;
}

bool weir_report_done(const weir_report_entry *e) { return !strcmp(e->status, "done"); }

/* Unreached last. */
static int by_time(const void *a, const void *b) {
  const weir_report_bucket *const x = a, *const y = b;
  const double s = isnan(x->time) ? INFINITY : x->time, t = isnan(y->time) ? INFINITY : y->time;
  return (s > t) - (s < t);
}

weir_report_bucket *weir_report_buckets(weir_report_comparison *c, size_t *count) {
  weir_report_bucket *buckets = g_new0(weir_report_bucket, c->count);
  *count = 0;
  for (size_t i = 0; i < c->count; i++) {
    weir_report_entry *e = &c->runs[i];
    for (e->bucket = 0; e->bucket < *count; e->bucket++)
      if (!strcmp(buckets[e->bucket].policy, e->policy)) break;
    weir_report_bucket *g = &buckets[e->bucket];
    if (e->bucket == *count) {
      g->policy = e->policy;
      g->number = *count;
      ++*count;
    }
  }
  for (size_t j = 0; j < *count; j++) {
    weir_report_bucket *g = &buckets[j];
    for (size_t i = 0; i < c->count; i++) {
      const weir_report_entry *e = &c->runs[i];
      if (e->bucket != j) continue;
      g->runs++;
      if (!weir_report_done(e)) continue;
      g->done++;
      g->final += e->final_accuracy;
      g->elapsed += e->elapsed_s;
      g->comm += e->comm_s;
      g->bytes += e->wire_bytes;
      if (isnan(e->time_to_accuracy_s)) continue;
      g->reached++;
      g->time += e->time_to_accuracy_s;
    }
    const double done = g->done ? (double)g->done : NAN;
    g->final /= done, g->elapsed /= done, g->comm /= done, g->bytes /= done;
    g->time = g->reached == g->runs ? g->time / done : NAN;
  }
  qsort(buckets, *count, sizeof *buckets, by_time);
  return buckets;
}

size_t weir_report_missing(const weir_report_comparison *c) {
  size_t count = 0;
  for (size_t i = 0; i < c->count; i++)
    count += !weir_report_done(&c->runs[i]) && strcmp(c->runs[i].status, "failed") != 0;
  return count;
}
