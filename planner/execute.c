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
