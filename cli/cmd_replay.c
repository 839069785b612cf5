/* `weir replay`: make a run's decisions again from what they knew, and say what they cost. */
#include <glib.h>
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "base/base.h"
#include "base/schemes.h"
#include "cli.h"
#include "controller/bits.h"
#include "controller/controller.h"
#include "controller/decide.h"
#include "lab/doc.h"
#include "lab/report_data.h"

/* One line of decisions.jsonl and what deciding again made of it. */
typedef struct replay_line {
  weir_decision_input input;
  weir_plan choice;    /* as logged */
  gboolean switched;   /* as logged */
  double predicted_ms; /* as logged */
  weir_decision again;
  gboolean otherwise; /* widths of policy bits, or a trial's verdict, come out otherwise */
  gboolean same;
  double regret; /* best candidate's progress/s over the choice's, less 1; at least 0 */
  const weir_candidate *best;
  guint steps;        /* of steps.csv that ran under the choice */
  double measured_ms; /* their mean; 0 without any */
} replay_line;

/* --- values of JSON --------------------------------------------------------------------------- */

static gboolean is_of(JsonNode *node, GType type) {
  return node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == type;
}

static gboolean is_number(JsonNode *node) {
  return is_of(node, G_TYPE_INT64) || is_of(node, G_TYPE_DOUBLE);
}

static gboolean read_number(JsonNode *node, double least, double most, double *value) {
  if (!is_number(node)) return FALSE;
  *value = json_node_get_double(node);
  return *value >= least && *value <= most;
}

/* The members of an object; NULL: there is none of that name and kind. */
static JsonArray *read_array(JsonObject *object, const char *name) {
  JsonNode *node = json_object_get_member(object, name);
  return node && JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
}

static JsonObject *read_object(JsonObject *object, const char *name) {
  JsonNode *node = json_object_get_member(object, name);
  return node && JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}

static const char *read_text(JsonObject *object, const char *name) {
  JsonNode *node = json_object_get_member(object, name);
  return is_of(node, G_TYPE_STRING) ? json_node_get_string(node) : NULL;
}

static gboolean read_plan(JsonObject *object, weir_plan *plan) {
  const char *text = read_text(object, "plan");
  return text && weir_plan_parse(text, plan) == WEIR_OK;
}

/* --- an assignment of widths, made again from what was measured ------------------------------- */

/* What a layer was given. */
typedef struct given {
  unsigned bits;
  guint bucket;
} given;

/* What was measured, as `weir plan bits` reads it. */
static void write_stats(const weir_bits_stats *stats, GString *csv) {
  g_string_assign(csv, "layer,numel,norm,bits,bucket,bytes,error\n");
  for (size_t l = 0; l < stats->layer_count; l++) {
    const weir_bits_layer *layer = &stats->layers[l];
    for (size_t i = layer->first; i < layer->first + layer->count; i++) {
      const weir_bits_option *option = &stats->options[i];
      g_string_append_printf(csv, "%s,%.0f,%.17g,%u,%u,%.0f,%.17g\n", layer->name, layer->numel,
                             layer->norm, option->bits, option->bucket, option->bytes,
                             sqrt(option->error2));
    }
  }
}

/* A layer with its options.  Journals of old know buckets of 128 elements alone and do not say
 * so. */
