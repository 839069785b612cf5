/* `weir bench kernels`: fitted costs of all codecs, and how far off they are on other sizes. */
#include <math.h>

#include "base/base.h"
#include "controller/loop.h"
#include "kernels.h"
#include "kernels/fit_run.h"

const gsize kernel_other_sizes[KERNEL_OTHER_SIZES] = {
    1500, 5000, 20000, 50000, 90000, 180000, 500000, 800000, 2000000, 3500000, 8000000, 25000000};

/* How a size is measured: in passes over all of them, as few runs in turn as a fit has.  Of what is
 * run again and again caches and prefetchers come to know more and more: the twentieth run takes a
 * quarter less than the fifth, and no step of a training is that. */
enum { PASSES = 3 };
static const struct pace {
  gsize to;
  int warm_ups, runs;
} paces[] = {{100000, 2, 5}, {2000000, 6, 4}, {4000000, 2, 3}, {10000000, 1, 3}, {G_MAXSIZE, 1, 2}};

/* What all alternations gave. */
typedef struct series {
  double all[KERNEL_ROUNDS_MAX], all_cpu[KERNEL_ROUNDS_MAX], arms[KERNEL_ROUNDS_MAX]; /* ms */
  struct {
    double ms[KERNEL_ROUNDS_MAX];
    double error[KERNEL_OTHER_SIZES][KERNEL_ROUNDS_MAX];
    double off[KERNEL_OTHER_SIZES][KERNEL_ROUNDS_MAX], noise[KERNEL_OTHER_SIZES][KERNEL_ROUNDS_MAX];
  } codec[WEIR_CODEC_COUNT];
} series;

/* Wall time, buffers and all. */
static weir_status time_all(const kernel_fits *fits, series *s, int round) {
  weir_kernel_cost cost[WEIR_CODEC_COUNT];
  const double start = weir_now_s(), start_cpu = weir_thread_cpu_s();
  const weir_status status =
      weir_kernel_fit_all(fits->cr, WEIR_WIRE_AUTO_BF16, 1e-3 * fits->each_ms, cost);
  s->all[round] = 1e3 * (weir_now_s() - start);
  s->all_cpu[round] = 1e3 * (weir_thread_cpu_s() - start_cpu);
  return status;
}

static gsize plans_of_arms(const kernel_fits *fits, weir_plan plans[WEIR_CODEC_COUNT]) {
  gboolean listed[WEIR_CODEC_COUNT] = {FALSE};
  gsize count = 0;
  for (gsize a = 0; a < WEIR_ARMS; a++) {
    if (listed[weir_arm_at(a)->plan.codec]) continue;
    listed[weir_arm_at(a)->plan.codec] = TRUE;
    plans[count++] = fits->codec[weir_arm_at(a)->plan.codec].plan;
  }
  return count;
}

static weir_status time_arms(kernel_fits *fits, const weir_kernel_wanted *wanted, series *s,
                             int round) {
  weir_kernel_cost cost[WEIR_CODEC_COUNT];
  weir_plan plans[WEIR_CODEC_COUNT];
  weir_kernel_probe *probe = NULL;
  fits->arms = plans_of_arms(fits, plans);
  const double start = weir_now_s();
  weir_status status = weir_kernel_probe_create(&probe, weir_kernel_fit_room(wanted->each_s));
  if (status == WEIR_OK) status = weir_kernel_fit(probe, plans, fits->arms, wanted, cost);
  weir_kernel_probe_free(probe);
  s->arms[round] = 1e3 * (weir_now_s() - start);
  return status;
}

/* The whole of a step at each other size, the largest first: what a smaller one touches is a part
 * of that. */
static weir_status pass(weir_kernel_probe *probe, const weir_plan *plan, gsize most,
                        double seconds[KERNEL_OTHER_SIZES][PASSES], int number) {
  weir_status status = WEIR_OK;
  for (gsize i = KERNEL_OTHER_SIZES; i-- > 0 && status == WEIR_OK;) {
    const gsize n = kernel_other_sizes[i];
    const struct pace *pace = paces;
    double compress = 0, decode = 0;
    if (n > most) continue;
    while (n > pace->to) pace++;
    status = weir_kernel_time(probe, plan, n, pace->warm_ups, pace->runs, &compress, &decode);
    seconds[i][number] = compress + decode;
  }
  return status;
}

