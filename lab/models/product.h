/* Matrix products of the lab's models: oneDNN's, as if a processor of a given speed
 * computed them. */
#ifndef WEIR_LAB_MODELS_PRODUCT_H
#define WEIR_LAB_MODELS_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/status.h>

/* As if another processor computed: a product takes flop_s an operation (a multiplication or an
 * addition) at least; what this processor is faster by is waited for. */
typedef struct weir_pace_of {
  double layer_s; /* and a layer's products so long forward, twice that backward; see mlp.h */
  double flop_s;
  double late_s;     /* behind the other processor, which has gone on; of one pass.  A product that
                      * has no time of its own adds what it takes to it. */
  bool virtual_time; /* the thread's processor time: nothing is waited for, it passes at once */
} weir_pace_of;

/* op(matrix): row-major, `stride` floats a row, transposed or not. */
typedef struct weir_operand {
  const float *at;
  size_t stride;
  bool transposed;
} weir_operand;

/* c (m x n, row-major) = alpha op(a) op(b) + beta c; op(a) is m x k, op(b) k x n. */
typedef struct weir_product {
  size_t m, n, k;
  weir_operand a, b;
  float *c;
  size_t stride; /* of c; 0: n */
  float alpha;   /* 0: 1 */
  float beta;
  double least_s;
} weir_product;

weir_status weir_product_run(weir_pace_of *pace, const weir_product *product);
/* How many threads the products of the calling thread run on. */
void weir_product_threads(int threads);

#endif
