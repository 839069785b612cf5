/* Steps of the engine by the ranks of a crowd: the same bits on all of them, and nothing lost. */
#ifndef WEIR_TESTS_NCCL_STEPS_H
#define WEIR_TESTS_NCCL_STEPS_H

#include "crowd.h"

/* What a rank's latest step came to: the average, and the residual before and after. */
static struct { float update[N], before[N], after[N]; } stepped[MOST];

/* Ranks * update + residuals after = sum of gradients and residuals before, up to
 * fp32's rounding. */
static inline weir_status check_step(const rank *r, int step, const char *plan) {
  if (memcmp(stepped[r->rank].update, stepped[0].update, sizeof stepped[0].update) != 0)
    return weir_fail(WEIR_E_INTERNAL, "%s, step %d: other bits than rank 0", plan, step);
  for (size_t i = 0; i < N; i++) {
    double in = 0, out = r->size * (double)stepped[0].update[i], size = 20 * r->size;
    for (int q = 0; q < r->size; q++) {
      in += (double)stepped[q].before[i] + (double)input_at(q, i + (size_t)step);
      out += (double)stepped[q].after[i];
      size += fabs((double)stepped[q].before[i]) + fabs((double)stepped[q].after[i]);
    }
    if (!(fabs(in - out) <= 1e-6 * size))
      return weir_fail(WEIR_E_INTERNAL, "%s, step %d, element %zu: %g came in, %g went out", plan,
                       step, i, in, out);
  }
  return WEIR_OK;
}

/* The gradient is of that many tensors, which begin at these elements. */
static inline weir_status one_step(rank *r, weir_engine *engine, size_t tensors,
                                   const size_t *offset, int step, const char *plan) {
  float *mine = stepped[r->rank].update;
  for (size_t i = 0; i < N; i++) mine[i] = input_at(r->rank, i + (size_t)step);
  weir_status status = weir_engine_step_begin(engine, NULL);
  if (status == WEIR_OK)
    memcpy(stepped[r->rank].before, weir_engine_residual(engine), N * sizeof *mine);
  for (size_t t = 0; t < tensors && status == WEIR_OK; t++)
    status = weir_engine_submit(engine, t, mine + offset[t]);
  if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
  if (status == WEIR_OK)
    memcpy(stepped[r->rank].after, weir_engine_residual(engine), N * sizeof *mine);
  pthread_barrier_wait(&r->crowd->barrier);
  if (status == WEIR_OK) status = check_step(r, step, plan);
  pthread_barrier_wait(&r->crowd->barrier);
  return status;
}

#endif
