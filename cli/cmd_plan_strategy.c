/* `weir plan strategy`: how each tensor is compressed and sent on a cluster of machines. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "cli.h"
#include "plan.h"
#include "planner/execute.h"
#include "planner/published.h"
#include "planner/strategy.h"
#include "planner/timeline.h"

typedef struct strategy_found {
  const weir_profile *profile; /* tensors, or buckets of them */
  const weir_cluster *cluster;
  const weir_strategy_report *report;
  weir_strategy_method method; /* whose strategy is shown */
  const size_t *end;           /* of the buckets; NULL without fusion */
  double solve_s;
} strategy_found;

/* The tables and the JSON of `weir plan strategy`. */

static void string(weir_doc *builder, const char *name, const char *value) {
  weir_doc_text(builder, name, value);
}

static void json_methods(weir_doc *builder, const weir_strategy_report *report) {
  weir_doc_object(builder, "methods");
  for (int m = 0; m < WEIR_STRATEGY_METHODS; m++)
    if (report->by[m].count)
      weir_doc_number(builder, weir_strategy_name((weir_strategy_method)m),
                      report->by[m].iteration_s * 1e3);
  weir_doc_end(builder);
  if (!report->by[WEIR_STRATEGY_EXACT].count) return;
  weir_doc_flag(builder, "exact", report->exact);
}

static void json_buckets(weir_doc *builder, const size_t *end, size_t count) {
  weir_doc_list(builder, "groups");
  for (size_t k = 0; k < count; k++) {
    weir_doc_list(builder, NULL);
    weir_doc_whole(builder, NULL, k ? (gint64)end[k - 1] : 0);
    weir_doc_whole(builder, NULL, (gint64)end[k] - 1);
    weir_doc_end_list(builder);
  }
  weir_doc_end_list(builder);
}

