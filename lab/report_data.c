#include "lab/report_data.h"

#include <math.h>
#include <string.h>

static void read_digests(weir_report_place *place, JsonObject *root, weir_report_summary *s) {
  /* null: nobody has looked, as in a training that is not ours. */
  s->digests_told = !json_object_has_member(root, "weights_sha256") ||
                    !json_object_get_null_member(root, "weights_sha256");
  if (!s->digests_told) return;
  JsonArray *list = weir_report_array(place, root, "weights_sha256", WEIR_REQUIRED);
  if (!list) return;
  s->digests = json_array_get_length(list);
  s->digests_equal = s->digests > 0;
  const char *first = NULL;
  for (size_t i = 0; i < s->digests; i++) {
    JsonNode *node = json_array_get_element(list, (guint)i);
    const char *text = JSON_NODE_HOLDS_VALUE(node) ? json_node_get_string(node) : NULL;
    if (!text) {
      weir_report_refuse(place, "'weights_sha256'[%zu] must be a string", i);
      return;
    }
    if (!i) first = text;
    if (strcmp(first, text)) s->digests_equal = false;
  }
}

static void read_phases(weir_report_place *place, JsonObject *root, weir_report_summary *s) {
  JsonArray *list = weir_report_array(place, root, "phases", WEIR_OPTIONAL);
  s->phase_count = list ? json_array_get_length(list) : 0;
  s->phases = g_new0(weir_report_phase, s->phase_count + 1);
  for (size_t i = 0; i < s->phase_count; i++) {
    JsonObject *phase = weir_report_element(place, list, "phases", i);
    if (!phase) return;
    s->phases[i] = (weir_report_phase){
        .first_epoch = weir_report_number(place, phase, "first_epoch", WEIR_REQUIRED),
        .last_epoch = weir_report_number(place, phase, "last_epoch", WEIR_REQUIRED),
        .set_latency_ms = weir_report_number(place, phase, "set_latency_ms", WEIR_REQUIRED),
        .set_bandwidth_gbps = weir_report_number(place, phase, "set_bandwidth_gbps", WEIR_REQUIRED),
        .measured_latency_ms =
            weir_report_number(place, phase, "measured_latency_ms", WEIR_OPTIONAL),
        .measured_bandwidth_gbps =
            weir_report_number(place, phase, "measured_bandwidth_gbps", WEIR_OPTIONAL),
        .measured_goodput_gbps =
            weir_report_number(place, phase, "measured_goodput_gbps", WEIR_OPTIONAL),
        .answered_in_steps = weir_report_number(place, phase, "answered_in_steps", WEIR_OPTIONAL)};
  }
}

weir_status weir_report_summary_read(weir_report_data *data, const char *directory) {
  weir_report_place place = {.file = "summary.json"};
  g_autoptr(JsonParser) parser = json_parser_new_immutable();
  JsonObject *root = weir_report_load(&place, parser, directory);
  if (root) {
    weir_report_summary *s = &data->summary;
    s->network = weir_report_text(&place, root, "network", WEIR_REQUIRED);
    s->clock = weir_report_text(&place, root, "clock", WEIR_OPTIONAL);
    s->policy = weir_report_text(&place, root, "policy", WEIR_REQUIRED);
    s->scenario = weir_report_text(&place, root, "scenario", WEIR_OPTIONAL);
    s->workers = weir_report_number(&place, root, "workers", WEIR_REQUIRED);
    s->final_accuracy = weir_report_number(&place, root, "final_accuracy", WEIR_OPTIONAL);
    s->elapsed_s = weir_report_number(&place, root, "elapsed_s", WEIR_REQUIRED);
    s->comm_s = weir_report_number(&place, root, "comm_s", WEIR_REQUIRED);
    s->compress_s = weir_report_number(&place, root, "compress_s", WEIR_OPTIONAL);
    s->compute_s = weir_report_number(&place, root, "compute_s", WEIR_OPTIONAL);
    s->overhead_s = weir_report_number(&place, root, "overhead_s", WEIR_OPTIONAL);
    s->switches = weir_report_number(&place, root, "switches", WEIR_REQUIRED);
    s->trials_s = weir_report_number(&place, root, "trials_s", WEIR_OPTIONAL);
    s->trial_share = weir_report_number(&place, root, "trial_share", WEIR_OPTIONAL);
    s->wire_bytes = weir_report_number(&place, root, "wire_bytes", WEIR_OPTIONAL);
    s->steps = weir_report_number(&place, root, "steps", WEIR_OPTIONAL);
    s->seed = weir_report_whole(&place, root, "seed", WEIR_OPTIONAL);
    read_digests(&place, root, s);
    read_phases(&place, root, s);
    if (json_object_has_member(root, "accuracy"))
      s->accuracy = weir_report_points(&place, root, "accuracy", &s->accuracy_count);
  }
  return place.status;
}

