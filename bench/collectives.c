/* `weir bench collectives`: how fast the collectives are between processes of this machine, in the
 * columns of nccl-tests, beside what Open MPI and Gloo make of the same.  A time is the slowest
 * rank's average over a loop, and of several loops the median. */
#include "collectives.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "collectives/compressed.h"
#include "lab/doc.h"
#include "lab/topology.h"

#define LINKS_WINDOW 4e6 /* bytes that a connection may have under way */

/* --- results -------------------------------------------------------------------------------- */

typedef struct row {
  const char *transport, *algorithm;
  guint64 bytes, wire, wrong;
  double error;                 /* NAN: sums are exact */
  double seconds, algbw, busbw; /* GB/s */
  double least;                 /* seconds of the fastest loop */
  double predicted;             /* by the cost rows; NAN: not by any */
} row;

/* The part of the size that crosses the busiest link at the least, as nccl-tests count it. */
static double bus_share(bench_kind kind, int ranks) {
  const double others = (ranks - 1.0) / ranks;
  if (kind == BENCH_ALLREDUCE || kind == BENCH_COMPRESSED) return 2.0 * others;
  return kind == BENCH_BROADCAST || kind == BENCH_REDUCE ? 1.0 : others;
}

static double predict_compressed(const bench_plan *p, const weir_link *link, guint32 algorithm,
                                 gsize size) {
  const weir_group_shape shape = {
      .ranks = p->ranks, .hosts = (p->ranks - 1) / p->per_machine + 1, .largest = p->per_machine};
  const weir_coder coder = {.codec = weir_codec_find(WEIR_CODEC_QSGD), .cr = p->bits / 32.0};
  const gsize elements = p->elements[size];
  const weir_cost_terms terms = weir_cost_compressed_between(
      algorithm, shape, link, &coder, elements, (double)weir_coder_bound(&coder, elements));
  return weir_cost_links(&terms, link);
}

/* By the links that it has measured. */
static double predict(const bench_plan *p, const contender *c, guint32 algorithm, gsize size) {
  static const weir_kind kinds[BENCH_KINDS] = {
      [BENCH_ALLREDUCE] = WEIR_KIND_ALLREDUCE, [BENCH_BROADCAST] = WEIR_KIND_BROADCAST,
      [BENCH_ALLGATHER] = WEIR_KIND_ALLGATHER, [BENCH_REDUCE_SCATTER] = WEIR_KIND_REDUCE_SCATTER,
      [BENCH_REDUCE] = WEIR_KIND_REDUCE,       [BENCH_GATHER] = WEIR_KIND_GATHER};
  const weir_group_shape shape = {
      .ranks = p->ranks, .hosts = (p->ranks - 1) / p->per_machine + 1, .largest = p->per_machine};
  const gboolean blocks = p->kind == BENCH_ALLGATHER || p->kind == BENCH_GATHER;
  const gsize bytes = p->elements[size] / (blocks ? (gsize)p->ranks : 1) * sizeof(float);
  if (c->link == NULL || c->link->beta == 0.0) return NAN;
  if (p->kind == BENCH_COMPRESSED) return predict_compressed(p, c->link, algorithm, size);
  const weir_cost cost = weir_cost_row(kinds[p->kind], algorithm, shape, c->link, (double)bytes);
  return weir_cost_predict(&cost, c->link);
}

static row row_of(const bench_plan *p, const contender *c, guint32 algorithm, gsize size) {
  const bench_cell *cell = &c->cells[algorithm * p->sizes + size];
  row r = {.transport = c->name, .algorithm = c->row_name(p->kind, algorithm)};
  r.seconds = weir_bench_median(p, cell);
  r.least = r.seconds;
  for (int i = 0; i < p->repeats; i++) r.least = MIN(r.least, cell->seconds[i]);
  r.bytes = p->elements[size] * sizeof(float);
  r.algbw = (double)r.bytes / r.seconds * 1e-9;
  r.busbw = r.algbw * bus_share(p->kind, p->ranks);
  r.wire = cell->wire;
  r.wrong = cell->wrong;
  r.error = p->kind == BENCH_COMPRESSED ? cell->error : NAN;
  r.predicted = predict(p, c, algorithm, size);
  return r;
}

