/* `weir bench kernels`: what compressing costs on one core, beside what merely moving the data
 * costs and beside what else selects the largest.  Medians of processor time, for other work on the
 * machine is none of the kernels'; ratios of medians, both sides measured in turn where a row has
 * what it is compared with beside it. */
#include "kernels.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "cli.h"
#include "kernels/cpu/cpu.h"
#include "kernels/entropy.h"

typedef struct arguments {
  gint64 elements;
  int rounds;
  double cr, fit_ms;
  char *cpu;
  gboolean no_peers, fits, json;
} arguments;

static const kernel_row *find(const kernel_result *r, kernel_data data, const char *format,
                              double cr) {
  g_autofree char *name = g_strdup_printf(format, cr);
  for (guint i = 0; i < r->rows->len; i++) {
    const kernel_row *row = &g_array_index(r->rows, kernel_row, i);
    if (row->data == data && strcmp(row->name, name) == 0) return row;
  }
  return NULL;
}

static const kernel_row *find_wire(const kernel_result *r, const char *what, const char *format,
                                   double cr) {
  g_autofree char *name = g_strdup_printf("%s %s cr %%g", what, format);
  return find(r, DATA_NORMAL, name, cr);
}

static void put(kernel_result *r, const char *name, double above, double below, double bound) {
  kernel_ratio one = {.value = above / below, .bound = bound};
  (void)g_strlcpy(one.name, name, sizeof one.name);
  g_array_append_val(r->ratios, one);
}

/* Decoding into a gradient writes it once, and adding to one reads and writes it: besides the
 * bound, which is in reads of it, what such a pass takes.  The bounds on bytes hold for 16-bit
 * values. */
static void put_wire(kernel_result *r, double cr, double bound, double read) {
  for (weir_wire_format format = WEIR_WIRE_AUTO_FP32; format < WEIR_WIRE_LISTS; format++) {
    const char *const name = weir_wire_name(format);
    const double bytes = find_wire(r, "encode", name, cr)->bytes_each;
    const double dense = find_wire(r, "decode dense", name, cr)->ratio;
    const kernel_row *const added = find_wire(r, "decode add", name, cr);
    g_autofree char *each = g_strdup_printf("bytes per kept element, %s cr %g", name, cr);
    g_autofree char *stored = g_strdup_printf("decode %s cr %g / read of n floats", name, cr);
    g_autofree char *sum = g_strdup_printf("decode add %s cr %g / read of n floats", name, cr);
    g_autofree char *passes = g_strdup_printf("decode add %s cr %g / scale in place", name, cr);
    if (format != WEIR_WIRE_AUTO_FP32) put(r, each, bytes, 1.0, bound);
    put(r, stored, dense, 1.0, 1.5);
    put(r, sum, added->median, read, 0);
    put(r, passes, added->ratio, 1.0, 1.5);
  }
}

/* What has oneDNN's product beside it. */
static void put_low_rank(kernel_result *r) {
  for (guint i = 0; i < r->rows->len; i++) {
    const kernel_row *row = &g_array_index(r->rows, kernel_row, i);
    if (!g_str_has_prefix(row->name, "low rank")) continue;
    g_autofree char *name = g_strdup_printf("%s / oneDNN", row->name);
    put(r, name, row->ratio, 1.0, 0);
  }
}

static void compare(kernel_result *r, double cr) {
  const double read = find(r, DATA_NORMAL, "read", 0)->median;
  const double copy = find(r, DATA_NORMAL, "copy", 0)->median;
  const double topk = find(r, DATA_NORMAL, "topk cr %g", cr)->median;
  put(r, "topk / read", find(r, DATA_NORMAL, "topk cr %g", cr)->ratio, 1.0, 2.5);
  const double fused = find(r, DATA_NORMAL, "error feedback + topk cr %g", cr)->median;
  put(r, "fused topk / moving 20 bytes as copy does", fused, 2.5 * copy, 1.3);
  put(r, "fused topk / a pass of 20 bytes",
      find(r, DATA_NORMAL, "error feedback + topk cr %g", cr)->ratio, 1.0, 1.3);
  if (r->nth_element_ms > 0) put(r, "topk / nth_element", topk, r->nth_element_ms, 1.0 / 8);
  if (r->torch_ms > 0) put(r, "topk / torch.topk", topk, r->torch_ms, 1.0 / 40);
  for (kernel_data data = DATA_GRADIENT; data < DATA_KINDS; data++) {
    /* Twice what holds for the normal data. */
    g_autofree char *name = g_strdup_printf("topk on %s / read", kernel_data_names[data]);
    g_autofree char *both = g_strdup_printf("fused topk on %s / 20 bytes", kernel_data_names[data]);
    put(r, name, find(r, data, "topk cr %g", cr)->ratio, 1.0, 5.0);
    put(r, both, find(r, data, "error feedback + topk cr %g", cr)->median,
        2.5 * find(r, data, "copy", 0)->median, 2.6);
  }
  put(r, "qsgd 4 bits encode / copy", find(r, DATA_NORMAL, "qsgd 4 bits encode", 0)->ratio, 1.0,
      1.5);
  put(r, "qsgd 4 bits decode / copy", find(r, DATA_NORMAL, "qsgd 4 bits decode", 0)->ratio, 1.0,
      1.5);
  put_wire(r, 0.01, 3.3, read);
  put_wire(r, 0.1, 2.7, read);
  put_low_rank(r);
}

