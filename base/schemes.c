#include "base/schemes.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"

#define BIT(name) (UINT32_C(1) << WEIR_ALGORITHM_##name)
/* Algorithms of a sum, on every transport; and those that go between machines. */
#define SUMS                                                                          \
  (BIT(RING) | BIT(TREE) | BIT(HALVING) | BIT(DOUBLE_TREE) | BIT(TORUS) | BIT(STAR) | \
   BIT(DOUBLING) | BIT(DIRECT))
/* NCCL's own all-reduce, told how. */
#define TOLD (BIT(NATIVE_RING) | BIT(NATIVE_TREE))
#define GATHERS (BIT(BRUCK) | BIT(RING) | BIT(DOUBLING) | BIT(DIRECT))
#define LEVELS (BIT(RING) | BIT(TREE) | BIT(HALVING) | BIT(DOUBLE_TREE))
/* Sums of an encoder's messages, of low rank's factors. */
#define MESSAGES (BIT(SRA) | BIT(ONE_SHOT))
#define INSIDE (BIT(RING) | BIT(PAIRWISE) | BIT(NATIVE))

const weir_scheme_row weir_schemes[WEIR_SCHEME_COUNT] = {
    [WEIR_SCHEME_DENSE] = {"dense", SUMS | TOLD | BIT(NATIVE), LEVELS, INSIDE, 0, SUMS,
                           WEIR_ALGORITHM_RING},
    [WEIR_SCHEME_GATHER] = {"ag", GATHERS, 0, 0, 0, GATHERS, WEIR_ALGORITHM_BRUCK},
    [WEIR_SCHEME_SHARED] = {"art", SUMS | TOLD, LEVELS, INSIDE, BIT(CHAIN) | BIT(DIRECT), SUMS,
                            WEIR_ALGORITHM_RING},
    [WEIR_SCHEME_COMPRESSED] = {"compressed", BIT(SRA) | BIT(RING) | BIT(TREE), BIT(SRA),
                                BIT(RING) | BIT(NATIVE), 0, BIT(SRA), WEIR_ALGORITHM_SRA},
    [WEIR_SCHEME_HITOPK] = {"hitopk", 0, 0, 0, 0, 0, WEIR_ALGORITHM_ANY},
    [WEIR_SCHEME_LOW_RANK] = {"dense", SUMS | TOLD | BIT(NATIVE) | MESSAGES, LEVELS, INSIDE, 0,
                              SUMS, WEIR_ALGORITHM_RING},
    [WEIR_SCHEME_PATH] = {"path", 0, 0, 0, 0, 0, WEIR_ALGORITHM_ANY},
};

static const char *const names[WEIR_ALGORITHM_COUNT] = {
    [WEIR_ALGORITHM_ANY] = "",
    [WEIR_ALGORITHM_RING] = "ring",
    [WEIR_ALGORITHM_TREE] = "tree",
    [WEIR_ALGORITHM_HALVING] = "halving",
    [WEIR_ALGORITHM_DOUBLE_TREE] = "double-tree",
    [WEIR_ALGORITHM_TORUS] = "torus",
    [WEIR_ALGORITHM_STAR] = "star",
    [WEIR_ALGORITHM_DOUBLING] = "doubling",
    [WEIR_ALGORITHM_DIRECT] = "direct",
    [WEIR_ALGORITHM_NATIVE] = "native",
    [WEIR_ALGORITHM_BRUCK] = "bruck",
    [WEIR_ALGORITHM_SRA] = "sra",
    [WEIR_ALGORITHM_CHAIN] = "chain",
    [WEIR_ALGORITHM_PAIRWISE] = "pairwise",
    [WEIR_ALGORITHM_NATIVE_RING] = "native-ring",
    [WEIR_ALGORITHM_NATIVE_TREE] = "native-tree",
    [WEIR_ALGORITHM_ONE_SHOT] = "one-shot",
};

/* Collectives that are known by a name of their own. */
static const struct {
  const char *alias, *name;
} aliases[] = {{"native", "dense-native"},
               {"native-ring", "dense-native-ring"},
               {"native-tree", "dense-native-tree"},
               {"sra", "compressed-sra"},
               {"hier-sra", "compressed-hier-sra"}};
enum { ALIASES = sizeof aliases / sizeof *aliases };

