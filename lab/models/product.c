#include "lab/models/product.h"

#include <dnnl.h>
#include <math.h>

#include "base/base.h"
#include "lab/pace.h"

/* Of oneDNN's OpenMP runtime; declared here because <omp.h> is one compiler's own. */
void omp_set_num_threads(int threads);

void weir_product_threads(int threads) { omp_set_num_threads(threads); }

/* When the other processor begins: now, or when it was through with what came before. */
static double begin_s(weir_pace_of *pace) {
  const double late_s = pace->late_s;
  pace->late_s = 0;
  return weir_pace_clock(pace->virtual_time) - late_s;
}

weir_status weir_product_run(weir_pace_of *pace, const weir_product *p) {
  const double begin = begin_s(pace);
  const dnnl_status_t status = dnnl_sgemm(
      p->a.transposed ? 'T' : 'N', p->b.transposed ? 'T' : 'N', (dnnl_dim_t)p->m, (dnnl_dim_t)p->n,
      (dnnl_dim_t)p->k, p->alpha != 0 ? p->alpha : 1.0f, p->a.at, (dnnl_dim_t)p->a.stride, p->b.at,
      (dnnl_dim_t)p->b.stride, p->beta, p->c, (dnnl_dim_t)(p->stride ? p->stride : p->n));
  const double operations = 2.0 * (double)p->m * (double)p->n * (double)p->k;
  pace->late_s = weir_pace(pace->virtual_time, begin, fmax(p->least_s, operations * pace->flop_s));
  if (status == dnnl_out_of_memory) return weir_fail(WEIR_E_NOMEM, "oneDNN: no memory");
  if (status != dnnl_success)
    return weir_fail(WEIR_E_INTERNAL, "oneDNN: matrix product failed with status %d", (int)status);
  return WEIR_OK;
}
