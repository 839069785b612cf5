/* `weir bench collectives`: how fast the collectives are between processes of this machine, in the
 * columns of nccl-tests.  A time is the slowest rank's average over a loop, and of several loops
 * the median. */
#include "bench_collectives.h"

#include <arpa/inet.h>
#include <glib.h>
#include <json-glib/json-glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"

/* --- all of them ---------------------------------------------------------------------------- */

static gboolean free_port(char *where, gsize room) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const gboolean found = fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
                         getsockname(fd, (struct sockaddr *)&address, &length) == 0;
  if (fd >= 0) (void)close(fd);
  (void)g_snprintf(where, (gulong)room, "127.0.0.1:%d", ntohs(address.sin_port));
  return found;
}

static int run_transport(bench_plan *p) {
  pid_t pid[RANKS_MAX];
  (void)g_snprintf(p->where, sizeof p->where, "bench-%d", (int)getpid());
  if (strcmp(p->transport, "tcp") == 0 && !free_port(p->where, sizeof p->where)) {
    fprintf(stderr, "weir bench collectives: no free port on the loopback\n");
    return WEIR_EXIT_FAILED;
  }
  memset(p->board, 0, p->board_bytes);
  (void)fflush(NULL);
  int started = 0;
  for (; started < p->ranks; started++) {
    p->board->rank[started].status = WEIR_E_PEER; /* unless it says otherwise */
    (void)g_strlcpy(p->board->rank[started].message, "it ended without a word",
                    sizeof p->board->rank[started].message);
    pid[started] = fork();
    if (pid[started] < 0) break;
    if (pid[started] > 0) continue;
    p->board->rank[started].status = weir_bench_rank(p, started);
    (void)g_strlcpy(p->board->rank[started].message, weir_last_error(),
                    sizeof p->board->rank[started].message);
    _exit(0);
  }
  if (started < p->ranks) fprintf(stderr, "weir bench collectives: cannot start a process\n");
  for (int r = 0; r < started; r++) {
    if (started < p->ranks) (void)kill(pid[r], SIGKILL);
    (void)waitpid(pid[r], NULL, 0);
  }
  if (started < p->ranks) return WEIR_EXIT_FAILED;
  for (int r = 0; r < p->ranks; r++)
    if (p->board->rank[r].status != WEIR_OK) {
      fprintf(stderr, "weir bench collectives: %s, rank %d: %s\n", p->transport, r,
              p->board->rank[r].message);
      return WEIR_EXIT_FAILED;
    }
  return WEIR_EXIT_DONE;
}

/* --- results -------------------------------------------------------------------------------- */

static int ascending(const void *pa, const void *pb) {
  const double a = *(const double *)pa, b = *(const double *)pb;
  return (a > b) - (a < b);
}

typedef struct row {
  const char *transport, *algorithm;
  guint64 bytes, wire, wrong;
  double seconds, algbw, busbw; /* GB/s */
} row;

/* The part of the size that crosses the busiest link at the least, as nccl-tests count it. */
static double bus_share(bench_kind kind, int ranks) {
  const double others = (ranks - 1.0) / ranks;
  if (kind == BENCH_ALLREDUCE) return 2.0 * others;
  return kind == BENCH_BROADCAST || kind == BENCH_REDUCE ? 1.0 : others;
}

static row row_of(const bench_plan *p, guint32 algorithm, gsize size) {
  const cell *c = &p->board->cells[algorithm * p->sizes + size];
  double slowest[REPEATS_MAX];
  row r = {.transport = p->transport, .algorithm = weir_bench_row_name(p->kind, algorithm)};
  for (int i = 0; i < p->repeats; i++) {
    slowest[i] = 0.0;
    for (int k = 0; k < p->ranks; k++) slowest[i] = MAX(slowest[i], c->seconds[i][k]);
  }
  qsort(slowest, (gsize)p->repeats, sizeof *slowest, ascending);
  r.seconds = slowest[p->repeats / 2];
  r.bytes = p->elements[size] * sizeof(float);
  r.algbw = (double)r.bytes / r.seconds * 1e-9;
  r.busbw = r.algbw * bus_share(p->kind, p->ranks);
  for (int k = 0; k < p->ranks; k++) {
    r.wire = MAX(r.wire, c->wire[k]);
    r.wrong += c->wrong[k];
  }
  return r;
}

