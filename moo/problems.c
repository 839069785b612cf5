#include "moo/problems.h"

#include <math.h>

static const double pi = 3.14159265358979323846;
#define VARIABLES 30
static const double zeros[VARIABLES] = {0};
static const double ones[VARIABLES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                       1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* The distance function of ZDT1 to ZDT3. */
static double zdt_g(const double *x) {
  double sum = 0.0;
  for (int i = 1; i < VARIABLES; i++) sum += x[i];
  return 1.0 + 9.0 * sum / (VARIABLES - 1);
}

static double zdt1(void *user, const double *x, const uint32_t *category, double *f) {
  (void)user, (void)category;
  const double g = zdt_g(x);
  f[0] = x[0];
  f[1] = g * (1.0 - sqrt(x[0] / g));
  return 0.0;
}

static double zdt2(void *user, const double *x, const uint32_t *category, double *f) {
  (void)user, (void)category;
  const double g = zdt_g(x), ratio = x[0] / g;
  f[0] = x[0];
  f[1] = g * (1.0 - ratio * ratio);
  return 0.0;
}

static double zdt3(void *user, const double *x, const uint32_t *category, double *f) {
  (void)user, (void)category;
  const double g = zdt_g(x), ratio = x[0] / g;
  f[0] = x[0];
  f[1] = g * (1.0 - sqrt(ratio) - ratio * sin(10.0 * pi * x[0]));
  return 0.0;
}

static double zdt6(void *user, const double *x, const uint32_t *category, double *f) {
  (void)user, (void)category;
  double sum = 0.0;
  for (int i = 1; i < 10; i++) sum += x[i];
  const double g = 1.0 + 9.0 * sqrt(sqrt(sum / 9.0));
  const double s = sin(6.0 * pi * x[0]), s2 = s * s;
  f[0] = 1.0 - exp(-4.0 * x[0]) * s2 * s2 * s2;
  const double ratio = f[0] / g;
  f[1] = g * (1.0 - ratio * ratio);
  return 0.0;
}

static double dtlz2(void *user, const double *x, const uint32_t *category, double *f) {
  (void)user, (void)category;
  double g = 0.0;
  for (int i = 2; i < 12; i++) g += (x[i] - 0.5) * (x[i] - 0.5);
  const double a = x[0] * pi / 2.0, b = x[1] * pi / 2.0;
  f[0] = (1.0 + g) * cos(a) * cos(b);
  f[1] = (1.0 + g) * cos(a) * sin(b);
  f[2] = (1.0 + g) * sin(a);
  return 0.0;
}

const weir_moo_benchmark weir_moo_benchmarks[WEIR_MOO_BENCHMARKS] = {
    {"zdt1", {30, zeros, ones, 0, NULL, 2, NULL, zdt1}, {11, 11, 0}, 120.65},
    {"zdt2", {30, zeros, ones, 0, NULL, 2, NULL, zdt2}, {11, 11, 0}, 120.31},
    {"zdt3", {30, zeros, ones, 0, NULL, 2, NULL, zdt3}, {11, 11, 0}, 128.76},
    {"zdt6", {10, zeros, ones, 0, NULL, 2, NULL, zdt6}, {11, 11, 0}, 117.40},
    {"dtlz2", {12, zeros, ones, 0, NULL, 3, NULL, dtlz2}, {2, 2, 2}, 7.35},
};
