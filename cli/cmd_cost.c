/* `weir cost`: what would each collective cost on such a network? */
#include <float.h>
#include <glib.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/schemes.h"
#include "cli.h"
#include "collectives/select.h"
#include "lab/doc.h"

typedef struct cost_query {
  int workers;
  int hosts; /* machines they are on; own model only */
  double latency_s, seconds_per_byte;
  double bytes; /* dense, fp32 */
  double cr;
  gboolean own_model; /* Weir's rows instead of the paper's */
  uint32_t wire;      /* weir_wire_format; own model only */
} cost_query;

typedef struct cost_arguments {
  char *workers, *latency, *bandwidth, *bytes, *cr, *model, *wire, *hosts;
  gboolean json;
} cost_arguments;

static int refuse(const char *option, const char *text, const char *expected) {
  if (text)
    fprintf(stderr, "weir cost: --%s '%s': expected %s\n", option, text, expected);
  else
    fprintf(stderr, "weir cost: --%s is missing: expected %s\n", option, expected);
  return WEIR_EXIT_USAGE;
}

/* A number > 0 (and at most `most`), and nothing after it. */
static gboolean parse_positive(const char *text, double most, double *value) {
  if (!text || !*text || g_ascii_isspace(*text)) return FALSE;
  char *end = NULL;
  *value = g_ascii_strtod(text, &end);
  return *end == '\0' && isfinite(*value) && *value > 0.0 && *value <= most;
}

static gboolean parse_workers(const char *text, int *workers) {
  gint64 value = 0;
  if (!text || !g_ascii_string_to_signed(text, 10, 1, INT_MAX, &value, NULL)) return FALSE;
  *workers = (int)value;
  return TRUE;
}

static int parse_query(const cost_arguments *a, cost_query *q) {
  double latency_ms = 0.0, gbps = 0.0;
  if (!parse_workers(a->workers, &q->workers))
    return refuse("workers", a->workers, "a whole number of workers, at least 1");
  if (!parse_positive(a->latency, DBL_MAX, &latency_ms))
    return refuse("latency-ms", a->latency, "a one-way latency in milliseconds above 0");
  if (!parse_positive(a->bandwidth, DBL_MAX, &gbps))
    return refuse("bandwidth-gbps", a->bandwidth, "a bandwidth in Gbit/s above 0");
  if (!parse_positive(a->bytes, DBL_MAX, &q->bytes))
    return refuse("bytes", a->bytes, "the dense gradient's bytes, above 0");
  if (!parse_positive(a->cr, 1.0, &q->cr))
    return refuse("cr", a->cr, "a compression ratio in (0, 1]");
  const char *model = a->model ? a->model : "paper";
  if (strcmp(model, "paper") != 0 && strcmp(model, "weir") != 0)
    return refuse("model", model, "paper or weir");
  q->own_model = strcmp(model, "weir") == 0;
  /* Rounds are added up one by one: seconds for so many. */
  if (q->own_model && q->workers > 65536)
    return refuse("workers", a->workers, "at most 65536 workers with --model weir");
  if (a->wire && !q->own_model)
    return refuse("wire", a->wire, "--model weir with it: the paper's model has one format");
  if (a->hosts && !q->own_model)
    return refuse("hosts", a->hosts, "--model weir with it: the paper's model knows no machines");
  q->hosts = q->workers;
  if (a->hosts && (!parse_workers(a->hosts, &q->hosts) || q->hosts > q->workers))
    return refuse("hosts", a->hosts, "a whole number of machines, at least 1, at most the workers");
  /* Elements are counted by u32 indices on the wire. */
  if (q->own_model && !(q->bytes >= 4.0 && q->bytes / 4.0 <= UINT32_MAX))
    return refuse("bytes", a->bytes, "4 to 17179869180 bytes (1 to 2^32 - 1 elements of fp32)");
  const char *wire = a->wire ? a->wire : weir_wire_name(WEIR_WIRE_AUTO_FP32);
  for (q->wire = 0; q->wire < WEIR_WIRE_LISTS; q->wire++)
    if (!strcmp(wire, weir_wire_name(q->wire))) break;
  if (q->wire == WEIR_WIRE_LISTS)
    return refuse("wire", wire, "u32-fp32, auto-fp32, auto-bf16 or auto-fp16");
  q->latency_s = latency_ms * 1e-3;
  q->seconds_per_byte = 8.0 / (gbps * 1e9);
  return WEIR_EXIT_DONE;
}