/* The plan's parts are taken from its text, which weir_plan_parse checks. */
static void read_candidate(weir_report_place *place, JsonObject *from, weir_report_candidate *to) {
  g_autofree char *text = weir_report_text(place, from, "plan", WEIR_REQUIRED);
  weir_plan plan = {0};
  if (!place->status && weir_plan_parse(text, &plan))
    weir_report_refuse(place, "'%.80s' is no plan", text);
  weir_plan_format(&plan, to->plan);
  to->t_comp_ms = weir_report_number(place, from, "t_comp_ms", WEIR_OPTIONAL);
  to->t_comm_ms = weir_report_number(place, from, "t_comm_ms", WEIR_OPTIONAL);
  to->gain = weir_report_number(place, from, "gain", WEIR_OPTIONAL);
  to->progress_per_s = weir_report_number(place, from, "progress_per_s", WEIR_OPTIONAL);
}

static void read_candidates(weir_report_place *place, JsonObject *root, weir_report_decision *d) {
  JsonArray *list = weir_report_array(place, root, "candidates", WEIR_OPTIONAL);
  const size_t count = list ? json_array_get_length(list) : 0;
  d->candidates = g_new0(weir_report_candidate, count + 1);
  d->candidate_count = count;
  for (size_t i = 0; i < count && !place->status; i++) {
    JsonObject *object = weir_report_element(place, list, "candidates", i);
    if (object) read_candidate(place, object, &d->candidates[i]);
  }
}

/* Entries of the front are numbers of candidates, or objects, which stand for the candidate of the
 * same plan and are added when there is none. */
static void read_front(weir_report_place *place, JsonObject *root, weir_report_decision *d) {
  JsonArray *list = weir_report_array(place, root, "front", WEIR_OPTIONAL);
  const size_t count = list ? json_array_get_length(list) : 0;
  d->candidates = g_renew(weir_report_candidate, d->candidates, d->candidate_count + count + 1);
  for (size_t i = 0; i < count && !place->status; i++) {
    JsonNode *node = json_array_get_element(list, (guint)i);
    size_t at = d->candidate_count;
    if (JSON_NODE_HOLDS_OBJECT(node)) {
      weir_report_candidate point = {0};
      read_candidate(place, json_node_get_object(node), &point);
      for (at = 0; at < d->candidate_count; at++)
        if (!strcmp(d->candidates[at].plan, point.plan)) break;
      if (at == d->candidate_count) d->candidates[d->candidate_count++] = point;
    } else if (JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_INT64) {
      const gint64 number = json_node_get_int(node);
      if (number >= 0 && (guint64)number < d->candidate_count) at = (size_t)number;
    }
    if (at < d->candidate_count)
      d->candidates[at].front = true;
    else
      weir_report_refuse(place, "'front'[%zu] names no candidate", i);
  }
}

/* The journal writes 0 for what was not known. */
static double known(double value) { return value > 0 ? value : NAN; }

static void read_trial(weir_report_place *place, JsonObject *root, weir_report_trial *t) {
  JsonNode *node = json_object_get_member(root, "trial");
  if (!node) return;
  if (!JSON_NODE_HOLDS_OBJECT(node)) {
    weir_report_refuse(place, "'trial' must be an object");
    return;
  }
  JsonObject *object = json_node_get_object(node);
  t->spent_s = weir_report_number(place, object, "spent_s", WEIR_REQUIRED);
  t->elapsed_s = weir_report_number(place, object, "elapsed_s", WEIR_REQUIRED);
  if (!json_object_has_member(object, "plan")) return; /* the loss told, and no trial */
  g_autofree char *text = weir_report_text(place, object, "plan", WEIR_REQUIRED);
  g_autofree char *verdict = weir_report_text(place, object, "verdict", WEIR_REQUIRED);
  weir_plan plan = {0};
  if (!place->status && weir_plan_parse(text, &plan))
    weir_report_refuse(place, "'%.80s' is no plan", text);
  if (strcmp(verdict, "holds") && strcmp(verdict, "falls") && strcmp(verdict, "more"))
    weir_report_refuse(place, "'verdict' must be holds, falls or more");
  JsonArray *samples = weir_report_array(place, object, "samples", WEIR_REQUIRED);
  t->progress = weir_report_signed(place, object, "progress", WEIR_REQUIRED);
  t->low = weir_report_signed(place, object, "low", WEIR_OPTIONAL);
  t->high = weir_report_signed(place, object, "high", WEIR_OPTIONAL);
  t->samples = samples ? json_array_get_length(samples) : 0;
  weir_plan_format(&plan, t->plan);
  g_strlcpy(t->verdict, verdict, sizeof t->verdict);
}

