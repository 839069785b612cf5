/* Enumerating, filtering and pricing options (see menu.h). */
#include "planner/menu.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/execute.h"

/* --- entries -------------------------------------------------------------------------------- */

typedef struct gather {
  weir_menu *menu;
  uint8_t codec, codecs; /* of the entries being added, and used anywhere */
  bool executable;
  bool mixed, cpu_pass; /* without mixed options the GPU's are visited first, then the CPU's */
  const double *sizes;
} gather;

static void sum_costs(const weir_op *ops, size_t count, double cost[WEIR_RESOURCES]) {
  for (size_t r = 0; r < WEIR_RESOURCES; r++) cost[r] = 0.0;
  for (size_t k = 0; k < count; k++) cost[ops[k].resource] += ops[k].seconds;
}

static bool executes(const weir_cluster *cluster, const weir_option *option, size_t codec) {
  weir_plan plan;
  weir_place place;
  return weir_option_plan(option, cluster->codec[codec].name, &plan, &place) == WEIR_OK;
}

static void add_entry(void *user, const weir_option *option) {
  gather *g = user;
  weir_menu *menu = g->menu;
  const bool compressed = weir_path_compresses(option);
  if (!compressed && g->codec != 0) return; /* once is enough */
  if (compressed && !(g->codecs >> g->codec & 1)) return;
  if (!compressed && g->cpu_pass) return;
  if (g->executable && !executes(menu->cluster, option, g->codec)) return;
  weir_menu_entry *entry = &menu->entries[menu->count++];
  *entry = (weir_menu_entry){.option = *option, .codec = g->codec, .compressed = compressed};
  for (size_t i = 0; i < option->count; i++) {
    const unsigned task = option->step[i].task;
    if (task != WEIR_TASK_COMP && task != WEIR_TASK_DECOMP) continue;
    entry->on_gpu |= option->step[i].place == WEIR_SITE_GPU;
    entry->on_cpu |= option->step[i].place == WEIR_SITE_CPU;
  }
  for (size_t k = 0; k < WEIR_MENU_SIZES; k++) {
    weir_op ops[WEIR_OPTION_TASKS];
    const size_t count = weir_option_ops(option, menu->cluster, g->codec, g->sizes[k], ops);
    sum_costs(ops, count, entry->cost[k]);
    for (size_t r = 0; r < WEIR_RESOURCES; r++) entry->sum += entry->cost[k][r];
  }
}

static int by_sum(const void *a, const void *b) {
  const weir_menu_entry *x = a, *y = b;
  return (x->sum > y->sum) - (x->sum < y->sum);
}

/* Every option of every codec; returns how many. */
static size_t visit_all(gather *g, const weir_strategy_limits *limits,
                        void (*visit)(void *user, const weir_option *option)) {
  weir_option_limits gpu = limits->options, cpu = limits->options;
  size_t count = 0, all = 0;
  gpu.no_cpu |= !g->mixed;
  cpu.no_gpu = true;
  for (g->codec = 0; g->codec < g->menu->cluster->codecs; g->codec++) {
    g->cpu_pass = false;
    if (weir_options_visit(&gpu, visit, g, &count) == WEIR_OK) all += count;
    g->cpu_pass = true;
    if (!g->mixed && weir_options_visit(&cpu, visit, g, &count) == WEIR_OK) all += count;
  }
  return all;
}

static weir_status fill_entries(weir_menu *menu, const weir_strategy_limits *limits, bool mixed) {
  const size_t last = menu->class_count - 1;
  double sizes[WEIR_MENU_SIZES];
  for (size_t k = 0; k < WEIR_MENU_SIZES; k++)
    sizes[k] = menu->classes[last * k / (WEIR_MENU_SIZES - 1)].bytes;
  gather g = {.menu = menu, .sizes = sizes, .executable = limits->executable, .mixed = mixed};
  for (size_t c = 0; c < menu->class_count; c++) g.codecs |= menu->classes[c].codecs;
  const weir_status status = weir_options_visit(&limits->options, NULL, NULL, &menu->options);
  if (status != WEIR_OK) return status;
  menu->entries = malloc((visit_all(&g, limits, NULL) + 1) * sizeof *menu->entries);
  if (!menu->entries) return weir_fail(WEIR_E_NOMEM, "no memory for %zu options", menu->options);
  (void)visit_all(&g, limits, add_entry);
  qsort(menu->entries, menu->count, sizeof *menu->entries, by_sum);
  menu->priced = calloc(menu->count + 1, sizeof(weir_menu_item *));
  if (!menu->priced) return weir_fail(WEIR_E_NOMEM, "no memory for %zu options", menu->options);
  return WEIR_OK;
}

