/* What trials have shown, told again from the samples that the journal holds. */
#include <math.h>
#include <string.h>

#include "controller/decide.h"
#include "replay.h"

static gboolean read_samples(JsonObject *object, weir_evidence *evidence) {
  JsonNode *node = json_object_get_member(object, "samples");
  if (!node || !JSON_NODE_HOLDS_ARRAY(node)) return FALSE;
  JsonArray *samples = json_node_get_array(node);
  evidence->count = json_array_get_length(samples);
  if (evidence->count < 1 || evidence->count > WEIR_SAMPLES_MAX) return FALSE;
  for (guint i = 0; i < evidence->count; i++) {
    JsonNode *sample = json_array_get_element(samples, i);
    if (!sample || !JSON_NODE_HOLDS_VALUE(sample) ||
        json_node_get_value_type(sample) == G_TYPE_STRING)
      return FALSE;
    evidence->sample[i] = json_node_get_double(sample);
    if (!isfinite(evidence->sample[i])) return FALSE;
  }
  return TRUE;
}

static gboolean read_plan(JsonObject *object, weir_plan *plan) {
  JsonNode *node = json_object_get_member(object, "plan");
  return node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_STRING &&
         weir_plan_parse(json_node_get_string(node), plan) == WEIR_OK;
}

gboolean replay_trial(JsonObject *object, gboolean *same) {
  weir_evidence evidence = {0};
  *same = TRUE;
  if (!json_object_has_member(object, "verdict")) return TRUE; /* the loss told, and no trial */
  JsonNode *node = json_object_get_member(object, "verdict");
  weir_plan plan;
  uint32_t rule;
  /* Journals from before update rules were told apart have none: all were taken as adaptive. */
  const char *update_rule = json_object_get_string_member_with_default(object, "update_rule", "");
  if (weir_rule_parse(update_rule, &rule) != WEIR_OK) return FALSE;
  if (!JSON_NODE_HOLDS_VALUE(node) || json_node_get_value_type(node) != G_TYPE_STRING ||
      !read_samples(object, &evidence) || !read_plan(object, &plan))
    return FALSE;
  const weir_round_form *form = weir_round_form_of(&plan, rule);
  const weir_judgement again = weir_progress_judge(&evidence, form, weir_belief_of(&plan, form));
  *same = !strcmp(json_node_get_string(node), weir_verdict_names[again.verdict]);
  return TRUE;
}
