/* A trial leaves nothing behind in any model or optimizer: weights, moments, random numbers, data
 * cursor and schedule are bit for bit what they were. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "../sampled.h"
#include "../unit/model_check.h"
#include "../unit/trainer_data.h"
#include "lab/trainer_state.h"
#include "session_ranks.h"

enum { RANKS = 2, COUNTED = 30 };

typedef struct course {
  weir_trainer_config config;
  const weir_dataset *data;
  char group[64];
} course;

typedef struct rank {
  const course *course;
  int number;
  weir_status status;
  char message[256];
  char weights[65];
  size_t tried, restored,
      differing; /* steps of trials, returns from trials, those that left traces */
} rank;

static void far_and_slow(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  (void)user;
  (void)step;
  *latency_s = 0.01;
  *bandwidth = 2e6;
}

static uint64_t picture(weir_trainer *t) {
  const weir_state_hooks hooks = weir_trainer_hooks(t);
  unsigned char position[256];
  size_t count = 0;
  const float *array = weir_trainer_weights(t, &count);
  uint64_t hash = weir_hash(WEIR_HASH_INIT, array, count * sizeof *array);
  array = weir_trainer_momentum(t, &count);
  hash = weir_hash(hash, array, count * sizeof *array);
  array = weir_trainer_second(t, &count);
  if (count) hash = weir_hash(hash, array, count * sizeof *array);
  cr_assert_leq(hooks.bytes(hooks.user), sizeof position);
  hooks.save(hooks.user, position);
  return weir_hash(hash, position, hooks.bytes(hooks.user));
}

static weir_status open_session(rank *r, weir_trainer *t, weir_session **session) {
  /* Which tries every ratio, ten steps each. */
  weir_options options = session_options(r->number, RANKS, r->course->group, "paper");
  options.virtual_network = far_and_slow;
  options.active_probes = false;
  options.timeout_s = 60;
  weir_status status = weir_session_create(session, &options);
  for (size_t i = 0; i < weir_trainer_tensors(t) && !status; i++)
    status = weir_register_tensor(*session, weir_trainer_tensor_name(t, i),
                                  weir_trainer_tensor_numel(t, i), NULL);
  if (!status) status = weir_trainer_register(t, *session);
  return status ? status : weir_session_start(*session);
}

static weir_status one_step(weir_trainer *t, weir_session *session, weir_step_info *info) {
  double loss = 0;
  weir_status status = weir_trainer_backward(t, &loss);
  for (size_t i = 0; i < weir_trainer_tensors(t) && !status; i++)
    status = weir_submit(session, (uint32_t)i, weir_trainer_gradient(t, i));
  if (!status) status = weir_step_end(session, info);
  if (!status) status = weir_trainer_update(t, session);
  return status;
}

static weir_status train_rank(rank *r, weir_trainer *t, weir_session *session) {
  uint64_t kept = picture(t);
  bool trial = false;
  for (size_t counted = 0; counted < COUNTED;) {
    weir_step_info info = {.struct_size = sizeof info};
    weir_status status = weir_step_begin(session, &info);
    if (status) return status;
    if (!trial || !info.trial) r->differing += picture(t) != kept;
    r->restored += trial && !info.trial;
    r->tried += info.trial;
    trial = info.trial;
    status = one_step(t, session, &info);
    if (status) return status;
    if (!trial) kept = picture(t);
    counted += !trial;
  }
  return WEIR_OK;
}

static void *work(void *argument) {
  rank *r = argument;
  weir_trainer_config config = r->course->config;
  config.rank = r->number;
  weir_trainer *t = NULL;
  weir_session *session = NULL;
  r->status = weir_trainer_create(&t, &config, r->course->data);
  if (!r->status) r->status = open_session(r, t, &session);
  if (!r->status) r->status = train_rank(r, t, session);
  (void)snprintf(r->message, sizeof r->message, "%s", weir_last_error());
  if (!r->status) weir_trainer_weights_sha256(t, r->weights);
  weir_session_free(session);
  weir_trainer_free(t);
  return NULL;
}

static void try_divided(const char *model, const char *optimizer, bool divided,
                        const weir_dataset *data, weir_model_sizes sizes) {
  course c = {.data = data, .config = plain()};
  c.config.model = model;
  c.config.optimizer = (weir_optimizer_config){optimizer, 0.9, 0.99, 0.01, divided};
  c.config.sizes = sizes;
  c.config.world_size = RANKS;
  c.config.learning_rate = 0.01;
  c.config.rate_warmup_steps = 20;
  (void)snprintf(c.group, sizeof c.group, "models-%d-%s-%s", (int)getpid(), model, optimizer);
  rank ranks[RANKS];
  for (int r = 0; r < RANKS; r++) ranks[r] = (rank){.course = &c, .number = r};
  session_threads(ranks, sizeof *ranks, RANKS, work);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(ranks[r].status, WEIR_OK, "%s, %s: %s", model, optimizer, ranks[r].message);
    cr_assert_geq(ranks[r].tried, 20, "%s, %s: %zu steps of trials", model, optimizer,
                  ranks[r].tried);
    cr_assert_geq(ranks[r].restored, 1);
    cr_assert_eq(ranks[r].differing, 0, "%s, %s: %zu of %zu trials left traces", model, optimizer,
                 ranks[r].differing, ranks[r].restored);
    cr_assert_str_eq(ranks[r].weights, ranks[0].weights);
  }
}

static void try_out(const char *model, const char *optimizer, const weir_dataset *data,
                    weir_model_sizes sizes) {
  try_divided(model, optimizer, false, data, sizes);
}

static const char *const optimizers[] = {"sgd", "adamw", "lars", "lamb"};

Test(models_trials, images) {
  weir_dataset data = synthetic();
  for (size_t o = 0; o < 4; o++)
    if (sampled(2)) try_out("cnn", optimizers[o], &data, (weir_model_sizes){0, 4, 0, ""});
  for (size_t o = 2; o < 4; o++) /* moments are each rank's share alone */
    try_divided("deep", optimizers[o], true, &data, (weir_model_sizes){0, 0, 0, ""});
  try_out("deep", "sgd", &data, (weir_model_sizes){0, 0, 0, ""});
  weir_dataset_free(&data);
}

Test(models_trials, text) {
  weir_dataset data = small_text(8, 60);
  for (size_t o = 0; o < 4; o++)
    if (sampled(2)) try_out("gpt", optimizers[o], &data, (weir_model_sizes){1, 32, 8, ""});
  weir_dataset_free(&data);
}

Test(models_trials, clicks) {
  weir_dataset data;
  cr_assert_eq(weir_dataset_clicks(&data, 3), WEIR_OK);
  for (size_t o = 0; o < 4; o++)
    if (sampled(2)) try_out("recommender", optimizers[o], &data, (weir_model_sizes){0, 2, 0, ""});
  weir_dataset_free(&data);
}