/* --- classes -------------------------------------------------------------------------------- */

typedef struct sized {
  double bytes;
  uint8_t codecs;
  size_t tensor;
} sized;

static int by_size(const void *a, const void *b) {
  const sized *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  if (x->codecs != y->codecs) return x->codecs < y->codecs ? -1 : 1;
  return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static weir_status fill_classes(weir_menu *menu, const weir_strategy_limits *limits) {
  const size_t n = menu->profile->count;
  const uint8_t any = (uint8_t)((1u << menu->cluster->codecs) - 1);
  sized *all = malloc(n * sizeof *all);
  menu->classes = malloc(n * sizeof *menu->classes);
  menu->order = malloc(n * sizeof *menu->order);
  menu->class_of = malloc(n * sizeof *menu->class_of);
  if (!all || !menu->classes || !menu->order || !menu->class_of) {
    free(all);
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", n);
  }
  for (size_t i = 0; i < n; i++)
    all[i] = (sized){weir_profile_bytes(menu->profile, i),
                     limits->codecs ? limits->codecs[i] & any : any, i};
  qsort(all, n, sizeof *all, by_size);
  for (size_t i = 0; i < n; i++) {
    weir_menu_class *last = &menu->classes[menu->class_count - 1];
    if (!i || last->bytes != all[i].bytes || last->codecs != all[i].codecs) {
      last = &menu->classes[menu->class_count++];
      *last = (weir_menu_class){all[i].bytes, all[i].codecs, &menu->order[i], 0};
    }
    last->count++;
    menu->order[i] = all[i].tensor;
    menu->class_of[all[i].tensor] = menu->class_count - 1;
  }
  free(all);
  return WEIR_OK;
}

weir_status weir_menu_create(weir_menu *menu, const weir_profile *profile,
                             const weir_cluster *cluster, const weir_strategy_limits *limits,
                             bool thorough) {
  *menu = (weir_menu){.profile = profile, .cluster = cluster, .thorough = thorough};
  weir_status status = fill_classes(menu, limits);
  if (status == WEIR_OK) status = fill_entries(menu, limits, thorough);
  if (status != WEIR_OK) weir_menu_free(menu);
  return status;
}

void weir_menu_free(weir_menu *menu) {
  for (size_t k = 0; menu->priced && k < menu->count; k++) free(menu->priced[k]);
  free(menu->priced);
  free(menu->entries);
  free(menu->classes);
  free(menu->order);
  free(menu->class_of);
  *menu = (weir_menu){0};
}

const weir_menu_entry *weir_menu_on_cpu(const weir_menu *menu, const weir_menu_entry *entry) {
  weir_option option = entry->option;
  for (size_t i = 0; i < option.count; i++)
    if (option.step[i].task == WEIR_TASK_COMP || option.step[i].task == WEIR_TASK_DECOMP)
      option.step[i].place = WEIR_SITE_CPU;
  for (size_t k = 0; k < menu->count; k++) {
    const weir_menu_entry *e = &menu->entries[k];
    if (e->codec == entry->codec && e->option.count == option.count &&
        !memcmp(e->option.step, option.step, option.count * sizeof *option.step))
      return e;
  }
  return NULL;
}

/* --- what a method may choose --------------------------------------------------------------- */

/* Does the option hold this task there, with this routine? */
static bool holds(const weir_option *o, weir_task task, weir_site site, unsigned routine) {
  for (size_t i = 0; i < o->count; i++)
    if (o->step[i].task == task && o->step[i].place == site && o->step[i].routine == routine)
      return true;
  return false;
}

static bool inside_uncompressed(const weir_option *o) {
  return (holds(o, WEIR_TASK_COMM1, WEIR_SITE_INTRA, 0) ||
          holds(o, WEIR_TASK_COMM1, WEIR_SITE_INTRA, 1)) &&
         (holds(o, WEIR_TASK_COMM2, WEIR_SITE_INTRA, 0) ||
          holds(o, WEIR_TASK_COMM2, WEIR_SITE_INTRA, 1));
}

static bool admits(weir_strategy_method method, const weir_menu_entry *e) {
  const weir_option *o = &e->option;
  switch (method) {
    case WEIR_STRATEGY_NONE: return !e->compressed;
    case WEIR_STRATEGY_LAYER_WISE:
    case WEIR_STRATEGY_ALL: return e->compressed;
    case WEIR_STRATEGY_GPU:
    case WEIR_STRATEGY_BYTECOMP: return !e->on_cpu;
    case WEIR_STRATEGY_CPU: return !e->on_gpu;
    case WEIR_STRATEGY_INTER_ALLGATHER:
      return !e->compressed ||
             (inside_uncompressed(o) && holds(o, WEIR_TASK_COMM_COMP, WEIR_SITE_INTER, 0));
    case WEIR_STRATEGY_INTER_ALLTOALL:
      return !e->compressed ||
             (inside_uncompressed(o) && holds(o, WEIR_TASK_COMM1_COMP, WEIR_SITE_INTER, 0) &&
              holds(o, WEIR_TASK_COMM2_COMP, WEIR_SITE_INTER, 0));
    case WEIR_STRATEGY_ALLTOALL_ALLTOALL:
      return !e->compressed || (holds(o, WEIR_TASK_COMM1_COMP, WEIR_SITE_INTRA, 0) &&
                                o->step[2].task == WEIR_TASK_DECOMP &&
                                holds(o, WEIR_TASK_COMM1_COMP, WEIR_SITE_INTER, 0) &&
                                holds(o, WEIR_TASK_COMM2_COMP, WEIR_SITE_INTER, 0));
    default: return true;
  }
}

/* --- lists ---------------------------------------------------------------------------------- */

/* An option is dropped for another that is above it on no resource; with few tensors only when it
 * is clearly worse in total too, since totals do not tell in which order the resources are used,
 * which can matter as much as some percent.  With many tensors one percent more is let pass at each
 * size. */
static const double clearly = 0.7, hardly = 1.01;

static bool entry_never_above(const weir_menu *menu, const weir_menu_entry *a,
                              const weir_menu_entry *b) {
  if (menu->thorough && a->sum > clearly * b->sum) return false;
  for (size_t k = 0; k < WEIR_MENU_SIZES; k++)
    for (size_t r = 0; r < WEIR_RESOURCES; r++)
      if (a->cost[k][r] > b->cost[k][r]) return false;
  return true;
}

static bool item_never_above(const weir_menu *menu, const weir_menu_item *a,
                             const weir_menu_item *b) {
  if (menu->thorough && a->alone_s > clearly * b->alone_s) return false;
  for (size_t r = 0; r < WEIR_RESOURCES; r++)
    if (a->cost[r] > (menu->thorough ? 1.0 : hardly) * b->cost[r]) return false;
  return true;
}

/* The same resources one after the other, and on none of them longer. */
static bool step_by_step(const weir_menu_item *a, const weir_menu_item *b) {
  if (a->chain.count != b->chain.count) return false;
  for (size_t k = 0; k < a->chain.count; k++)
    if (a->chain.ops[k].resource != b->chain.ops[k].resource ||
        a->chain.ops[k].seconds > b->chain.ops[k].seconds)
      return false;
  return true;
}

static bool item_same(const weir_menu_item *a, const weir_menu_item *b) {
  return a->alone_s == b->alone_s && step_by_step(a, b) && step_by_step(b, a);
}

/* Entries of the method that are worth pricing at each size.  An entry only yields to one of the
 * same codec or to an uncompressed one, as others may not be allowed. */
static size_t shortlist(const weir_menu *menu, weir_strategy_method method, bool compare,
                        const weir_menu_entry **kept) {
  size_t count = 0;
  for (size_t k = 0; k < menu->count; k++) {
    const weir_menu_entry *e = &menu->entries[k];
    bool keep = admits(method, e);
    for (size_t d = 0; d < count && keep && compare; d++)
      keep = !((kept[d]->codec == e->codec || !kept[d]->compressed) &&
               entry_never_above(menu, kept[d], e));
    if (keep) kept[count++] = e;
  }
  return count;
}

static int by_alone(const void *a, const void *b) {
  const weir_menu_item *x = a, *y = b;
  if (x->alone_s != y->alone_s) return x->alone_s < y->alone_s ? -1 : 1;
  return (x->entry > y->entry) - (x->entry < y->entry);
}

static size_t thin(const weir_menu *menu, weir_menu_item *item, size_t count, bool compare) {
  size_t kept = 0;
  qsort(item, count, sizeof *item, by_alone);
  for (size_t k = 0; k < count; k++) {
    bool keep = true;
    for (size_t d = compare ? 0 : kept; d < kept && keep; d++)
      keep = !item_never_above(menu, &item[d], &item[k]) &&
             !(menu->thorough && step_by_step(&item[d], &item[k]));
    for (size_t d = kept; d-- > 0 && keep && !compare && item[d].alone_s == item[k].alone_s;)
      keep = !item_same(&item[d], &item[k]);
    if (keep) item[kept++] = item[k];
  }
  return kept;
}

static bool may_use(const weir_menu_class *class, const weir_menu_entry *e) {
  return !e->compressed || class->codecs >> e->codec & 1;
}

/* What an entry costs in every class that may use it: the methods' lists share most entries. */
static weir_status price(const weir_menu *menu, const weir_menu_entry *e) {
  weir_menu_item **priced = &menu->priced[e - menu->entries];
  if (*priced) return WEIR_OK;
  const size_t classes = menu->class_count;
  *priced = malloc(classes * (sizeof **priced + WEIR_OPTION_TASKS * sizeof(weir_op)));
  if (!*priced) return weir_fail(WEIR_E_NOMEM, "no memory for %zu options", menu->count);
  weir_op *ops = (weir_op *)(*priced + classes);
  for (size_t c = 0; c < classes; c++) {
    const weir_menu_class *class = &menu->classes[c];
    if (!may_use(class, e)) continue;
    weir_menu_item *item = &(*priced)[c];
    *item = (weir_menu_item){.entry = e};
    item->chain = (weir_course_chain){
        ops, weir_option_ops(&e->option, menu->cluster, e->codec, class->bytes, ops)};
    ops += item->chain.count;
    sum_costs(item->chain.ops, item->chain.count, item->cost);
    for (size_t r = 0; r < WEIR_RESOURCES; r++) item->alone_s += item->cost[r];
  }
  return WEIR_OK;
}

static weir_status fill_list(const weir_menu *menu, size_t c, const weir_menu_entry *const *entries,
                             size_t count, bool compare, weir_menu_list *list) {
  list->item = malloc((count + 1) * sizeof *list->item);
  if (!list->item) return weir_fail(WEIR_E_NOMEM, "no memory for %zu options", count);
  list->count = 0;
  for (size_t k = 0; k < count; k++) {
    const weir_menu_entry *e = entries[k];
    if (!may_use(&menu->classes[c], e)) continue;
    const weir_status status = price(menu, e);
    if (status != WEIR_OK) return status;
    list->item[list->count++] = menu->priced[e - menu->entries][c];
  }
  list->count = thin(menu, list->item, list->count, compare);
  return WEIR_OK;
}

static weir_status fill_lists(const weir_menu *menu, weir_strategy_method method, bool compare,
                              weir_menu_list *lists, const weir_menu_entry **entries,
                              const weir_menu_entry **plain) {
  const size_t count = shortlist(menu, method, compare, entries);
  const size_t fallback = shortlist(menu, WEIR_STRATEGY_NONE, compare, plain);
  weir_status status = WEIR_OK;
  for (size_t c = 0; c < menu->class_count && status == WEIR_OK; c++) {
    const weir_menu_class *class = &menu->classes[c];
    status = fill_list(menu, c, entries, count, compare, &lists[c]);
    if (status != WEIR_OK || lists[c].count) continue;
    free(lists[c].item);
    lists[c] = (weir_menu_list){0};
    status = fill_list(menu, c, plain, fallback, compare, &lists[c]);
    if (status == WEIR_OK && !lists[c].count)
      status = weir_fail(WEIR_E_INVALID,
                         "the constraints leave no option for tensor '%.80s': expected that it may "
                         "be compressed or sent as it is",
                         menu->profile->tensors[class->tensor[0]].name);
  }
  return status;
}

weir_status weir_menu_lists(const weir_menu *menu, weir_strategy_method method, bool compare,
                            weir_menu_list **lists) {
  *lists = calloc(menu->class_count, sizeof **lists);
  const weir_menu_entry **kept = malloc((2 * menu->count + 1) * sizeof *kept);
  weir_status status = WEIR_OK;
  if (!*lists || !kept)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu options", menu->count);
  else
    status = fill_lists(menu, method, compare, *lists, kept, kept + menu->count);
  free(kept);
  if (status == WEIR_OK) return WEIR_OK;
  weir_menu_lists_free(menu, *lists);
  *lists = NULL;
  return status;
}

void weir_menu_lists_free(const weir_menu *menu, weir_menu_list *lists) {
  for (size_t c = 0; lists && c < menu->class_count; c++) free(lists[c].item);
  free(lists);
}
