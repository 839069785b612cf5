/* Optimizers, step by step by hand; and the schedule of the learning rate. */
#include <criterion/criterion.h>
#include <math.h>

#include "lab/trainer_state.h"
#include "trainer_data.h"

enum { N = 2 };

static void update(weir_optimizer *o, const weir_update *u) {
  cr_assert_eq(weir_optimizer_update(o, NULL, u, 1), WEIR_OK, "%s", weir_last_error());
}

/* Two steps with the gradients given; weights 3 and -4, whose norm is 5. */
static void two_steps(const weir_optimizer_config *config, double rate, int matrix,
                      const float gradient[2][N], float w[N]) {
  weir_optimizer o;
  cr_assert_eq(weir_optimizer_create(&o, config, &(size_t){N}, 1, 0, 1), WEIR_OK, "%s",
               weir_last_error());
  w[0] = 3;
  w[1] = -4;
  for (uint64_t s = 0; s < 2; s++)
    update(&o, &(weir_update){.weight = w,
                              .gradient = gradient[s],
                              .count = N,
                              .rate = rate,
                              .step = s,
                              .matrix = matrix});
  weir_optimizer_free(&o);
}

static const float gradient[2][N] = {{0.5f, -2}, {1, 1}};

/* Kingma and Ba's moments with the weights' decay beside them, in double. */
static void adam_step(double m[N], double v[N], const float *g, const double *w, int t, double wd,
                      double step[N]) {
  for (size_t i = 0; i < N; i++) {
    m[i] = 0.9 * m[i] + 0.1 * (double)g[i];
    v[i] = 0.99 * v[i] + 0.01 * (double)g[i] * (double)g[i];
    step[i] = m[i] / (1 - pow(0.9, t)) / (sqrt(v[i] / (1 - pow(0.99, t))) + 1e-8) + wd * w[i];
  }
}

Test(optimizer, adamw_and_lamb_by_definition) {
  for (int lamb = 0; lamb < 2; lamb++)
    for (int matrix = 0; matrix < 2; matrix++) {
      const weir_optimizer_config config = {lamb ? "lamb" : "adamw", 0.9, 0.99, 0.1, false};
      double w[N] = {3, -4}, m[N] = {0}, v[N] = {0}, step[N];
      for (int t = 1; t <= 2; t++) {
        adam_step(m, v, gradient[t - 1], w, t, matrix ? 0.1 : 0, step);
        const double trust = lamb && matrix ? hypot(w[0], w[1]) / hypot(step[0], step[1]) : 1;
        for (size_t i = 0; i < N; i++) w[i] -= 0.02 * trust * step[i];
      }
      float got[N];
      two_steps(&config, 0.02, matrix, gradient, got);
      for (size_t i = 0; i < N; i++)
        cr_assert_float_eq((double)got[i], w[i], 2e-6, "%s %d: %g, expected %g", config.name,
                           matrix, (double)got[i], w[i]);
    }
}

/* The first step of Adam is the learning rate, whatever the gradient's size. */
Test(optimizer, adamw_first_step) {
  weir_optimizer o;
  cr_assert_eq(weir_optimizer_create(&o, &(weir_optimizer_config){"adamw", 0.9, 0.999, 0, false},
                                     &(size_t){N}, 1, 0, 1),
               WEIR_OK);
  float w[N] = {0, 0};
  const float g[N] = {1e-3f, -40};
  update(&o, &(weir_update){.weight = w, .gradient = g, .count = N, .rate = 0.5});
  cr_assert_float_eq((double)w[0], -0.5, 1e-4);
  cr_assert_float_eq((double)w[1], 0.5, 1e-4);
  weir_optimizer_free(&o);
}

/* The local rate is 0.001 rate |w| / (|g| + wd |w|); of what is no matrix 0.001 rate. */
Test(optimizer, lars_by_definition) {
  for (int matrix = 0; matrix < 2; matrix++) {
    double w[N] = {3, -4}, v[N] = {0};
    const double wd = matrix ? 0.1 : 0;
    for (size_t t = 0; t < 2; t++) {
      const float *g = gradient[t];
      const double norm = hypot(w[0], w[1]), slope = hypot((double)g[0], (double)g[1]);
      const double rate = 10 * 0.001 * (matrix ? norm / (slope + wd * norm) : 1);
      for (size_t i = 0; i < N; i++) {
        v[i] = 0.5 * v[i] + rate * ((double)g[i] + wd * w[i]);
        w[i] -= v[i];
      }
    }
    float got[N];
    two_steps(&(weir_optimizer_config){"lars", 0.5, 0, 0.1, false}, 10, matrix, gradient, got);
    for (size_t i = 0; i < N; i++) cr_assert_float_eq((double)got[i], w[i], 2e-6);
  }
}

/* Nothing known of the gradient's length: no division by it. */
Test(optimizer, zero_weights_and_gradients) {
  const float zero[2][N] = {{0, 0}, {0, 0}};
  const char *const names[] = {"sgd", "adamw", "lars", "lamb"};
  for (size_t k = 0; k < 4; k++) {
    float w[N];
    two_steps(&(weir_optimizer_config){names[k], 0.9, 0.99, 0, false}, 0.1, 1, zero, w);
    cr_assert(w[0] == 3 && w[1] == -4, "%s: %g %g", names[k], (double)w[0], (double)w[1]);
  }
}

/* SGD without momentum goes by the rate: 1/4, 2/4, 3/4 and all of it, and a tenth from step 5. */
Test(optimizer, the_learning_rate_warms_up_and_decays) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  const uint64_t decay = 5;
  config.optimizer = (weir_optimizer_config){0};
  config.learning_rate = 0.5;
  config.rate_warmup_steps = 4;
  config.decay_steps = &decay;
  config.decays = 1;
  config.decay_factor = 0.1;
  weir_trainer *t = make(&config, &data);
  size_t count = 0;
  float *w = weir_trainer_weights(t, &count);
  const double rate[] = {0.125, 0.25, 0.375, 0.5, 0.5, 0.05};
  for (size_t s = 0; s < 6; s++) {
    w[0] = 0;
    for (size_t i = 0; i < count; i++) weir_trainer_gradient(t, 0)[i] = 1;
    cr_assert_eq(weir_trainer_update(t, NULL), WEIR_OK);
    cr_assert_float_eq((double)w[0], -rate[s], 1e-6, "step %zu: %g", s, (double)w[0]);
  }
  weir_trainer_free(t);
  weir_dataset_free(&data);
}
