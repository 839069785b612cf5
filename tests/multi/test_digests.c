/* What every plan computes, bit for bit, against digests that were written down before the data way
 * was changed (tests/digests/table.txt): averages and residuals of twenty steps with changes of
 * plan and a trial that is rolled back, for every legal codec, collective and wire format, and for
 * some paths and buckets of elements, on 1 to 8 ranks.
 *
 *   WEIR_DIGESTS_ALL=1        compares all rows and seeds, with each version of the vector passes
 *   WEIR_DIGESTS_WRITE=FILE   writes the table there instead of comparing with it
 *   WEIR_DIGESTS_ROW=KEY      runs that row alone and prints the digests of every step, to find the
 *                             first one in which two builds differ */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../planned.h"
#include "../sampled.h"
#include "base/base.h"
#include "base/schemes.h"
#include "group.h"
#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"
#include "script.h"

/* --- the table in its file -------------------------------------------------------------------- */

/* One line a row: "COURSE MACHINES PLAN" and then either "refused" or "AVERAGES/RESIDUALS" for each
 * seed.  Lines that begin with '#' say what the table is. */

enum { DIGEST_SEEDS = 3, DIGEST_KEY = 112, DIGEST_ROWS = 4000 };

typedef struct digest_row {
  char key[DIGEST_KEY];
  bool refused, seen;
  int seeds;
  uint64_t averages[DIGEST_SEEDS], residuals[DIGEST_SEEDS];
} digest_row;

typedef struct digest_table {
  digest_row *row;
  size_t rows;
} digest_table;

static void digest_print(FILE *to, const digest_row *row) {
  (void)fprintf(to, "%s%s", row->key, row->refused ? " refused" : "");
  for (int s = 0; s < row->seeds; s++)
    (void)fprintf(to, " %016" PRIx64 "/%016" PRIx64, row->averages[s], row->residuals[s]);
  (void)fputc('\n', to);
}

/* Takes the fields apart behind the three words of the key; false: they are not a row's. */
static bool digest_read_row(char *line, digest_row *row) {
  char course[24], machines[24], plan[64];
  int used = 0;
  *row = (digest_row){0};
  if (sscanf(line, "%23s %23s %63s%n", course, machines, plan, &used) != 3) return false;
  (void)snprintf(row->key, sizeof row->key, "%s %s %s", course, machines, plan);
  line[strcspn(line, "\n")] = '\0';
  row->refused = strcmp(line + used, " refused") == 0;
  if (row->refused) return true;
  for (char *at = line + used; *at != '\0'; at += used, row->seeds++) {
    const int s = row->seeds;
    if (s == DIGEST_SEEDS || sscanf(at, " %16" SCNx64 "/%16" SCNx64 "%n", &row->averages[s],
                                    &row->residuals[s], &used) != 2)
      return false;
  }
  return row->seeds > 0;
}

/* The row of that key; NULL: there is none. */
static digest_row *digest_find(const digest_table *table, const char *key) {
  for (size_t i = 0; i < table->rows; i++)
    if (strcmp(table->row[i].key, key) == 0) return &table->row[i];
  return NULL;
}

/* False: the file is not there, or a line of it is no row, or there twice. */
static bool digest_read(const char *path, digest_table *table) {
  char line[256];
  FILE *file = fopen(path, "re");
  *table = (digest_table){calloc(DIGEST_ROWS, sizeof(digest_row)), 0};
  bool good = file != NULL && table->row != NULL;
  while (good && fgets(line, sizeof line, file) != NULL) {
    if (line[0] == '#') continue;
    digest_row *row = &table->row[table->rows];
    good = table->rows + 1 < DIGEST_ROWS && digest_read_row(line, row) &&
           digest_find(table, row->key) == NULL;
    table->rows += good;
  }
  if (file != NULL) (void)fclose(file);
  return good;
}

static void digest_free(digest_table *table) {
  free(table->row);
  *table = (digest_table){0};
}

enum { TENSORS = 11, STEPS = 20, PLANS_MAX = 512 };
#define MOMENTUM 0.9

typedef enum kind {
  PLAIN,
  MOMENTUM_CORRECTED,
  LARGE,
  GROUPS,
  BUCKETS_MOMENTUM,
  WINDOWS,
  KINDS
} kind;
static const char *const kind_name[KINDS] = {"plain",  "momentum",        "large",
                                             "groups", "groups-momentum", "windows"};