/* Under policy bits no guard switches; an assignment says itself whether it changed the buckets. */
static bool bits_changed(JsonObject *root) {
  JsonNode *bits = json_object_get_member(root, "bits");
  JsonNode *node = bits && JSON_NODE_HOLDS_OBJECT(bits)
                       ? json_object_get_member(json_node_get_object(bits), "changed")
                       : NULL;
  return node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_boolean(node);
}

static void read_decision(weir_report_place *place, JsonObject *root, weir_report_decision *d) {
  d->step = weir_report_number(place, root, "step", WEIR_REQUIRED);
  d->epoch = weir_report_number(place, root, "epoch", WEIR_REQUIRED);
  d->latency_ms = known(weir_report_number(place, root, "latency_ms", WEIR_OPTIONAL));
  d->bandwidth_gbps = known(weir_report_number(place, root, "bandwidth_gbps", WEIR_OPTIONAL));
  d->goodput_gbps = known(weir_report_number(place, root, "goodput_gbps", WEIR_OPTIONAL));
  const double groups = weir_report_number(place, root, "groups", WEIR_OPTIONAL);
  d->groups = groups > 0 ? groups : 0;
  d->compute_ms = known(weir_report_number(place, root, "compute_ms", WEIR_OPTIONAL));
  d->predicted_ms = known(weir_report_number(place, root, "predicted_ms", WEIR_OPTIONAL));
  d->trigger = weir_report_text(place, root, "trigger", WEIR_REQUIRED);
  d->why = weir_report_text(place, root, "why", WEIR_OPTIONAL);
  JsonNode *node = json_object_get_member(root, "switched");
  d->switched =
      !node || (JSON_NODE_HOLDS_VALUE(node) && json_node_get_boolean(node)) || bits_changed(root);
  read_trial(place, root, &d->trial);
  read_candidates(place, root, d);
  read_front(place, root, d);
  node = json_object_get_member(root, "choice");
  if (node && JSON_NODE_HOLDS_OBJECT(node))
    read_candidate(place, json_node_get_object(node), &d->choice);
  else
    weir_report_refuse(place, "'choice' must be an object");
}

/* A run begins undivided; a journal of which older parts are gone does not begin with its start. */
static bool divided(const weir_report_decision *before, const weir_report_decision *d) {
  if (before) return d->groups != before->groups;
  return d->groups > 0 && !strcmp(d->trigger, "start");
}

bool weir_report_switches(const weir_report_decision *d) { return d->switched || d->divided; }

weir_status weir_report_decisions_read(weir_report_data *data, const char *directory) {
  weir_report_place place = {.file = "decisions.jsonl"};
  size_t bytes = 0;
  g_autofree char *text = weir_report_slurp(&place, directory, &bytes);
  if (!text) return place.status;
  GArray *list = g_array_new(FALSE, TRUE, sizeof(weir_report_decision));
  g_autoptr(JsonParser) parser = json_parser_new_immutable();
  place.line = 1;
  for (char *line = text; !place.status && *line; place.line++) {
    const size_t length = strcspn(line, "\n");
    JsonObject *root = weir_report_json(&place, parser, line, length);
    if (root) {
      weir_report_decision decision = {0};
      read_decision(&place, root, &decision);
      decision.divided =
          !place.status &&
          divided(list->len ? &g_array_index(list, weir_report_decision, list->len - 1) : NULL,
                  &decision);
      g_array_append_val(list, decision);
    }
    line += length + (line[length] == '\n');
  }
  data->decision_count = list->len;
  data->decisions = (weir_report_decision *)(void *)g_array_free(list, FALSE);
  return place.status;
}

weir_status weir_report_data_read(weir_report_data *data, const char *directory) {
  *data = (weir_report_data){0};
  weir_status status = weir_report_summary_read(data, directory);
  if (!status) status = weir_report_steps_read(data, directory);
  if (!status) status = weir_report_decisions_read(data, directory);
  if (status) weir_report_data_free(data);
  return status;
}

void weir_report_data_free(weir_report_data *data) {
  g_free(data->summary.network);
  g_free(data->summary.clock);
  g_free(data->summary.policy);
  g_free(data->summary.scenario);
  g_free(data->summary.phases);
  g_free(data->summary.accuracy);
  for (size_t i = 0; i < data->decision_count; i++) {
    g_free(data->decisions[i].trigger);
    g_free(data->decisions[i].why);
    g_free(data->decisions[i].candidates);
  }
  g_free(data->decisions);
  g_free(data->steps);
  *data = (weir_report_data){0};
}
