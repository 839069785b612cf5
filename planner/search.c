/* Algorithms 1 and 2 of "ByteComp", and improvement (see search.h). */
#include "planner/search.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { OFFERED = 256 };

weir_status weir_search_create(weir_search *s, const weir_menu *menu) {
  const size_t n = menu->profile->count;
  *s = (weir_search){.menu = menu};
  s->of = malloc(2 * n * sizeof *s->of);
  s->removed = malloc(n * sizeof *s->removed);
  weir_status status = weir_course_create(&s->course, menu->profile, menu->cluster->cpu_cores);
  if (status == WEIR_OK && (!s->of || !s->removed))
    status = weir_fail(WEIR_E_NOMEM, "no memory for a strategy of %zu tensors", n);
  if (status != WEIR_OK)
    weir_search_free(s);
  else
    s->spare = s->of + n;
  return status;
}

void weir_search_free(weir_search *s) {
  weir_course_free(&s->course);
  free(s->of);
  free(s->removed);
  *s = (weir_search){0};
}

void weir_search_put(weir_search *s, size_t tensor, const weir_menu_item *item) {
  s->of[tensor] = item;
  weir_course_set(&s->course, tensor, item->chain);
}

void weir_search_take(weir_search *s, const weir_menu_item *const *of) {
  for (size_t i = 0; i < s->course.n; i++) weir_search_put(s, i, of[i]);
  s->time_s = weir_course_mark(&s->course);
}

void weir_search_first(weir_search *s, const weir_menu_list *lists) {
  for (size_t i = 0; i < s->course.n; i++)
    weir_search_put(s, i, &lists[s->menu->class_of[i]].item[0]);
  s->time_s = weir_course_mark(&s->course);
}

void weir_search_put_class(weir_search *s, size_t class, const weir_menu_item *item) {
  for (size_t k = 0; k < s->menu->classes[class].count; k++)
    weir_search_put(s, s->menu->classes[class].tensor[k], item);
  s->time_s = weir_course_mark(&s->course);
}

/* The items among which a choice is made. */
typedef struct offer {
  const weir_menu_item *item[OFFERED];
  size_t count;
} offer;

/* GetBestOption: the item of least iteration time, the others as they are. */
static void best_item(weir_search *s, size_t tensor, const weir_menu_item *item,
                      const weir_menu_item **best) {
  if (item == s->of[tensor]) return;
  const double time_s = weir_course_try(&s->course, tensor, item->chain, s->time_s);
  if (time_s >= s->time_s) return;
  s->time_s = time_s;
  *best = item;
}

static bool change_to(weir_search *s, size_t tensor, const weir_menu_item *best) {
  if (best == s->of[tensor]) return false;
  weir_search_put(s, tensor, best);
  s->time_s = weir_course_mark(&s->course);
  return true;
}

static bool best_option(weir_search *s, size_t tensor, const weir_menu_list *list) {
  const weir_menu_item *best = s->of[tensor];
  for (size_t k = 0; k < list->count; k++) best_item(s, tensor, &list->item[k], &best);
  return change_to(s, tensor, best);
}

static bool best_offer(weir_search *s, size_t tensor, const offer *o) {
  const weir_menu_item *best = s->of[tensor];
  for (size_t k = 0; k < o->count; k++) best_item(s, tensor, o->item[k], &best);
  return change_to(s, tensor, best);
}

/* Remove: uncompressed tensors communicated before a bubble, now or earlier. */
static void remove_before_bubbles(const weir_search *s, bool *removed) {
  for (size_t i = 0; i < s->course.n; i++)
    removed[i] |= !s->of[i]->entry->compressed && weir_course_before_bubble(&s->course, i);
}

void weir_search_algorithm1(weir_search *s, const weir_menu_list *lists, bool bubbles,
                            size_t most_work) {
  const size_t end = s->course.served + most_work;
  bool *removed = s->removed;
  memset(removed, 0, s->course.n * sizeof *removed);
  if (bubbles) remove_before_bubbles(s, removed);
  for (size_t c = 0; c < s->menu->class_count; c++) {
    const weir_menu_class *class = &s->menu->classes[c];
    for (size_t k = class->count; k-- > 0 && s->course.served < end;) { /* the last ones first */
      const size_t tensor = class->tensor[k];
      if (removed[tensor]) continue;
      if (best_option(s, tensor, &lists[c]) && bubbles) remove_before_bubbles(s, removed);
    }
  }
}

/* --- Algorithm 2 ---------------------------------------------------------------------------- */

/* Tensors of one class with one item, in backward order: the first are farthest from the end. */
typedef struct offload {
  size_t class;
  const weir_menu_item *gpu, *cpu;
  size_t count, moved; /* moved: the first ones are on the CPU */
} offload;