/* Tensors as they are registered: matrices of rows x columns, or vectors (rows 0). */
typedef struct shape {
  size_t rows, columns;
} shape;
/* Some are empty, one has one element; the sum is a multiple of no vector's width. */
static const shape small[TENSORS] = {{0, 0},   {0, 1},   {0, 129}, {24, 36}, {0, 0}, {0, 517},
                                     {40, 25}, {0, 333}, {0, 3},   {17, 13}, {0, 5}};
static const shape large[TENSORS] = {{0, 0},     {0, 1},   {0, 20011}, {24, 36}, {0, 0}, {0, 517},
                                     {250, 200}, {0, 333}, {0, 3},     {17, 13}, {0, 5}};

typedef struct course {
  kind kind;
  const char *machines; /* a letter a rank */
  weir_plan plan;
  char key[DIGEST_KEY];
  int steps;
  int first, last; /* seeds, from 0 */
  bool print;      /* the digests of every step */
  script_step script[STEPS];
  size_t offset[TENSORS + 1], rows[TENSORS];
  int refused[GROUP_MAX];
  uint64_t averages[GROUP_MAX][DIGEST_SEEDS], residuals[GROUP_MAX][DIGEST_SEEDS];
} course;

/* --- plans ------------------------------------------------------------------------------------ */

/* Whatever the codec is, one of these ratios is legal: most of them for selections, 1 for dense
 * codecs, bits an element / 32 for encoders, rank / 64 for low rank. */
static const double usual[] = {0.125, 0.0625, 0.03125, 0.5, 1, 0.25, 0};
static const double fewer[] = {0.01, 0.25, 0.0625, 0.03125, 0.5, 1, 0};
static const double more[] = {0.4, 0.21875, 0.0625, 0.03125, 0.5, 1, 0};

/* The plan with the first of these ratios that it may have; false: with none. */
static bool with_ratio(weir_plan *plan, const double *ratio) {
  for (; *ratio > 0; ratio++) {
    plan->cr = *ratio;
    if (weir_plan_check(plan) == WEIR_OK) return true;
  }
  return false;
}

/* Of all-gathers one stands for all: what is added up, and when, does not depend on them.  What
 * only NCCL runs, no group here does. */
static bool tells_sums_apart(const weir_plan *plan) {
  return !weir_sums_as_told(plan) &&
         (plan->algorithm == WEIR_ALGORITHM_ANY) ==
             (plan->scheme == WEIR_SCHEME_GATHER || plan->scheme == WEIR_SCHEME_HITOPK);
}

/* A few of what names of collectives and codecs do not tell: exchanges task by task, and buckets of
 * other sizes than the usual one. */
static const char *const named_plans[] = {"none:1:path=r.ar.b",
                                          "none:1:path=rs.ar.ag",
                                          "topk:0.125:path=c.ag.d",
                                          "topk:0.125:path=rs.c.ag.ag.d",
                                          "mstopk:0.125:path=c.a2a.a2a.ag.ag.d:auto-bf16",
                                          "sidco:0.125:path=c.g.d.b:auto-fp16",
                                          "onebit:0.03125:path=r.c.g.d.c.b.d.c.b.d",
                                          "fp16:0.5:path=c.a2a.d.c.a2a.d.c.ag.d.c.ag.d",
                                          "qsgd:0.125:path=c.a2a.d.c.g.d.b.ag",
                                          "qsgd:0.125:path=c.a2a.a2a.ag.ag.d:bucket=1024",
                                          "qsgd:0.125:ag:bucket=1024",
                                          "qsgd:0.0625:sra:bucket=64",
                                          "qsgd:0.125:hier-sra:bucket=256",
                                          "qsgd-nearest:0.15625:compressed-tree:bucket=512",
                                          "qsgd-l2:0.25:compressed-ring:bucket=8192",
                                          "qsgd-l2-nearest:0.21875:ag:bucket=2048",
                                          "powersgd:8:dense-sra",
                                          "companded:0.109375:sra",
                                          "companded:0.109375:ag",
                                          "powersgd:8:dense-one-shot",
                                          "bilateral:4:dense-sra",
                                          "bilateral:4:dense-one-shot"};

