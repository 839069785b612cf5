/* Milliseconds of processor time the planner takes: medians of 3; and how its answers compare.
 * Usage: bench_planner [PROFILE.csv...] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/codec.h"
#include "planner/fusion.h"
#include "planner/solve.h"
#include "planner/strategy.h"

enum { ROUNDS = 3 };

static void check(weir_status status) {
  if (status == WEIR_OK) return;
  fprintf(stderr, "bench_planner: %s\n", weir_last_error());
  exit(1);
}

/* Shapes of a deep network: every third tensor is large, gaps grow with size. */
static weir_profile made(size_t n, weir_rng *rng) {
  weir_profile profile = {n, calloc(n, sizeof *profile.tensors)};
  if (!profile.tensors) exit(1);
  for (size_t i = 0; i < n; i++) {
    const double size = i % 3 ? 64.0 * (1.0 + floor(31.0 * weir_rng_uniform(rng)))
                              : 36864.0 * pow(2.0, floor(6.0 * weir_rng_uniform(rng)));
    profile.tensors[i] =
        (weir_profile_tensor){NULL, size, 5e-6 + size * 4e-10 * (0.5 + weir_rng_uniform(rng))};
  }
  return profile;
}

/* An affine curve with steps and wobble on it, measured at powers of two. */
static weir_curve measured(double fixed, double per_byte, weir_rng *rng, double bytes[32],
                           double seconds[32]) {
  double most = 0.0;
  for (size_t i = 0; i < 32; i++) {
    bytes[i] = pow(2.0, (double)i);
    const double time = (fixed + per_byte * bytes[i]) * (0.8 + 0.4 * weir_rng_uniform(rng));
    seconds[i] = most = fmax(most, time);
  }
  return (weir_curve){.count = 32, .bytes = bytes, .seconds = seconds};
}

static void fuse(const char *name, const weir_profile *p, const char *kind, const weir_curve *h,
                 const weir_curve *g) {
  double ms[ROUNDS], gap = 0.0;
  size_t buckets = 0;
  for (size_t round = 0; round < ROUNDS; round++) {
    weir_fusion fusion;
    const double start = weir_thread_cpu_s();
    check(weir_fusion_solve(p, h, g, &fusion));
    ms[round] = 1e3 * (weir_thread_cpu_s() - start);
    gap = 100.0 * (1.0 - fusion.least_s / fusion.iteration_s);
    buckets = fusion.buckets;
    weir_fusion_free(&fusion);
  }
  weir_sort(ms, ROUNDS);
  printf("  %-20.20s %5zu  %-18s %10.3f ms  %5zu buckets  %.4f %% from the bound\n", name, p->count,
         kind, ms[ROUNDS / 2], buckets, gap);
}

static void fuse_all(const char *name, const weir_profile *p, uint64_t seed) {
  static const struct {
    const char *kind;
    double comm_s, per_byte_s;
  } networks[] = {
      {"10 Gbit/s", 2e-4, 2e-10}, {"100 Gbit/s", 1e-4, 2e-11}, {"1 Gbit/s", 1e-3, 2e-9}};
  double x[2][32], y[2][32];
  weir_rng rng = weir_rng_of(seed);
  for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
    char kind[64];
    const weir_curve h = {.fixed_s = 1e-4, .per_byte_s = 5e-12};
    const weir_curve g = {.fixed_s = networks[k].comm_s, .per_byte_s = networks[k].per_byte_s};
    (void)snprintf(kind, sizeof kind, "affine %s", networks[k].kind);
    fuse(name, p, kind, &h, &g);
    const weir_curve mh = measured(h.fixed_s, h.per_byte_s, &rng, x[0], y[0]);
    const weir_curve mg = measured(g.fixed_s, g.per_byte_s, &rng, x[1], y[1]);
    (void)snprintf(kind, sizeof kind, "measured %s", networks[k].kind);
    fuse(name, p, kind, &mh, &mg);
  }
}

static double median(double ms[ROUNDS]) {
  weir_sort(ms, ROUNDS);
  return ms[ROUNDS / 2];
}

/* Live rows of 8 workers: dense by ring and tree, 16-bit, top-k and STAR-Topk on the caller or
 * beside. */
static void join(const char *name, const weir_profile *p) {
  static const char *const plans[] = {"none:1:dense-ring",
                                      "none:1:dense-tree",
                                      "bf16:1:dense-ring",
                                      "topk:0.01:ag:auto-bf16",
                                      "star:0.01:art-ring:auto-bf16",
                                      "star:0.01:art-tree:auto-bf16"};
  static const double networks[][2] = {{1e-4, 25e9}, {1e-3, 1e9}, {5e-2, 1e9}};
  enum { PLANS = sizeof plans / sizeof *plans };
  double bytes = 0.0;
  for (size_t i = 0; i < p->count; i++) bytes += weir_profile_bytes(p, i);
  for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
    weir_solve_row rows[2 * PLANS];
    double ms[ROUNDS], gap = 0.0;
    size_t buckets = 0;
    for (size_t r = 0; r < 2 * PLANS; r++) {
      weir_plan plan = {0};
      check(weir_plan_parse(plans[r / 2], &plan));
      const weir_codec *codec = weir_codec_find(plan.codec);
      const double slope = !codec->dense ? 0.5e-9 : codec->rounds ? 0.2e-9 : 0.1e-9;
      const weir_link link = {.alpha = networks[k][0], .beta = 8.0 / networks[k][1]};
      rows[r] = (weir_solve_row){.compress = {.fixed_s = 2e-5, .per_byte_s = slope},
                                 .exchange = weir_solve_exchange(
                                     &plan, (weir_group_shape){8, 8, false, 0, 0}, &link, bytes),
                                 .beside = r % 2};
      rows[r].exchange.fixed_s += 1e-5; /* decoding */
      rows[r].exchange.per_byte_s += 1e-10;
    }
    for (size_t round = 0; round < ROUNDS; round++) {
      weir_solution s;
      const double start = weir_thread_cpu_s();
      check(weir_solve(p, rows, 2 * PLANS, NULL, &s));
      ms[round] = 1e3 * (weir_thread_cpu_s() - start);
      gap = 100.0 * (1.0 - s.least_s / s.step_s);
      buckets = s.count;
      weir_solution_free(&s);
    }
    printf(
        "  %-20.20s %5zu  %4g ms, %3g Gbit/s %8.3f ms  %4zu buckets  at most %.2f %% above the "
        "optimum\n",
        name, p->count, networks[k][0] * 1e3, networks[k][1] * 1e-9, median(ms), buckets, gap);
  }
}