/* --- running -------------------------------------------------------------------------------- */

static weir_status run_data(kernel_bench *b, kernel_data data, kernel_result *r) {
  const char *from = NULL;
  weir_status status = weir_kernel_fill(b, data, &from);
  if (status != WEIR_OK) return status;
  if (from) r->gradients = from;
  GArray *rows = g_array_new(FALSE, TRUE, sizeof(kernel_row));
  weir_kernel_rows(rows, data, b->cr);
  status = weir_kernel_measure(b, rows);
  if (status == WEIR_OK) g_array_append_vals(r->rows, rows->data, rows->len);
  g_array_free(rows, TRUE);
  return status;
}

static weir_status run_all(kernel_bench *b, const arguments *a, kernel_result *r) {
  r->nth_element_ms = r->torch_ms = -1.0;
  r->no_nth_element = r->gradients = "not asked for";
  if (a->fits) {
    r->no_torch = g_strdup("not asked for");
    return weir_kernel_fits(b->cr, b->n, b->fit_ms, b->rounds, &r->fits);
  }
  const double begin_s = weir_now_s();
  cli_progress("weir bench kernels", 0, begin_s);
  for (kernel_data data = 0; data < DATA_KINDS; data++) {
    const weir_status status = run_data(b, data, r);
    cli_progress("weir bench kernels", (data + 1.0) / DATA_KINDS, begin_s);
    if (status != WEIR_OK) return status;
    if (data != DATA_NORMAL) continue;
    const gsize offset[2] = {0, b->n};
    const weir_layout layout = {1, offset};
    const gsize k = weir_codec_find(WEIR_CODEC_TOPK)->kept(&layout, b->cr);
    if (a->no_peers) {
      r->no_torch = g_strdup("not asked for");
      continue;
    }
    r->nth_element_ms = weir_kernel_nth_element(b, k, &r->no_nth_element);
    r->torch_ms = weir_kernel_torch(b, k, &r->no_torch);
  }
  compare(r, b->cr);
  return weir_kernel_fits(b->cr, b->n, b->fit_ms, b->rounds, &r->fits);
}

static weir_status reserve(kernel_bench *b) {
  b->room = sizeof(float) * b->n + 4096;
  float **const floats[] = {&b->g, &b->r, &b->e, &b->value, &b->sum};
  gboolean enough = TRUE;
  for (gsize i = 0; i < G_N_ELEMENTS(floats); i++) {
    *floats[i] = g_try_malloc0(b->n * sizeof(float));
    enough = enough && *floats[i];
  }
  b->index = g_try_malloc0(b->n * sizeof *b->index);
  b->message = g_try_malloc0(b->room);
  b->coding = g_malloc(weir_entropy_room());
  if (!enough || !b->index || !b->message)
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu elements", b->n);
  const weir_status status = weir_codec_context_create(&b->context);
  return status == WEIR_OK ? weir_gain_curve_create(&b->curve) : status;
}

static void release(kernel_bench *b) {
  g_free(b->g);
  g_free(b->r);
  g_free(b->e);
  g_free(b->value);
  g_free(b->sum);
  g_free(b->index);
  g_free(b->message);
  g_free(b->coding);
  weir_codec_context_free(b->context);
  weir_gain_curve_free(b->curve);
}

/* --- the command line ----------------------------------------------------------------------- */

static int refuse(const char *option, const char *expected) {
  fprintf(stderr, "weir bench kernels: --%s: expected %s\n", option, expected);
  return WEIR_EXIT_USAGE;
}