static size_t legal_plans(weir_plan *plan) {
  size_t count = 0;
  weir_plan next = {0};
  do {
    if (!tells_sums_apart(&next)) continue;
    for (next.codec = 0; next.codec < WEIR_CODEC_COUNT; next.codec++)
      for (next.wire = 0; next.wire < WEIR_WIRE_COUNT && count < PLANS_MAX; next.wire++) {
        plan[count] = next;
        if (weir_codec_find(next.codec)->low_rank && next.scheme == WEIR_SCHEME_DENSE)
          plan[count].scheme = WEIR_SCHEME_LOW_RANK;
        count += with_ratio(&plan[count], usual);
      }
  } while (weir_collective_next(&next));
  bool seen[WEIR_CODEC_COUNT] = {false};
  for (size_t p = 0; p < count; p++) seen[plan[p].codec] = true;
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++)
    cr_assert(seen[id], "no ratio here is one of %s", weir_codec_name(id));
  for (size_t i = 0; i < sizeof named_plans / sizeof *named_plans && count < PLANS_MAX; i++)
    plan[count++] = planned(named_plans[i]);
  return count;
}

/* --- what is run from step to step ------------------------------------------------------------ */

static void at(course *c, int step, uint32_t action, const weir_plan *plan) {
  c->script[step].action = action;
  c->script[step].plan = *plan;
  c->script[step].plan.id = (uint64_t)step;
}

/* The same plan throughout. */
static void write_steady(course *c) {
  for (int step = 0; step < STEPS; step++) {
    c->script[step].action = WEIR_ACTION_KEEP;
    c->script[step].plan = c->plan;
  }
}

/* The plan with three ratios, two other plans in between, and a trial in the middle. */
static void write_plans(course *c) {
  weir_plan sparse = c->plan, dense = c->plan;
  (void)with_ratio(&sparse, fewer);
  (void)with_ratio(&dense, more);
  const weir_plan topk = planned("topk:0.05:ag"), bf16 = planned("bf16:1:dense-tree");
  const struct {
    int until;
    uint32_t action;
    const weir_plan *plan;
  } part[] = {{5, WEIR_ACTION_SWITCH, &c->plan},    {6, WEIR_ACTION_SWITCH, &topk},
              {8, WEIR_ACTION_SWITCH, &sparse},     {10, WEIR_ACTION_TRIAL, &c->plan},
              {12, WEIR_ACTION_SWITCH, &sparse},    {13, WEIR_ACTION_SWITCH, &bf16},
              {16, WEIR_ACTION_SWITCH, &c->plan},   {18, WEIR_ACTION_SWITCH, &dense},
              {STEPS, WEIR_ACTION_SWITCH, &c->plan}};
  for (int step = 0, p = 0; step < STEPS; step++) {
    const bool first = step == (p > 0 ? part[p - 1].until : 0);
    at(c, step, first ? part[p].action : WEIR_ACTION_KEEP, part[p].plan);
    if (!first) c->script[step].plan.id = c->script[step - 1].plan.id;
    p += step + 1 == part[p].until;
  }
}

/* Plans that run in any group of ranks, for tables of groups. */
static const char *const group_plans[] = {"none:1:dense-ring",
                                          "bf16:1:dense-halving",
                                          "topk:0.1:ag",
                                          "lwtopk:0.05:ag:auto-fp32",
                                          "mstopk:0.02:ag:auto-fp16",
                                          "dgc:0.1:ag:auto-bf16",
                                          "sidco:0.05:ag:auto-fp32",
                                          "star:0.1:art-ring",
                                          "var:0.2:art-tree:auto-bf16",
                                          "randomk:0.1:art-double-tree",
                                          "qsgd:0.125:ag",
                                          "qsgd-nearest:0.25:sra",
                                          "qsgd-l2:0.125:compressed-ring",
                                          "terngrad:0.0625:compressed-tree",
                                          "onebit:0.03125:ag",
                                          "efsignsgd:0.03125:sra",
                                          "fp16:0.5:ag",
                                          "powersgd:2:dense-tree",
                                          "star:0.3:art-hier-ring:auto-fp32",
                                          "qsgd:0.125:hier-sra"};