static gboolean read_layer(JsonNode *node, weir_bits_stats *stats, given *was) {
  if (!JSON_NODE_HOLDS_OBJECT(node)) return FALSE;
  JsonObject *object = json_node_get_object(node);
  JsonArray *errors = read_array(object, "error2");
  const char *name = read_text(object, "name");
  double numel = 0.0, norm = 0.0, width = 0.0, bucket = WEIR_BITS_BUCKET;
  if (!errors || !read_number(json_object_get_member(object, "numel"), 0.0, G_MAXUINT32, &numel) ||
      !read_number(json_object_get_member(object, "norm"), 0.0, G_MAXDOUBLE, &norm) ||
      !read_number(json_object_get_member(object, "bits"), 2.0, 32.0, &width))
    return FALSE;
  JsonNode *size = json_object_get_member(object, "bucket");
  if (size && !read_number(size, 0.0, G_MAXUINT32, &bucket)) return FALSE;
  const guint count = json_array_get_length(errors), sizes = count / WEIR_BITS_WIDTHS;
  if ((count == 0) != (width == WEIR_BITS_FULL) || count != sizes * WEIR_BITS_WIDTHS ||
      sizes > WEIR_BITS_SIZES || numel != floor(numel))
    return FALSE;
  weir_bits_describe(stats, name ? name : "", (size_t)numel, width == WEIR_BITS_FULL, sizes);
  weir_bits_layer *layer = &stats->layers[stats->layer_count - 1];
  layer->norm = norm;
  *was = (given){(unsigned)width, (guint)bucket};
  for (guint i = 0; i < count; i++)
    if (!read_number(json_array_get_element(errors, i), 0.0, G_MAXDOUBLE,
                     &stats->options[layer->first + i].error2))
      return FALSE;
  return TRUE;
}

static gboolean read_options(JsonObject *object, weir_bits_options *options) {
  const char *method = read_text(object, "method");
  if (!method) return FALSE;
  g_autofree char *text = g_strconcat(":", method, NULL);
  return weir_bits_parse(text, options) == WEIR_OK &&
         read_number(json_object_get_member(object, "alpha"), 1.0, 1e6, &options->alpha);
}

/* A line's "bits", also as statistics; FALSE when it is not what the journal writes.  Prints
 * nothing. */
static gboolean replay_bits(JsonObject *object, gboolean *same, GString *csv) {
  JsonArray *layers = read_array(object, "layers");
  const guint count = layers ? json_array_get_length(layers) : 0;
  weir_bits_options options;
  if (count == 0 || !read_options(object, &options)) return FALSE;
  g_autofree weir_bits_layer *all = g_new0(weir_bits_layer, count);
  g_autofree weir_bits_option *of_all = g_new0(weir_bits_option, (gsize)count * WEIR_BITS_WAYS);
  g_autofree given *was = g_new0(given, count);
  g_autofree size_t *choice = g_new0(size_t, count);
  weir_bits_stats stats = {.layers = all, .options = of_all, .bucket = WEIR_BITS_BUCKET};
  for (guint l = 0; l < count; l++)
    if (!read_layer(json_array_get_element(layers, l), &stats, &was[l])) return FALSE;
  weir_bits_assigned assigned = {.choice = choice};
  if (weir_bits_assign(&stats, &options, &assigned) != WEIR_OK) return FALSE;
  write_stats(&stats, csv);
  *same = TRUE;
  for (guint l = 0; l < count; l++) {
    const weir_bits_option *option = &stats.options[choice[l]];
    *same = *same && option->bits == was[l].bits &&
            (was[l].bits == WEIR_BITS_FULL || option->bucket == was[l].bucket);
  }
  return TRUE;
}

/* --- what trials have shown, told again from their samples ------------------------------------ */

static gboolean read_samples(JsonObject *object, weir_evidence *evidence) {
  JsonArray *samples = read_array(object, "samples");
  evidence->count = samples ? json_array_get_length(samples) : 0;
  if (evidence->count < 1 || evidence->count > WEIR_SAMPLES_MAX) return FALSE;
  for (guint i = 0; i < evidence->count; i++)
    if (!read_number(json_array_get_element(samples, i), -G_MAXDOUBLE, G_MAXDOUBLE,
                     &evidence->sample[i]))
      return FALSE;
  return TRUE;
}