static int check(const arguments *a) {
  if (a->elements < 1000 || a->elements > 1000000000)
    return refuse("elements", "1000 to 1000000000");
  if (a->rounds < 1 || a->rounds > KERNEL_ROUNDS_MAX) return refuse("rounds", "1 to 101");
  if (!(a->cr > 0.0 && a->cr <= 0.1)) return refuse("cr", "a ratio above 0, at most 0.1");
  if (!(a->fit_ms >= 0.0 && a->fit_ms <= 1000.0)) return refuse("fit-ms", "0 to 1000");
  if (!a->cpu) return WEIR_EXIT_DONE;
  const weir_cpu_ops *ops = !strcmp(a->cpu, "scalar")   ? &weir_cpu_scalar
                            : !strcmp(a->cpu, "avx2")   ? weir_cpu_avx2()
                            : !strcmp(a->cpu, "avx512") ? weir_cpu_avx512()
                                                        : NULL;
  if (!ops) return refuse("cpu", "scalar, avx2 or avx512, as far as this processor goes");
  weir_cpu_force(ops);
  return WEIR_EXIT_DONE;
}

static int run_checked(const arguments *a) {
  kernel_bench b = {.n = (gsize)a->elements, .rounds = a->rounds, .cr = a->cr, .fit_ms = a->fit_ms};
  kernel_result r = {.rows = g_array_new(FALSE, TRUE, sizeof(kernel_row)),
                     .ratios = g_array_new(FALSE, TRUE, sizeof(kernel_ratio))};
  weir_status status = reserve(&b);
  if (status == WEIR_OK) status = run_all(&b, a, &r);
  if (status != WEIR_OK)
    fprintf(stderr, "weir bench kernels: %s\n", weir_last_error());
  else if (a->json)
    weir_kernel_print_json(&b, &r);
  else
    weir_kernel_print_table(&b, &r);
  release(&b);
  g_array_free(r.rows, TRUE);
  g_array_free(r.ratios, TRUE);
  g_free(r.no_torch);
  return status == WEIR_OK ? WEIR_EXIT_DONE : WEIR_EXIT_FAILED;
}

int main(int argc, char **argv) {
  arguments a = {.elements = 25600000, .rounds = 7, .cr = 0.01, .fit_ms = 1e3 * WEIR_KERNEL_FIT_S};
  const GOptionEntry entries[] = {
      {"elements", 0, 0, G_OPTION_ARG_INT64, &a.elements,
       "floats, 1000 to 1000000000 (default 25600000)", "N"},
      {"rounds", 0, 0, G_OPTION_ARG_INT, &a.rounds, "times to take the median of, 1 to 101 (7)",
       "N"},
      {"cr", 0, 0, G_OPTION_ARG_DOUBLE, &a.cr, "ratio kept, above 0 and at most 0.1 (default 0.01)",
       "CR"},
      {"cpu", 0, 0, G_OPTION_ARG_STRING, &a.cpu, "scalar, avx2, avx512 (default: the best)", "V"},
      {"no-peers", 0, 0, G_OPTION_ARG_NONE, &a.no_peers, "leave out nth_element and torch", NULL},
      {"fits", 0, 0, G_OPTION_ARG_NONE, &a.fits, "only fit costs and say how far off they are",
       NULL},
      {"fit-ms", 0, 0, G_OPTION_ARG_DOUBLE, &a.fit_ms,
       "what a codec's fit may take for sizes in memory, to 1000 (85; 0: none are run)", "MS"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  const cli_help help = {
      "weir bench kernels", NULL,
      "Times every codec and message form on one core, selections also on inputs that are hard\n"
      "for them, and compares: with a read pass and a copy, with std::nth_element and with\n"
      "torch.topk. Then fits a codec's time to sizes and compares the fit with sizes that it was\n"
      "not fitted on, each measured before the fit and after it, once a round. Off is a size "
      "where\n"
      "the median of modelled over measured is off by more than 10 %; one whose two measurements\n"
      "differ by more than that in the median of all rounds cannot tell, whatever the fit says.",
      "Exit codes: 0 done; 1 a codec failed; 2 bad usage."};
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&help, entries, &argc, &argv)) {
    code = check(&a);
    if (code == WEIR_EXIT_DONE) code = run_checked(&a);
  }
  cli_forget(entries);
  return cli_end(code);
}
