#include "lab/compare.h"

#include <glib.h>
#include <inttypes.h>
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "lab/doc.h"
#include "lab/out.h"

#define BASELINE "none:1:dense-ring"
#define MARGIN 0.01 /* one point of accuracy */

/* What may be a folder's name: no longer than a file system takes, with the seed behind it. */
static char *folder_of(const char *policy) {
  enum { LONGEST = 100, DIGITS = 8 };
  g_autofree char *name = g_strdelimit(g_strdup(policy), ":/", '-');
  if (strlen(name) <= LONGEST) return g_steal_pointer(&name);
  g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, policy, -1);
  name[LONGEST] = 0;
  g_autofree char *valid = g_utf8_make_valid(name, -1); /* a character may have been cut */
  return g_strdup_printf("%s-%.*s", valid, DIGITS, digest);
}

void weir_comparison_plan(weir_comparison *c, char **policies, const uint64_t *seeds,
                          size_t seed_count) {
  const size_t count = g_strv_length(policies) * seed_count;
  *c = (weir_comparison){.runs = g_new0(weir_compared, count), .target = NAN};
  for (char **policy = policies; *policy; policy++)
    for (size_t s = 0; s < seed_count; s++) {
      weir_compared *run = &c->runs[c->count++];
      run->policy = g_strdup(*policy);
      run->seed = seeds[s];
      run->time_to_accuracy_s = NAN;
      g_autofree char *name = folder_of(*policy);
      run->folder =
          seed_count > 1 ? g_strdup_printf("%s-seed%" PRIu64, name, seeds[s]) : g_strdup(name);
    }
}

void weir_comparison_free(weir_comparison *c) {
  for (size_t i = 0; i < c->count; i++) {
    g_free(c->runs[i].policy);
    g_free(c->runs[i].folder);
    g_free(c->runs[i].trouble);
    g_free(c->runs[i].accuracy);
  }
  g_free(c->runs);
  *c = (weir_comparison){0};
}

bool weir_comparison_complete(const weir_comparison *c) {
  for (size_t i = 0; i < c->count; i++)
    if (c->runs[i].state != WEIR_COMPARED_DONE && c->runs[i].state != WEIR_COMPARED_FAILED)
      return false;
  return true;
}

static bool is_done(const weir_compared *run) { return run->state == WEIR_COMPARED_DONE; }

