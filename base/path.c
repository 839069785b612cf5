#include "base/path.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

const weir_path_form weir_path_forms[WEIR_PATH_HOPS] = {
    {1, {{WEIR_SITE_FLAT, WEIR_ROLE_WHOLE}}},
    {2, {{WEIR_SITE_FLAT, WEIR_ROLE_FIRST}, {WEIR_SITE_FLAT, WEIR_ROLE_SECOND}}},
    {3,
     {{WEIR_SITE_INTRA, WEIR_ROLE_FIRST},
      {WEIR_SITE_INTER, WEIR_ROLE_WHOLE},
      {WEIR_SITE_INTRA, WEIR_ROLE_SECOND}}},
    {4,
     {{WEIR_SITE_INTRA, WEIR_ROLE_FIRST},
      {WEIR_SITE_INTER, WEIR_ROLE_FIRST},
      {WEIR_SITE_INTER, WEIR_ROLE_SECOND},
      {WEIR_SITE_INTRA, WEIR_ROLE_SECOND}}},
};

/* What a hop's two bits say. */
enum { PLAIN = 1, FRESH = 2, AS_IT_CAME = 3 };
enum { ROOT_INSIDE = 1, ROOT_OUTSIDE = 2 };

static const char *const names[WEIR_TASKS][2] = {
    {"c", "c"},  {"d", "d"},   {"ar", "ar"}, {"rs", "r"},
    {"ag", "b"}, {"ag", "ag"}, {"a2a", "g"}, {"ag", "b"},
};

weir_task weir_path_task(weir_role role, bool compressed) {
  static const weir_task tasks[][2] = {{WEIR_TASK_COMM, WEIR_TASK_COMM_COMP},
                                       {WEIR_TASK_COMM1, WEIR_TASK_COMM1_COMP},
                                       {WEIR_TASK_COMM2, WEIR_TASK_COMM2_COMP}};
  return tasks[role][compressed];
}

static unsigned root_bit(weir_site place) {
  return place == WEIR_SITE_INTRA ? ROOT_INSIDE : ROOT_OUTSIDE;
}

static void put(weir_path *path, weir_task task, weir_site place, bool root) {
  path->step[path->count].task = (uint8_t)task;
  path->step[path->count].place = (uint8_t)place;
  path->step[path->count++].routine = root;
}

/* Roots only where there are two steps. */
static bool has_pair(const weir_path_form *form, weir_site inside) {
  for (size_t h = 0; h < form->hops; h++)
    if (form->hop[h].role == WEIR_ROLE_FIRST &&
        (form->hop[h].place == WEIR_SITE_INTRA) == (inside == WEIR_SITE_INTRA))
      return true;
  return false;
}

bool weir_path_of(const weir_plan *plan, weir_path *path) {
  size_t hops = 0;
  bool compressed = false;
  while (hops < WEIR_PATH_HOPS && (plan->algorithm >> 2 * hops & 3) != 0) hops++;
  if (plan->scheme != WEIR_SCHEME_PATH || hops == 0 || plan->algorithm >> 2 * (hops - 1) > 3 ||
      plan->inside > (ROOT_INSIDE | ROOT_OUTSIDE))
    return false;
  const weir_path_form *form = &weir_path_forms[hops - 1];
  if (((plan->inside & ROOT_INSIDE) && !has_pair(form, WEIR_SITE_INTRA)) ||
      ((plan->inside & ROOT_OUTSIDE) && !has_pair(form, WEIR_SITE_INTER)))
    return false;
  *path = (weir_path){0};
  for (size_t h = 0; h < hops; h++) {
    const unsigned how = plan->algorithm >> 2 * h & 3;
    const weir_site place = form->hop[h].place;
    if (how == AS_IT_CAME && !compressed) return false;
    if (how != AS_IT_CAME && compressed) put(path, WEIR_TASK_DECOMP, WEIR_SITE_CPU, false);
    if (how == FRESH) put(path, WEIR_TASK_COMP, WEIR_SITE_CPU, false);
    compressed = how != PLAIN;
    put(path, weir_path_task(form->hop[h].role, compressed), place,
        form->hop[h].role != WEIR_ROLE_WHOLE && (plan->inside & root_bit(place)));
  }
  if (compressed) put(path, WEIR_TASK_DECOMP, WEIR_SITE_CPU, false);
  return true;
}

void weir_path_pack(const weir_path *path, weir_plan *plan) {
  unsigned how = PLAIN;
  size_t hop = 0;
  plan->scheme = WEIR_SCHEME_PATH;
  plan->algorithm = plan->inside = plan->broadcast = 0;
  for (size_t i = 0; i < path->count; i++) {
    const unsigned task = path->step[i].task;
    if (task == WEIR_TASK_COMP) how = FRESH;
    if (task == WEIR_TASK_DECOMP) how = PLAIN;
    if (task == WEIR_TASK_COMP || task == WEIR_TASK_DECOMP) continue;
    plan->algorithm |= (uint8_t)(how << 2 * hop++);
    if (path->step[i].routine != 0)
      plan->inside |= (uint8_t)root_bit((weir_site)path->step[i].place);
    if (how == FRESH) how = AS_IT_CAME;
  }
}