bool weir_algorithm_in(uint32_t set, uint32_t algorithm) {
  return algorithm < WEIR_ALGORITHM_COUNT && (set >> algorithm & 1) != 0;
}

const char *weir_algorithm_name(uint32_t algorithm) {
  return algorithm < WEIR_ALGORITHM_COUNT ? names[algorithm] : NULL;
}

uint32_t weir_algorithm_find(const char *name) {
  uint32_t found = WEIR_ALGORITHM_COUNT - 1;
  while (found > WEIR_ALGORITHM_ANY && strcmp(names[found], name) != 0) found--;
  return found;
}

/* Of a path, the algorithm is its tasks. */
bool weir_sums_as_told(const weir_plan *plan) {
  return plan->scheme != WEIR_SCHEME_PATH && weir_algorithm_in(TOLD, plan->algorithm);
}

uint8_t weir_algorithm_told(uint8_t algorithm) {
  return algorithm == WEIR_ALGORITHM_RING   ? WEIR_ALGORITHM_NATIVE_RING
         : algorithm == WEIR_ALGORITHM_TREE ? WEIR_ALGORITHM_NATIVE_TREE
                                            : algorithm;
}

uint8_t weir_algorithm_own(uint8_t algorithm) {
  return algorithm == WEIR_ALGORITHM_NATIVE_RING   ? WEIR_ALGORITHM_RING
         : algorithm == WEIR_ALGORITHM_NATIVE_TREE ? WEIR_ALGORITHM_TREE
                                                   : algorithm;
}

bool weir_sums_natively(const weir_plan *plan) {
  return plan->scheme != WEIR_SCHEME_PATH && weir_algorithm_in(TOLD | BIT(NATIVE), plan->algorithm);
}

bool weir_sums_inside_natively(const weir_plan *plan) {
  return plan->scheme != WEIR_SCHEME_PATH && plan->inside == WEIR_ALGORITHM_NATIVE;
}

bool weir_factors_encoded(const weir_plan *plan) {
  return plan->scheme == WEIR_SCHEME_LOW_RANK && weir_algorithm_in(MESSAGES, plan->algorithm);
}

uint32_t weir_inside_usual(uint32_t algorithm) {
  return algorithm == WEIR_ALGORITHM_HALVING ? WEIR_ALGORITHM_PAIRWISE : WEIR_ALGORITHM_RING;
}

bool weir_collective_legal(const weir_plan *plan) {
  weir_path path;
  if (plan->scheme >= WEIR_SCHEME_COUNT) return false;
  if (plan->scheme == WEIR_SCHEME_PATH) return weir_path_of(plan, &path) && plan->broadcast == 0;
  const weir_scheme_row *row = &weir_schemes[plan->scheme];
  if (plan->algorithm == WEIR_ALGORITHM_ANY) return plan->inside == 0 && plan->broadcast == 0;
  return weir_algorithm_in(row->algorithms, plan->algorithm) &&
         (plan->inside == 0 || (weir_algorithm_in(row->levels, plan->algorithm) &&
                                weir_algorithm_in(row->inside, plan->inside))) &&
         (plan->broadcast == 0 || weir_algorithm_in(row->broadcasts, plan->broadcast));
}

/* --- names ------------------------------------------------------------------------------------ */

void weir_plan_collective(const weir_plan *plan, char text[WEIR_COLLECTIVE_TEXT_MAX]) {
  weir_path path;
  if (weir_path_of(plan, &path)) {
    const int prefix = snprintf(text, WEIR_COLLECTIVE_TEXT_MAX, "path=");
    (void)weir_path_format(&path, text + prefix, WEIR_COLLECTIVE_TEXT_MAX - (size_t)prefix);
    return;
  }
  const bool legal = weir_collective_legal(plan);
  const bool levels = legal && plan->inside != 0, list = legal && plan->broadcast != 0;
  const bool other = levels && plan->inside != weir_inside_usual(plan->algorithm);
  (void)snprintf(text, WEIR_COLLECTIVE_TEXT_MAX, "%s%s%s%s",
                 legal ? weir_schemes[plan->scheme].name : "?", levels ? "-hier" : "",
                 legal && plan->algorithm != 0 ? "-" : "", legal ? names[plan->algorithm] : "");
  for (size_t i = 0; i < ALIASES; i++)
    if (strcmp(aliases[i].name, text) == 0)
      (void)snprintf(text, WEIR_COLLECTIVE_TEXT_MAX, "%s", aliases[i].alias);
  const size_t length = strlen(text);
  (void)snprintf(text + length, WEIR_COLLECTIVE_TEXT_MAX - length, "%s%s%s%s", other ? "+" : "",
                 other ? names[plan->inside] : "", list ? "+" : "",
                 list ? names[plan->broadcast] : "");
}