static gboolean is_measured(const bench_plan *p, const contender *c, guint32 algorithm,
                            gsize size) {
  return !*c->absent && c->cells[algorithm * p->sizes + size].chosen;
}

/* The fastest row of a contender at a size; FALSE when it has none. */
static gboolean best_of(const bench_plan *p, const contender *c, gsize size, row *best) {
  gboolean found = FALSE;
  for (guint32 a = 0; a < ROWS_MAX; a++) {
    if (!is_measured(p, c, a, size)) continue;
    const row r = row_of(p, c, a, size);
    if (!found || r.seconds < best->seconds) *best = r;
    found = TRUE;
  }
  return found;
}

static void add_json(weir_doc *builder, const row *r) {
  weir_doc_object(builder, NULL);
  weir_doc_text(builder, "transport", r->transport);
  weir_doc_text(builder, "algorithm", r->algorithm);
  weir_doc_whole(builder, "size", (gint64)r->bytes);
  weir_doc_number(builder, "time_us", r->seconds * 1e6);
  weir_doc_number(builder, "least_us", r->least * 1e6);
  weir_doc_number(builder, "predicted_us", r->predicted * 1e6);
  weir_doc_number(builder, "algbw_gbs", r->algbw);
  weir_doc_number(builder, "busbw_gbs", r->busbw);
  if (r->wire > 0)
    weir_doc_whole(builder, "wire_bytes", (gint64)r->wire);
  else
    weir_doc_number(builder, "wire_bytes", NAN); /* unknown */
  if (isfinite(r->error)) weir_doc_number(builder, "error", r->error);
  weir_doc_whole(builder, "wrong", (gint64)r->wrong);
  weir_doc_end(builder);
}

static void print_row(const row *r) {
  char wire[24] = "-", predicted[24] = "-", error[24] = "";
  if (r->wire > 0) (void)g_snprintf(wire, sizeof wire, "%" G_GUINT64_FORMAT, r->wire);
  if (isfinite(r->predicted))
    (void)g_snprintf(predicted, sizeof predicted, "%.1f", r->predicted * 1e6);
  if (isfinite(r->error)) (void)g_snprintf(error, sizeof error, " %8.5f", r->error);
  printf("%-16s %-18s %12" G_GUINT64_FORMAT " %12.1f %12s %9.3f %9.3f %12s %7" G_GUINT64_FORMAT
         "%s\n",
         r->transport, r->algorithm, r->bytes, r->seconds * 1e6, predicted, r->algbw, r->busbw,
         wire, r->wrong, error);
}

/* All rows; the number of wrong elements in Weir's own. */
static guint64 report_rows(const bench_plan *p, const contender *all, int count,
                           weir_doc *builder) {
  guint64 wrong = 0;
  for (int i = 0; i < count; i++)
    for (guint32 a = 0; a < ROWS_MAX; a++)
      for (gsize s = 0; s < p->sizes; s++) {
        if (!is_measured(p, &all[i], a, s)) continue;
        const row r = row_of(p, &all[i], a, s);
        if (!all[i].peer) wrong += r.wrong;
        if (builder)
          add_json(builder, &r);
        else
          print_row(&r);
      }
  return wrong;
}

/* The fastest row of everybody, size by size, us. */
static void print_best(const bench_plan *p, const contender *all, int count) {
  printf("# best, us\n%12s", "size(B)");
  for (int i = 0; i < count; i++) printf(" %26s", all[i].name);
  for (gsize s = 0; s < p->sizes; s++) {
    printf("\n%12" G_GSIZE_FORMAT, p->elements[s] * sizeof(float));
    for (int i = 0; i < count; i++) {
      row best;
      if (best_of(p, &all[i], s, &best))
        printf(" %10.1f %15.15s", best.seconds * 1e6, best.algorithm);
      else
        printf(" %26s", "-");
    }
  }
  printf("\n");
}