typedef struct cost_row {
  char name[WEIR_COLLECTIVE_TEXT_MAX];
  double ms;
} cost_row;
enum { ROWS_MAX = 64 };

/* Weir's row for a collective, with the codec that is usual for it. */
static double own_seconds(const cost_query *q, const weir_plan *collective) {
  const gboolean sums = collective->scheme == WEIR_SCHEME_DENSE,
                 codes = collective->scheme == WEIR_SCHEME_COMPRESSED;
  const size_t elements = (size_t)(q->bytes / 4.0);
  /* Of an encoder its message counts, bytes by the ratio. */
  const size_t part = (size_t)(q->cr * (codes ? q->bytes : (double)elements));
  const weir_group_shape shape = {.ranks = q->workers, .hosts = q->hosts};
  const weir_link link = {.alpha = q->latency_s, .beta = q->seconds_per_byte};
  weir_plan plan = *collective;
  plan.codec = weir_codec_usual(plan.scheme)->id;
  plan.wire = sums || codes ? WEIR_WIRE_PAPER : q->wire;
  plan.cr = sums ? 1.0 : q->cr;
  plan = weir_select_plan(&plan, shape, &link, elements, weir_cost_kept(&plan, elements));
  const weir_cost_terms terms =
      weir_cost_plan_between(&plan, shape, &link, elements, part > 0 ? part : 1);
  return weir_cost_seconds(&terms, q->latency_s, q->seconds_per_byte);
}

/* Rows by the model that is asked for; how many. */
static gsize find_rows(const cost_query *q, cost_row rows[ROWS_MAX]) {
  static const char *const published[] = {"dense-ring", "dense-tree", "ag", "art-ring", "art-tree"};
  weir_plan plan = {.cr = q->cr};
  gsize count = 0;
  for (; !q->own_model && count < G_N_ELEMENTS(published); count++) {
    (void)weir_collective_parse(published[count], false, &plan);
    g_strlcpy(rows[count].name, published[count], sizeof rows->name);
    rows[count].ms =
        1e3 * weir_cost_paper(&plan, q->workers, q->latency_s, q->seconds_per_byte, q->bytes);
  }
  for (gboolean more = q->own_model; more && count < ROWS_MAX; more = weir_collective_next(&plan)) {
    const gboolean chosen =
        plan.algorithm == WEIR_ALGORITHM_ANY && weir_schemes[plan.scheme].algorithms != 0;
    if (chosen && plan.scheme != WEIR_SCHEME_GATHER) continue; /* one of those that follow */
    weir_plan_collective(&plan, rows[count].name);
    rows[count++].ms = 1e3 * own_seconds(q, &plan);
  }
  return count;
}

static void print_json(const cost_row *rows, gsize count, const cost_row *best) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_object(builder, "ms");
  for (gsize r = 0; r < count; r++) weir_doc_number(builder, rows[r].name, rows[r].ms);
  weir_doc_end(builder);
  weir_doc_text(builder, "best", best->name);
  weir_doc_print(builder);
}

static void print_table(const cost_query *q, const cost_row *rows, gsize count,
                        const cost_row *best) {
  g_autofree char *machines =
      q->hosts < q->workers ? g_strdup_printf(" on %d machines", q->hosts) : g_strdup("");
  printf("%s model: %d workers%s, %g ms one way, %g Gbit/s, %.15g bytes, ratio %g%s%s\n\n",
         q->own_model ? "Weir's" : "the paper's", q->workers, machines, q->latency_s * 1e3,
         8e-9 / q->seconds_per_byte, q->bytes, q->cr, q->own_model ? ", wire " : "",
         q->own_model ? weir_wire_name(q->wire) : "");
  for (gsize r = 0; r < count; r++)
    printf("  %-22s %14.4f ms%s\n", rows[r].name, rows[r].ms, &rows[r] == best ? "  best" : "");
}