/* "-hier-ring" behind a scheme's name. */
static bool parse_algorithm(const char *text, weir_plan *plan) {
  static const char hier[] = "-hier-";
  const bool levels = strncmp(text, hier, sizeof hier - 1) == 0;
  plan->algorithm = plan->inside = WEIR_ALGORITHM_ANY;
  if (*text == '\0') return true;
  if (*text != '-') return false;
  plan->algorithm = (uint8_t)weir_algorithm_find(text + (levels ? sizeof hier - 1 : 1));
  if (levels) plan->inside = (uint8_t)weir_inside_usual(plan->algorithm);
  return plan->algorithm != WEIR_ALGORITHM_ANY;
}

static bool parse_main(const char *text, bool low_rank, weir_plan *plan) {
  for (size_t i = 0; i < ALIASES; i++)
    if (strcmp(aliases[i].alias, text) == 0) text = aliases[i].name;
  for (uint32_t scheme = 0; scheme < WEIR_SCHEME_LOW_RANK; scheme++) {
    const size_t length = strlen(weir_schemes[scheme].name);
    if (strncmp(weir_schemes[scheme].name, text, length) != 0) continue;
    plan->scheme = low_rank && scheme == WEIR_SCHEME_DENSE ? WEIR_SCHEME_LOW_RANK : scheme;
    return parse_algorithm(text + length, plan);
  }
  return false;
}

/* What goes on inside of machines, or a list's broadcast. */
static bool parse_other(const char *name, weir_plan *plan) {
  const uint32_t other = weir_algorithm_find(name);
  const weir_scheme_row *row = &weir_schemes[plan->scheme];
  if (other == WEIR_ALGORITHM_ANY) return false;
  if (weir_algorithm_in(row->broadcasts, other))
    plan->broadcast = (uint8_t)other;
  else if (plan->inside != 0)
    plan->inside = (uint8_t)other;
  else
    return false;
  return true;
}

bool weir_collective_parse(const char *text, bool low_rank, weir_plan *plan) {
  char part[WEIR_COLLECTIVE_TEXT_MAX];
  plan->broadcast = 0;
  for (bool first = true, more = true; more; first = false) {
    const size_t length = strcspn(text, "+");
    if (length >= sizeof part) return false;
    memcpy(part, text, length);
    part[length] = '\0';
    if (!(first ? parse_main(part, low_rank, plan) : parse_other(part, plan))) return false;
    more = text[length] == '+';
    text += length + more;
  }
  return weir_collective_legal(plan);
}

bool weir_algorithm_next(weir_plan *plan) {
  do {
    if (plan->inside == 0 &&
        weir_algorithm_in(weir_schemes[plan->scheme].levels, plan->algorithm)) {
      plan->inside = (uint8_t)weir_inside_usual(plan->algorithm);
    } else {
      plan->inside = 0;
      plan->algorithm++;
    }
  } while (plan->algorithm < WEIR_ALGORITHM_COUNT && !weir_collective_legal(plan));
  return plan->algorithm < WEIR_ALGORITHM_COUNT;
}

bool weir_collective_next(weir_plan *plan) {
  if (weir_algorithm_next(plan)) return true;
  plan->algorithm = WEIR_ALGORITHM_ANY;
  return ++plan->scheme < WEIR_SCHEME_LOW_RANK;
}

/* --- plans ------------------------------------------------------------------------------------ */

weir_plan weir_plan_usual(const weir_plan *plan) {
  weir_plan usual = *plan;
  if (plan->scheme < WEIR_SCHEME_COUNT && plan->algorithm == WEIR_ALGORITHM_ANY)
    usual.algorithm = (uint8_t)weir_schemes[plan->scheme].usual;
  return usual;
}

bool weir_same_collective(const weir_plan *a, const weir_plan *b) {
  return a->scheme == b->scheme && a->algorithm == b->algorithm && a->inside == b->inside &&
         a->broadcast == b->broadcast;
}