/* Another table every other step; a trial in the middle. */
static void write_tables(course *c) {
  weir_rng rng = weir_rng_of(29 + (uint64_t)c->kind);
  for (int step = 0; step < STEPS; step++) {
    script_step *s = &c->script[step];
    if (step % 2 == 1) {
      *s = s[-1];
      s->action = WEIR_ACTION_KEEP;
      continue;
    }
    size_t count = 0;
    for (uint32_t t = 1; t <= TENSORS; t++) {
      if (t < TENSORS && weir_rng_below(&rng, 3) != 0) continue;
      const uint64_t drawn = weir_rng_below(&rng, sizeof group_plans / sizeof *group_plans);
      const weir_plan plan = planned(group_plans[drawn]);
      script_add_bucket(s, &count, t, (uint32_t)weir_rng_below(&rng, WEIR_PLACE_COUNT), &plan);
    }
    script_close(s, count, (uint64_t)step);
    s->action = step == 10 ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
  }
}

static void lay_out(course *c) {
  const shape *tensor = c->kind == LARGE ? large : small;
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t n = tensor[t].rows > 0 ? tensor[t].rows * tensor[t].columns : tensor[t].columns;
    c->offset[t + 1] = c->offset[t] + n;
    c->rows[t] = tensor[t].rows;
  }
}

/* --- one rank --------------------------------------------------------------------------------- */

static uint64_t chain(uint64_t digest, const void *data, size_t bytes) {
  const unsigned char *from = data;
  for (size_t i = 0; i < bytes; i += sizeof digest) {
    uint64_t word = 0;
    memcpy(&word, from + i, bytes - i < sizeof word ? bytes - i : sizeof word);
    digest = (digest ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    digest ^= digest >> 29;
  }
  return digest;
}

/* Ties, zeros, and magnitudes over several powers of ten; no function of libm's, which may differ
 * from machine to machine in the last bit. */
static void draw(const course *c, float *g, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < c->offset[TENSORS]; i++) {
    const uint64_t bits = weir_rng_next(&rng);
    const float x = (float)((int32_t)(bits >> 32)) / 2147483648.0f;
    if ((bits & 7) == 0)
      g[i] = (float)((int)(x * 4)) / 4;
    else
      g[i] = x * x * x * ((bits & 24) == 0 ? 100.0f : 1.0f);
  }
}

static weir_status one_step(weir_engine *engine, const course *c, int step, float *g) {
  weir_status status = weir_engine_step_begin(engine, NULL);
  for (uint32_t i = 0; i < TENSORS && status == WEIR_OK; i++) {
    const uint32_t t = step % 3 == 2 ? TENSORS - 1 - i : i;
    status = weir_engine_submit(engine, t, g + c->offset[t]);
  }
  return status == WEIR_OK ? weir_engine_step_end(engine, NULL) : status;
}

static void run_seed(member *m, course *c, weir_engine *engine, script *v, int seed) {
  uint64_t *averages = &c->averages[m->rank][seed], *residuals = &c->residuals[m->rank][seed];
  const size_t n = c->offset[TENSORS];
  FREED float *g = malloc((n + 1) * sizeof *g);
  if (g == NULL) abort();
  for (v->at = 0; v->at < c->steps; v->at++) {
    draw(c, g, (uint64_t)(seed + 1) * 1000003 + (uint64_t)(v->at * GROUP_MAX + m->rank));
    if (one_step(engine, c, v->at, g) != WEIR_OK) {
      group_fail(m->group, "seed %d, step %d, rank %d: %s", seed + 1, v->at, m->rank,
                 weir_last_error());
      break;
    }
    const uint64_t residual = weir_engine_residual_digest(engine);
    *averages = chain(*averages, g, n * sizeof *g);
    *residuals = chain(*residuals, &residual, sizeof residual);
    if (c->print)
      printf("seed %d, step %d, rank %d: averages %016" PRIx64 ", residual %016" PRIx64 "\n",
             seed + 1, v->at, m->rank, chain(0, g, n * sizeof *g), residual);
  }
}

