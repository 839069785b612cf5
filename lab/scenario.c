#include "lab/scenario.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/ini.h"
#include "lab/scenario_keys.h"
#include "lab/trainer.h"

typedef struct parser {
  weir_scenario *scenario;
  const char *path;
  const char *section; /* the table's name of the section being read */
  int section_line;
  int seen[WEIR_SCENARIO_KEYS_MAX]; /* line of each key; of the current phase for phases */
  int last_line;
} parser;

/* --- values ----------------------------------------------------------------------------------- */

static weir_status bad_value(const weir_ini_line *at, const weir_key *key) {
  return weir_fail(WEIR_E_PARSE, "%s:%d: %s = %.80s is not allowed; expected %s", at->path,
                   at->line, at->key, at->value, key->expected);
}

static bool parse_whole(const char *text, uint64_t *value) {
  char *end;
  if (!isdigit((unsigned char)*text)) return false;
  errno = 0;
  *value = strtoull(text, &end, 10);
  return !errno && !*end;
}

static bool parse_real(const char *text, double *value) {
  char *end;
  *value = strtod(text, &end);
  return end != text && !*end && isfinite(*value);
}

static bool parse_range(const char *text, weir_phase *phase) {
  char copy[64];
  if (strlen(text) >= sizeof copy) return false;
  strcpy(copy, text);
  char *dash = strchr(copy, '-');
  if (dash) *dash = 0;
  uint64_t first, last;
  if (!parse_whole(copy, &first) || !parse_whole(dash ? dash + 1 : copy, &last)) return false;
  if (first > last || last > 1000000) return false;
  phase->first_epoch = (uint32_t)first;
  phase->last_epoch = (uint32_t)last;
  phase->has_epochs = true;
  return true;
}

static bool parse_epochs(const char *text, weir_scenario *s) {
  char copy[256], *rest = copy;
  if (strlen(text) >= sizeof copy) return false;
  strcpy(copy, text);
  s->decays = 0;
  for (char *item = strtok_r(copy, ", ", &rest); item; item = strtok_r(NULL, ", ", &rest)) {
    uint64_t epoch;
    if (!parse_whole(item, &epoch) || epoch > 1000000) return false;
    if (s->decays == WEIR_SCENARIO_DECAYS_MAX) return false;
    if (s->decays && epoch <= s->decay_epochs[s->decays - 1]) return false;
    s->decay_epochs[s->decays++] = (uint32_t)epoch;
  }
  return s->decays > 0;
}

static bool parse_fault(const char *text, weir_fault_kind *kind) {
  static const char *const names[] = {"", "kill", "freeze", "exit"};
  for (int k = WEIR_FAULT_KILL; k <= WEIR_FAULT_EXIT; k++)
    if (!strcmp(text, names[k])) {
      *kind = (weir_fault_kind)k;
      return true;
    }
  return false;
}

static bool parse_value(parser *p, const weir_ini_line *at, const weir_key *key) {
  weir_scenario *s = p->scenario;
  const bool in_phase = !strcmp(key->section, "phase");
  weir_phase *phase = s->phase_count ? &s->phases[s->phase_count - 1] : NULL;
  void *to = (char *)(in_phase ? (void *)phase : (void *)s) + key->offset;
  uint64_t whole;
  double real;
  switch (key->kind) {
    case WEIR_KEY_TEXT:
      if (strlen(at->value) >= WEIR_SCENARIO_TEXT_MAX) return false;
      strcpy(to, at->value);
      return true;
    case WEIR_KEY_COUNT:
      if (!parse_whole(at->value, &whole) || (double)whole < key->low || (double)whole > key->high)
        return false;
      *(uint32_t *)to = (uint32_t)whole;
      return true;
    case WEIR_KEY_SEED:
      if (!parse_whole(at->value, &whole) || whole > INT64_MAX) return false; /* JSON's limit */
      *(uint64_t *)to = whole;
      return true;
    case WEIR_KEY_REAL:
      if (!parse_real(at->value, &real) || real < key->low || real > key->high) return false;
      *(double *)to = real;
      return true;
    case WEIR_KEY_EPOCHS: return parse_epochs(at->value, s);
    case WEIR_KEY_RANGE: return parse_range(at->value, phase);
    case WEIR_KEY_FAULT: return parse_fault(at->value, to);
  }
  return false;
}