static void plan_strategy_json(const strategy_found *f) {
  const weir_strategy *chosen = &f->report->by[f->method];
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_number(builder, "iteration_ms", chosen->iteration_s * 1e3);
  if (f->report->upper_bound_s > 0.0)
    weir_doc_number(builder, "upper_bound_ms", f->report->upper_bound_s * 1e3);
  json_methods(builder, f->report);
  if (f->end) json_buckets(builder, f->end, f->profile->count);
  weir_doc_list(builder, "tensors");
  for (size_t i = 0; i < chosen->count; i++) {
    const weir_strategy_choice *choice = &chosen->choice[i];
    char text[512];
    (void)weir_option_text(&choice->option, text, sizeof text);
    weir_doc_object(builder, NULL);
    string(builder, "tensor", f->profile->tensors[i].name);
    string(builder, "codec", choice->compressed ? f->cluster->codec[choice->codec].name : "none");
    string(builder, "option", text);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
  weir_doc_whole(builder, "options", (gint64)f->report->options);
  if (f->report->timelines) weir_doc_whole(builder, "timelines", (gint64)f->report->timelines);
  weir_doc_number(builder, "solve_ms", f->solve_s * 1e3);
  weir_doc_print(builder);
}

static size_t compressed_of(const weir_strategy *strategy) {
  size_t count = 0;
  for (size_t i = 0; i < strategy->count; i++) count += strategy->choice[i].compressed;
  return count;
}

static void plan_strategy_table(const strategy_found *f) {
  const weir_strategy_report *r = f->report;
  const weir_strategy *chosen = &r->by[f->method];
  printf("%zu %s, %zu options; found in %.3f ms\n\n  %-17s %10s %14s\n", f->profile->count,
         f->end ? "groups" : "tensors", r->options, f->solve_s * 1e3, "method", "compressed",
         "iteration");
  for (int m = 0; m < WEIR_STRATEGY_METHODS; m++) {
    const weir_strategy *s = &r->by[m];
    if (!s->count) continue;
    printf("  %-17s %10zu %11.4f ms  %.3f x%s\n", weir_strategy_name((weir_strategy_method)m),
           compressed_of(s), s->iteration_s * 1e3,
           chosen->iteration_s > 0.0 ? s->iteration_s / chosen->iteration_s : 1.0,
           m == WEIR_STRATEGY_EXACT && !r->exact ? "  cut short" : "");
  }
  if (r->upper_bound_s > 0.0)
    printf("  %-17s %10s %11.4f ms  compression free of charge\n", "upper bound", "",
           r->upper_bound_s * 1e3);
  putchar('\n');
  printf("  %12s  %-8s  %s\n", "MB", "codec", f->end ? "last tensor: option" : "tensor: option");
  for (size_t i = 0; i < chosen->count; i++) {
    const weir_strategy_choice *choice = &chosen->choice[i];
    char text[512];
    (void)weir_option_text(&choice->option, text, sizeof text);
    printf("  %12.4f  %-8s  %s: %s\n", weir_profile_bytes(f->profile, i) * 1e-6,
           choice->compressed ? f->cluster->codec[choice->codec].name : "none",
           f->profile->tensors[i].name, text);
  }
}

static const char command[] = "weir plan strategy";
static const char summary[] =
    "Decides how each tensor is compressed and sent on a cluster of machines with several workers.";
static const char description[] =
    "PROFILE.csv has the columns tensor,numel,gap_us, one line a tensor in backward order. With\n"
    "--list-options instead, the paths of the decision tree are printed, one a line, first task\n"
    "first. A star marks communication of compressed data; flat is all workers at once, intra\n"
    "and inter are inside and between machines. Without constraints there are 4341 options, as\n"
    "published (63 flat, 4278 hierarchical). Unsatisfiable constraints exit with 2.\n"
    "--list-executed counts those that the engine executes, and by which collective.\n"
    "\n"
    "Links are US,GBPS: one-way latency in microseconds and bandwidth in Gbit/s. All workers of a\n"
    "machine share its one link to the others. Compression costs A milliseconds an operation and\n"
    "B a megabyte (10^6 bytes) of dense data; decompression costs the same per megabyte it makes,\n"
    "unless given. RATIO is the share of the dense bytes that a codec sends.\n"
    "\n"
    "iteration_ms is from the beginning of the backward pass to the end of the last operation.\n"
    "methods lists what each finds: the fixed policies none, layer-wise (all compressed) and\n"
    "myopic (each tensor's fastest option); Algorithm 1 of ByteComp in parts of the tree, whose\n"
    "searches --compare runs to their end; bytecomp (with CPU offloading); weir (never worse than\n"
    "the others that were run); exact (--exact). upper_bound_ms is the same search if compression\n"
    "took no time (not with --fuse, which takes no more processor time than --fuse-ms).\n"
    "--search published shows bytecomp as found by Algorithms 1 and 2 as they are printed, every\n"
    "option tried, nothing pruned: seconds for hundreds of tensors; timelines are those worked "
    "out.\n"
    "\n"
    "--out writes the strategy that is shown as a table of buckets, which `weir run --policy\n"
    "groups:TABLE` executes. NAME of a codec is then CODEC:CR as in plans, and its RATIO is the\n"
    "planner's: dgc:0.01,0.02 keeps a hundredth at 8 bytes an element. Compression on the GPU\n"
    "becomes that on the trainer's thread, on the CPU that on the session's; what follows the\n"
    "first communication runs on the session's. Options that a codec does not go with are not\n"
    "tried; with --search published they exit with 2.\n"
    "Exit codes: 0 done; 2 bad usage or bad input (file, line, what was expected).";

typedef struct strategy_arguments {
  gboolean list, executed, json, no_gpu, no_cpu, no_flat, no_tree, no_whole, no_divided, compressed;
  gboolean compare, fuse;
  gint most, machines, per_machine, cores;
  double exact, fuse_ms;
  char *intra, *inter, *gpu, *cpu, *gpu_back, *cpu_back, *forbid, *plain, *trace, *search, *out,
      **codecs;
} strategy_arguments;

typedef struct listing {
  weir_doc *builder; /* NULL: lines */
} listing;

static void print_option(void *user, const weir_option *option) {
  const listing *l = user;
  char text[512];
  (void)weir_option_text(option, text, sizeof text);
  if (l->builder)
    weir_doc_text(l->builder, NULL, text);
  else
    puts(text);
}

static int list_executed(const weir_option_limits *limits, gboolean json) {
  weir_executed e;
  const weir_status status = weir_options_executed(limits, &e);
  if (status != WEIR_OK) return plan_failed(command, status);
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_whole(builder, "count", (gint64)e.options);
  weir_doc_whole(builder, "executed", (gint64)e.options);
  weir_doc_whole(builder, "placed", (gint64)e.placed);
  if (!json) printf("%zu of %zu options are executed on host memory\n", e.options, e.options);
  for (size_t i = 0; i < WEIR_EXECUTED && e.run[i] > 0; i++) {
    weir_doc_whole(builder, e.collective[i], (gint64)e.run[i]);
    if (!json) printf("  %6zu  %s\n", e.run[i], e.collective[i]);
  }
  if (!json)
    printf(
        "%zu of them with every task at its place; the others place compression behind the first\n"
        "communication on the GPU, and it runs on the session's thread\n",
        e.placed);
  if (json) weir_doc_print(builder);
  return WEIR_EXIT_DONE;
}

static int list(const weir_option_limits *limits, gboolean json) {
  listing l = {0};
  size_t count = 0;
  const weir_status status = weir_options_visit(limits, NULL, NULL, &count);
  if (status != WEIR_OK) return plan_failed(command, status);
  if (!json) {
    (void)weir_options_visit(limits, print_option, &l, &count);
    printf("%zu options\n", count);
    return WEIR_EXIT_DONE;
  }
  g_autoptr(JsonBuilder) builder = json_builder_new();
  l.builder = builder;
  weir_doc_object(builder, NULL);
  weir_doc_whole(builder, "count", (gint64)count);
  weir_doc_list(builder, "options");
  (void)weir_options_visit(limits, print_option, &l, &count);
  weir_doc_end_list(builder);
  weir_doc_print(builder);
  return WEIR_EXIT_DONE;
}

/* --- from arguments to a cluster and limits ------------------------------------------------- */

/* NAME,RATIO, cut in place. */
static gboolean codec_of(char *text, weir_cluster_codec *codec) {
  char *comma = strchr(text, ',');
  if (!comma || comma == text || !plan_numbers(comma + 1, 1, &codec->ratio)) return FALSE;
  *comma = '\0';
  codec->name = text;
  return codec->ratio > 0.0 && codec->ratio <= 1.0;
}

/* CODEC:CR, as a table's plans name it, of a codec that some option can be executed with. */
static gboolean executable(const char *codec) {
  weir_plan plan;
  g_autofree char *gathered = g_strconcat(codec, ":ag", NULL);
  g_autofree char *path = g_strconcat(codec, ":path=c.ag.d", NULL);
  return weir_plan_parse(gathered, &plan) == WEIR_OK || weir_plan_parse(path, &plan) == WEIR_OK;
}

static int read_cluster(const strategy_arguments *a, weir_cluster *c) {
  weir_cluster_codec *first = &c->codec[0];
  *c = (weir_cluster){.machines = (size_t)a->machines,
                      .per_machine = (size_t)a->per_machine,
                      .cpu_cores = (size_t)a->cores,
                      .codecs = 1,
                      .codec = {{.name = "dgc:0.01", .ratio = 0.02}}};
  if (a->machines < 1 || a->per_machine < 1 || a->cores < 1)
    return plan_refuse(command, "--machines, --per-machine and --cpu-cores", "numbers from 1");
  if (!plan_link(a->intra ? a->intra : "10,1000", &c->intra_alpha_s, &c->intra_beta_s))
    return plan_refuse(command, "--intra", plan_links);
  if (!plan_link(a->inter ? a->inter : "30,100", &c->inter_alpha_s, &c->inter_beta_s))
    return plan_refuse(command, "--inter", plan_links);
  const char *gpu = a->gpu ? a->gpu : "0.05,0.05", *cpu = a->cpu ? a->cpu : "0.02,0.5";
  if (!plan_curve(gpu, &first->compress[WEIR_SITE_GPU]))
    return plan_refuse(command, "--gpu-ms", plan_costs);
  if (!plan_curve(cpu, &first->compress[WEIR_SITE_CPU]))
    return plan_refuse(command, "--cpu-ms", plan_costs);
  if (!plan_curve(a->gpu_back ? a->gpu_back : gpu, &first->decompress[WEIR_SITE_GPU]))
    return plan_refuse(command, "--gpu-decompress-ms", plan_costs);
  if (!plan_curve(a->cpu_back ? a->cpu_back : cpu, &first->decompress[WEIR_SITE_CPU]))
    return plan_refuse(command, "--cpu-decompress-ms", plan_costs);
  for (size_t k = 0; a->codecs && a->codecs[k]; k++) {
    if (k == WEIR_CLUSTER_CODECS) return plan_refuse(command, "--codec", "at most 4 of them");
    c->codec[k] = c->codec[0];
    if (!codec_of(a->codecs[k], &c->codec[k]))
      return plan_refuse(command, "--codec", "NAME,RATIO with a ratio above 0, to 1");
    g_autofree char *option = g_strdup_printf("--codec %s with --out", c->codec[k].name);
    if (a->out && !executable(c->codec[k].name))
      return plan_refuse(command, option,
                         "CODEC:CR,RATIO of a codec that goes with collective ag, such as "
                         "dgc:0.01,0.02");
    c->codecs = k + 1;
  }
  return WEIR_EXIT_DONE;
}

/* Names of routines, separated by commas, to a set of them. */
static int read_forbidden(const char *text, uint32_t *never) {
  g_auto(GStrv) words = g_strsplit(text ? text : "", ",", -1);
  for (char **word = words; text && *word; word++) {
    gboolean known = FALSE;
    for (int task = WEIR_TASK_COMM; task < WEIR_TASKS; task++)
      for (size_t routine = 0; routine < 2; routine++)
        if (!strcmp(*word, weir_routine_name((weir_task)task, routine))) {
          *never |= UINT32_C(1) << (2 * (size_t)task + routine);
          known = TRUE;
        }
    if (known) continue;
    g_autofree char *option = g_strdup_printf("--forbid %s", text);
    return plan_refuse(command, option, "routines as --list-options names them, all-gather*, ...");
  }
  return WEIR_EXIT_DONE;
}

/* Which codecs each tensor may use: none where its name holds one of the patterns. */
static uint8_t *allowed_codecs(const weir_profile *profile, const char *patterns) {
  g_auto(GStrv) words = g_strsplit(patterns ? patterns : "", ",", -1);
  uint8_t *allowed = g_malloc(profile->count);
  for (size_t i = 0; i < profile->count; i++) {
    allowed[i] = UINT8_MAX;
    for (char **word = words; *word; word++)
      if (**word && strcasestr(profile->tensors[i].name, *word)) allowed[i] = 0;
  }
  return allowed;
}

/* --- solving -------------------------------------------------------------------------------- */

static weir_status write_table(const strategy_found *found, const char *path) {
  const weir_strategy *chosen = &found->report->by[found->method];
  g_autoptr(GString) table = g_string_new(NULL);
  for (size_t i = 0; i < chosen->count; i++) {
    const weir_strategy_choice *choice = &chosen->choice[i];
    const char *tensor = found->profile->tensors[i].name;
    weir_plan plan;
    weir_place place;
    const weir_status status =
        weir_option_plan(&choice->option, found->cluster->codec[choice->codec].name, &plan, &place);
    if (status != WEIR_OK) {
      g_autofree char *why = g_strdup(weir_last_error());
      return weir_fail(status, "tensor '%s': %s", tensor, why);
    }
    plan_table_add(table, tensor, &plan, place);
  }
  return cli_write(path, table);
}

static weir_status show(const strategy_found *found, const strategy_arguments *a) {
  if (a->trace) {
    weir_timeline timeline;
    weir_status status = weir_strategy_timeline(found->profile, found->cluster,
                                                &found->report->by[found->method], &timeline);
    if (status == WEIR_OK) status = weir_timeline_trace(&timeline, found->profile, a->trace);
    weir_timeline_free(&timeline);
    if (status != WEIR_OK) return status;
  }
  if (a->out) {
    const weir_status status = write_table(found, a->out);
    if (status != WEIR_OK) return status;
  }
  if (a->json)
    plan_strategy_json(found);
  else
    plan_strategy_table(found);
  return WEIR_OK;
}

static weir_status solve(const weir_profile *profile, const weir_cluster *cluster,
                         const weir_strategy_limits *limits, const strategy_arguments *a) {
  weir_strategy_report report = {0};
  weir_strategy_fusion fusion = {0};
  const gboolean published = g_strcmp0(a->search, "published") == 0;
  weir_status status = published ? weir_strategy_published(profile, cluster, limits, &report)
                       : a->fuse ? weir_strategy_fuse(profile, cluster, limits, &fusion)
                                 : weir_strategy_solve(profile, cluster, limits, &report);
  const strategy_found found = {a->fuse ? &fusion.profile : profile,
                                cluster,
                                a->fuse ? &fusion.report : &report,
                                published ? WEIR_STRATEGY_BYTECOMP : WEIR_STRATEGY_WEIR,
                                fusion.end,
                                a->fuse ? fusion.solve_s : report.solve_s};
  if (status == WEIR_OK) status = show(&found, a);
  weir_strategy_report_free(&report);
  weir_strategy_fusion_free(&fusion);
  return status;
}

static int run(const char *path, const weir_option_limits *options, const strategy_arguments *a) {
  weir_cluster cluster;
  weir_profile profile;
  if (!(a->exact >= 0.0)) return plan_refuse(command, "--exact", "a number from 0");
  if (!(a->fuse_ms > 0.0)) return plan_refuse(command, "--fuse-ms", "a number above 0");
  if (a->search && strcmp(a->search, "fast") != 0 && strcmp(a->search, "published") != 0)
    return plan_refuse(command, "--search", "fast or published");
  if (g_strcmp0(a->search, "published") == 0 && (a->fuse || a->compare || a->exact > 0.0))
    return plan_refuse(command, "--search published", "no --fuse, --compare or --exact beside it");
  const int code = read_cluster(a, &cluster);
  if (code != WEIR_EXIT_DONE) return code;
  weir_status status = weir_profile_load(&profile, path);
  if (status != WEIR_OK) return plan_failed(command, status);
  g_autofree uint8_t *codecs = allowed_codecs(&profile, a->plain);
  const weir_strategy_limits limits = {.options = *options,
                                       .codecs = codecs,
                                       .executable = a->out != NULL,
                                       .compare = a->compare,
                                       .exact_work = a->exact,
                                       .fuse_s = a->fuse_ms * 1e-3};
  status = solve(&profile, &cluster, &limits, a);
  weir_profile_free(&profile);
  return status == WEIR_OK ? WEIR_EXIT_DONE : plan_failed(command, status);
}

static int act(const strategy_arguments *a, int argc, char **argv) {
  if (a->most < 0) return plan_refuse(command, "--most-compressions", "a number from 0 (any)");
  weir_option_limits limits = {.no_gpu = a->no_gpu,
                               .no_cpu = a->no_cpu,
                               .no_flat = a->no_flat,
                               .no_hierarchical = a->no_tree,
                               .no_indivisible = a->no_whole,
                               .no_divisible = a->no_divided,
                               .compressed_only = a->compressed,
                               .most_compressions = (size_t)a->most};
  const int code = read_forbidden(a->forbid, &limits.never);
  if (code != WEIR_EXIT_DONE) return code;
  if ((a->list || a->executed) && argc > 1)
    return plan_refuse(command, argv[1], "no file with --list-options and --list-executed");
  if (a->executed) return list_executed(&limits, a->json);
  if (a->list) return list(&limits, a->json);
  if (argc != 2)
    return plan_refuse(command, "file", "one PROFILE.csv, or --list-options or --list-executed");
  return run(argv[1], &limits, a);
}

int plan_strategy(int argc, char **argv) {
  strategy_arguments a = {
      .machines = 8, .per_machine = 8, .cores = 4, .fuse_ms = 1e3 * WEIR_STRATEGY_FUSE_S};
  const GOptionEntry entries[] = {
      {"list-options", 0, 0, G_OPTION_ARG_NONE, &a.list, "list and count the options", NULL},
      {"list-executed", 0, 0, G_OPTION_ARG_NONE, &a.executed,
       "count the options that the engine executes", NULL},
      {"machines", 0, 0, G_OPTION_ARG_INT, &a.machines, "machines (8)", "N"},
      {"per-machine", 0, 0, G_OPTION_ARG_INT, &a.per_machine, "workers in each (8)", "N"},
      {"intra", 0, 0, G_OPTION_ARG_STRING, &a.intra, "links inside a machine (10,1000)", "US,GBPS"},
      {"inter", 0, 0, G_OPTION_ARG_STRING, &a.inter, "a machine's link (30,100)", "US,GBPS"},
      {"codec", 0, 0, G_OPTION_ARG_STRING_ARRAY, &a.codecs,
       "a codec that may be used, up to 4 (dgc:0.01,0.02)", "NAME,RATIO"},
      {"gpu-ms", 0, 0, G_OPTION_ARG_STRING, &a.gpu, "compression on the GPU (0.05,0.05)", "A,B"},
      {"cpu-ms", 0, 0, G_OPTION_ARG_STRING, &a.cpu, "compression on the CPU (0.02,0.5)", "A,B"},
      {"gpu-decompress-ms", 0, 0, G_OPTION_ARG_STRING, &a.gpu_back, "decompression there", "A,B"},
      {"cpu-decompress-ms", 0, 0, G_OPTION_ARG_STRING, &a.cpu_back, "decompression there", "A,B"},
      {"cpu-cores", 0, 0, G_OPTION_ARG_INT, &a.cores, "cores that compress (4)", "N"},
      {"no-gpu", 0, 0, G_OPTION_ARG_NONE, &a.no_gpu, "never compress on the GPU", NULL},
      {"no-cpu", 0, 0, G_OPTION_ARG_NONE, &a.no_cpu, "never compress on the CPU", NULL},
      {"no-flat", 0, 0, G_OPTION_ARG_NONE, &a.no_flat, "no flat communication", NULL},
      {"no-hierarchical", 0, 0, G_OPTION_ARG_NONE, &a.no_tree, "no hierarchical communication",
       NULL},
      {"no-indivisible", 0, 0, G_OPTION_ARG_NONE, &a.no_whole, "no indivisible schemes", NULL},
      {"no-divisible", 0, 0, G_OPTION_ARG_NONE, &a.no_divided, "no divisible schemes", NULL},
      {"forbid", 0, 0, G_OPTION_ARG_STRING, &a.forbid, "routines never used", "ROUTINES"},
      {"compressed", 0, 0, G_OPTION_ARG_NONE, &a.compressed, "at least one compression", NULL},
      {"most-compressions", 0, 0, G_OPTION_ARG_INT, &a.most, "at most N compressions a tensor",
       "N"},
      {"plain", 0, 0, G_OPTION_ARG_STRING, &a.plain,
       "tensors whose names hold one of these are not compressed", "PATTERNS"},
      {"compare", 0, 0, G_OPTION_ARG_NONE, &a.compare, "run all crippled searches too", NULL},
      {"exact", 0, 0, G_OPTION_ARG_DOUBLE, &a.exact, "look for the optimum, trying at most N", "N"},
      {"fuse", 0, 0, G_OPTION_ARG_NONE, &a.fuse, "decide buckets of tensors as well", NULL},
      {"fuse-ms", 0, 0, G_OPTION_ARG_DOUBLE, &a.fuse_ms, "for no longer than this (16)", "MS"},
      {"search", 0, 0, G_OPTION_ARG_STRING, &a.search, "fast (default) or published", "WHICH"},
      {"trace", 0, 0, G_OPTION_ARG_FILENAME, &a.trace, "write the timeline for Perfetto", "FILE"},
      {"out", 0, 0, G_OPTION_ARG_FILENAME, &a.out,
       "write the strategy for policy groups:", "TABLE"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  const cli_help help = {command, "[PROFILE.csv]", summary, description};
  const int code = cli_parse(&help, entries, &argc, &argv) ? act(&a, argc, argv) : WEIR_EXIT_USAGE;
  cli_forget(entries);
  return code;
}
