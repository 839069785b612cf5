/* Divisions into buckets that a policy names are made for the scenario's model before a run begins. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/table.h"
#include "lab/runner_private.h"

static weir_status divide(const weir_trainer *trainer, const weir_table_text *text) {
  const size_t tensors = weir_trainer_tensors(trainer);
  size_t *offset = calloc(tensors + 1, sizeof *offset);
  const char **names = calloc(tensors, sizeof *names);
  weir_status status = WEIR_OK;
  if (!offset || !names) status = weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", tensors);
  for (size_t t = 0; t < tensors && !status; t++) {
    names[t] = weir_trainer_tensor_name(trainer, t);
    offset[t + 1] = offset[t] + weir_trainer_tensor_numel(trainer, t);
  }
  weir_turns turns = {0};
  if (!status) status = weir_turns_build(&turns, text, &(weir_layout){tensors, offset}, names);
  weir_turns_free(&turns);
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
  if (!status) status = divide(trainer, &text);
  weir_trainer_free(trainer);
  return status;
}