static const char *state_name(const weir_compared *run) {
  static const char *const names[] = {[WEIR_COMPARED_NOT_RUN] = "not run",
                                      [WEIR_COMPARED_DONE] = "done",
                                      [WEIR_COMPARED_FAILED] = "failed",
                                      [WEIR_COMPARED_INTERRUPTED] = "interrupted"};
  return names[run->state];
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool number(JsonObject *object, const char *name, double *value) {
  JsonNode *node = json_object_get_member(object, name);
  if (!node || !JSON_NODE_HOLDS_VALUE(node)) return false;
  *value = json_node_get_double(node);
  return isfinite(*value);
}

static bool read_accuracy(weir_compared *run, JsonObject *object) {
  JsonNode *node = json_object_get_member(object, "accuracy");
  if (!node || !JSON_NODE_HOLDS_ARRAY(node)) return false;
  JsonArray *list = json_node_get_array(node);
  const guint count = json_array_get_length(list);
  run->accuracy = g_malloc0_n(count ? count : 1, sizeof *run->accuracy);
  for (guint i = 0; i < count; i++) {
    JsonNode *item = json_array_get_element(list, i);
    if (!JSON_NODE_HOLDS_ARRAY(item)) return false;
    JsonArray *triple = json_node_get_array(item);
    if (json_array_get_length(triple) != 3) return false;
    for (guint k = 0; k < 3; k++) {
      JsonNode *value = json_array_get_element(triple, k);
      if (!JSON_NODE_HOLDS_VALUE(value)) return false;
      run->accuracy[i][k] = json_node_get_double(value);
    }
  }
  run->accuracies = count;
  return true;
}

weir_status weir_compared_read(weir_compared *run, const char *directory) {
  g_autofree char *path = g_build_filename(directory, run->folder, "summary.json", NULL);
  g_autoptr(JsonParser) parser = json_parser_new();
  GError *error = NULL;
  weir_status status = WEIR_OK;
  if (!json_parser_load_from_file(parser, path, &error)) {
    status = weir_fail(WEIR_E_PARSE, "%s: %s", path, error->message);
    g_error_free(error);
  } else {
    JsonNode *root = json_parser_get_root(parser);
    JsonObject *object = root && JSON_NODE_HOLDS_OBJECT(root) ? json_node_get_object(root) : NULL;
    if (object && number(object, "final_accuracy", &run->final_accuracy) &&
        number(object, "elapsed_s", &run->elapsed_s) && number(object, "comm_s", &run->comm_s) &&
        number(object, "wire_bytes", &run->wire_bytes) && read_accuracy(run, object)) {
      run->state = WEIR_COMPARED_DONE;
      run->seed = (uint64_t)json_object_get_int_member_with_default(object, "seed", 0);
      (void)g_strlcpy(run->network,
                      json_object_get_string_member_with_default(object, "network", ""),
                      sizeof run->network);
    } else {
      status = weir_fail(WEIR_E_PARSE, "%s: not the summary of a run", path);
    }
  }
  return status;
}

/* --- judging ---------------------------------------------------------------------------------- */

static bool is_baseline(const weir_compared *run) {
  const char *policy = run->policy;
  if (!strncmp(policy, "fixed:", 6)) policy += 6;
  return !strcmp(policy, BASELINE);
}

static double settle_target(const weir_comparison *c) {
  double sum = 0, best = NAN;
  size_t baselines = 0;
  for (size_t i = 0; i < c->count; i++) {
    const weir_compared *run = &c->runs[i];
    if (!is_done(run)) continue;
    best = fmax(best, run->final_accuracy);
    if (!is_baseline(run)) continue;
    sum += run->final_accuracy;
    baselines++;
  }
  const double reached = baselines ? sum / (double)baselines : best;
  return isnan(reached) ? NAN : fmax(0, reached - MARGIN);
}

void weir_comparison_judge(weir_comparison *c, double target) {
  c->target = isnan(target) ? settle_target(c) : target;
  for (size_t i = 0; i < c->count; i++) {
    weir_compared *run = &c->runs[i];
    run->time_to_accuracy_s = NAN;
    for (size_t k = 0; is_done(run) && k < run->accuracies; k++)
      if (run->accuracy[k][2] >= c->target) {
        run->time_to_accuracy_s = run->accuracy[k][0];
        break;
      }
  }
}

/* --- telling ---------------------------------------------------------------------------------- */

static void add_run(weir_doc *doc, const weir_compared *run) {
  const bool done = is_done(run);
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "policy", run->policy);
  weir_doc_whole(doc, "seed", (gint64)run->seed);
  weir_doc_text(doc, "status", state_name(run));
  weir_doc_text(doc, "folder", run->folder);
  if (run->trouble) weir_doc_text(doc, "error", run->trouble);
  if (done) weir_doc_text(doc, "network", run->network);
  weir_doc_number(doc, "final_accuracy", done ? run->final_accuracy : NAN);
  weir_doc_number(doc, "time_to_accuracy_s", done ? run->time_to_accuracy_s : NAN);
  weir_doc_number(doc, "elapsed_s", done ? run->elapsed_s : NAN);
  weir_doc_number(doc, "comm_s", done ? run->comm_s : NAN);
  weir_doc_number(doc, "wire_bytes", done ? run->wire_bytes : NAN);
  weir_doc_list(doc, "accuracy");
  for (size_t k = 0; k < run->accuracies; k++) {
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, run->accuracy[k][0]);
    weir_doc_whole(doc, NULL, (gint64)run->accuracy[k][1]);
    weir_doc_number(doc, NULL, run->accuracy[k][2]);
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

weir_status weir_comparison_write(const weir_comparison *c, const char *scenario,
                                  const char *directory, char **text) {
  g_autoptr(JsonBuilder) doc = json_builder_new();
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "scenario", scenario);
  weir_doc_number(doc, "target_accuracy", c->target);
  weir_doc_flag(doc, "complete", weir_comparison_complete(c));
  weir_doc_list(doc, "runs");
  for (size_t i = 0; i < c->count; i++) add_run(doc, &c->runs[i]);
  weir_doc_end_list(doc);
  g_autofree char *json = weir_doc_lines(doc), *lined = g_strconcat(json, "\n", NULL);
  const weir_status status = weir_out_write(directory, "compare.json", lined);
  if (text) *text = g_strdup(lined);
  return status;
}

static void print_run(const weir_compared *run, int width) {
  if (!is_done(run)) {
    printf("%-*s %5" PRIu64 "  %s%s%s\n", width, run->policy, run->seed, state_name(run),
           run->trouble ? ": " : "", run->trouble ? run->trouble : "");
    return;
  }
  char reached[32] = "never";
  if (isfinite(run->time_to_accuracy_s))
    (void)snprintf(reached, sizeof reached, "%.1f s", run->time_to_accuracy_s);
  printf("%-*s %5" PRIu64 "  %9s  %7.2f %%  %8.1f s  %8.1f s  %10.1f MB\n", width, run->policy,
         run->seed, reached, run->final_accuracy * 100, run->elapsed_s, run->comm_s,
         run->wire_bytes / 1e6);
}

void weir_comparison_print(const weir_comparison *c) {
  int width = 24;
  for (size_t i = 0; i < c->count; i++)
    if ((int)strlen(c->runs[i].policy) > width) width = (int)strlen(c->runs[i].policy);
  if (isfinite(c->target)) printf("target accuracy: %.2f %%\n", c->target * 100);
  printf("%-*s %5s  %9s  %9s  %10s  %10s  %13s\n", width, "policy", "seed", "to target", "accuracy",
         "training", "on the wire", "sent, rank 0");
  for (size_t i = 0; i < c->count; i++) print_run(&c->runs[i], width);
}