static void run_engines(member *m, weir_comm *comm) {
  course *c = m->group->shared;
  const bool momentum = c->kind == MOMENTUM_CORRECTED || c->kind == BUCKETS_MOMENTUM;
  const bool table = c->script[0].plan.buckets > 0;
  for (int seed = c->first; seed <= c->last && !c->refused[m->rank]; seed++) {
    script v = {c->script, c->steps, 0};
    const weir_engine_config config = {.comm = comm,
                                       .layout = {TENSORS, c->offset},
                                       .rows = c->rows,
                                       .momentum = momentum ? MOMENTUM : 0,
                                       .codec_threads = c->kind == LARGE ? 2 : 1,
                                       .first_plan = c->script[0].plan,
                                       .first_buckets = table ? c->script[0].table : NULL,
                                       .hooks = script_hooks(&v)};
    weir_engine *engine = NULL;
    const weir_status status = weir_engine_create(&engine, &config);
    c->refused[m->rank] = status == WEIR_E_UNSUPPORTED;
    if (status == WEIR_OK)
      run_seed(m, c, engine, &v, seed);
    else if (status != WEIR_E_UNSUPPORTED)
      group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
    group_barrier(m); /* nobody begins with another engine while others end this one */
    weir_engine_free(engine);
  }
}

/* Threads have no all-reduce of their own; for plans that want one they share memory instead. */
static void body(member *m) {
  const course *c = m->group->shared;
  weir_transport *shared = NULL;
  weir_comm *comm = NULL;
  const bool native = c->plan.algorithm == WEIR_ALGORITHM_NATIVE && m->size > 1;
  weir_status status = WEIR_OK;
  if (native) status = weir_transport_shm(&shared, m->name, 1, m->rank, m->size, 20);
  if (native && status == WEIR_OK) status = weir_comm_create(&comm, shared, m->group->timeout_s);
  weir_comm *const used = native ? comm : m->comm;
  if (status == WEIR_OK) status = weir_comm_find_hosts(used, (uint64_t)c->machines[m->rank]);
  if (status == WEIR_OK)
    run_engines(m, used);
  else
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  weir_comm_free(comm);
  if (shared != NULL) shared->ops->destroy(shared);
}

/* --- one row ---------------------------------------------------------------------------------- */

/* All ranks must have the same averages; their residuals differ, and are told in one digest. */
static void collect(const course *c, group *g, digest_row *row) {
  *row = (digest_row){.refused = c->refused[0], .seeds = c->refused[0] ? 0 : c->last + 1};
  memcpy(row->key, c->key, sizeof row->key);
  for (int r = 0; r < g->size; r++) {
    if (c->refused[r] != c->refused[0]) group_fail(g, "some ranks refuse it, some do not");
    if (memcmp(c->averages[r], c->averages[0], sizeof c->averages[0]) != 0)
      group_fail(g, "ranks 0 and %d have other averages", r);
    for (int s = c->first; s < row->seeds; s++) {
      row->averages[s] = c->averages[0][s];
      row->residuals[s] = chain(row->residuals[s], &c->residuals[r][s], sizeof(uint64_t));
    }
  }
}

static void run_row(course *c, digest_row *row) {
  group g;
  lay_out(c);
  if (c->kind == GROUPS || c->kind == BUCKETS_MOMENTUM)
    write_tables(c);
  else if (c->kind == WINDOWS)
    write_steady(c);
  else
    write_plans(c);
  group_run(&g, (int)strlen(c->machines), body, c);
  collect(c, &g, row);
  cr_assert(!g.failed, "%s: %s", c->key, g.failure);
}

/* --- all rows --------------------------------------------------------------------------------- */

typedef struct survey {
  const char *only; /* a key; NULL: all */
  size_t stride;    /* of rows that are run, one in so many */
  bool one_seed;    /* of each row, one after another; else all */
  /* seeds from the first on */
  void (*take)(struct survey *survey, const digest_row *row, int first);
  size_t rows, wrong;
  FILE *file;
  digest_table *table;
} survey;

/* Instrumented code takes other rows in every run. */
static bool drawn(const survey *v) {
  return GROUP_SLOW && v->stride > 1 ? sampled(v->stride) : v->rows % v->stride == 0;
}

