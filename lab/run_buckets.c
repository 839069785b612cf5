/* Divisions into buckets that a policy names are made for the scenario's model before a run
 * begins. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/controller.h"
#include "controller/table.h"
#include "lab/runner_private.h"

/* As the session's order (session/order.c). */
static void order(const weir_trainer *trainer, const uint32_t *from, size_t *offset,
                  const char **names) {
  for (size_t i = 0; i < weir_trainer_tensors(trainer); i++) {
    names[i] = weir_trainer_tensor_name(trainer, from[i]);
    offset[i + 1] = offset[i] + weir_trainer_tensor_numel(trainer, from[i]);
  }
}

static weir_status divide(const weir_run *run, const weir_trainer *trainer, weir_table_text *text) {
  const size_t tensors = weir_trainer_tensors(trainer);
  char filter[WEIR_FILTER_MAX];
  size_t *offset = calloc(tensors + 1, sizeof *offset);
  const char **names = calloc(tensors, sizeof *names);
  uint32_t *from = calloc(tensors + 1, sizeof *from);
  weir_status status = WEIR_OK;
  if (!offset || !names || !from)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", tensors);
  if (!status) status = weir_policy_filter(run->policy, run->scenario.full_precision, filter);
  weir_turns turns = {0};
  if (!status) {
    const weir_layout layout = {tensors, offset};
    for (uint32_t t = 0; t < tensors; t++) from[t] = t;
    order(trainer, from, offset, names);
    text->full = weir_policy_order(run->policy, filter, &layout, names, from);
    order(trainer, from, offset, names);
    status = weir_turns_build(&turns, text, &layout, names);
  }
  weir_turns_free(&turns);
  free(from);
  free(names);
  free(offset);
  return status;
}

weir_status weir_run_check_buckets(const weir_run *run) {
  static const char buckets[] = "groups:";
  const weir_scenario *s = &run->scenario;
  weir_table_text text;
  if (strncmp(run->policy, buckets, sizeof buckets - 1) != 0) return WEIR_OK;
  weir_status status = weir_table_parse(run->policy + sizeof buckets - 1, &text);
  const weir_trainer_config config = {.model = s->model,
                                      .sizes = s->sizes,
                                      .seed = s->seed,
                                      .world_size = (int)s->workers,
                                      .batch = s->batch,
                                      .learning_rate = s->learning_rate,
                                      .optimizer = {.name = "sgd"},
                                      .threads = 1,
                                      .slice = s->slice};
  weir_trainer *trainer = NULL;
  if (!status) status = weir_trainer_create(&trainer, &config, &run->data);
  if (!status) status = divide(run, trainer, &text);
  weir_trainer_free(trainer);
  return status;
}