/* Likewise a line's "trial". */
static gboolean replay_trial(JsonObject *object, gboolean *same) {
  weir_evidence evidence = {0};
  *same = TRUE;
  if (!json_object_has_member(object, "verdict")) return TRUE; /* the loss told, and no trial */
  const char *verdict = read_text(object, "verdict");
  weir_plan plan;
  uint32_t rule;
  /* Journals from before update rules were told apart have none: all were taken as adaptive. */
  const char *update_rule =
      json_object_get_string_member_with_default(object, "update_rule", "adaptive");
  if (weir_rule_parse(update_rule, &rule) != WEIR_OK) return FALSE;
  if (!verdict || !read_samples(object, &evidence) || !read_plan(object, &plan)) return FALSE;
  const weir_round_form *form = weir_round_form_of(&plan, rule);
  const weir_judgement again = weir_progress_judge(&evidence, form, weir_belief_of(&plan, form));
  *same = !strcmp(verdict, weir_verdict_names[again.verdict]);
  return TRUE;
}

/* --- decisions.jsonl, read without trust ------------------------------------------------------ */

static gboolean refuse(const char *path, guint line, const char *format, ...) G_GNUC_PRINTF(3, 4);
static gboolean refuse(const char *path, guint line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  fprintf(stderr, "weir replay: %s:%u: %s\n", path, line, text);
  return FALSE;
}

static gboolean set_field(const weir_field *field, JsonNode *node, void *at) {
  if (!is_number(node)) return FALSE;
  if (field->kind == WEIR_FIELD_DOUBLE) {
    *(double *)at = json_node_get_double(node);
    return TRUE;
  }
  if (!is_of(node, G_TYPE_INT64)) return FALSE;
  const gint64 value = json_node_get_int(node);
  if (value < 0 || (field->kind == WEIR_FIELD_U32 && value > G_MAXUINT32) ||
      (field->kind == WEIR_FIELD_U8 && value > G_MAXUINT8))
    return FALSE;
  if (field->kind == WEIR_FIELD_U8)
    *(guint8 *)at = (guint8)value;
  else if (field->kind == WEIR_FIELD_U32)
    *(guint32 *)at = (guint32)value;
  else
    *(guint64 *)at = (guint64)value;
  return TRUE;
}

static gboolean read_input(const char *path, guint line, JsonObject *object,
                           weir_decision_input *input) {
  for (gsize i = 0; i < weir_field_count; i++) {
    const weir_field *field = &weir_fields[i];
    char *at = (char *)input + field->offset;
    JsonNode *node = json_object_get_member(object, field->name);
    if (!node && field->since) continue;
    if (field->count == 0) {
      if (!set_field(field, node, at))
        return refuse(path, line, "input.%s: expected a number", field->name);
      continue;
    }
    if (!node || !JSON_NODE_HOLDS_ARRAY(node) ||
        json_array_get_length(json_node_get_array(node)) != field->count)
      return refuse(path, line, "input.%s: expected an array of %zu numbers", field->name,
                    field->count);
    for (gsize k = 0; k < field->count; k++)
      if (!set_field(field, json_array_get_element(json_node_get_array(node), (guint)k),
                     at + k * sizeof(double)))
        return refuse(path, line, "input.%s: element %zu is not a number", field->name, k);
  }
  return TRUE;
}

static gboolean read_choice(JsonObject *root, replay_line *out) {
  JsonObject *choice = read_object(root, "choice");
  JsonNode *cr = choice ? json_object_get_member(choice, "cr") : NULL;
  JsonNode *switched = json_object_get_member(root, "switched");
  JsonNode *predicted = json_object_get_member(root, "predicted_ms");
  if (!choice || !read_plan(choice, &out->choice) || !is_number(cr) || !is_number(predicted) ||
      !is_of(switched, G_TYPE_BOOLEAN))
    return FALSE;
  out->choice.cr = json_node_get_double(cr); /* the plan's text holds fewer digits */
  out->switched = json_node_get_boolean(switched);
  out->predicted_ms = json_node_get_double(predicted);
  return TRUE;
}

/* Is the line's format the one that this program reads? */
static gboolean check_format(const char *path, guint line, JsonObject *object) {
  JsonNode *node = json_object_get_member(object, "format");
  if (!node)
    return refuse(path, line, "no journal, or one from before they had formats; expected format %d",
                  WEIR_JOURNAL_FORMAT);
  if (!is_of(node, G_TYPE_INT64)) return refuse(path, line, "format: expected a number");
  const gint64 format = json_node_get_int(node);
  if (format != WEIR_JOURNAL_FORMAT)
    return refuse(path, line, "format %" G_GINT64_FORMAT "; weir %s reads format %d", format,
                  weir_version(), WEIR_JOURNAL_FORMAT);
  return TRUE;
}