/* --- sections --------------------------------------------------------------------------------- */

static bool known_section(const char *section) {
  for (const weir_key *key = weir_scenario_keys; key->section; key++)
    if (!strcmp(key->section, section)) return true;
  return false;
}

/* Before the next section, and at the end: is anything missing from this one? */
static weir_status close_section(parser *p) {
  if (!p->section) return WEIR_OK;
  for (size_t k = 0; weir_scenario_keys[k].section; k++) {
    const weir_key *key = &weir_scenario_keys[k];
    if (strcmp(key->section, p->section) || !key->required || p->seen[k]) continue;
    return weir_fail(WEIR_E_PARSE, "%s:%d: [%s] has no key %s; expected %s", p->path,
                     p->section_line, p->section, key->name, key->expected);
  }
  return WEIR_OK;
}

static weir_status open_phase(parser *p, const weir_ini_line *at) {
  weir_scenario *s = p->scenario;
  if (!*at->argument || strlen(at->argument) >= sizeof s->phases[0].name)
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: the phase's name is missing or too long; expected e.g. [phase slow]",
                     at->path, at->line);
  if (s->phase_count == WEIR_SCENARIO_PHASES_MAX)
    return weir_fail(WEIR_E_PARSE, "%s:%d: one phase too many; expected at most %d", at->path,
                     at->line, WEIR_SCENARIO_PHASES_MAX);
  weir_phase *phase = &s->phases[s->phase_count++];
  *phase = (weir_phase){.line = at->line};
  strcpy(phase->name, at->argument);
  return WEIR_OK;
}

static weir_status open_section(parser *p, const weir_ini_line *at) {
  weir_status status = close_section(p);
  if (status) return status;
  if (!known_section(at->section))
    return weir_fail(
        WEIR_E_PARSE,
        "%s:%d: unknown section [%.80s]; expected scenario, training, phase NAME, trace or fault",
        at->path, at->line, at->section);
  const bool phase = !strcmp(at->section, "phase");
  for (size_t k = 0; weir_scenario_keys[k].section; k++) {
    const weir_key *key = &weir_scenario_keys[k];
    if (strcmp(key->section, at->section)) continue;
    if (p->seen[k] && !phase)
      return weir_fail(WEIR_E_PARSE, "%s:%d: [%s] appears twice; expected it once", at->path,
                       at->line, at->section);
    p->seen[k] = 0;
    p->section = key->section;
  }
  p->section_line = at->line;
  if (!strcmp(at->section, "training")) p->scenario->training_line = at->line;
  if (phase) return open_phase(p, at);
  if (*at->argument)
    return weir_fail(WEIR_E_PARSE, "%s:%d: unknown section [%s %.80s]; expected [%s]", at->path,
                     at->line, at->section, at->argument, at->section);
  return WEIR_OK;
}

static weir_status take_line(void *user, const weir_ini_line *at) {
  parser *p = user;
  p->last_line = at->line;
  if (!at->key) return open_section(p, at);
  for (size_t k = 0; weir_scenario_keys[k].section; k++) {
    const weir_key *key = &weir_scenario_keys[k];
    if (strcmp(key->section, p->section) || strcmp(key->name, at->key)) continue;
    if (p->seen[k])
      return weir_fail(WEIR_E_PARSE, "%s:%d: %s appears twice (first in line %d); expected it once",
                       at->path, at->line, at->key, p->seen[k]);
    p->seen[k] = at->line;
    if (key->line_offset) *(int *)((char *)p->scenario + key->line_offset) = at->line;
    return parse_value(p, at, key) ? WEIR_OK : bad_value(at, key);
  }
  return weir_fail(
      WEIR_E_PARSE,
      "%s:%d: unknown key %.80s in [%s]; expected one that docs/guide/scenarios.md lists", at->path,
      at->line, at->key, p->section);
}

