/* The page of `weir emulate`: what was set, what flowed, and when, out of emulate.json. */
#include <math.h>
#include <string.h>

#include "lab/report.h"
#include "lab/report_data.h"
#include "lab/report_doc.h"

enum { SHOWN_MOST = 16, POINTS_MOST = 2000, MARKS_MOST = 16, VERSION = 1 };

typedef struct setting {
  char *phase;
  double begin_s, end_s, latency_ms, mbit_s, loss, reorder, duplicate;
} setting;

typedef struct worker {
  char *address;
  double sent, packets, dropped, received;
} worker;

typedef struct process {
  double code, ended_s;
  bool put_down;
} process;

typedef struct sample {
  double begin_s, end_s;
  double *sent, *received; /* of every worker */
} sample;

typedef struct told {
  char *scenario, *network, *outcome, *launcher, *command;
  double elapsed_s, exit_code;
  GArray *settings, *workers, *processes, *samples;
} told;

/* --- reading ---------------------------------------------------------------------------------- */

static void free_setting(gpointer of) { g_free(((setting *)of)->phase); }
static void free_worker(gpointer of) { g_free(((worker *)of)->address); }
static void free_sample(gpointer of) {
  g_free(((sample *)of)->sent);
  g_free(((sample *)of)->received);
}

static GArray *list_of(size_t size, GDestroyNotify clear) {
  GArray *list = g_array_new(FALSE, TRUE, (guint)size);
  if (clear) g_array_set_clear_func(list, clear);
  return list;
}

static double number(weir_report_place *place, JsonObject *object, const char *name) {
  return weir_report_number(place, object, name, WEIR_REQUIRED);
}

static void read_setting(weir_report_place *place, JsonObject *object, told *t) {
  const setting s = {.phase = weir_report_text(place, object, "phase", WEIR_REQUIRED),
                     .begin_s = number(place, object, "begin_s"),
                     .end_s = number(place, object, "end_s"),
                     .latency_ms = number(place, object, "latency_ms"),
                     .mbit_s = number(place, object, "bandwidth_mbit_s"),
                     .loss = number(place, object, "loss_percent"),
                     .reorder = number(place, object, "reorder_percent"),
                     .duplicate = number(place, object, "duplicate_percent")};
  g_array_append_val(t->settings, s);
}

static void read_worker(weir_report_place *place, JsonObject *object, told *t) {
  const worker w = {.address = weir_report_text(place, object, "address", WEIR_REQUIRED),
                    .sent = number(place, object, "sent_bytes"),
                    .packets = number(place, object, "sent_packets"),
                    .dropped = number(place, object, "dropped_packets"),
                    .received = number(place, object, "received_bytes")};
  g_array_append_val(t->workers, w);
}

static void read_process(weir_report_place *place, JsonObject *object, told *t) {
  const process p = {
      .code = number(place, object, "exit_code"),
      .ended_s = number(place, object, "ended_s"),
      .put_down = json_object_get_boolean_member_with_default(object, "put_down", FALSE)};
  g_array_append_val(t->processes, p);
}

/* One number a worker, 0 or more. */
static double *read_bytes(weir_report_place *place, JsonObject *object, const char *name,
                          size_t workers) {
  JsonArray *list = weir_report_array(place, object, name, WEIR_REQUIRED);
  double *bytes = g_new0(double, workers);
  if (list && json_array_get_length(list) != workers)
    weir_report_refuse(place, "'%s' must have %zu numbers, one a worker", name, workers);
  for (guint i = 0; list && i < json_array_get_length(list) && i < workers; i++) {
    JsonNode *node = json_array_get_element(list, i);
    const GType type =
        JSON_NODE_HOLDS_VALUE(node) ? json_node_get_value_type(node) : G_TYPE_INVALID;
    if (type == G_TYPE_INT64 || type == G_TYPE_DOUBLE) bytes[i] = json_node_get_double(node);
    if ((type != G_TYPE_INT64 && type != G_TYPE_DOUBLE) || !(bytes[i] >= 0))
      weir_report_refuse(place, "'%s'[%u] must be a number, 0 or more", name, i);
  }
  return bytes;
}