/* csv: the statistics of the newest assignment of widths; as before where the line has none. */
static gboolean read_line(const char *path, guint number, const char *text, replay_line *out,
                          GString *csv) {
  g_autoptr(JsonParser) parser = json_parser_new();
  g_autoptr(GError) error = NULL;
  const char *hostile = weir_json_hostile(text, strlen(text));
  if (hostile) return refuse(path, number, "%s; expected a JSON object", hostile);
  if (!json_parser_load_from_data(parser, text, -1, &error))
    return refuse(path, number, "expected a JSON object: %s", error->message);
  JsonNode *root = json_parser_get_root(parser);
  if (!root || !JSON_NODE_HOLDS_OBJECT(root)) return refuse(path, number, "expected a JSON object");
  JsonObject *object = json_node_get_object(root);
  if (!check_format(path, number, object)) return FALSE;
  JsonObject *input = read_object(object, "input");
  if (!input) return refuse(path, number, "expected a member 'input', an object");
  if (!read_input(path, number, input, &out->input)) return FALSE;
  if (!read_choice(object, out))
    return refuse(path, number, "expected 'choice' (plan, cr), 'predicted_ms' and 'switched'");
  if (weir_decide(&out->input, &out->again) != WEIR_OK)
    return refuse(path, number, "%s", weir_last_error());
  gboolean same = FALSE;
  if (out->input.trigger == WEIR_TRIGGER_TRIAL) {
    JsonObject *trial = read_object(object, "trial");
    if (!trial || !replay_trial(trial, &same))
      return refuse(path, number, "expected 'trial' with plan, verdict and samples");
    out->otherwise = !same;
  }
  if (out->input.policy != WEIR_POLICY_BITS) return TRUE;
  JsonObject *bits = read_object(object, "bits");
  if (!bits || !replay_bits(bits, &same, csv))
    return refuse(path, number,
                  "expected 'bits' with method, alpha and layers (numel, norm, bits, error2)");
  out->otherwise = !same;
  return TRUE;
}

/* A file's lines; NULL, and the reason printed, when it cannot be read. */
static char **read_rows(const char *path) {
  g_autofree char *text = NULL;
  g_autoptr(GError) error = NULL;
  gsize bytes = 0;
  if (!g_file_get_contents(path, &text, &bytes, &error)) {
    fprintf(stderr, "weir replay: %s; expected a run's folder or its decisions.jsonl\n",
            error->message);
    return NULL;
  }
  if (strlen(text) != bytes) {
    fprintf(stderr, "weir replay: %s: holds a zero byte; expected text\n", path);
    return NULL;
  }
  char **rows = g_strsplit(text + weir_text_mark(text, bytes), "\n", -1);
  for (char **row = rows; *row; row++) (*row)[weir_text_line(*row, strlen(*row))] = '\0';
  return rows;
}

static gboolean read_part(const char *path, GArray *lines, GString *csv) {
  g_auto(GStrv) rows = read_rows(path);
  if (!rows) return FALSE;
  for (guint i = 0; rows[i]; i++) {
    if (!rows[i][0] && !rows[i + 1]) break; /* after the last newline */
    replay_line line = {0};
    if (!read_line(path, i + 1, rows[i], &line, csv)) return FALSE;
    g_array_append_val(lines, line);
  }
  return TRUE;
}

/* Both print FILE:LINE and what was expected, and return FALSE. The oldest part first; only the
 * newest, which has the path's name, must be there. */
static gboolean replay_read_decisions(const char *path, GArray *lines, GString *csv) {
  for (int part = WEIR_JOURNAL_PARTS - 1; part > 0; part--) {
    g_autofree char *older = g_strdup_printf("%s.%d", path, part);
    if (g_file_test(older, G_FILE_TEST_EXISTS) && !read_part(older, lines, csv)) return FALSE;
  }
  return read_part(path, lines, csv);
}