/* --- the whole -------------------------------------------------------------------------------- */

static int by_first_epoch(const void *a, const void *b) {
  const weir_phase *x = a, *y = b;
  return (x->first_epoch > y->first_epoch) - (x->first_epoch < y->first_epoch);
}

static weir_status lacks(const weir_scenario *s, const weir_phase *phase, const char *key,
                         const char *expected) {
  return weir_fail(WEIR_E_PARSE, "%s:%d: [phase %s] has no key %s; expected %s", s->path,
                   phase->line, phase->name, key, expected);
}

/* Phases in the order of their epochs, without gaps. */
static weir_status check_order(weir_scenario *s) {
  weir_phase *phase = s->phases;
  for (size_t i = 0; i < s->phase_count; i++)
    if (!phase[i].has_epochs) return lacks(s, &phase[i], "epochs", "FIRST-LAST, e.g. 1-12");
  qsort(phase, s->phase_count, sizeof *phase, by_first_epoch);
  if (phase->first_epoch > 1)
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: no phase for the epochs before %" PRIu32
                     "; expected the first phase to start at epoch 0 or 1",
                     s->path, phase->line, phase->first_epoch);
  s->first_epoch = phase->first_epoch;
  for (size_t i = 1; i < s->phase_count; i++) {
    if (phase[i].first_epoch <= phase[i - 1].last_epoch)
      return weir_fail(WEIR_E_PARSE,
                       "%s:%d: [phase %s] and [phase %s] (line %d) overlap in epoch %" PRIu32
                       "; expected each epoch in one phase",
                       s->path, phase[i].line, phase[i].name, phase[i - 1].name, phase[i - 1].line,
                       phase[i].first_epoch);
    if (phase[i].first_epoch != phase[i - 1].last_epoch + 1)
      return weir_fail(WEIR_E_PARSE,
                       "%s:%d: no phase for epoch %" PRIu32 "; expected [phase %s] to start there",
                       s->path, phase[i].line, phase[i - 1].last_epoch + 1, phase[i].name);
  }
  return WEIR_OK;
}

/* Do they cover the training? */
static weir_status check_phases(weir_scenario *s) {
  const weir_status status = check_order(s);
  if (status) return status;
  const weir_phase *phase = s->phases;
  const uint32_t last = s->first_epoch + s->epochs - 1;
  for (size_t i = 0; i < s->phase_count; i++)
    if (phase[i].last_epoch > last)
      return weir_fail(
          WEIR_E_PARSE,
          "%s:%d: [phase %s] goes beyond the last epoch; expected it to end by %" PRIu32
          " (epochs = %" PRIu32 ", line %d)",
          s->path, phase[i].line, phase[i].name, last, s->epochs, s->epochs_line);
  if (phase[s->phase_count - 1].last_epoch != last)
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: no phase for epoch %" PRIu32 "; expected phases up to epoch %" PRIu32,
                     s->path, s->epochs_line, phase[s->phase_count - 1].last_epoch + 1, last);
  return WEIR_OK;
}

bool weir_scenario_is_timed(const weir_scenario *s) {
  return s->phase_count > 0 && s->phases[0].seconds > 0;
}

/* By seconds, or by epochs; never by both. */
static weir_status check_times(weir_scenario *s) {
  for (size_t i = 0; i < s->phase_count; i++)
    if (!(s->phases[i].seconds > 0) != !weir_scenario_is_timed(s))
      return lacks(s, s->phases[i].seconds > 0 ? &s->phases[0] : &s->phases[i], "seconds",
                   "it in every phase, since others have it");
  return weir_scenario_is_timed(s) ? WEIR_OK : check_order(s);
}