static void json_best(const bench_plan *p, const contender *all, int count, weir_doc *builder) {
  weir_doc_list(builder, "best");
  for (gsize s = 0; s < p->sizes; s++)
    for (int i = 0; i < count; i++) {
      row best;
      if (best_of(p, &all[i], s, &best)) add_json(builder, &best);
    }
  weir_doc_end_list(builder);
  weir_doc_list(builder, "absent");
  for (int i = 0; i < count; i++) {
    if (!*all[i].absent) continue;
    weir_doc_object(builder, NULL);
    weir_doc_text(builder, "peer", all[i].name);
    weir_doc_text(builder, "why", all[i].absent);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
}

static guint64 report_json(const bench_plan *p, const contender *all, int count) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_whole(builder, "ranks", p->ranks);
  weir_doc_whole(builder, "per_machine", p->per_machine);
  if (p->links) weir_doc_number(builder, "mbit_s", p->mbit_s);
  if (p->links) weir_doc_number(builder, "latency_ms", p->latency_ms);
  weir_doc_text(builder, "collective", bench_kind_names[p->kind]);
  if (p->kind == BENCH_COMPRESSED)
    weir_doc_whole(builder, "bits", p->bits);
  else
    weir_doc_text(builder, "format", p->format == WEIR_VALUE_BF16 ? "bf16" : "fp32");
  weir_doc_list(builder, "rows");
  const guint64 wrong = report_rows(p, all, count, builder);
  weir_doc_end_list(builder);
  json_best(p, all, count, builder);
  weir_doc_print(builder);
  return wrong;
}

static guint64 report_table(const bench_plan *p, const contender *all, int count) {
  printf(
      "# %s, %d ranks, %d a machine; wire: bytes the busiest rank sends in one operation; rows: "
      "what\n"
      "# cost rows predict of links as measured (with --mbit-s)\n",
      bench_kind_names[p->kind], p->ranks, p->per_machine);
  if (p->kind == BENCH_COMPRESSED)
    printf("# qsgd of %u bits; error: root of the squared error over that of the sum\n", p->bits);
  printf("%-16s %-18s %12s %12s %12s %9s %9s %12s %7s%s\n", "", "algorithm", "size(B)", "time(us)",
         "rows(us)", "algbw", "busbw", "wire(B)", "#wrong",
         p->kind == BENCH_COMPRESSED ? "    error" : "");
  const guint64 wrong = report_rows(p, all, count, NULL);
  for (int i = 0; i < count; i++)
    if (*all[i].absent) printf("# %s: not measured: %s\n", all[i].name, all[i].absent);
  if (count > 1) print_best(p, all, count);
  return wrong;
}

/* A link for every machine, all alike. */
static gboolean open_links(bench_plan *p) {
  const weir_shape shape = {.rate_bytes_s = p->mbit_s * 1e6 / 8, .delay_s = p->latency_ms / 1e3};
  if (p->mbit_s == 0) return TRUE;
  weir_status status = weir_topology_enter();
  const int machines = (p->ranks - 1) / p->per_machine + 1;
  if (status == WEIR_OK) status = weir_topology_create(&p->links, machines, LINKS_WINDOW);
  if (status == WEIR_OK) status = weir_topology_shape(p->links, &shape);
  if (status == WEIR_OK) status = weir_topology_shape_arrivals(p->links, shape.rate_bytes_s);
  if (status != WEIR_OK) fprintf(stderr, "weir bench collectives: %s\n", weir_last_error());
  return status == WEIR_OK;
}

static int run_all(bench_plan *p, contender *all, int count, gboolean json) {
  for (int i = 0; i < count; i++) all[i].cells = g_new0(bench_cell, ROWS_MAX * p->sizes);
  guint64 wrong = 1;
  if (open_links(p) && weir_bench_contest(p, all, count))
    wrong = json ? report_json(p, all, count) : report_table(p, all, count);
  for (int i = 0; i < count; i++) g_free(all[i].cells);
  weir_topology_free(p->links);
  return wrong == 0 ? WEIR_EXIT_DONE : WEIR_EXIT_FAILED;
}