/* --- steps.csv ------------------------------------------------------------------------------ */

enum { STEP, TRIAL, PLAN, COMPUTE, COMPRESS, COMM, COLUMNS };
static const char *const column_names[COLUMNS] = {"step",       "trial",       "plan",
                                                  "compute_ms", "compress_ms", "comm_ms"};

static gboolean read_column(const char *text, double *value) {
  char *end = NULL;
  *value = g_ascii_strtod(text, &end);
  return end != text && *end == '\0' && isfinite(*value) && *value >= 0.0;
}

/* The step counts for the last decision made before it, when it ran what that decision chose. */
static void count_step(GArray *lines, guint *at, double step, const char *plan, double ms) {
  while (*at + 1 < lines->len &&
         (double)g_array_index(lines, replay_line, *at + 1).input.step < step)
    (*at)++;
  if (*at >= lines->len) return;
  replay_line *line = &g_array_index(lines, replay_line, *at);
  char chosen[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(&line->choice, chosen);
  /* Codec, ratio and collective are chosen for the gradient as a whole; a plan that runs in buckets
   * ends in their number. */
  const size_t length = strcspn(plan, "/");
  if ((double)line->input.step >= step || strlen(chosen) != length ||
      strncmp(chosen, plan, length) != 0)
    return;
  line->steps++;
  line->measured_ms += (ms - line->measured_ms) / line->steps;
}

static gboolean find_columns(char **header, int column[COLUMNS]) {
  for (int c = 0; c < COLUMNS; c++) {
    column[c] = -1;
    for (int i = 0; header[i]; i++)
      if (!strcmp(header[i], column_names[c])) column[c] = i;
    if (column[c] < 0) return FALSE;
  }
  return TRUE;
}

static gboolean replay_read_steps(const char *path, GArray *lines) {
  g_auto(GStrv) rows = read_rows(path);
  if (!rows) return FALSE;
  g_auto(GStrv) header = g_strsplit(rows[0] ? rows[0] : "", ",", -1);
  int column[COLUMNS];
  if (!find_columns(header, column))
    return refuse(path, 1, "expected columns step, trial, plan, compute_ms, compress_ms, comm_ms");
  const guint width = g_strv_length(header);
  guint at = 0;
  for (guint i = 1; rows[i]; i++) {
    if (!rows[i][0]) continue;
    g_auto(GStrv) cell = g_strsplit(rows[i], ",", -1);
    double value[COLUMNS] = {0};
    if (g_strv_length(cell) != width)
      return refuse(path, i + 1, "expected %u fields as in the first line", width);
    for (int c = 0; c < COLUMNS; c++)
      if (c != PLAN && !read_column(cell[column[c]], &value[c]))
        return refuse(path, i + 1, "%s: expected a number, at least 0", column_names[c]);
    if (value[TRIAL] == 0.0)
      count_step(lines, &at, value[STEP], cell[column[PLAN]],
                 value[COMPUTE] + value[COMPRESS] + value[COMM]);
  }
  return TRUE;
}

typedef struct replay_totals {
  guint different;
  double regret_mean, regret_most;
  guint steps;                    /* of steps.csv that could be compared */
  double predicted_s, measured_s; /* their sums */
} replay_totals;

static gboolean same_choice(const replay_line *line) {
  const weir_plan *a = &line->choice, *b = &line->again.choice.plan;
  /* Another machine's libm may differ in the last digits of a ratio. */
  return a->codec == b->codec && weir_same_collective(a, b) && a->wire == b->wire &&
         a->bucket_log2 == b->bucket_log2 && fabs(a->cr - b->cr) <= 1e-6 * b->cr &&
         !line->switched == !line->again.switched;
}

static void judge(GArray *lines, replay_totals *totals) {
  for (guint i = 0; i < lines->len; i++) {
    replay_line *line = &g_array_index(lines, replay_line, i);
    const weir_decision *d = &line->again;
    line->same = same_choice(line) && !line->otherwise;
    line->best = &d->choice;
    for (gsize c = 0; c < d->candidates; c++)
      if (d->candidate[c].progress_per_s > line->best->progress_per_s)
        line->best = &d->candidate[c];
    line->regret = line->best->progress_per_s / d->choice.progress_per_s - 1.0;
    totals->different += !line->same;
    totals->regret_mean += line->regret / lines->len;
    totals->regret_most = fmax(totals->regret_most, line->regret);
    totals->steps += line->steps;
    totals->predicted_s += 1e-3 * line->steps * line->predicted_ms;
    totals->measured_s += 1e-3 * line->steps * line->measured_ms;
  }
}

static void add_plan(weir_doc *builder, const char *name, const weir_plan *plan) {
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(plan, text);
  weir_doc_text(builder, name, text);
}

static void add_line(weir_doc *builder, const replay_line *line) {
  weir_doc_object(builder, NULL);
  weir_doc_whole(builder, "decision", (gint64)line->input.decision);
  weir_doc_whole(builder, "step", (gint64)line->input.step);
  weir_doc_text(builder, "trigger", weir_trigger_name(line->input.trigger));
  add_plan(builder, "choice", &line->choice);
  add_plan(builder, "again", &line->again.choice.plan);
  weir_doc_flag(builder, "same", line->same);
  add_plan(builder, "best", &line->best->plan);
  weir_doc_number(builder, "regret", line->regret);
  weir_doc_number(builder, "predicted_ms", line->predicted_ms);
  if (line->steps > 0) {
    weir_doc_whole(builder, "steps", line->steps);
    weir_doc_number(builder, "measured_ms", line->measured_ms);
  }
  weir_doc_end(builder);
}

static void print_json(GArray *lines, const replay_totals *t) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_whole(builder, "decisions", lines->len);
  weir_doc_whole(builder, "different", t->different);
  weir_doc_number(builder, "regret_mean", t->regret_mean);
  weir_doc_number(builder, "regret_most", t->regret_most);
  weir_doc_whole(builder, "steps", t->steps);
  weir_doc_number(builder, "predicted_s", t->predicted_s);
  weir_doc_number(builder, "measured_s", t->measured_s);
  weir_doc_list(builder, "list");
  for (guint i = 0; i < lines->len; i++) add_line(builder, &g_array_index(lines, replay_line, i));
  weir_doc_end_list(builder);
  weir_doc_print(builder);
}