static weir_status measure(weir_kernel_probe *probe, const weir_plan *plan, gsize most,
                           double seconds[KERNEL_OTHER_SIZES]) {
  double each[KERNEL_OTHER_SIZES][PASSES] = {{0}};
  weir_status status = WEIR_OK;
  for (int i = 0; i < PASSES && status == WEIR_OK; i++) status = pass(probe, plan, most, each, i);
  for (gsize i = 0; i < KERNEL_OTHER_SIZES; i++) seconds[i] = weir_kernel_midmean(each[i], PASSES);
  return status;
}

/* A codec's fit between two measurements, so that a machine that becomes faster or slower meanwhile
 * does not make the fit wrong, but the two different.  In the same buffers: where some lie makes
 * fp16's decoder twice as slow. */
static weir_status fit_and_check(kernel_fits *fits, guint32 codec, const weir_kernel_wanted *wanted,
                                 gsize most, weir_kernel_probe *probe, series *s, int round) {
  kernel_fit *fit = &fits->codec[codec];
  double before[KERNEL_OTHER_SIZES], after[KERNEL_OTHER_SIZES];
  weir_status status = measure(probe, &fit->plan, most, before);
  const double start = weir_now_s();
  if (status == WEIR_OK) status = weir_kernel_fit(probe, &fit->plan, 1, wanted, &fit->cost);
  s->codec[codec].ms[round] = 1e3 * (weir_now_s() - start);
  if (status == WEIR_OK) status = measure(probe, &fit->plan, most, after);
  for (gsize i = 0; i < KERNEL_OTHER_SIZES && status == WEIR_OK; i++) {
    const gsize n = kernel_other_sizes[i];
    if (n > most) break;
    const double modelled =
        weir_kernel_seconds(&fit->cost.compress, n) + weir_kernel_seconds(&fit->cost.decode, n);
    const double error = modelled / (0.5 * (before[i] + after[i])) - 1.0;
    s->codec[codec].error[i][round] = error;
    s->codec[codec].off[i][round] = fabs(error);
    s->codec[codec].noise[i][round] = fabs(after[i] / before[i] - 1.0);
  }
  return status;
}

static weir_status alternate(kernel_fits *fits, const weir_kernel_wanted *wanted, gsize most,
                             weir_kernel_probe *probe, series *s, int round) {
  weir_status status = time_all(fits, s, round);
  if (status == WEIR_OK) status = time_arms(fits, wanted, s, round);
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT && status == WEIR_OK; codec++)
    status = fit_and_check(fits, codec, wanted, most, probe, s, round);
  return status;
}

static void summarise(kernel_fits *fits, gsize most, series *s) {
  const int rounds = fits->rounds;
  fits->all_ms = weir_kernel_median(s->all, rounds);
  fits->all_most_ms = s->all[rounds - 1]; /* sorted by the median */
  fits->all_cpu_ms = weir_kernel_median(s->all_cpu, rounds);
  fits->arms_ms = weir_kernel_median(s->arms, rounds);
  fits->arms_most_ms = s->arms[rounds - 1];
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    kernel_fit *fit = &fits->codec[codec];
    fit->ms = weir_kernel_median(s->codec[codec].ms, rounds);
    fit->most_ms = s->codec[codec].ms[rounds - 1];
    for (gsize i = 0; i < KERNEL_OTHER_SIZES; i++) {
      const gboolean any = kernel_other_sizes[i] <= most;
      fit->cell[i] =
          (kernel_cell){any ? 1e2 * weir_kernel_median(s->codec[codec].error[i], rounds) : NAN,
                        any ? 1e2 * weir_kernel_median(s->codec[codec].off[i], rounds) : NAN,
                        any ? 1e2 * weir_kernel_median(s->codec[codec].noise[i], rounds) : NAN};
    }
  }
}

weir_status weir_kernel_fits(double cr, gsize most, double each_ms, int rounds, kernel_fits *out) {
  const weir_kernel_wanted wanted = {1, SIZE_MAX, WEIR_KERNEL_RUNS, 1e-3 * each_ms};
  weir_kernel_probe *probe = NULL;
  g_autofree series *s = g_new0(series, 1);
  *out = (kernel_fits){.cr = cr, .each_ms = each_ms, .rounds = rounds};
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT; codec++)
    out->codec[codec].plan = weir_kernel_fit_plan(codec, cr, WEIR_WIRE_AUTO_BF16);
  weir_status status =
      weir_kernel_probe_create(&probe, MAX(most, weir_kernel_fit_room(wanted.each_s)));
  for (int round = 0; round < rounds && status == WEIR_OK; round++)
    status = alternate(out, &wanted, most, probe, s, round);
  if (status == WEIR_OK) summarise(out, most, s);
  weir_kernel_probe_free(probe);
  return status;
}
