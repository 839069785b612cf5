/* `weir bench kernels`: the results as JSON and as a table. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"
#include "kernels/cpu/cpu.h"
#include "lab/doc.h"

static void put_peer(weir_doc *builder, const char *name, double ms, const char *absent) {
  weir_doc_object(builder, name);
  if (ms >= 0)
    weir_doc_number(builder, "ms", ms);
  else
    weir_doc_text(builder, "absent", absent);
  weir_doc_end(builder);
}

static void put_curve(weir_doc *builder, const char *name, const weir_kernel_curve *curve) {
  weir_doc_list(builder, name);
  for (gsize knot = 1; knot < curve->knots; knot++) {
    const weir_kernel_line line = weir_kernel_line_at(curve, curve->n[knot]);
    weir_doc_object(builder, NULL);
    weir_doc_number(builder, "alpha_us", 1e6 * line.alpha);
    weir_doc_number(builder, "beta_ns", 1e9 * line.beta);
    weir_doc_number(builder, "up_to", (double)curve->n[knot]);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
}

/* A cell that differs from itself by more than the bound says nothing, however small its error. */
typedef enum verdict { WITHIN, OFF, CANNOT_TELL } verdict;
static const char *const verdict_names[] = {"within", "off", "cannot tell"};
static const char verdict_marks[] = {' ', '*', '~'};

static verdict verdict_of(const kernel_cell *cell) {
  if (cell->noise > KERNEL_FIT_BOUND) return CANNOT_TELL;
  return fabs(cell->error) > KERNEL_FIT_BOUND ? OFF : WITHIN;
}

/* Cells of each verdict, and of those that cannot tell the ones whose error is beyond the bound. */
typedef struct tally {
  int cells, of[3], unclear_off;
} tally;

static tally tally_of(const kernel_fits *fits) {
  tally t = {0};
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    for (gsize i = 0; i < KERNEL_OTHER_SIZES; i++) {
      const kernel_cell *cell = &fits->codec[codec].cell[i];
      if (!isfinite(cell->error)) break;
      t.cells++;
      t.of[verdict_of(cell)]++;
      t.unclear_off += verdict_of(cell) == CANNOT_TELL && fabs(cell->error) > KERNEL_FIT_BOUND;
    }
  }
  return t;
}

static void put_tally(weir_doc *builder, const kernel_fits *fits) {
  const tally t = tally_of(fits);
  weir_doc_number(builder, "fit_bound_pct", KERNEL_FIT_BOUND);
  weir_doc_number(builder, "fit_cells", t.cells);
  weir_doc_number(builder, "fit_cells_off", t.of[OFF]);
  weir_doc_number(builder, "fit_cells_that_cannot_tell", t.of[CANNOT_TELL]);
  weir_doc_number(builder, "fit_cells_that_cannot_tell_off", t.unclear_off);
  weir_doc_text(
      builder, "fit_rule",
      "off: |error_pct| above fit_bound_pct; cannot tell: noise_pct above it, whatever the "
      "error; medians of all rounds, in each of which the size is measured before and after "
      "the fit");
}