static void add_json(JsonBuilder *builder, const row *r) {
  json_builder_begin_object(builder);
  json_builder_set_member_name(builder, "transport");
  json_builder_add_string_value(builder, r->transport);
  json_builder_set_member_name(builder, "algorithm");
  json_builder_add_string_value(builder, r->algorithm);
  json_builder_set_member_name(builder, "size");
  json_builder_add_int_value(builder, (gint64)r->bytes);
  json_builder_set_member_name(builder, "time_us");
  json_builder_add_double_value(builder, r->seconds * 1e6);
  json_builder_set_member_name(builder, "algbw_gbs");
  json_builder_add_double_value(builder, r->algbw);
  json_builder_set_member_name(builder, "busbw_gbs");
  json_builder_add_double_value(builder, r->busbw);
  json_builder_set_member_name(builder, "wire_bytes");
  json_builder_add_int_value(builder, (gint64)r->wire);
  json_builder_set_member_name(builder, "wrong");
  json_builder_add_int_value(builder, (gint64)r->wrong);
  json_builder_end_object(builder);
}

static guint64 report(const bench_plan *p, JsonBuilder *builder) {
  guint64 wrong = 0;
  for (guint32 a = 0; a < ROWS_MAX; a++)
    for (gsize s = 0; p->algorithm[a] && s < p->sizes; s++) {
      const row r = row_of(p, a, s);
      wrong += r.wrong;
      if (builder)
        add_json(builder, &r);
      else
        printf("%-6s %-12s %12" G_GUINT64_FORMAT " %12.1f %9.3f %9.3f %12" G_GUINT64_FORMAT
               " %7" G_GUINT64_FORMAT "\n",
               r.transport, r.algorithm, r.bytes, r.seconds * 1e6, r.algbw, r.busbw, r.wire,
               r.wrong);
    }
  return wrong;
}

static int run_all(bench_plan *p, char **transports, gboolean json) {
  g_autoptr(JsonBuilder) builder = json ? json_builder_new() : NULL;
  guint64 wrong = 0;
  int code = WEIR_EXIT_DONE;
  if (json) {
    json_builder_begin_object(builder);
    json_builder_set_member_name(builder, "ranks");
    json_builder_add_int_value(builder, p->ranks);
    json_builder_set_member_name(builder, "collective");
    json_builder_add_string_value(builder, bench_kind_names[p->kind]);
    json_builder_set_member_name(builder, "format");
    json_builder_add_string_value(builder, p->format == WEIR_VALUE_BF16 ? "bf16" : "fp32");
    json_builder_set_member_name(builder, "rows");
    json_builder_begin_array(builder);
  } else {
    printf("# %s, %d ranks; wire: bytes the busiest rank sends in one operation\n",
           bench_kind_names[p->kind], p->ranks);
    printf("%-6s %-12s %12s %12s %9s %9s %12s %7s\n", "", "algorithm", "size(B)", "time(us)",
           "algbw", "busbw", "wire(B)", "#wrong");
  }
  for (char **t = transports; *t && code == WEIR_EXIT_DONE; t++) {
    p->transport = *t;
    code = run_transport(p);
    if (code == WEIR_EXIT_DONE) wrong += report(p, builder);
  }
  if (code != WEIR_EXIT_DONE) return code;
  if (json) {
    json_builder_end_array(builder);
    json_builder_end_object(builder);
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    g_autofree char *text = json_to_string(root, FALSE);
    puts(text);
  }
  return wrong == 0 ? WEIR_EXIT_DONE : WEIR_EXIT_FAILED;
}

/* --- the command line ----------------------------------------------------------------------- */

