/* Options of the decision tree as plans of the engine. */
#include "planner/execute.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Collectives that take the steps of a path: a ring is a reduce-scatter and an all-gather, a
 * binomial tree a reduce and a broadcast. */
static const struct {
  const char *path, *collective;
} known[] = {
    {"ar", "dense"},
    {"rs.ag", "dense-ring"},
    {"r.b", "dense-tree"},
    {"c.ag.d", "ag"},
    {"c.a2a.d.c.ag.d", "sra"},
    {"rs.ar.ag", "dense-hier-ring"},
    {"rs.rs.ag.ag", "dense-hier-ring"},
    {"rs.r.b.ag", "dense-hier-tree"},
    {"rs.c.a2a.d.c.ag.d.ag", "hier-sra"},
    {"rs.c.ag.ag.d", "hitopk"},
};

const char *weir_option_collective(const weir_option *option) {
  char path[WEIR_COLLECTIVE_TEXT_MAX];
  (void)weir_path_format(option, path, sizeof path);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(path, known[i].path)) return known[i].collective;
  return NULL;
}

static bool is_work(unsigned task) { return task == WEIR_TASK_COMP || task == WEIR_TASK_DECOMP; }

bool weir_option_keeps_places(const weir_option *option) {
  bool sent = false;
  for (size_t i = 0; i < option->count; i++) {
    if (!is_work(option->step[i].task))
      sent = true;
    else if (sent && option->step[i].place == WEIR_SITE_GPU)
      return false;
  }
  return true;
}

static void count_one(void *user, const weir_option *option) {
  weir_executed *e = user;
  const char *collective = weir_option_collective(option);
  size_t i = 0;
  if (collective == NULL) collective = "path=";
  while (e->collective[i] != NULL && strcmp(e->collective[i], collective) != 0) i++;
  e->collective[i] = collective;
  e->run[i]++;
  e->placed += weir_option_keeps_places(option);
}

weir_status weir_options_executed(const weir_option_limits *limits, weir_executed *executed) {
  *executed = (weir_executed){0};
  return weir_options_visit(limits, count_one, executed, &executed->options);
}

static weir_place lane_of(const weir_option *option) {
  for (size_t i = 0; i < option->count; i++)
    if (option->step[i].task == WEIR_TASK_COMP)
      return option->step[i].place == WEIR_SITE_CPU ? WEIR_PLACE_THREAD : WEIR_PLACE_CALLER;
  return WEIR_PLACE_CALLER;
}

weir_status weir_option_plan(const weir_option *option, const char *codec, weir_plan *plan,
                             weir_place *place) {
  char text[256], path[WEIR_COLLECTIVE_TEXT_MAX];
  const char *const collective = weir_option_collective(option);
  const char *const name = weir_path_compresses(option) ? codec : "none:1";
  (void)weir_path_format(option, path, sizeof path);
  if (strlen(name) + sizeof path + sizeof ":path=" > sizeof text)
    return weir_fail(WEIR_E_INVALID, "codec '%.60s...': expected CODEC:CR", codec);
  (void)snprintf(text, sizeof text, "%s:%s", name, collective != NULL ? collective : "");
  weir_status status = collective != NULL ? weir_plan_parse(text, plan) : WEIR_E_INVALID;
  if (status == WEIR_E_INVALID) { /* there is none, or the codec does not go with it */
    (void)snprintf(text, sizeof text, "%s:path=%s", name, path);
    status = weir_plan_parse(text, plan);
  }
  if (status == WEIR_OK) *place = lane_of(option);
  return status;
}