static void decide(const char *name, const weir_profile *p) {
  for (size_t net = 0; net < 4; net++) {
    weir_cluster c = {.machines = 8,
                      .per_machine = 8,
                      .intra_alpha_s = 1e-5,
                      .intra_beta_s = net & 1 ? 1.0 / 12e9 : 1.0 / 125e9,
                      .inter_alpha_s = 3e-5,
                      .inter_beta_s = net & 2 ? 8.0 / 25e9 : 8.0 / 100e9,
                      .cpu_cores = 4,
                      .codecs = 1};
    c.codec[0] = (weir_cluster_codec){
        "dgc",
        0.02,
        {{.fixed_s = 5e-5, .per_byte_s = 5e-11}, {.fixed_s = 2e-5, .per_byte_s = 5e-10}},
        {{.fixed_s = 3e-5, .per_byte_s = 2e-11}, {.fixed_s = 2e-5, .per_byte_s = 2.5e-10}}};
    double ms[ROUNDS], fused_ms[ROUNDS], fused_s = 0.0;
    weir_strategy_report r;
    for (size_t round = 0; round < ROUNDS; round++) {
      weir_strategy_fusion f;
      const double start = weir_thread_cpu_s();
      check(weir_strategy_fuse(p, &c, NULL, &f));
      fused_ms[round] = 1e3 * (weir_thread_cpu_s() - start);
      fused_s = f.report.by[WEIR_STRATEGY_WEIR].iteration_s;
      weir_strategy_fusion_free(&f);
    }
    for (size_t round = 0; round < ROUNDS; round++) {
      const weir_strategy_limits alone = {.work = WEIR_STRATEGY_WORK}; /* without the bound */
      const double start = weir_thread_cpu_s();
      check(weir_strategy_solve(p, &c, &alone, &r));
      ms[round] = 1e3 * (weir_thread_cpu_s() - start);
      if (round + 1 < ROUNDS) weir_strategy_report_free(&r);
    }
    printf("  %-14.14s %4zu  %s, %3d Gbit/s %7.2f ms ", name, p->count,
           net & 1 ? "PCIe  " : "NVLink", net & 2 ? 25 : 100, median(ms));
    for (weir_strategy_method m = WEIR_STRATEGY_NONE; m <= WEIR_STRATEGY_WEIR; m++)
      if (r.by[m].count)
        printf(" %s %.2f%s", weir_strategy_name(m), 1e3 * r.by[m].iteration_s,
               m < WEIR_STRATEGY_WEIR ? "," : "");
    printf("; fused in %.2f ms: %.2f\n", median(fused_ms), 1e3 * fused_s);
    weir_strategy_report_free(&r);
  }
}

static void fuse_one(const char *name, const weir_profile *p, int k) {
  fuse_all(name, p, (uint64_t)k);
}
static void join_one(const char *name, const weir_profile *p, int k) {
  (void)k;
  join(name, p);
}
static void decide_one(const char *name, const weir_profile *p, int k) {
  (void)k;
  decide(name, p);
}

static void each(const char *path, int k,
                 void (*act)(const char *name, const weir_profile *p, int k)) {
  const char *slash = strrchr(path, '/');
  weir_profile p;
  check(weir_profile_load(&p, path));
  act(slash ? slash + 1 : path, &p, k);
  weir_profile_free(&p);
}

int main(int argc, char **argv) {
  weir_rng rng = weir_rng_of(1);
  (void)setvbuf(stdout, NULL, _IOLBF, 0);
  const size_t sizes[] = {161, 314, 2000};
  printf("fusion: weir_fusion_solve\n");
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    weir_profile p = made(sizes[k], &rng);
    fuse_all("made", &p, k);
    weir_profile_free(&p);
  }
  for (int k = 1; k < argc; k++) each(argv[k], k, fuse_one);
  printf("fusion and rows together: weir_solve, 12 rows\n");
  weir_profile deep = made(161, &rng);
  join("made", &deep);
  weir_profile_free(&deep);
  for (int k = 1; k < argc; k++) each(argv[k], k, join_one);
  printf("strategies: weir_strategy_solve; iterations in ms\n");
  for (int k = 1; k < argc; k++) each(argv[k], k, decide_one);
  return 0;
}