/* Columns as wide as the longest plan in them. */
static void plan_widths(const GArray *lines, int *choice, int *best) {
  char plan[WEIR_PLAN_TEXT_MAX];
  *choice = *best = (int)strlen("best candidate");
  for (guint i = 0; i < lines->len; i++) {
    const replay_line *line = &g_array_index(lines, replay_line, i);
    weir_plan_format(&line->choice, plan);
    *choice = MAX(*choice, (int)strlen(plan));
    weir_plan_format(&line->best->plan, plan);
    *best = MAX(*best, (int)strlen(plan));
  }
}

static void print_table(GArray *lines, const replay_totals *t) {
  int choice_width, best_width;
  plan_widths(lines, &choice_width, &best_width);
  printf("%8s %-9s %-*s %-*s %8s %12s %12s\n", "step", "trigger", choice_width, "choice",
         best_width, "best candidate", "regret", "predicted ms", "measured ms");
  for (guint i = 0; i < lines->len; i++) {
    const replay_line *line = &g_array_index(lines, replay_line, i);
    char choice[WEIR_PLAN_TEXT_MAX], best[WEIR_PLAN_TEXT_MAX], measured[32] = "-";
    weir_plan_format(&line->choice, choice);
    weir_plan_format(&line->best->plan, best);
    if (line->steps > 0) (void)g_snprintf(measured, sizeof measured, "%.2f", line->measured_ms);
    printf("%8" G_GUINT64_FORMAT " %-9s %-*s %-*s %7.2f%% %12.2f %12s%s\n",
           (guint64)line->input.step, weir_trigger_name(line->input.trigger), choice_width, choice,
           best_width, best, 100.0 * line->regret, line->predicted_ms, measured,
           line->same ? "" : "  DIFFERS now");
  }
  printf(
      "%u decisions, %u different; regret against the best candidate: mean %.2f %%, at most %.2f "
      "%%\n",
      lines->len, t->different, 100.0 * t->regret_mean, 100.0 * t->regret_most);
  if (t->steps > 0)
    printf("%u steps under the choices: predicted %.3f s, measured %.3f s\n", t->steps,
           t->predicted_s, t->measured_s);
}

