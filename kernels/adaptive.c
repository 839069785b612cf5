/* Steps of adaptive optimizers, and sums of squares of weights and steps, a piece at a time. */
#include "kernels/adaptive.h"

#include "kernels/codec.h"

weir_adam weir_adam_terms(double beta1, double beta2, double epsilon, double weight_decay,
                          uint64_t step) {
  const double next = (double)step + 1;
  return (weir_adam){.beta1 = (float)beta1,
                     .beta2 = (float)beta2,
                     .epsilon = (float)epsilon,
                     .weight_decay = (float)weight_decay,
                     .correct1 = (float)(1 / (1 - pow(beta1, next))),
                     .correct2 = (float)(1 / (1 - pow(beta2, next)))};
}

weir_squares weir_lars_squares(const weir_tensor_piece *p) {
  return (weir_squares){weir_sum_square(p->weight, p->n), weir_sum_square(p->gradient, p->n)};
}

static void steps(const weir_tensor_piece *p, size_t at, size_t n, const weir_adam *terms,
                  float *restrict step) {
  const weir_adam t = *terms;
  const float *restrict w = p->weight + at, *restrict g = p->gradient + at;
  const float *restrict first = p->first + at, *restrict second = p->second + at;
  for (size_t i = 0; i < n; i++) {
    float m = first[i], v = second[i];
    step[i] = weir_adam_step(&m, &v, g[i], w[i], &t);
  }
}

weir_squares weir_lamb_squares(const weir_tensor_piece *p, const weir_adam *terms) {
  weir_squares sum = {weir_sum_square(p->weight, p->n), 0};
  float step[WEIR_ADAPTIVE_WINDOW]; /* stays in the first cache */
  for (size_t at = 0; at < p->n; at += WEIR_ADAPTIVE_WINDOW) {
    const size_t n = p->n - at < WEIR_ADAPTIVE_WINDOW ? p->n - at : WEIR_ADAPTIVE_WINDOW;
    steps(p, at, n, terms, step);
    sum.step += weir_sum_square(step, n);
  }
  return sum;
}

void weir_adam_move(const weir_moved *p, const weir_adam *terms, float rate) {
  const weir_adam t = *terms;
  float *restrict m = p->first, *restrict v = p->second, *restrict w = p->weight;
  const float *restrict g = p->gradient;
  for (size_t i = 0; i < p->n; i++) {
    float first = m[i], second = v[i];
    w[i] -= rate * weir_adam_step(&first, &second, g[i], w[i], &t);
    m[i] = first;
    v[i] = second;
  }
}

void weir_lars_move(const weir_moved *p, float momentum, float weight_decay, float rate) {
  float *restrict v = p->first, *restrict w = p->weight;
  const float *restrict g = p->gradient;
  for (size_t i = 0; i < p->n; i++)
    w[i] = weir_lars_step_of(&v[i], g[i], w[i], momentum, weight_decay, rate);
}

void weir_move(const weir_mover *m) {
  if (m->adam)
    weir_adam_move(&m->piece, &m->terms, m->rate);
  else
    weir_lars_move(&m->piece, m->momentum, m->weight_decay, m->rate);
}