static int answer(const cost_query *q, gboolean json) {
  cost_row rows[ROWS_MAX];
  const gsize count = find_rows(q, rows);
  const cost_row *best = rows;
  for (gsize r = 0; r < count; r++) {
    if (!isfinite(rows[r].ms)) {
      fprintf(stderr, "weir cost: these values give no finite time for %s\n", rows[r].name);
      return WEIR_EXIT_USAGE;
    }
    if (rows[r].ms < best->ms) best = &rows[r];
  }
  if (json)
    print_json(rows, count, best);
  else
    print_table(q, rows, count, best);
  return WEIR_EXIT_DONE;
}

int weir_cmd_cost(int argc, char **argv) {
  cost_arguments a = {0};
  const GOptionEntry entries[] = {
      {"workers", 0, 0, G_OPTION_ARG_STRING, &a.workers, "workers in the group", "N"},
      {"latency-ms", 0, 0, G_OPTION_ARG_STRING, &a.latency, "one-way latency", "MS"},
      {"bandwidth-gbps", 0, 0, G_OPTION_ARG_STRING, &a.bandwidth, "bandwidth of a link", "GBPS"},
      {"bytes", 0, 0, G_OPTION_ARG_STRING, &a.bytes, "bytes of the dense gradient", "BYTES"},
      {"cr", 0, 0, G_OPTION_ARG_STRING, &a.cr, "compression ratio: fraction kept", "RATIO"},
      {"model", 0, 0, G_OPTION_ARG_STRING, &a.model,
       "paper (default): the published formulas; weir: this library's algorithms and true bytes",
       "MODEL"},
      {"wire", 0, 0, G_OPTION_ARG_STRING, &a.wire,
       "with --model weir: u32-fp32, auto-fp32 (default), auto-bf16 or auto-fp16", "FORMAT"},
      {"hosts", 0, 0, G_OPTION_ARG_STRING, &a.hosts,
       "with --model weir: machines that the workers share, the first ones on the first machine; "
       "links inside a machine cost nothing (default: a machine for each worker)",
       "N"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  static const char description[] =
      "--workers, --latency-ms, --bandwidth-gbps, --bytes and --cr are required.\n"
      "  dense-ring, dense-tree   all-reduce of every element; --cr does not matter\n"
      "  ag                       all-gather of each worker's kept elements\n"
      "  art-ring, art-tree       all-reduce at the places that one worker chooses\n"
      "With --model weir also:\n"
      "  dense-, art-, ag-...     by each algorithm that there is; ag is its cheapest\n"
      "  hitopk                   top-k of machines' sums, all-gathered between machines\n"
      "  sra, hier-sra, compressed-ring, compressed-tree   sums of encoded gradients; --cr is bits "
      "/ 32\n"
      "  native                   the all-reduce of MPI or NCCL itself, by the algorithm it "
      "chooses\n"
      "  native-ring, native-tree NCCL's ring and double binary tree; with art- of values\n"
      "\n"
      "Example: weir cost --workers 8 --latency-ms 1 --bandwidth-gbps 10 --bytes 46800000 --cr "
      "0.1\n"
      "Exit codes: 0 done; 2 bad usage or bad input.";
  const cli_help help = {"weir cost", NULL,
                         "Predicts how many milliseconds one exchange takes with each collective.",
                         description};
  cost_query query = {0};
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&help, entries, &argc, &argv)) code = parse_query(&a, &query);
  if (code == WEIR_EXIT_DONE) code = answer(&query, a.json);
  cli_forget(entries);
  return code;
}