/* A path relative to the scenario, not to where weir was called. */
static weir_status join(const weir_scenario *s, const char *what, int line,
                        char path[WEIR_SCENARIO_TEXT_MAX]) {
  char joined[2 * WEIR_SCENARIO_TEXT_MAX];
  const char *slash = strrchr(s->path, '/');
  if (*path == '/') return WEIR_OK;
  (void)snprintf(joined, sizeof joined, "%.*s%s", slash ? (int)(slash - s->path) + 1 : 0, s->path,
                 path);
  if (strlen(joined) >= WEIR_SCENARIO_TEXT_MAX)
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: the %s's path is too long; expected at most %d characters", s->path,
                     line, what, WEIR_SCENARIO_TEXT_MAX - 1);
  strcpy(path, joined);
  return WEIR_OK;
}

static weir_status check_network(weir_scenario *s, const parser *p,
                                 weir_status (*check)(weir_scenario *)) {
  const bool traced = *s->trace.file != 0;
  if (!traced && !s->phase_count)
    return weir_fail(
        WEIR_E_PARSE,
        "%s:%d: the file ends without a network; expected [phase NAME] sections or [trace]",
        s->path, p->last_line);
  if (traced && s->phase_count)
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: [phase %s] and [trace] are both given; expected one or the other",
                     s->path, s->phases[0].line, s->phases[0].name);
  if (!traced) return check(s);
  s->first_epoch = 1;
  return join(s, "trace", s->trace.line, s->trace.file);
}

static weir_status check_shape(weir_scenario *s) {
  const bool shaped = !strcmp(s->model, "shaped");
  if (shaped && !*s->sizes.shape)
    return weir_fail(WEIR_E_PARSE, "%s:%d: model shaped has no shape; expected shape = PROFILE.csv",
                     s->path, s->model_line);
  if (!shaped && *s->sizes.shape)
    return weir_fail(WEIR_E_PARSE, "%s:%d: model %s has no shape to choose; expected none", s->path,
                     s->shape_line, s->model);
  return shaped ? join(s, "shape", s->shape_line, s->sizes.shape) : WEIR_OK;
}

static weir_status choose_size(weir_scenario *s, const char *name, int line, uint32_t own,
                               uint32_t *size) {
  if (line && !own)
    return weir_fail(WEIR_E_PARSE, "%s:%d: model %s has no %s to choose; expected none", s->path,
                     line, s->model, name);
  if (!line) *size = own;
  return WEIR_OK;
}

/* What goes with the model, and what it is by itself. */
static weir_status check_model(weir_scenario *s) {
  const weir_model_kind *kind = weir_model_find(s->model);
  if (!kind)
    return weir_fail(WEIR_E_PARSE, "%s:%d: unknown model %s; expected %s", s->path, s->model_line,
                     s->model, weir_model_names());
  if (!s->dataset_line) strcpy(s->dataset, kind->dataset);
  if (strcmp(s->dataset, kind->dataset))
    return weir_fail(WEIR_E_PARSE, "%s:%d: model %s does not learn from %s; expected %s", s->path,
                     s->dataset_line, s->model, s->dataset, kind->dataset);
  if (!weir_optimizer_find(s->optimizer))
    return weir_fail(WEIR_E_PARSE, "%s:%d: unknown optimizer %s; expected sgd, adamw, lars or lamb",
                     s->path, s->optimizer_line, s->optimizer);
  if (s->divided_step && !weir_optimizer_divides(s->optimizer))
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: the step of optimizer %s cannot be divided; expected lars or lamb, or "
                     "no divided_step",
                     s->path, s->divided_line, s->optimizer);
  if (!kind->sliced && (s->slice || s->layer_ms > 0))
    return weir_fail(WEIR_E_PARSE, "%s:%d: model %s has neither slices nor layer_ms; expected none",
                     s->path, s->slice ? s->slice_line : s->layer_line, s->model);
  weir_status status =
      choose_size(s, "layers", s->sizes_line[0], kind->sizes.layers, &s->sizes.layers);
  if (!status)
    status = choose_size(s, "channels", s->sizes_line[1], kind->sizes.channels, &s->sizes.channels);
  if (!status)
    status = choose_size(s, "context", s->sizes_line[2], kind->sizes.context, &s->sizes.context);
  if (!status) status = check_shape(s);
  return status;
}