/* --- the command line ----------------------------------------------------------------------- */

typedef struct arguments {
  char *collective, *transport, *algorithm, *sizes, *format, *peers, *mpi_rank, *own_rank;
  int ranks, per_machine, repeats, best, bits;
  double mbit_s, latency_ms;
  gboolean json;
} arguments;

static int refuse(const char *option, const char *text, const char *expected) {
  fprintf(stderr, "weir bench collectives: --%s '%s': expected %s\n", option, text, expected);
  return WEIR_EXIT_USAGE;
}

/* "4", "16K", "1M": bytes, a whole number of floats. */
static gboolean parse_size(const char *text, gsize *elements) {
  char *end = NULL;
  const guint64 number = g_ascii_strtoull(text, &end, 10);
  const gsize unit = *end == 'K' ? 1024 : *end == 'M' ? 1024 * 1024 : 1;
  if (!g_ascii_isdigit(*text) || end[unit > 1] != '\0' || number > (1u << 30) / unit) return FALSE;
  *elements = number * unit / sizeof(float);
  return *elements > 0 && number * unit % sizeof(float) == 0;
}

static gboolean parse_algorithms(const char *text, bench_plan *p) {
  g_auto(GStrv) names = g_strsplit(text, ",", -1);
  for (char **name = names; *name; name++) {
    gboolean known = FALSE;
    for (guint32 a = 0; weir_bench_row_name(p->kind, a); a++)
      if (!strcmp(*name, "all") || !strcmp(*name, weir_bench_row_name(p->kind, a)))
        p->algorithm[a] = known = TRUE;
    if (!known) return FALSE;
  }
  return *names != NULL;
}

/* Weir's transports and their peers, in the order in which they take turns. */
static int parse_contenders(const arguments *a, const bench_plan *p, contender *all, int *count) {
  g_auto(GStrv) transports = g_strsplit(a->transport, ",", -1);
  g_auto(GStrv) peers = g_strsplit(a->peers, ",", -1);
  *count = 0;
  if (!*transports || g_strv_length(transports) > 3)
    return refuse("transport", a->transport,
                  "up to three of tcp, mixed, tls, shm, mpi and shm+mpi");
  for (char **t = transports; *t; t++)
    if (!weir_bench_contender_own(&all[(*count)++], *t))
      return refuse("transport", a->transport,
                    "up to three of tcp, mixed, tls, shm, mpi and shm+mpi");
  if (*peers && (p->kind != BENCH_ALLREDUCE || p->format != WEIR_VALUE_FP32))
    return refuse("peers", a->peers, "--collective all-reduce and --format fp32 with it");
  for (char **peer = peers; *peer; peer++) {
    const gboolean spin = strcmp(*peer, "openmpi-spin") == 0;
    if (*count + 2 > CONTENDERS_MAX || g_strv_contains((const char *const *)peer + 1, *peer))
      return refuse("peers", a->peers, "each of openmpi, openmpi-spin and gloo once");
    if (strcmp(*peer, "gloo") == 0) {
      weir_bench_contender_gloo(&all[(*count)++]);
    } else if (spin || strcmp(*peer, "openmpi") == 0) {
      weir_bench_contender_mpi(&all[(*count)++], spin ? BENCH_MPI_SHM_SPIN : BENCH_MPI_SHM);
      weir_bench_contender_mpi(&all[(*count)++], spin ? BENCH_MPI_TCP_SPIN : BENCH_MPI_TCP);
    } else {
      return refuse("peers", a->peers, "some of openmpi, openmpi-spin and gloo");
    }
  }
  return WEIR_EXIT_DONE;
}

