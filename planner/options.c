/* The decision tree, walked depth first. */
#include "planner/options.h"

#include <stdio.h>

#include "base/base.h"

typedef struct walk {
  const weir_option_limits *limits;
  const weir_path_form *form;
  weir_option option;
  size_t compressions;
  uint8_t pair[WEIR_SITES]; /* routine of the first step there */
  void (*visit)(void *user, const weir_option *option);
  void *user;
  size_t count;
} walk;

static void before(walk *w, size_t slot, bool compressed);

static void put(walk *w, weir_task task, weir_site place, uint8_t routine) {
  w->option.step[w->option.count].task = (uint8_t)task;
  w->option.step[w->option.count].place = (uint8_t)place;
  w->option.step[w->option.count++].routine = routine;
}

static void finish(walk *w) {
  if (w->limits->compressed_only && !w->compressions) return;
  w->count++;
  if (w->visit) w->visit(w->user, &w->option);
}

/* The communication itself; a second step has the routine that pairs with its first. */
static void communicate(walk *w, size_t slot, bool compressed) {
  const weir_site place = w->form->hop[slot].place;
  const weir_role role = w->form->hop[slot].role;
  const weir_task task = weir_path_task(role, compressed);
  const uint8_t low = role == WEIR_ROLE_SECOND ? w->pair[place] : 0;
  const uint8_t high = role == WEIR_ROLE_FIRST ? 1 : low;
  for (uint8_t routine = low; routine <= high; routine++) {
    if (w->limits->never >> (2 * task + routine) & 1) continue;
    if (role == WEIR_ROLE_FIRST) w->pair[place] = routine;
    put(w, task, place, routine);
    before(w, slot + 1, compressed);
    w->option.count--;
  }
}

static bool allowed(const walk *w, weir_site place) {
  return place == WEIR_SITE_GPU ? !w->limits->no_gpu : !w->limits->no_cpu;
}

static void compress(walk *w, size_t slot) {
  if (w->limits->most_compressions && w->compressions == w->limits->most_compressions) return;
  for (weir_site place = WEIR_SITE_GPU; place <= WEIR_SITE_CPU; place++) {
    if (!allowed(w, place)) continue;
    put(w, WEIR_TASK_COMP, place, 0);
    w->compressions++;
    communicate(w, slot, true);
    w->compressions--;
    w->option.count--;
  }
}

/* All that may happen before this slot's communication, or after the last one. */
static void before(walk *w, size_t slot, bool compressed) {
  const bool last = slot == w->form->hops;
  if (!last) communicate(w, slot, compressed);
  if (!compressed) {
    if (last)
      finish(w);
    else
      compress(w, slot);
    return;
  }
  for (weir_site place = WEIR_SITE_GPU; place <= WEIR_SITE_CPU; place++) {
    if (!allowed(w, place)) continue;
    put(w, WEIR_TASK_DECOMP, place, 0);
    if (last) {
      finish(w);
    } else {
      communicate(w, slot, false);
      compress(w, slot);
    }
    w->option.count--;
  }
}

weir_status weir_options_visit(const weir_option_limits *limits,
                               void (*visit)(void *user, const weir_option *option), void *user,
                               size_t *count) {
  walk w = {.limits = limits, .visit = visit, .user = user};
  for (size_t i = 0; i < WEIR_PATH_HOPS; i++) {
    w.form = &weir_path_forms[i];
    if (w.form->hops > 2 ? limits->no_hierarchical : limits->no_flat) continue;
    if (w.form->hops % 2 == 0 ? limits->no_divisible : limits->no_indivisible) continue;
    before(&w, 0, false);
  }
  *count = w.count;
  return w.count ? WEIR_OK
                 : weir_fail(WEIR_E_INVALID,
                             "the constraints leave no option: expected at least "
                             "one scheme, and CPU or GPU to compress on");
}

const char *weir_routine_name(weir_task task, size_t routine) {
  static const char *const names[WEIR_TASKS][2] = {
      {"comp", "comp"},
      {"decomp", "decomp"},
      {"all-reduce", "all-reduce"},
      {"reduce-scatter", "reduce"},
      {"all-gather", "broadcast"},
      {"all-gather*", "all-gather*"},
      {"all-to-all*", "gather*"},
      {"all-gather*", "broadcast*"},
  };
  return (unsigned)task < WEIR_TASKS && routine < 2 ? names[task][routine] : "?";
}

size_t weir_option_text(const weir_option *option, char *text, size_t capacity) {
  static const char *const places[WEIR_SITES] = {"gpu", "cpu", "flat", "intra", "inter"};
  size_t length = 0;
  for (size_t i = 0; i < option->count; i++) {
    const int part =
        snprintf(length < capacity ? text + length : NULL,
                 length < capacity ? capacity - length : 0, "%s%s(%s)", i ? " " : "",
                 weir_routine_name((weir_task)option->step[i].task, option->step[i].routine),
                 places[option->step[i].place]);
    length += part > 0 ? (size_t)part : 0;
  }
  return length;
}
