/* Clipping, momentum correction and warm-up, by hand. */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/codec.h"
#include "kernels/decorate.h"

Test(kernels_decorate, clipping_by_hand) {
  /* Norm 5 to 2.5 is half; 5 to 5 and to 6 is nothing; four ranks get half of the limit each. */
  float g[3] = {3, 0, -4};
  const double square = weir_sum_square(g, 3);
  cr_assert(square == 25.0);
  cr_assert(weir_clip_factor(square, 2.5) == 0.5F);
  cr_assert(weir_clip_factor(square, 5) == 1.0F && weir_clip_factor(square, 6) == 1.0F);
  cr_assert(weir_clip_factor(square, 0) == 1.0F);
  cr_assert(weir_clip_factor(0, 1) == 1.0F);
  cr_assert(weir_clip_factor(INFINITY, 1) == 1.0F && weir_clip_factor(NAN, 1) == 1.0F);
  cr_assert(weir_clip_share(5, 4) == 2.5 && weir_clip_share(5, 1) == 5);
  weir_scale(g, 3, weir_clip_factor(square, weir_clip_share(5, 4)));
  cr_assert(g[0] == 1.5F && g[1] == 0 && g[2] == -2);
}

/* u = u / 2 + g from u = 0 with g = 4: 4, 6, 7, 7.5, ...; after masking it starts again. */
Test(kernels_decorate, momentum_by_hand) {
  const float g[2] = {4, -8};
  float u[2] = {0, 0};
  static const float want[] = {4, 6, 7, 7.5F};
  for (size_t step = 0; step < 4; step++) {
    weir_momentum_correct(g, u, u, 2, 0.5F);
    cr_assert(u[0] == want[step] && u[1] == -2 * want[step]);
  }
  const uint32_t sent = 1;
  weir_scatter_zero(u, &sent, 1);
  weir_momentum_correct(g, u, u, 2, 0.5F);
  cr_assert(u[0] == 7.75F && u[1] == -8);
  weir_momentum_correct(g, u, u, 2, 0); /* no momentum: the gradient */
  cr_assert(u[0] == 4 && u[1] == -8);
}

/* The paper's: 25 %, 6.25 %, 1.5625 % and 0.390625 % for an epoch each (here of 100 steps), then
 * 0.1 %. */
Test(kernels_decorate, warm_up_of_the_paper) {
  static const struct {
    uint64_t step;
    double cr;
  } rows[] = {{0, 0.25},       {99, 0.25},         {100, 0.0625},     {199, 0.0625},
              {200, 0.015625}, {299, 0.015625},    {300, 0.00390625}, {399, 0.00390625},
              {400, 0.001},    {UINT64_MAX, 0.001}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    cr_assert(weir_warmup_ratio(0.001, rows[i].step, 400, 4, 0.25) == rows[i].cr, "step %d",
              (int)rows[i].step);
  /* Never below what the plan keeps; none without steps or stages. */
  cr_assert(weir_warmup_ratio(0.1, 100, 400, 4, 0.25) == 0.1);
  cr_assert(weir_warmup_ratio(0.01, 0, 0, 4, 0.25) == 0.01);
  cr_assert(weir_warmup_ratio(0.01, 0, 10, 0, 0.25) == 0.01);
}