static int parse_sizes(const arguments *a, bench_plan *p) {
  g_auto(GStrv) sizes = g_strsplit(a->sizes, ",", -1);
  if (!*sizes || g_strv_length(sizes) > SIZES_MAX)
    return refuse("sizes", a->sizes, "up to 32 sizes such as 4K,1M");
  for (char **s = sizes; *s; s++) {
    if (!parse_size(*s, &p->elements[p->sizes]))
      return refuse("sizes", *s, "bytes, a multiple of 4 up to 1024M, such as 4096, 64K, 16M");
    p->most = MAX(p->most, p->elements[p->sizes]);
    p->sizes++;
  }
  return WEIR_EXIT_DONE;
}

static int parse(const arguments *a, bench_plan *p) {
  int kind = 0;
  while (kind < BENCH_KINDS && strcmp(a->collective, bench_kind_names[kind]) != 0) kind++;
  if (kind == BENCH_KINDS)
    return refuse(
        "collective", a->collective,
        "all-reduce, broadcast, all-gather, reduce-scatter, reduce, gather or compressed");
  p->kind = (bench_kind)kind;
  if (!parse_algorithms(a->algorithm, p)) {
    g_autoptr(GString) known = g_string_new("all or some of");
    for (guint32 r = 0; weir_bench_row_name(p->kind, r); r++)
      g_string_append_printf(known, "%s%s", r ? "," : " ", weir_bench_row_name(p->kind, r));
    return refuse("algorithm", a->algorithm, known->str);
  }
  const int code = parse_sizes(a, p);
  if (code != WEIR_EXIT_DONE) return code;
  if (strcmp(a->format, "fp32") != 0 && strcmp(a->format, "bf16") != 0)
    return refuse("format", a->format, "fp32 or bf16");
  p->format = a->format[0] == 'b' ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32;
  if (a->bits < 2 || a->bits > 8) {
    fprintf(stderr, "weir bench collectives: expected --bits 2 to 8\n");
    return WEIR_EXIT_USAGE;
  }
  p->bits = (unsigned)a->bits;
  p->ranks = a->ranks;
  p->repeats = a->repeats;
  p->best = a->best;
  p->mbit_s = a->mbit_s;
  p->latency_ms = a->latency_ms;
  if (!(p->latency_ms >= 0 && p->latency_ms <= 1e4) || (p->latency_ms > 0 && p->mbit_s == 0)) {
    fprintf(stderr,
            "weir bench collectives: expected --latency-ms from 0 to 10000, with --mbit-s\n");
    return WEIR_EXIT_USAGE;
  }
  if (!(p->mbit_s >= 0 && p->mbit_s <= 1e5) ||
      (p->mbit_s > 0 &&
       (*a->peers || strstr(a->transport, "shm") || strstr(a->transport, "mpi")))) {
    fprintf(stderr,
            "weir bench collectives: expected --mbit-s from 0 to 100000, and with it --transport "
            "tcp, mixed and tls, or some of them, and no --peers\n");
    return WEIR_EXIT_USAGE;
  }
  p->per_machine = a->per_machine;
  if (p->per_machine < 1 || p->per_machine > a->ranks ||
      (p->per_machine == 1 && (strstr(a->transport, "mixed") || strstr(a->transport, "shm+mpi")))) {
    fprintf(
        stderr,
        "weir bench collectives: expected --per-machine 1 to the number of ranks, and at least 2 "
        "with --transport mixed or shm+mpi\n");
    return WEIR_EXIT_USAGE;
  }
  if (p->ranks < 2 || p->ranks > RANKS_MAX || p->repeats < 1 || p->repeats > REPEATS_MAX ||
      p->best < 0) {
    fprintf(
        stderr,
        "weir bench collectives: expected --ranks 2 to %d, --repeats 1 to %d and --best from 0\n",
        RANKS_MAX, REPEATS_MAX);
    return WEIR_EXIT_USAGE;
  }
  for (gsize s = 0; s < p->sizes; s++)
    if (p->elements[s] < (gsize)p->ranks && bus_share(p->kind, p->ranks) < 1.0)
      return refuse("sizes", a->sizes, "at least 4 bytes a rank for this collective");
  return WEIR_EXIT_DONE;
}