typedef struct arguments {
  char *collective, *transport, *algorithm, *sizes, *format;
  int ranks, repeats;
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

static int parse(const arguments *a, char **transports, bench_plan *p) {
  for (char **t = transports; *t; t++)
    if (strcmp(*t, "tcp") != 0 && strcmp(*t, "shm") != 0)
      return refuse("transport", a->transport, "tcp, shm or tcp,shm");
  if (!*transports) return refuse("transport", a->transport, "tcp, shm or tcp,shm");
  int kind = 0;
  while (kind < BENCH_KINDS && strcmp(a->collective, bench_kind_names[kind]) != 0) kind++;
  if (kind == BENCH_KINDS)
    return refuse("collective", a->collective,
                  "all-reduce, broadcast, all-gather, reduce-scatter, reduce, gather or "
                  "all-to-all");
  p->kind = (bench_kind)kind;
  if (!parse_algorithms(a->algorithm, p)) {
    g_autoptr(GString) known = g_string_new("all or some of");
    for (guint32 r = 0; weir_bench_row_name(p->kind, r); r++)
      g_string_append_printf(known, "%s%s", r ? "," : " ", weir_bench_row_name(p->kind, r));
    return refuse("algorithm", a->algorithm, known->str);
  }
  g_auto(GStrv) sizes = g_strsplit(a->sizes, ",", -1);
  if (!*sizes || g_strv_length(sizes) > SIZES_MAX)
    return refuse("sizes", a->sizes, "up to 32 sizes such as 4K,1M");
  for (char **s = sizes; *s; s++)
    if (!parse_size(*s, &p->elements[p->sizes++]))
      return refuse("sizes", *s, "bytes, a multiple of 4 up to 1024M, such as 4096, 64K, 16M");
  if (strcmp(a->format, "fp32") != 0 && strcmp(a->format, "bf16") != 0)
    return refuse("format", a->format, "fp32 or bf16");
  p->format = a->format[0] == 'b' ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32;
  p->ranks = a->ranks;
  p->repeats = a->repeats;
  if (p->ranks < 2 || p->ranks > RANKS_MAX || p->repeats < 1 || p->repeats > REPEATS_MAX) {
    fprintf(stderr, "weir bench collectives: expected --ranks 2 to %d and --repeats 1 to %d\n",
            RANKS_MAX, REPEATS_MAX);
    return WEIR_EXIT_USAGE;
  }
  for (gsize s = 0; s < p->sizes; s++)
    if (p->elements[s] < (gsize)p->ranks && bus_share(p->kind, p->ranks) < 1.0)
      return refuse("sizes", a->sizes, "at least 4 bytes a rank for this collective");
  return WEIR_EXIT_DONE;
}

static int run_parsed(const arguments *a) {
  g_auto(GStrv) transports = g_strsplit(a->transport, ",", -1);
  bench_plan p = {.job = (guint64)getpid()};
  int code = parse(a, transports, &p);
  if (code != WEIR_EXIT_DONE) return code;
  p.board_bytes = sizeof(board) + ROWS_MAX * p.sizes * sizeof(cell);
  p.board = mmap(NULL, p.board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p.board == MAP_FAILED) {
    fprintf(stderr, "weir bench collectives: out of memory\n");
    return WEIR_EXIT_FAILED;
  }
  code = run_all(&p, transports, a->json);
  (void)munmap(p.board, p.board_bytes);
  return code;
}

int weir_bench_collectives(int argc, char **argv) {
  arguments a = {.ranks = 4, .repeats = 7};
  const GOptionEntry entries[] = {
      {"collective", 0, 0, G_OPTION_ARG_STRING, &a.collective, "default: all-reduce", "NAME"},
      {"transport", 0, 0, G_OPTION_ARG_STRING, &a.transport, "tcp, shm (default: both)", "LIST"},
      {"algorithm", 0, 0, G_OPTION_ARG_STRING, &a.algorithm, "rows (default: all)", "LIST"},
      {"ranks", 0, 0, G_OPTION_ARG_INT, &a.ranks, "processes (default 4)", "N"},
      {"sizes", 0, 0, G_OPTION_ARG_STRING, &a.sizes, "bytes of fp32 (default 4K,64K,1M)", "LIST"},
      {"format", 0, 0, G_OPTION_ARG_STRING, &a.format, "on the wire: fp32 (default), bf16", "F"},
      {"repeats", 0, 0, G_OPTION_ARG_INT, &a.repeats, "loops to take the median of (7)", "N"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "Print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  g_autoptr(GOptionContext) context = g_option_context_new("- collectives between processes");
  g_option_context_add_main_entries(context, entries, NULL);
  g_autoptr(GError) error = NULL;
  int code = WEIR_EXIT_USAGE;
  if (!g_option_context_parse(context, &argc, &argv, &error)) {
    fprintf(stderr, "weir bench collectives: %s\n", error->message);
  } else if (argc > 1) {
    fprintf(stderr, "weir bench collectives: unexpected argument '%s'\n", argv[1]);
  } else {
    if (!a.collective) a.collective = g_strdup("all-reduce");
    if (!a.transport) a.transport = g_strdup("tcp,shm");
    if (!a.algorithm) a.algorithm = g_strdup("all");
    if (!a.sizes) a.sizes = g_strdup("4K,64K,1M");
    if (!a.format) a.format = g_strdup("fp32");
    code = run_parsed(&a);
  }
  g_free(a.collective);
  g_free(a.transport);
  g_free(a.algorithm);
  g_free(a.sizes);
  g_free(a.format);
  return code;
}