static void move_first(weir_search *s, const offload *o, size_t from, size_t to,
                       const weir_menu_item *item) {
  const weir_menu_class *class = &s->menu->classes[o->class];
  for (size_t k = 0, seen = 0; k < class->count && seen < to; k++) {
    const weir_menu_item *now = s->of[class->tensor[k]];
    if (now != o->gpu && now != o->cpu) continue;
    if (seen++ >= from) weir_search_put(s, class->tensor[k], item);
  }
}

static void set_moved(weir_search *s, offload *o, size_t moved) {
  if (moved > o->moved)
    move_first(s, o, o->moved, moved, o->cpu);
  else
    move_first(s, o, moved, o->moved, o->gpu);
  o->moved = moved;
}

/* All combinations, as a counter whose digit k runs to the size of bucket k. */
static void all_combinations(weir_search *s, offload *bucket, size_t count) {
  for (;;) {
    size_t k = 0;
    for (; k < count && bucket[k].moved == bucket[k].count; k++) set_moved(s, &bucket[k], 0);
    if (k == count) return;
    set_moved(s, &bucket[k], bucket[k].moved + 1);
    const double time_s = weir_course_time(&s->course, s->time_s);
    if (time_s >= s->time_s) continue;
    s->time_s = time_s;
    memcpy(s->spare, s->of, s->course.n * sizeof *s->of);
  }
}

/* One bucket after another, each at its best, while that helps. */
static void bucket_by_bucket(weir_search *s, offload *bucket, size_t count, size_t most_work) {
  const size_t end = s->course.served + most_work;
  for (bool better = true; better;) {
    better = false;
    for (size_t k = 0; k < count; k++) {
      size_t best = bucket[k].moved;
      for (size_t q = 0; q <= bucket[k].count && s->course.served < end; q++) {
        set_moved(s, &bucket[k], q);
        const double time_s = weir_course_time(&s->course, s->time_s);
        if (time_s >= s->time_s) continue;
        s->time_s = time_s;
        best = q;
        better = true;
      }
      set_moved(s, &bucket[k], best);
    }
    memcpy(s->spare, s->of, s->course.n * sizeof *s->of);
  }
}

/* The CPU counterpart of an item, priced for the class. */
static bool price(const weir_menu *menu, size_t class, const weir_menu_item *gpu,
                  weir_menu_item *item, weir_op *ops) {
  if (!gpu->entry->on_gpu) return false;
  const weir_menu_entry *e = weir_menu_on_cpu(menu, gpu->entry);
  if (!e) return false;
  *item = (weir_menu_item){.entry = e};
  item->chain = (weir_course_chain){
      ops, weir_option_ops(&e->option, menu->cluster, e->codec, menu->classes[class].bytes, ops)};
  return true;
}

/* Buckets of the strategy in hand that could be offloaded. */
static size_t find_buckets(weir_search *s, offload *bucket, weir_search_priced *priced) {
  size_t count = 0;
  for (size_t c = 0; c < s->menu->class_count; c++) {
    const size_t begin = count;
    for (size_t k = 0; k < s->menu->classes[c].count; k++) {
      const weir_menu_item *item = s->of[s->menu->classes[c].tensor[k]];
      size_t g = begin;
      while (g < count && bucket[g].gpu != item) g++;
      if (g == count) {
        if (!price(s->menu, c, item, &priced->item[g], priced->ops + g * WEIR_OPTION_TASKS))
          continue;
        bucket[count++] = (offload){c, item, &priced->item[g], 0, 0};
      }
      bucket[g].count++;
    }
  }
  return count;
}

weir_status weir_search_algorithm2(weir_search *s, size_t most_work, weir_search_priced *priced) {
  const size_t n = s->course.n;
  offload *bucket = malloc(n * sizeof *bucket);
  *priced = (weir_search_priced){malloc(n * sizeof *priced->item),
                                 malloc(n * WEIR_OPTION_TASKS * sizeof *priced->ops)};
  if (!bucket || !priced->item || !priced->ops) {
    free(bucket);
    weir_search_priced_free(priced);
    return weir_fail(WEIR_E_NOMEM, "no memory for a strategy of %zu tensors", n);
  }
  const size_t count = find_buckets(s, bucket, priced);
  double combinations = 1.0, operations = 0.0;
  for (size_t g = 0; g < count; g++) combinations *= (double)bucket[g].count + 1.0;
  for (size_t i = 0; i < n; i++) operations += 1.0 + (double)s->of[i]->chain.count;
  memcpy(s->spare, s->of, n * sizeof *s->of);
  if (combinations * operations <= (double)most_work)
    all_combinations(s, bucket, count);
  else
    bucket_by_bucket(s, bucket, count, most_work);
  free(bucket);
  memcpy(s->of, s->spare, n * sizeof *s->of);
  weir_search_take(s, s->of);
  return WEIR_OK;
}

