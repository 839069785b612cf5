/* Options of the decision tree as plans of the engine. */
#include "planner/execute.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Paths without the places of compression.  A ring is a reduce-scatter and an all-gather, a binomial
 * tree a reduce and a broadcast. */
static const struct {
  const char *path, *collective;
} known[] = {
    {"all-reduce(flat)", "dense"},
    {"reduce-scatter(flat) all-gather(flat)", "dense-ring"},
    {"reduce(flat) broadcast(flat)", "dense-tree"},
    {"comp all-gather*(flat) decomp", "ag"},
    {"comp all-to-all*(flat) decomp comp all-gather*(flat) decomp", "sra"},
    {"reduce-scatter(intra) all-reduce(inter) all-gather(intra)", "dense-hier-ring"},
    {"reduce-scatter(intra) reduce-scatter(inter) all-gather(inter) all-gather(intra)",
     "dense-hier-ring"},
    {"reduce-scatter(intra) reduce(inter) broadcast(inter) all-gather(intra)", "dense-hier-tree"},
    {"reduce-scatter(intra) comp all-to-all*(inter) decomp comp all-gather*(inter) decomp "
     "all-gather(intra)",
     "hier-sra"},
    {"reduce-scatter(intra) comp all-gather*(inter) all-gather*(intra) decomp", "hitopk"},
};

/* The option's text without "(gpu)" and "(cpu)". */
static void path_of(const weir_option *option, char *path, size_t room) {
  static const char *const places[] = {"(gpu)", "(cpu)"};
  (void)weir_option_text(option, path, room);
  for (size_t i = 0; i < 2; i++)
    for (char *at = strstr(path, places[i]); at != NULL; at = strstr(at, places[i]))
      memmove(at, at + 5, strlen(at + 5) + 1);
}

const char *weir_option_collective(const weir_option *option) {
  char path[512];
  path_of(option, path, sizeof path);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(path, known[i].path)) return known[i].collective;
  return NULL;
}

static bool between(unsigned place) { return place == WEIR_SITE_FLAT || place == WEIR_SITE_INTER; }

/* Which steps there are: bits 0 and 1 of a place's first and second, 2 and 3 if compressed, 4 with a
 * root. */
static unsigned steps_at(const weir_option *option, bool inside) {
  unsigned bits = 0;
  for (size_t i = 0; i < option->count; i++) {
    const unsigned task = option->step[i].task, place = option->step[i].place;
    if (inside ? place != WEIR_SITE_INTRA : !between(place)) continue;
    const bool first = task == WEIR_TASK_COMM1 || task == WEIR_TASK_COMM1_COMP;
    const bool second = task == WEIR_TASK_COMM2 || task == WEIR_TASK_COMM2_COMP;
    if (!first && !second) continue;
    const unsigned step = first ? 0 : 1;
    bits |= 1u << step;
    if (task == WEIR_TASK_COMM1_COMP || task == WEIR_TASK_COMM2_COMP) bits |= 4u << step;
    if (option->step[i].routine != 0) bits |= 16;
  }
  return bits;
}

static bool passes_on(const weir_option *option) {
  for (size_t i = 0; i + 1 < option->count; i++)
    if (between(option->step[i].place) && option->step[i].task == WEIR_TASK_COMM1_COMP &&
        option->step[i + 1].task == WEIR_TASK_COMM2_COMP)
      return true;
  return false;
}

weir_obstacle weir_option_obstacle(const weir_option *option) {
  const unsigned inside = steps_at(option, true), outside = steps_at(option, false);
  const unsigned coded = outside & 12;
  if (weir_option_collective(option) != NULL) return WEIR_OBSTACLE_NONE;
  if (inside & 16) return WEIR_OBSTACLE_ROOT_INSIDE;
  if ((outside & 16) != 0 && coded != 0) return WEIR_OBSTACLE_ROOT;
  if (inside & 4) return WEIR_OBSTACLE_CODED_INSIDE;
  if (passes_on(option)) return WEIR_OBSTACLE_NOT_ADDED;
  if (coded == 4 || coded == 8) return WEIR_OBSTACLE_HALF;
  return inside & 8 ? WEIR_OBSTACLE_CODED_BACK : WEIR_OBSTACLE_ADDED;
}

const char *weir_obstacle_text(weir_obstacle obstacle) {
  static const char *const texts[WEIR_OBSTACLES] = {
      "the engine has a plan",
      "reduce or gather to a root inside of machines, and broadcast",
      "compressed gather to a root between machines or among all, or compressed broadcast",
      "compressed before the first step inside of machines",
      "shares exchanged and gathered without being added up in between",
      "compressed in one of two steps between machines or among all",
      "compressed in the last step inside of machines",
      "gathered between machines and added up before the all-gather inside",
  };
  return (unsigned)obstacle < WEIR_OBSTACLES ? texts[obstacle] : "?";
}

static void count_one(void *user, const weir_option *option) {
  weir_executed *e = user;
  const char *collective = weir_option_collective(option);
  e->obstacle[weir_option_obstacle(option)]++;
  for (size_t i = 0; collective != NULL && i < WEIR_EXECUTED; i++) {
    if (e->collective[i] == NULL) e->collective[i] = collective;
    if (strcmp(e->collective[i], collective) != 0) continue;
    e->run[i]++;
    return;
  }
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
  char text[256];
  const char *collective = weir_option_collective(option);
  if (collective == NULL) {
    char path[512];
    path_of(option, path, sizeof path);
    return weir_fail(WEIR_E_UNSUPPORTED, "the engine has no plan for %s", path);
  }
  const int length = snprintf(text, sizeof text, "%s:%s",
                              weir_option_compresses(option) ? codec : "none:1", collective);
  if (length < 0 || (size_t)length >= sizeof text)
    return weir_fail(WEIR_E_INVALID, "codec '%.60s...': expected CODEC:CR", codec);
  const weir_status status = weir_plan_parse(text, plan);
  if (status == WEIR_OK) *place = lane_of(option);
  return status;
}
