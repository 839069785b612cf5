/* `weir bench kernels`: fitted costs of all codecs, and how far off they are on other sizes. */
#include <math.h>

#include "base/base.h"
#include "bench_kernels.h"

/* Not among those fitted on. */
static const gsize sizes[] = {180000, 300000, 500000, 700000};

static double worst(double so_far, double modelled, double measured) {
  return MAX(so_far, fabs(modelled / measured - 1.0));
}

weir_status weir_kernel_fits(double cr, kernel_fits *out) {
  weir_kernel_cost cost[WEIR_CODEC_COUNT];
  const double start = weir_now_s(), start_cpu = weir_thread_cpu_s();
  weir_status status = weir_kernel_fit_all(cr, WEIR_WIRE_AUTO_BF16, cost);
  out->ms = 1e3 * (weir_now_s() - start);
  out->cpu_ms = 1e3 * (weir_thread_cpu_s() - start_cpu);
  weir_kernel_probe *probe = NULL;
  if (status == WEIR_OK) status = weir_kernel_probe_create(&probe, WEIR_KERNEL_FIT_MOST);
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT && status == WEIR_OK; codec++) {
    kernel_fit *fit = &out->codec[codec];
    *fit = (kernel_fit){.plan = weir_kernel_fit_plan(codec, cr, WEIR_WIRE_AUTO_BF16),
                        .cost = cost[codec]};
    for (gsize i = 0; i < G_N_ELEMENTS(sizes) && status == WEIR_OK; i++) {
      double compress = 0, decode = 0;
      status = weir_kernel_time(probe, &fit->plan, sizes[i], 7, &compress, &decode);
      const weir_kernel_cost *c = &cost[codec];
      const double whole = weir_kernel_seconds(c->compress, sizes[i]) +
                           weir_kernel_seconds(c->decode, sizes[i]);
      fit->error = worst(fit->error, whole, compress + decode);
    }
  }
  weir_kernel_probe_free(probe);
  return status;
}