static void read_sample(weir_report_place *place, JsonObject *object, told *t) {
  const sample s = {.begin_s = number(place, object, "begin_s"),
                    .end_s = number(place, object, "end_s"),
                    .sent = read_bytes(place, object, "sent_bytes", t->workers->len),
                    .received = read_bytes(place, object, "received_bytes", t->workers->len)};
  if (!(s.end_s > s.begin_s)) weir_report_refuse(place, "a sample must end after it begins");
  g_array_append_val(t->samples, s);
}

static void read_each(weir_report_place *place, JsonObject *root, const char *name, told *t,
                      void (*read)(weir_report_place *, JsonObject *, told *)) {
  JsonArray *list = weir_report_array(place, root, name, WEIR_REQUIRED);
  const size_t count = list ? json_array_get_length(list) : 0;
  for (size_t i = 0; i < count && !place->status; i++) {
    JsonObject *element = weir_report_element(place, list, name, i);
    if (element) read(place, element, t);
  }
}

static char *read_command(weir_report_place *place, JsonObject *root) {
  JsonArray *list = weir_report_array(place, root, "command", WEIR_REQUIRED);
  GString *text = g_string_new(NULL);
  for (guint i = 0; list && i < json_array_get_length(list); i++) {
    JsonNode *node = json_array_get_element(list, i);
    if (JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_STRING)
      g_string_append_printf(text, "%s%s", i ? " " : "", json_node_get_string(node));
    else
      weir_report_refuse(place, "'command'[%u] must be a string", i);
  }
  return g_string_free(text, FALSE);
}

static void read_all(weir_report_place *place, JsonObject *root, told *t) {
  if (number(place, root, "format") != VERSION)
    weir_report_refuse(place, "'format' is none that this version reads; expected %d", VERSION);
  t->scenario = weir_report_text(place, root, "scenario", WEIR_REQUIRED);
  t->network = weir_report_text(place, root, "network", WEIR_REQUIRED);
  t->outcome = weir_report_text(place, root, "outcome", WEIR_REQUIRED);
  t->launcher = weir_report_text(place, root, "launcher", WEIR_REQUIRED);
  t->command = read_command(place, root);
  t->elapsed_s = number(place, root, "elapsed_s");
  t->exit_code = number(place, root, "exit_code");
  read_each(place, root, "settings", t, read_setting);
  read_each(place, root, "workers", t, read_worker);
  read_each(place, root, "processes", t, read_process);
  read_each(place, root, "samples", t, read_sample);
  if (!place->status && (!t->workers->len || !t->settings->len))
    weir_report_refuse(place, "there are no workers, or nothing was set");
}

static void free_told(told *t) {
  g_free(t->scenario);
  g_free(t->network);
  g_free(t->outcome);
  g_free(t->launcher);
  g_free(t->command);
  g_array_unref(t->settings);
  g_array_unref(t->workers);
  g_array_unref(t->processes);
  g_array_unref(t->samples);
}

/* --- charts ----------------------------------------------------------------------------------- */

static const setting *setting_at(const told *t, double time_s) {
  const setting *all = (const setting *)(void *)t->settings->data, *at = all;
  while (at + 1 < all + t->settings->len && at[1].begin_s <= time_s) at++;
  return at;
}

static void add_marks(weir_doc *doc, const told *t) {
  weir_doc_list(doc, "marks");
  for (guint i = 0; i < t->settings->len && t->settings->len <= MARKS_MOST; i++) {
    const setting *s = &g_array_index(t->settings, setting, i);
    weir_doc_object(doc, NULL);
    weir_doc_number(doc, "x", s->begin_s);
    weir_doc_format(doc, "text", "%s%s%.3g ms, %.4g Mbit/s", s->phase, *s->phase ? ": " : "",
                    s->latency_ms, s->mbit_s);
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
}

static void add_series(weir_doc *doc, const char *name, const char *colour, const char *form) {
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "name", name);
  weir_doc_text(doc, "colour", colour);
  weir_doc_text(doc, "form", form);
  weir_doc_end(doc);
}