void weir_search_priced_free(weir_search_priced *priced) {
  free(priced->item);
  free(priced->ops);
  *priced = (weir_search_priced){0};
}

/* --- improvement ---------------------------------------------------------------------------- */

/* The tensors [from, to) of a class by one item; undone unless it helps. */
static bool try_part(weir_search *s, const weir_menu_class *class, size_t from, size_t to,
                     const weir_menu_item *item) {
  size_t same = from;
  while (same < to && s->of[class->tensor[same]] == item) same++;
  if (same == to) return false;
  for (size_t k = from; k < to; k++) {
    s->spare[k - from] = s->of[class->tensor[k]];
    weir_search_put(s, class->tensor[k], item);
  }
  const double time_s = weir_course_time(&s->course, s->time_s);
  if (time_s < s->time_s) {
    s->time_s = time_s;
    return true;
  }
  for (size_t k = from; k < to; k++) weir_search_put(s, class->tensor[k], s->spare[k - from]);
  return false;
}

/* The `most` items that cost least when each resource's seconds have a price: how busy it is. */
static offer cheapest(const weir_search *s, const weir_menu_list *list, size_t most) {
  double price[WEIR_RESOURCES], score[OFFERED];
  offer o = {.count = 0};
  for (size_t r = 0; r < WEIR_RESOURCES; r++) {
    const double servers = r == WEIR_ON_CPU ? (double)s->course.cores : 1.0;
    const double busy = s->course.work[r] / (servers * s->time_s);
    price[r] = busy * busy + 0.01;
  }
  if (most > OFFERED) most = OFFERED;
  for (size_t k = 0; k < list->count; k++) {
    double own = 0.0;
    for (size_t r = 0; r < WEIR_RESOURCES; r++) own += price[r] * list->item[k].cost[r];
    if (o.count == most && own >= score[o.count - 1]) continue;
    size_t at = o.count < most ? o.count++ : o.count - 1;
    for (; at && score[at - 1] > own; at--) {
      score[at] = score[at - 1];
      o.item[at] = o.item[at - 1];
    }
    score[at] = own;
    o.item[at] = &list->item[k];
  }
  return o;
}

/* All of a class at once. */
static bool improve_class(weir_search *s, const weir_menu_class *class, const offer *o,
                          size_t end) {
  bool better = false;
  for (size_t k = 0; k < o->count && s->course.served < end; k++)
    better |= try_part(s, class, 0, class->count, o->item[k]);
  return better;
}

/* The first and last halves, quarters, ... of a class. */
static bool improve_parts(weir_search *s, const weir_menu_class *class, const offer *o,
                          size_t end) {
  const size_t n = class->count;
  bool better = false;
  for (size_t k = 0; k < o->count && n > 2; k++)
    for (size_t share = n / 2; share >= 2 && s->course.served < end; share /= 2) {
      better |= try_part(s, class, 0, share, o->item[k]);
      better |= try_part(s, class, n - share, n, o->item[k]);
    }
  return better;
}

/* One pass with the `most` cheapest items of each class. */
static bool improve_pass(weir_search *s, const weir_menu_list *lists, size_t most, size_t end) {
  const size_t classes = s->menu->class_count;
  bool better = false;
  for (size_t c = 0; c < classes; c++) {
    const offer o = cheapest(s, &lists[c], most);
    if (s->menu->classes[c].count > 1) better |= improve_class(s, &s->menu->classes[c], &o, end);
  }
  s->time_s = weir_course_mark(&s->course);
  for (size_t c = 0; c < classes; c++) {
    const weir_menu_class *class = &s->menu->classes[c];
    const offer o = cheapest(s, &lists[c], most);
    for (size_t k = class->count; k-- > 0 && s->course.served < end;)
      better |= best_offer(s, class->tensor[k], &o);
  }
  for (size_t c = 0; c < classes; c++) {
    const offer o = cheapest(s, &lists[c], most);
    better |= improve_parts(s, &s->menu->classes[c], &o, end);
  }
  s->time_s = weir_course_mark(&s->course);
  return better;
}

void weir_search_improve(weir_search *s, const weir_menu_list *lists, size_t most_work) {
  const size_t end = s->course.served + most_work;
  for (size_t most = 4; s->course.served < end;) {
    if (improve_pass(s, lists, most, end)) continue;
    if (most >= OFFERED) return;
    most *= 4;
  }
}