static void visit(survey *v, kind k, const char *machines, const weir_plan *plan) {
  FREED course *c = calloc(1, sizeof *c);
  digest_row row;
  char text[WEIR_PLAN_TEXT_MAX] = "-";
  if (c == NULL) abort();
  const int seeds = k == MOMENTUM_CORRECTED || k == LARGE || k == WINDOWS ? 1 : DIGEST_SEEDS;
  *c = (course){.kind = k, .machines = machines, .steps = k == LARGE ? 8 : STEPS};
  c->first = v->one_seed ? (int)(v->rows / v->stride) % seeds : 0;
  c->last = v->one_seed ? c->first : seeds - 1;
  if (plan != NULL) {
    c->plan = *plan;
    if (k == WINDOWS) c->plan.cr = 0.7;
    weir_plan_format(&c->plan, text);
  }
  (void)snprintf(c->key, sizeof c->key, "%s %s %s", kind_name[k], machines, text);
  const bool wanted = v->only != NULL ? strcmp(v->only, c->key) == 0 : drawn(v);
  c->print = v->only != NULL;
  if (wanted) {
    run_row(c, &row);
    v->take(v, &row, c->first);
  }
  v->rows++;
}

/* Letters are machines. */
static const char *const apart[] = {"a", "ab", "abc", "abcd", "abcdefgh", NULL};
static const char *const together[] = {"a",    "ab",       "aaa",      "aab",
                                       "aabb", "aaaabbbb", "aabbccdd", NULL};

static void visit_all(survey *v) {
  weir_plan plan[PLANS_MAX];
  const size_t plans = legal_plans(plan);
  cr_assert(plans > 100 && plans < PLANS_MAX, "%zu legal plans", plans);
  for (size_t p = 0; p < plans; p++) {
    const bool by_machine = plan[p].inside != 0 || plan[p].scheme == WEIR_SCHEME_HITOPK ||
                            plan[p].scheme == WEIR_SCHEME_PATH;
    for (const char *const *m = by_machine ? together : apart; *m != NULL; m++)
      visit(v, PLAIN, *m, &plan[p]);
    visit(v, MOMENTUM_CORRECTED, "aab", &plan[p]);
    visit(v, LARGE, "aab", &plan[p]);
    if (plan[p].scheme == WEIR_SCHEME_SHARED) visit(v, WINDOWS, "aab", &plan[p]);
  }
  for (kind k = GROUPS; k <= BUCKETS_MOMENTUM; k++)
    for (const char *const *m = together; *m != NULL; m++) visit(v, k, *m, NULL);
}

static void write_row(survey *v, const digest_row *row, int first) {
  (void)first; /* all seeds */
  digest_print(v->file, row);
}

/* seed: from 1; 0: whatever it is. */
static void say_wrong(survey *v, const char *key, const char *what, int seed) {
  char which[24] = "";
  const int ranks = (int)strcspn(strchr(key, ' ') + 1, " ");
  if (seed > 0) (void)snprintf(which, sizeof which, ", seed %d", seed);
  if (v->wrong++ < 40) (void)fprintf(stderr, "%s (N = %d)%s: %s\n", key, ranks, which, what);
}

static void compare_row(survey *v, const digest_row *row, int first) {
  digest_row *due = digest_find(v->table, row->key);
  if (due == NULL) {
    say_wrong(v, row->key, "not in the table", 0);
    return;
  }
  due->seen = true;
  if (due->refused != row->refused)
    say_wrong(v, row->key, row->refused ? "refused, was not" : "not refused, was", 0);
  else if (due->seeds < row->seeds)
    say_wrong(v, row->key, "of fewer seeds in the table", 0);
  else
    for (int s = first; s < row->seeds; s++) {
      if (due->averages[s] != row->averages[s]) say_wrong(v, row->key, "other averages", s + 1);
      if (due->residuals[s] != row->residuals[s]) say_wrong(v, row->key, "other residuals", s + 1);
    }
}

/* Against the table; stride: of how many rows one is run.  Those left out cannot be missing. */
static void compare(size_t stride, bool one_seed) {
  digest_table table;
  cr_assert(digest_read(WEIR_DIGEST_TABLE, &table), "%s: no table", WEIR_DIGEST_TABLE);
  survey v = {.stride = stride, .one_seed = one_seed, .take = compare_row, .table = &table};
  visit_all(&v);
  for (size_t i = 0; i < table.rows && stride == 1; i++)
    if (!table.row[i].seen) say_wrong(&v, table.row[i].key, "in the table, but not run", 0);
  cr_expect_eq(v.rows, table.rows, "%zu rows, %zu in the table", v.rows, table.rows);
  digest_free(&table);
  cr_assert_eq(v.wrong, 0, "%zu differences", v.wrong);
}

