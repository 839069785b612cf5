/* The parts of powersgd, device against scalar. */

#include "kernels/powersgd.h"
#include "parity.h"

enum { MOST = 120000, RANK = 7, THIN = 40000 };
/* Around warps, lanes, stripes of 512 rows and blocks of 256 columns. */
static const size_t shapes[][2] = {{0, 3},   {2, 2},     {5, 3},    {1000, 7},  {17, 1000},
                                   {64, 64}, {512, 100}, {513, 33}, {2000, 51}, {3, 33331}};
#define SHAPE_COUNT (sizeof shapes / sizeof shapes[0])

typedef struct arrays {
  float *m, *p, *q, *got, *wanted;
} arrays;

static arrays make_arrays(void) {
  return (arrays){.m = array(MOST, sizeof(float)),
                  .p = array(RANK * THIN, sizeof(float)),
                  .q = array(RANK * THIN, sizeof(float)),
                  .got = array(RANK * THIN, sizeof(float)),
                  .wanted = array(RANK * THIN, sizeof(float))};
}

static void free_arrays(arrays a) {
  free(a.m);
  free(a.p);
  free(a.q);
  free(a.got);
  free(a.wanted);
}

/* M^T P beyond a stripe: rows roundings of half a unit each, in either order. */
static void check_back(const arrays *a, size_t rows, size_t columns, size_t rank) {
  if (rows <= 512) {
    same_floats(a->got, a->wanted, rank * columns, "projected back");
    return;
  }
  for (size_t k = 0; k < rank; k++) {
    for (size_t j = 0; j < columns; j++) {
      double magnitude = 0.0;
      for (size_t i = 0; i < rows; i++)
        magnitude += fabs((double)a->m[i * columns + j] * (double)a->p[k * rows + i]);
      size_t at = k * columns + j;
      cr_assert(
          fabs((double)a->got[at] - (double)a->wanted[at]) <= (double)rows * 0x1p-23 * magnitude,
          "column %zu of %zu x %zu: %a, not %a", j, rows, columns, (double)a->got[at],
          (double)a->wanted[at]);
    }
  }
}

static void check_products(weir_cuda *cuda, arrays *a, size_t rows, size_t columns, size_t rank,
                           size_t skew) {
  const size_t stride = columns + 5;
  LENT device_buffer m = put(cuda, a->m, rows * columns * sizeof(float), skew);
  LENT device_buffer p = put(cuda, a->p, rank * rows * sizeof(float), 4);
  LENT device_buffer q = put(cuda, a->q, rank * stride * sizeof(float), skew);
  must(weir_cuda_powersgd_project(cuda, m.data, rows, columns, q.data, stride, rank, p.data));
  weir_powersgd_project(a->m, rows, columns, a->q, stride, rank, a->p);
  get(cuda, a->got, p, rank * rows * sizeof(float));
  same_floats(a->got, a->p, rank * rows, "projected");
  must(weir_cuda_powersgd_project_back(cuda, m.data, rows, columns, p.data, rank, q.data));
  weir_powersgd_project_back(a->m, rows, columns, a->p, rank, a->wanted);
  get(cuda, a->got, q, rank * columns * sizeof(float));
  check_back(a, rows, columns, rank);
  for (int subtract = 0; subtract < 2; subtract++) {
    must(weir_cuda_powersgd_expand(cuda, p.data, rows, q.data, columns, rank, m.data,
                                   subtract == 0));
    weir_powersgd_expand(a->p, rows, a->got, columns, rank, a->m, subtract == 0);
    FREED float *back = array(rows * columns, sizeof *back);
    get(cuda, back, m, rows * columns * sizeof(float));
    same_floats(back, a->m, rows * columns, "expanded");
  }
}

Test(parity_powersgd, products_are_equal) {
  static const size_t ranks[] = {1, 3, 4, RANK};
  static const int data[] = {0, 2, 6, 3};
  OPENED weir_cuda *cuda = open_cuda(MOST, 0);
  weir_rng rng = weir_rng_of(61);
  arrays a = make_arrays();
  for (size_t s = 0; s < SHAPE_COUNT; s++) {
    for (size_t r = 0; r < 4; r++) {
      size_t numel = shapes[s][0] * shapes[s][1];
      fill_shape(&rng, data[(s + r) % 4], a.m, numel);
      fill_shape(&rng, 0, a.q, ranks[r] * (shapes[s][1] + 5));
      check_products(cuda, &a, shapes[s][0], shapes[s][1], ranks[r], 4 * (r % 4));
    }
  }
  free_arrays(a);
}

Test(parity_powersgd, errors_are_told_at_once) {
  OPENED weir_cuda *cuda = open_cuda(100, 0);
  cr_assert_eq(weir_cuda_powersgd_project(cuda, NULL, 10, 10, NULL, 10, 0, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_powersgd_project(cuda, NULL, 10, 10, NULL, 10, 65, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_cuda_powersgd_project(cuda, NULL, 10, 11, NULL, 11, 1, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_cuda_powersgd_project_back(cuda, NULL, 11, 10, NULL, 1, NULL), WEIR_E_STATE);
  cr_assert_eq(weir_cuda_powersgd_expand(cuda, NULL, 11, NULL, 10, 1, NULL, false), WEIR_E_STATE);
  cr_assert_eq(weir_cuda_powersgd_expand(cuda, NULL, SIZE_MAX / 2, NULL, 3, 1, NULL, false),
               WEIR_E_UNSUPPORTED);
  must(weir_cuda_wait(cuda));
}