static int run_parsed(const arguments *a) {
  bench_plan p = {.sizes = 0};
  contender all[CONTENDERS_MAX];
  int count = 0;
  int code = parse(a, &p);
  if (code == WEIR_EXIT_DONE) code = parse_contenders(a, &p, all, &count);
  return code == WEIR_EXIT_DONE ? run_all(&p, all, count, a->json) : code;
}

int main(int argc, char **argv) {
  arguments a = {.ranks = 4, .per_machine = 1, .repeats = 7, .bits = 4};
  const GOptionEntry entries[] = {
      {"collective", 0, 0, G_OPTION_ARG_STRING, &a.collective,
       "default: all-reduce; compressed: an all-reduce of qsgd's messages", "NAME"},
      {"transport", 0, 0, G_OPTION_ARG_STRING, &a.transport,
       "tcp, mixed (memory inside of machines), tls (tcp, encrypted), shm, mpi, shm+mpi (memory "
       "inside "
       "of machines) (default: tcp,shm)",
       "LIST"},
      {"algorithm", 0, 0, G_OPTION_ARG_STRING, &a.algorithm, "rows (default: all)", "LIST"},
      {"ranks", 0, 0, G_OPTION_ARG_INT, &a.ranks, "processes (default 4)", "N"},
      {"per-machine", 0, 0, G_OPTION_ARG_INT, &a.per_machine,
       "neighbouring ranks that count as one machine (1)", "N"},
      {"sizes", 0, 0, G_OPTION_ARG_STRING, &a.sizes, "bytes of fp32 (default 4K,64K,1M)", "LIST"},
      {"format", 0, 0, G_OPTION_ARG_STRING, &a.format, "on the wire: fp32 (default), bf16", "F"},
      {"bits", 0, 0, G_OPTION_ARG_INT, &a.bits, "an element, of compressed (4)", "B"},
      {"repeats", 0, 0, G_OPTION_ARG_INT, &a.repeats, "loops to take the median of (7)", "N"},
      {"best", 0, 0, G_OPTION_ARG_INT, &a.best, "only the N fastest rows of each (0: all)", "N"},
      {"peers", 0, 0, G_OPTION_ARG_STRING, &a.peers, "openmpi, openmpi-spin, gloo: in the same run",
       "LIST"},
      {"mpi-rank", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_STRING, &a.mpi_rank, "", ""},
      {"own-rank", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_STRING, &a.own_rank, "", ""},
      {"mbit-s", 0, 0, G_OPTION_ARG_DOUBLE, &a.mbit_s,
       "a link of this rate for every machine, in network namespaces; for tcp, mixed and tls",
       "RATE"},
      {"latency-ms", 0, 0, G_OPTION_ARG_DOUBLE, &a.latency_ms,
       "with --mbit-s: one way, where the kernel has netem (0)", "MS"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  const cli_help help = {
      "weir bench collectives", NULL,
      "Times collectives between processes of this machine and counts wrong elements; the columns\n"
      "are those of nccl-tests.",
      "Example: weir bench collectives --transport shm --sizes 4K,1M --peers openmpi,gloo\n"
      "Exit codes: 0 done; 1 a rank failed or an element was wrong; 2 bad usage."};
  int code = WEIR_EXIT_USAGE;
  const gboolean parsed = cli_parse(&help, entries, &argc, &argv);
  if (parsed && a.mpi_rank) {
    code = weir_bench_mpi_rank(a.mpi_rank);
  } else if (parsed && a.own_rank) {
    code = weir_bench_own_rank(a.own_rank);
  } else if (parsed) {
    if (!a.peers) a.peers = g_strdup("");
    if (!a.collective) a.collective = g_strdup("all-reduce");
    if (!a.transport) a.transport = g_strdup("tcp,shm");
    if (!a.algorithm) a.algorithm = g_strdup("all");
    if (!a.sizes) a.sizes = g_strdup("4K,64K,1M");
    if (!a.format) a.format = g_strdup("fp32");
    code = run_parsed(&a);
  }
  cli_forget(entries);
  return cli_end(code);
}