/* Mbit/s of one worker over some samples that follow each other. */
static double rate_of(const told *t, guint from, guint until, guint rank, bool sent) {
  double bytes = 0;
  for (guint i = from; i < until; i++) {
    const sample *s = &g_array_index(t->samples, sample, i);
    bytes += sent ? s->sent[rank] : s->received[rank];
  }
  return bytes * 8e-6 /
         (g_array_index(t->samples, sample, until - 1).end_s -
          g_array_index(t->samples, sample, from).begin_s);
}

static void add_rates(weir_doc *doc, const told *t, bool sent) {
  const guint shown = MIN(t->workers->len, SHOWN_MOST);
  const guint each = (t->samples->len + POINTS_MOST - 1) / POINTS_MOST;
  weir_doc_chart(doc, "lines", sent ? "sent, Mbit/s" : "received, Mbit/s", "elapsed, s", 0,
                 fmax(t->elapsed_s, 1e-3));
  weir_doc_flag(doc, "named", sent); /* once is enough */
  add_marks(doc, t);
  weir_doc_list(doc, "series");
  add_series(doc, "set", "#7a8ca3", "step");
  for (guint r = 0; r < shown; r++) {
    g_autofree char *name = g_strdup_printf("rank %u", r);
    g_autofree char *colour = g_strdup_printf("hsl(%u,45%%,45%%)", (210 + 360 * r / shown) % 360);
    add_series(doc, name, colour, "step");
  }
  weir_doc_end_list(doc);
  weir_doc_list(doc, "points");
  for (guint i = 0; i < t->samples->len; i += each) {
    const double at = g_array_index(t->samples, sample, i).begin_s;
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, at);
    weir_doc_number(doc, NULL, setting_at(t, at)->mbit_s);
    for (guint r = 0; r < shown; r++)
      weir_doc_number(doc, NULL, rate_of(t, i, MIN(i + each, t->samples->len), r, sent));
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

/* --- tables ----------------------------------------------------------------------------------- */

/* Mbit/s of the busiest worker while it was so; samples that lie within. */
static double most_in(const told *t, const setting *s) {
  double most = NAN;
  for (guint r = 0; r < t->workers->len; r++) {
    double bytes = 0, seconds = 0;
    for (guint i = 0; i < t->samples->len; i++) {
      const sample *of = &g_array_index(t->samples, sample, i);
      if (of->begin_s < s->begin_s - 1e-3 || of->end_s > s->end_s + 1e-3) continue;
      bytes += of->sent[r];
      seconds += of->end_s - of->begin_s;
    }
    if (seconds > 0) most = fmax(isnan(most) ? 0 : most, bytes * 8e-6 / seconds);
  }
  return most;
}

static void add_settings(weir_doc *doc, const told *t) {
  const guint shown = MIN(t->settings->len, POINTS_MOST);
  g_autoptr(GString) note = g_string_new(
      "Of every worker's link, as the kernel said when it was read back; the delay is one way. "
      "Sent: by the busiest worker, on average.");
  if (shown < t->settings->len)
    g_string_append_printf(note, " %u more are in emulate.json.", t->settings->len - shown);
  weir_doc_section(doc, "What was set", note->str);
  weir_doc_table(doc, NULL,
                 "phase|#from, s|#to, s|#delay, ms|#rate, Mbit/s|#loss, %|#reordered, %|#twice, "
                 "%|#sent, Mbit/s");
  for (guint i = 0; i < shown; i++) {
    const setting *s = &g_array_index(t->settings, setting, i);
    weir_doc_row(doc);
    weir_doc_text(doc, NULL, s->phase);
    weir_doc_cell(doc, "%.1f", s->begin_s);
    weir_doc_cell(doc, "%.1f", s->end_s);
    weir_doc_cell(doc, "%.4g", s->latency_ms);
    weir_doc_cell(doc, "%.5g", s->mbit_s);
    weir_doc_cell(doc, "%.3g", s->loss);
    weir_doc_cell(doc, "%.3g", s->reorder);
    weir_doc_cell(doc, "%.3g", s->duplicate);
    weir_doc_cell(doc, "%.5g", most_in(t, s));
    weir_doc_end_row(doc);
  }
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}

static void add_flow(weir_doc *doc, const told *t) {
  const guint workers = t->workers->len;
  g_autofree char *note =
      g_strdup_printf("By the counters of the shaped interfaces, headers included%s.",
                      workers > SHOWN_MOST ? "; the first 16 workers are drawn" : "");
  weir_doc_section(doc, "What flowed", note);
  if (t->samples->len) {
    add_rates(doc, t, true);
    add_rates(doc, t, false);
  }
  weir_doc_table(doc, NULL,
                 "worker|#sent, MB|#packets|#dropped packets|#received, MB|#exit code|#ended, s");
  for (guint r = 0; r < workers; r++) {
    const worker *w = &g_array_index(t->workers, worker, r);
    const bool own = t->processes->len == workers;
    const process *p = own ? &g_array_index(t->processes, process, r) : NULL;
    weir_doc_row(doc);
    g_autofree char *name =
        g_strdup_printf("%u, %s%s", r, w->address, p && p->put_down ? ", ended by the runner" : "");
    weir_doc_text(doc, NULL, name);
    weir_doc_cell(doc, "%.3f", w->sent / 1e6);
    weir_doc_cell(doc, "%.0f", w->packets);
    weir_doc_cell(doc, "%.0f", w->dropped);
    weir_doc_cell(doc, "%.3f", w->received / 1e6);
    weir_doc_cell(doc, "%.0f", p ? p->code : NAN);
    weir_doc_cell(doc, "%.1f", p ? p->ended_s : NAN);
    weir_doc_end_row(doc);
  }
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}

/* --- the page --------------------------------------------------------------------------------- */

static void add_head(weir_doc *doc, const told *t) {
  double sent = 0;
  for (guint r = 0; r < t->workers->len; r++) sent += g_array_index(t->workers, worker, r).sent;
  g_autofree char *elapsed = g_strdup_printf("%.1f s", t->elapsed_s);
  g_autofree char *code = g_strdup_printf("%.0f", t->exit_code);
  g_autofree char *bytes = g_strdup_printf("%.1f MB", sent / 1e6);
  g_autofree char *workers = g_strdup_printf("%u", t->workers->len);
  weir_doc_format(doc, "title", "%s over %s", t->command, t->scenario);
  weir_doc_format(doc, "sub", "A program over an emulated network (%s%s%s).", t->network,
                  strcmp(t->launcher, "none") ? ", started by " : "",
                  strcmp(t->launcher, "none") ? t->launcher : "");
  weir_doc_list(doc, "cards");
  weir_doc_card(doc, elapsed, "elapsed", t->outcome);
  weir_doc_card(doc, code, "exit code", "the worst rank's");
  weir_doc_card(doc, workers, "workers", "a machine of its own each");
  weir_doc_card(doc, bytes, "sent by all", "headers included");
  weir_doc_end_list(doc);
  weir_doc_list(doc, "notices");
  if (strcmp(t->outcome, "done") || t->exit_code > 0) {
    const bool itself = !strcmp(t->outcome, "done");
    g_autofree char *text =
        g_strdup_printf("The command did not end well: %s%sexit code %.0f.",
                        itself ? "" : t->outcome, itself ? "" : ", ", t->exit_code);
    weir_doc_notice(doc, false, text);
  }
  weir_doc_end_list(doc);
}

static weir_status draw(const told *t, const char *directory) {
  g_autoptr(JsonBuilder) doc = json_builder_new();
  weir_doc_object(doc, NULL);
  add_head(doc, t);
  weir_doc_list(doc, "sections");
  add_settings(doc, t);
  add_flow(doc, t);
  weir_doc_end_list(doc);
  weir_doc_end(doc);
  return weir_page_write(doc, directory);
}

weir_status weir_emulate_report_write(const char *directory) {
  weir_report_place place = {.file = "emulate.json"};
  told t = {.settings = list_of(sizeof(setting), free_setting),
            .workers = list_of(sizeof(worker), free_worker),
            .processes = list_of(sizeof(process), NULL),
            .samples = list_of(sizeof(sample), free_sample)};
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonObject *root = weir_report_load(&place, parser, directory);
  if (root) read_all(&place, root, &t);
  const weir_status status = place.status ? place.status : draw(&t, directory);
  free_told(&t);
  return status;
}