static void put_cells(weir_doc *builder, const kernel_fit *fit) {
  weir_doc_list(builder, "errors");
  for (gsize i = 0; i < KERNEL_OTHER_SIZES && isfinite(fit->cell[i].error); i++) {
    weir_doc_object(builder, NULL);
    weir_doc_number(builder, "elements", (double)kernel_other_sizes[i]);
    weir_doc_number(builder, "error_pct", fit->cell[i].error);
    weir_doc_number(builder, "single_pct", fit->cell[i].single);
    weir_doc_number(builder, "noise_pct", fit->cell[i].noise);
    weir_doc_text(builder, "verdict", verdict_names[verdict_of(&fit->cell[i])]);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
}

static void put_fits(weir_doc *builder, const kernel_fits *fits) {
  weir_doc_number(builder, "fit_each_ms", fits->each_ms);
  weir_doc_number(builder, "fit_ms", fits->all_ms);
  weir_doc_number(builder, "fit_cpu_ms", fits->all_cpu_ms);
  weir_doc_number(builder, "fit_slowest_ms", fits->all_most_ms);
  weir_doc_number(builder, "fit_arms_ms", fits->arms_ms);
  weir_doc_number(builder, "fit_arms_slowest_ms", fits->arms_most_ms);
  put_tally(builder, fits);
  weir_doc_list(builder, "fits");
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    const kernel_fit *fit = &fits->codec[codec];
    weir_doc_object(builder, NULL);
    weir_doc_text(builder, "codec", weir_codec_name(codec));
    weir_doc_number(builder, "cr", fit->plan.cr);
    weir_doc_number(builder, "ms", fit->ms);
    weir_doc_number(builder, "slowest_ms", fit->most_ms);
    put_curve(builder, "compress", &fit->cost.compress);
    put_curve(builder, "decode", &fit->cost.decode);
    put_cells(builder, fit);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
}

void weir_kernel_print_json(const kernel_bench *b, const kernel_result *r) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_text(builder, "cpu", weir_cpu()->name);
  weir_doc_number(builder, "elements", (double)b->n);
  weir_doc_number(builder, "rounds", b->rounds);
  weir_doc_number(builder, "cr", b->cr);
  weir_doc_text(builder, "gradients", r->gradients);
  put_peer(builder, "nth_element", r->nth_element_ms, r->no_nth_element);
  put_peer(builder, "torch.topk", r->torch_ms, r->no_torch);
  weir_doc_list(builder, "ratios");
  for (guint i = 0; i < r->ratios->len; i++) {
    const kernel_ratio *one = &g_array_index(r->ratios, kernel_ratio, i);
    weir_doc_object(builder, NULL);
    weir_doc_text(builder, "name", one->name);
    weir_doc_number(builder, "value", one->value);
    weir_doc_number(builder, "bound", one->bound);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
  put_fits(builder, &r->fits);
  weir_doc_list(builder, "rows");
  for (guint i = 0; i < r->rows->len; i++) {
    const kernel_row *row = &g_array_index(r->rows, kernel_row, i);
    weir_doc_object(builder, NULL);
    weir_doc_text(builder, "name", row->name);
    weir_doc_text(builder, "data", kernel_data_names[row->data]);
    weir_doc_number(builder, "ms", row->median);
    weir_doc_number(builder, "least_ms", row->least);
    if (row->bytes_each > 0) weir_doc_number(builder, "bytes_each", row->bytes_each);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
  weir_doc_print(builder);
}

static void print_cells(const kernel_fits *fits) {
  const tally t = tally_of(fits);
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    const kernel_fit *fit = &fits->codec[codec];
    printf("%-15s %8g %6.1f", weir_codec_name(codec), fit->plan.cr, fit->ms);
    for (gsize i = 0; i < KERNEL_OTHER_SIZES && isfinite(fit->cell[i].error); i++) {
      const kernel_cell *cell = &fit->cell[i];
      printf(" %+6.1f%c%3.0f", cell->error, verdict_marks[verdict_of(cell)], cell->noise);
    }
    printf("\n");
  }
  printf(
      "# of %d, %d are off by more than %g %% (*); %d differ from themselves by more and cannot "
      "tell (~), %d of these are off\n",
      t.cells, t.of[OFF], KERNEL_FIT_BOUND, t.of[CANNOT_TELL], t.unclear_off);
}

static void print_fits(const kernel_fits *fits) {
  printf(
      "\n# times fitted, each with %g ms for sizes in memory: all codecs in %.0f ms (%.0f of "
      "processor time, %.0f the slowest), a controller's %d in %.0f (%.0f)\n"
      "# modelled over measured on other sizes, thousands of elements, and measured after a fit "
      "over "
      "measured before, %%, medians of %d\n"
      "%-15s %8s %6s",
      fits->each_ms, fits->all_ms, fits->all_cpu_ms, fits->all_most_ms, (int)fits->arms,
      fits->arms_ms, fits->arms_most_ms, fits->rounds, "codec", "cr", "fit ms");
  for (gsize i = 0; i < KERNEL_OTHER_SIZES; i++)
    printf(" %7g+-%%", (double)kernel_other_sizes[i] / 1e3);
  printf("\n");
  print_cells(fits);
}

void weir_kernel_print_table(const kernel_bench *b, const kernel_result *r) {
  printf("# %" G_GSIZE_FORMAT
         " floats, one core, %s, processor time, median of %d; gradients: %s\n",
         b->n, weir_cpu()->name, b->rounds, r->gradients);
  printf("%-10s %-36s %10s %10s %10s %9s\n", "data", "", "ms", "least ms", "/ read", "B/kept");
  double read = 0;
  for (guint i = 0; i < r->rows->len; i++) {
    const kernel_row *row = &g_array_index(r->rows, kernel_row, i);
    if (strcmp(row->name, "read") == 0) read = row->median;
    printf("%-10s %-36s %10.3f %10.3f %10.2f", kernel_data_names[row->data], row->name, row->median,
           row->least, row->median / read);
    if (row->bytes_each > 0) printf(" %9.3f", row->bytes_each);
    printf("\n");
  }
  if (r->nth_element_ms >= 0)
    printf("%-10s %-36s %10.3f\n", "normal", "std::nth_element", r->nth_element_ms);
  else
    printf("# no std::nth_element: %s\n", r->no_nth_element);
  if (r->torch_ms >= 0)
    printf("%-10s %-36s %10.3f\n", "normal", "torch.topk, one thread", r->torch_ms);
  else
    printf("# no torch.topk: %s\n", r->no_torch);
  printf("\n%-52s %10s %10s\n", "ratio", "", "at most");
  for (guint i = 0; i < r->ratios->len; i++) {
    const kernel_ratio *one = &g_array_index(r->ratios, kernel_ratio, i);
    printf("%-52s %10.4f %10.4f%s\n", one->name, one->value, one->bound,
           one->bound > 0 && one->value > one->bound ? "  over" : "");
  }
  print_fits(&r->fits);
}