static const char header[] =
    "# Digests of averages and residuals: COURSE MACHINES PLAN AVERAGES/RESIDUALS..., a pair for "
    "each\n"
    "# of three seeds (one in courses momentum, large and windows), over twenty steps (large: "
    "eight).\n"
    "# A letter of MACHINES is a rank, and the machine that it is on.  tests/multi/test_digests.c "
    "says\n"
    "# what a course does.  Written by\n"
    "#   WEIR_DIGESTS_WRITE=tests/digests/table.txt build-release/tests/test_digests\n"
    "#\n"
    "# Nothing here depends on the number of codec threads, the version of the vector instructions "
    "or\n"
    "# timing.  Averages depend on the order of sums: with ag that of the ranks, else that of the\n"
    "# all-reduce.  Course windows keeps more than half of the elements by AR-Topk.\n"
    "#\n"
    "# The table is older than the data way as it is, and most rows are as they were.  Written "
    "anew\n"
    "# are those of course windows, whose values are summed at once and no longer in several "
    "windows,\n"
    "# so that sums run in another order; and in courses momentum and groups-momentum those of "
    "plans "
    "that\n"
    "# gather or share indices: the velocity is m u + g as it rounds, where it was made of e - r, "
    "an ulp\n"
    "# away.  With that put back they are as before, too.\n";

static void write_table(const char *path) {
  survey v = {.stride = 1, .take = write_row, .file = fopen(path, "we")};
  cr_assert_not_null(v.file, "cannot write %s", path);
  (void)fputs(header, v.file);
  visit_all(&v);
  cr_assert_eq(fclose(v.file), 0, "cannot write %s", path);
}

/* One seed of each row, and only some rows in instrumented code; WEIR_DIGESTS_ALL: everything. */
Test(digests, are_those_of_the_table) {
  const char *path = getenv("WEIR_DIGESTS_WRITE"), *only = getenv("WEIR_DIGESTS_ROW");
  const bool all = getenv("WEIR_DIGESTS_ALL") != NULL;
  if (path != NULL) {
    write_table(path);
  } else if (only != NULL) {
    survey v = {.only = only, .stride = 1, .take = write_row, .file = stdout};
    visit_all(&v);
  } else {
    compare(GROUP_SLOW && !all ? 26 : 1, !all);
  }
}

/* Entropy coding loses nothing: in the table, rows that differ in nothing else are alike. */
Test(digests, entropy_coding_changes_no_bit) {
  static const char coded[] = ":huffman";
  digest_table table;
  size_t found = 0;
  cr_assert(digest_read(WEIR_DIGEST_TABLE, &table));
  for (size_t i = 0; i < table.rows; i++) {
    const digest_row *row = &table.row[i], *plain;
    char key[sizeof row->key] = "";
    const char *const wire = strstr(row->key, coded);
    if (wire == NULL) continue;
    memcpy(key, row->key, (size_t)(wire - row->key));
    plain = digest_find(&table, key);
    cr_assert(plain != NULL && plain->seeds == row->seeds, "%s", row->key);
    for (int s = 0; s < row->seeds; s++)
      cr_assert(plain->averages[s] == row->averages[s] && plain->residuals[s] == row->residuals[s],
                "%s", row->key);
    found++;
  }
  digest_free(&table);
  cr_assert_gt(found, 50u);
}

/* Vectors of any width compute the same: of some rows in every version, WEIR_DIGESTS_ALL: of all.
 */
Test(digests, are_the_same_on_every_processor) {
  const weir_cpu_ops *const version[] = {weir_cpu_avx2(), &weir_cpu_scalar};
  const bool all = getenv("WEIR_DIGESTS_ALL") != NULL;
  if (getenv("WEIR_DIGESTS_WRITE") != NULL || getenv("WEIR_DIGESTS_ROW") != NULL) return;
  for (size_t i = 0; i < 2; i++) {
    if (version[i] == NULL) continue;
    weir_cpu_force(version[i]);
    compare(all ? 1 : GROUP_SLOW ? 82 : 11, !all);
  }
}
