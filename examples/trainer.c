/* A complete trainer on Weir: logistic regression by synchronous SGD.
 *
 *   cc trainer.c -o trainer $(pkg-config --cflags --libs weir) -lm
 *   export WEIR_SECRET=$(head -c 16 /dev/urandom | base64)
 *   ./trainer 0 2 127.0.0.1:29400 & ./trainer 1 2 127.0.0.1:29400
 *
 * Every rank draws samples of its own and ends with the same weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { FEATURES = 32, BATCH = 64, STEPS = 300 };

static void check(weir_status status) {
  if (status == WEIR_OK) return;
  fprintf(stderr, "trainer: %s: %s\n", weir_status_name(status), weir_last_error());
  exit(1);
}

/* Uniform in [-1, 1). */
static float draw(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* Gradient of the mean logistic loss over a fresh batch.  The label is 1 where the features with
 * even numbers outweigh the others. */
static double gradient(const float *w, float *g, unsigned *state) {
  double loss = 0.0;
  memset(g, 0, FEATURES * sizeof *g);
  for (int b = 0; b < BATCH; b++) {
    float x[FEATURES], score = 0.0f, truth = 0.0f;
    for (int i = 0; i < FEATURES; i++) {
      x[i] = draw(state);
      score += w[i] * x[i];
      truth += i % 2 ? -x[i] : x[i];
    }
    const float y = truth > 0.0f ? 1.0f : 0.0f, p = 1.0f / (1.0f + expf(-score));
    loss -= log(y > 0.0f ? p : 1.0f - p) / BATCH;
    for (int i = 0; i < FEATURES; i++) g[i] += (p - y) * x[i] / BATCH;
  }
  return loss;
}

/* What a trial must put back beside the weights: where the random numbers stand. */
static size_t rng_bytes(void *user) { return (void)user, sizeof(unsigned); }
static void rng_save(void *user, void *to) { memcpy(to, user, sizeof(unsigned)); }
static void rng_load(void *user, const void *from) { memcpy(user, from, sizeof(unsigned)); }

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: trainer RANK RANKS HOST:PORT\n"), 2;
  float w[FEATURES] = {0}, g[FEATURES];
  unsigned rng = 1u + (unsigned)atoi(argv[1]);
  double loss = 0.0;

  weir_options options;
  weir_options_init(&options);
  options.rank = atoi(argv[1]);
  options.world_size = atoi(argv[2]);
  options.rendezvous = argv[3];
  options.update_rule = "sgd"; /* what is done with an average below */

  weir_session *session;
  uint32_t tensor;
  weir_step_info info = {.struct_size = sizeof info};
  check(weir_session_create(&session, &options));
  check(weir_register_tensor(session, "w", FEATURES, &tensor));
  check(weir_register_state(session, "w", w, sizeof w));
  check(weir_register_hooks(
      session, &(weir_state_hooks){sizeof(weir_state_hooks), &rng, rng_bytes, rng_save, rng_load}));
  check(weir_session_start(session));

  /* A trial's steps are rolled back and do not count. */
  for (uint64_t done = 0; done < STEPS; done = info.step + !info.trial) {
    check(weir_step_begin(session, &info));
    loss = gradient(w, g, &rng);
    check(weir_report_loss(session, loss));
    check(weir_submit(session, tensor, g));
    check(weir_step_end(session, &info)); /* g: now the average over all ranks */
    for (int i = 0; i < FEATURES; i++) w[i] -= 2.0f * g[i];
  }

  char plan[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(&info.plan, plan);
  fprintf(stderr, "rank %s: loss %.4f after %d steps, last plan %s\n", argv[1], loss, STEPS, plan);
  for (int i = 0; i < FEATURES; i++) printf("%a%c", (double)w[i], i + 1 < FEATURES ? ' ' : '\n');
  weir_session_free(session);
  return 0;
}