static weir_status check_whole(weir_scenario *s, const parser *p) {
  if (!s->workers_line || !s->training_line)
    return weir_fail(WEIR_E_PARSE, "%s:%d: the file ends without [%s]; expected it", s->path,
                     p->last_line, s->workers_line ? "training" : "scenario");
  weir_status status = check_model(s);
  if (!status) status = check_network(s, p, check_phases);
  if (status) return status;
  for (size_t d = 0; d < s->decays; d++)
    if (s->decay_epochs[d] < s->first_epoch || s->decay_epochs[d] >= s->first_epoch + s->epochs)
      return weir_fail(WEIR_E_PARSE,
                       "%s:%d: decay epoch %" PRIu32 " is none of the run's; expected %" PRIu32
                       " to %" PRIu32,
                       s->path, s->decay_line, s->decay_epochs[d], s->first_epoch,
                       s->first_epoch + s->epochs - 1);
  return weir_scenario_check_workers(s);
}

weir_status weir_scenario_check_workers(const weir_scenario *s) {
  if (s->fault && s->fault_rank >= s->workers)
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: the fault's rank %" PRIu32 " is no worker; expected 0 to %" PRIu32,
                     s->path, s->fault_line, s->fault_rank, s->workers - 1);
  return WEIR_OK;
}

static weir_status read_lines(parser *p, weir_scenario *s, const char *path) {
  *s = (weir_scenario){.bandwidth_scale = 1,
                       .seed = 1,
                       .timeout_s = 10,
                       .codec_threads = 1,
                       .tcp_streams = 1,
                       .policy = "weir",
                       .risk = "measured",
                       .error_feedback = 1,
                       .trial_budget = 0.04,
                       .model = "mlp",
                       .optimizer = "sgd",
                       .beta2 = 0.999,
                       .momentum = 0.9,
                       .report_loss = 1,
                       .decay_factor = 0.1,
                       .evaluate_every = 1,
                       .checkpoint_steps = 100,
                       .trace = {.interval_s = 1, .window_s = 1, .slot_bytes = 1500}};
  if (strlen(path) >= sizeof s->path)
    return weir_fail(WEIR_E_INVALID,
                     "%.60s...: the path is too long; expected at most %d characters", path,
                     WEIR_SCENARIO_TEXT_MAX - 1);
  strcpy(s->path, path);
  const char *slash = strrchr(path, '/');
  strcpy(s->name, slash ? slash + 1 : path);
  *p = (parser){.scenario = s, .path = path, .last_line = 1};
  const weir_status status = weir_ini_read(path, take_line, p);
  return status ? status : close_section(p);
}

weir_status weir_scenario_read(weir_scenario *s, const char *path) {
  parser p;
  const weir_status status = read_lines(&p, s, path);
  return status ? status : check_whole(s, &p);
}

weir_status weir_scenario_read_network(weir_scenario *s, const char *path) {
  parser p;
  const weir_status status = read_lines(&p, s, path);
  if (status) return status;
  if (!s->workers_line)
    return weir_fail(WEIR_E_PARSE, "%s:%d: the file ends without [scenario]; expected it", path,
                     p.last_line);
  return check_network(s, &p, check_times);
}

const weir_phase *weir_scenario_phase(const weir_scenario *s, uint32_t epoch) {
  size_t i = 0;
  while (i + 1 < s->phase_count && s->phases[i].last_epoch < epoch) i++;
  return &s->phases[i];
}

void weir_scenario_shape(const weir_scenario *s, const weir_phase *phase, weir_shape *shape) {
  *shape = (weir_shape){.rate_bytes_s = phase->bandwidth_gbps * WEIR_GBPS * s->bandwidth_scale,
                        .delay_s = phase->latency_ms / 1e3,
                        .loss = phase->loss_percent / 100,
                        .reorder = phase->reorder_percent / 100,
                        .duplicate = phase->duplicate_percent / 100};
}