bool weir_path_compresses(const weir_path *path) {
  for (size_t i = 0; i < path->count; i++)
    if (path->step[i].task == WEIR_TASK_COMP) return true;
  return false;
}

size_t weir_path_format(const weir_path *path, char *text, size_t capacity) {
  size_t length = 0;
  for (size_t i = 0; i < path->count; i++) {
    const int part = snprintf(length < capacity ? text + length : NULL,
                              length < capacity ? capacity - length : 0, "%s%s", i > 0 ? "." : "",
                              names[path->step[i].task][path->step[i].routine]);
    length += part > 0 ? (size_t)part : 0;
  }
  return length;
}

/* --- parsing ---------------------------------------------------------------------------------- */

typedef struct word {
  const char *text;
  size_t length;
} word;

typedef struct reader {
  const char *text;
  word word[WEIR_PATH_TASKS];
  size_t words, hops;
} reader;

static bool is(word w, const char *name) {
  return strlen(name) == w.length && memcmp(name, w.text, w.length) == 0;
}

static bool is_work(word w) { return is(w, "c") || is(w, "d"); }

static weir_status wrong(const reader *r, size_t at, const char *expected) {
  return weir_fail(WEIR_E_PARSE, "path '%.60s', task %zu, '%.*s': expected %s", r->text, at + 1,
                   r->word[at].length > 20 ? 20 : (int)r->word[at].length, r->word[at].text,
                   expected);
}

static weir_status split(reader *r) {
  for (const char *from = r->text;; from++) {
    if (r->words == WEIR_PATH_TASKS)
      return weir_fail(WEIR_E_PARSE, "path '%.60s' has more than %d tasks", r->text,
                       WEIR_PATH_TASKS);
    const word w = {from, strcspn(from, ".")};
    r->word[r->words++] = w;
    bool known = false;
    for (int task = 0; task < WEIR_TASKS; task++)
      known = known || is(w, names[task][0]) || is(w, names[task][1]);
    if (!known) return wrong(r, r->words - 1, "c, d, ar, ag, rs, r, b, a2a or g");
    r->hops += !is_work(w);
    from += w.length;
    if (*from == '\0') break;
  }
  if (r->hops >= 1 && r->hops <= WEIR_PATH_HOPS) return WEIR_OK;
  return weir_fail(
      WEIR_E_PARSE,
      "path '%.60s' has %zu communications: expected 1 or 2 (among all ranks), or 3 or 4 "
      "(inside of machines, between them, inside)",
      r->text, r->hops);
}

/* The routine of that name where this task is due. */
static weir_status read_hop(const reader *r, size_t at, weir_task task, bool paired, uint8_t pair,
                            uint8_t *routine) {
  char expected[64];
  for (uint8_t i = paired ? pair : 0; i < 2 && !(paired && i > pair); i++)
    if (is(r->word[at], names[task][i])) {
      *routine = i;
      return WEIR_OK;
    }
  if (paired)
    (void)snprintf(expected, sizeof expected, "%s, which pairs with the first", names[task][pair]);
  else
    (void)snprintf(expected, sizeof expected, "%s%s%s, of what is %scompressed", names[task][0],
                   strcmp(names[task][0], names[task][1]) != 0 ? " or " : "",
                   strcmp(names[task][0], names[task][1]) != 0 ? names[task][1] : "",
                   task >= WEIR_TASK_COMM_COMP ? "" : "not ");
  return wrong(r, at, expected);
}

weir_status weir_path_parse(const char *text, weir_plan *plan) {
  reader r = {.text = text};
  weir_status status = split(&r);
  if (status != WEIR_OK) return status;
  const weir_path_form *form = &weir_path_forms[r.hops - 1];
  weir_path path = {0};
  uint8_t pair[WEIR_SITES] = {0};
  bool compressed = false, sent = false; /* since it was compressed */
  size_t hop = 0;
  for (size_t i = 0; i < r.words; i++) {
    if (is(r.word[i], "c")) {
      if (compressed) return wrong(&r, i, "d first, as it is compressed already");
      if (hop == r.hops) return wrong(&r, i, "nothing, as no communication follows");
      put(&path, WEIR_TASK_COMP, WEIR_SITE_CPU, false);
      compressed = true;
      sent = false;
    } else if (is(r.word[i], "d")) {
      if (!compressed) return wrong(&r, i, "something compressed before it");
      if (!sent) return wrong(&r, i, "a communication, as nothing of it was sent");
      put(&path, WEIR_TASK_DECOMP, WEIR_SITE_CPU, false);
      compressed = false;
    } else {
      const weir_role role = form->hop[hop].role;
      const weir_site place = form->hop[hop].place;
      const weir_task task = weir_path_task(role, compressed);
      uint8_t routine = 0;
      status = read_hop(&r, i, task, role == WEIR_ROLE_SECOND, pair[place], &routine);
      if (status != WEIR_OK) return status;
      if (role == WEIR_ROLE_FIRST) pair[place] = routine;
      put(&path, task, place, routine != 0);
      sent = true;
      hop++;
    }
  }
  if (compressed) return wrong(&r, r.words - 1, "d behind it, as it ends compressed");
  weir_path_pack(&path, plan);
  return WEIR_OK;
}
