/* Milliseconds the planner takes on one core: medians of 5.
 * Usage: bench_planner [PROFILE.csv...] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/fusion.h"
#include "planner/solve.h"

enum { ROUNDS = 5 };

static void check(weir_status status) {
  if (status == WEIR_OK) return;
  fprintf(stderr, "bench_planner: %s\n", weir_last_error());
  exit(1);
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Shapes of a deep network: every third tensor is large, gaps grow with size. */
static weir_profile made(size_t n, weir_rng *rng) {
  weir_profile profile = {n, calloc(n, sizeof *profile.tensors)};
  if (!profile.tensors) exit(1);
  for (size_t i = 0; i < n; i++) {
    const double size = i % 3 ? 64.0 * (1.0 + floor(31.0 * weir_rng_uniform(rng)))
                              : 36864.0 * pow(2.0, floor(6.0 * weir_rng_uniform(rng)));
    profile.tensors[i] = (weir_profile_tensor){
        NULL, size, 5e-6 + size * 4e-10 * (0.5 + weir_rng_uniform(rng))};
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
  size_t groups = 0;
  for (size_t round = 0; round < ROUNDS; round++) {
    weir_fusion fusion;
    const double start = weir_now_s();
    check(weir_fusion_solve(p, h, g, &fusion));
    ms[round] = 1e3 * (weir_now_s() - start);
    gap = 100.0 * (1.0 - fusion.least_s / fusion.iteration_s);
    groups = fusion.groups;
    weir_fusion_free(&fusion);
  }
  qsort(ms, ROUNDS, sizeof *ms, ascending);
  printf("  %-28.28s %5zu  %-18s %10.3f ms  %5zu groups  %.4f %% from the bound\n", name, p->count,
         kind, ms[ROUNDS / 2], groups, gap);
}

static void fuse_all(const char *name, const weir_profile *p, uint64_t seed) {
  static const struct {
    const char *kind;
    double comm_s, per_byte_s;
  } networks[] = {{"10 Gbit/s", 2e-4, 2e-10}, {"100 Gbit/s", 1e-4, 2e-11}, {"1 Gbit/s", 1e-3, 2e-9}};
  double x[2][32], y[2][32];
  weir_rng rng;
  weir_rng_seed(&rng, seed);
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

int main(int argc, char **argv) {
  weir_rng rng;
  weir_rng_seed(&rng, 1);
  const size_t sizes[] = {161, 314, 2000};
  printf("fusion: weir_fusion_solve\n");
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    weir_profile p = made(sizes[k], &rng);
    fuse_all("made", &p, k);
    weir_profile_free(&p);
  }
  for (int k = 1; k < argc; k++) {
    weir_profile p;
    const char *slash = strrchr(argv[k], '/');
    check(weir_profile_load(&p, argv[k]));
    fuse_all(slash ? slash + 1 : argv[k], &p, (uint64_t)k);
    weir_profile_free(&p);
  }
  return 0;
}