static gboolean write_bits(const char *decisions, const GString *csv, const char *path) {
  if (csv->len == 0)
    return refuse(decisions, 1, "no widths were assigned; expected a run under policy bits");
  if (cli_write(path, csv) == WEIR_OK) return TRUE;
  fprintf(stderr, "weir replay: --bits: %s\n", weir_last_error());
  return FALSE;
}

/* Whoever names a pipe wants it read; one in a folder would be waited for without end. */
static gboolean holds_files(const char *decisions, const char *steps) {
  const char *const paths[] = {decisions, steps};
  for (gsize i = 0; i < G_N_ELEMENTS(paths); i++)
    if (g_file_test(paths[i], G_FILE_TEST_EXISTS) &&
        !g_file_test(paths[i], G_FILE_TEST_IS_REGULAR)) {
      fprintf(stderr, "weir replay: %s: is no regular file; expected what `weir run` has left\n",
              paths[i]);
      return FALSE;
    }
  return TRUE;
}

static int replay(const char *where, const char *steps, const char *bits, gboolean json) {
  const gboolean directory = g_file_test(where, G_FILE_TEST_IS_DIR);
  g_autofree char *decisions =
      directory ? g_build_filename(where, "decisions.jsonl", NULL) : g_strdup(where);
  g_autofree char *beside = directory ? g_build_filename(where, "steps.csv", NULL) : NULL;
  if (directory && !holds_files(decisions, beside)) return WEIR_EXIT_USAGE;
  if (directory && cli_without("replay", where, "decisions.jsonl")) return WEIR_EXIT_USAGE;
  if (!steps && beside && g_file_test(beside, G_FILE_TEST_EXISTS)) steps = beside;
  g_autoptr(GArray) lines = g_array_new(FALSE, TRUE, sizeof(replay_line));
  g_autoptr(GString) csv = g_string_new(NULL);
  if (!replay_read_decisions(decisions, lines, csv)) return WEIR_EXIT_USAGE;
  if (bits && !write_bits(decisions, csv, bits)) return WEIR_EXIT_USAGE;
  if (steps && !replay_read_steps(steps, lines)) return WEIR_EXIT_USAGE;
  replay_totals totals = {0};
  judge(lines, &totals);
  if (json)
    print_json(lines, &totals);
  else
    print_table(lines, &totals);
  return totals.different == 0 ? WEIR_EXIT_DONE : WEIR_EXIT_FAILED;
}

int weir_cmd_replay(int argc, char **argv) {
  g_autofree char *steps = NULL, *bits = NULL;
  gboolean json = FALSE;
  const GOptionEntry entries[] = {
      {"steps", 0, 0, G_OPTION_ARG_FILENAME, &steps, "steps to compare the predictions with",
       "FILE"},
      {"bits", 0, 0, G_OPTION_ARG_FILENAME, &bits,
       "write what policy bits has measured last, for weir plan bits", "STATS.csv"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL};
  const cli_help help = {
      "weir replay", "DIR|decisions.jsonl",
      "Makes every decision of a run again from what was known then, compares it with what was\n"
      "chosen, and states its regret: how much more progress per second the best candidate\n"
      "promised.",
      "Given a folder, it also reads steps.csv there, if there is one.\n"
      "Exit codes: 0 all come out the same; 1 one or more differ; 2 bad usage or bad input."};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  if (argc != 2) {
    fprintf(stderr, "weir replay: expected one run's folder or its decisions.jsonl\n");
    return WEIR_EXIT_USAGE;
  }
  return replay(argv[1], steps, bits, json);
}
