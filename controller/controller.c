/* The session's side of the controller: headers in, directives out. */
#include "controller/controller.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/log.h"
#include "base/scope.h"
#include "controller/mailbox.h"
#include "controller/saved.h"
#include "kernels/powersgd.h"

static const uint64_t curve_spacing = 10; /* steps between gain curves when nothing is due */

struct weir_controller {
  weir_loop loop; /* the controller thread's while one runs */
  weir_mailbox mailbox;
  bool threaded, running;
  bool failed;       /* the last answer; so that of many failures in a row the first one is said */
  weir_scope *scope; /* of the session that made it */
  pthread_t thread;
  weir_plan_bucket *taken; /* table of the directive last taken; the session thread's own */
  /* The session thread's own. */
  uint64_t epoch, room;
  bool adapts, unknown; /* weir_observation's */
  weir_plan kept;       /* of the last step that was none of a trial's */
  weir_network network;
  uint64_t since_curve;
  weir_observation last; /* the step before, to attribute what the next headers tell of it */
  weir_cost_terms last_terms;
  bool has_last;
};

/* The one table of policies; the default first. */
const weir_policy *const weir_policies[WEIR_POLICY_COUNT] = {
    &weir_policy_weir,    &weir_policy_paper, &weir_policy_fixed,
    &weir_policy_buckets, &weir_policy_bits,  &weir_policy_schedule};

/* Splits "name", "name:PLAN" or "name:GROUPS"; *plan is what it starts with. */
static weir_status find_policy(const char *text, const weir_policy **found, weir_plan *plan,
                               weir_table_text *table) {
  for (size_t i = 0; text && i < WEIR_POLICY_COUNT; i++) {
    const weir_policy *p = weir_policies[i];
    const size_t length = strlen(p->name);
    if (strncmp(text, p->name, length) != 0) continue;
    if (p->takes_table && text[length] == ':') {
      *found = p;
      const weir_status status = weir_table_parse(text + length + 1, table);
      *plan = table->plan;
      return status;
    }
    if (p->check && (text[length] == ':' || text[length] == '\0')) {
      *found = p;
      weir_status status = p->check(text + length);
      if (status == WEIR_OK) status = weir_plan_parse(p->first, plan);
      if (status == WEIR_OK && p->complete) p->complete(text + length, plan);
      return status;
    }
    if (!p->takes_plan && !p->takes_table && !p->takes_stages && !p->check &&
        text[length] == '\0') {
      *found = p;
      return weir_plan_parse(p->first, plan);
    }
    if (p->takes_stages && text[length] == ':') {
      weir_stages stages;
      *found = p;
      const weir_status status = weir_stages_parse(text + length + 1, &stages);
      *plan = stages.stage[0].plan;
      return status;
    }
    if (p->takes_plan && text[length] == ':') {
      *found = p;
      return weir_plan_parse(text + length + 1, plan);
    }
  }
  return weir_fail(
      WEIR_E_INVALID,
      "unknown policy '%s' (weir, paper[:CODECS], fixed:CODEC:CR:COLLECTIVE[:WIRE], schedule:..., "
      "groups:... or bits[:...])",
      text ? text : "");
}

weir_status weir_policy_check(const char *policy) {
  const weir_policy *found;
  weir_plan plan;
  weir_table_text table;
  return find_policy(policy, &found, &plan, &table);
}

/* What policy weir holds to be safe is so with error feedback; those of the papers select. */
weir_status weir_policy_check_without_feedback(const char *policy) {
  const weir_policy *found;
  weir_plan plan;
  weir_table_text table;
  const weir_status status = find_policy(policy, &found, &plan, &table);
  if (status != WEIR_OK) return status;
  if (!found->without_feedback)
    return weir_fail(WEIR_E_INVALID,
                     "policy %s needs error_feedback; expected fixed:, groups: or bits without it",
                     policy);
  if (weir_codecs[plan.codec]->unbiased) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID,
                   "codec %s needs error_feedback, as what it does not send is not nothing on "
                   "average; expected none, "
                   "bf16, fp16, qsgd, qsgd-l2 or dithered without it",
                   weir_codecs[plan.codec]->name);
}

bool weir_policy_stages(const char *policy, weir_stages *stages) {
  const weir_policy *found;
  weir_plan plan;
  weir_table_text table;
  return find_policy(policy, &found, &plan, &table) == WEIR_OK && found->takes_stages &&
         weir_stages_parse(policy + strlen(found->name) + 1, stages) == WEIR_OK;
}

bool weir_policy_heaviest(const char *policy, size_t i, weir_plan *plan) {
  const weir_policy *found;
  weir_table_text table;
  weir_stages stages;
  if (find_policy(policy, &found, plan, &table) != WEIR_OK) return false;
  if (weir_policy_stages(policy, &stages)) {
    if (i < stages.count) *plan = stages.stage[i].plan;
    return i < stages.count;
  }
  if (i >= 2 || found->heaviest[i] == NULL || weir_plan_parse(found->heaviest[i], plan) != WEIR_OK)
    return false;
  if (found->complete) found->complete(policy + strlen(found->name), plan);
  return true;
}

/* *plan is what the policy's text names; it becomes what the row has for several ranks, where that
 * applies. */
static weir_status start_of_several(const weir_policy *policy, const weir_beginning *with,
                                    weir_plan *plan) {
  uint32_t risk = WEIR_RISK_MEASURED, rule = WEIR_RULE_UNKNOWN;
  if (policy->first_of_several == NULL || with->ranks == 1) return WEIR_OK;
  weir_status status = with->risk == NULL ? WEIR_OK : weir_risk_parse(with->risk, &risk);
  if (status == WEIR_OK) status = weir_rule_parse(with->update_rule, &rule);
  if (status != WEIR_OK || risk == WEIR_RISK_BOLD || rule == WEIR_RULE_UNKNOWN) return status;
  const bool sgd = rule == WEIR_RULE_SGD && policy->first_by_sgd != NULL;
  return weir_plan_parse(sgd ? policy->first_by_sgd : policy->first_of_several, plan);
}

weir_status weir_policy_first_plan(const char *policy, const weir_beginning *with,
                                   weir_plan *plan) {
  const weir_policy *found;
  weir_table_text table;
  const weir_status status = find_policy(policy, &found, plan, &table);
  return status != WEIR_OK || with == NULL ? status : start_of_several(found, with, plan);
}

size_t weir_policy_samples(const char *policy) {
  const weir_policy *found = NULL;
  weir_plan plan;
  weir_table_text table;
  const bool samples =
      find_policy(policy, &found, &plan, &table) == WEIR_OK && found == &weir_policy_bits;
  return samples ? WEIR_BITS_SEEN : 0;
}

bool weir_policy_counts(const char *policy, const char *risk) {
  const weir_policy *found = NULL;
  weir_plan plan;
  weir_table_text table;
  uint32_t of = WEIR_RISK_MEASURED;
  if (find_policy(policy, &found, &plan, &table) != WEIR_OK) return false;
  if (risk != NULL && weir_risk_parse(risk, &of) != WEIR_OK) return false;
  return found == &weir_policy_weir && of != WEIR_RISK_BOLD;
}

uint64_t weir_policy_follows(const char *policy, const weir_beginning *with) {
  weir_stages stages;
  uint32_t rule = WEIR_RULE_UNKNOWN;
  bool some = false;
  if (weir_policy_stages(policy, &stages))
    for (size_t i = 0; i < stages.count; i++)
      some = some || weir_codecs[stages.stage[i].plan.codec]->whitened;
  if (some) return UINT64_MAX;
  const bool may = with->ranks > 1 && weir_policy_counts(policy, with->risk) &&
                   weir_rule_parse(with->update_rule, &rule) == WEIR_OK &&
                   rule == WEIR_RULE_ADAPTIVE;
  return may ? WEIR_SETTLED_AT_LAST : 0;
}

weir_status weir_policy_filter(const char *policy, const char *options,
                               char filter[WEIR_FILTER_MAX]) {
  const weir_policy *found = NULL;
  weir_plan plan;
  weir_table_text table;
  weir_status status = weir_filter_check(options);
  if (status == WEIR_OK) status = find_policy(policy, &found, &plan, &table);
  if (status != WEIR_OK) return status;
  (void)snprintf(filter, WEIR_FILTER_MAX, "%s", options != NULL ? options : "");
  return found->takes_table ? weir_table_filter(&table, filter) : WEIR_OK;
}

size_t weir_policy_order(const char *policy, const char *filter, const weir_layout *layout,
                         const char *const *names, uint32_t *order) {
  const weir_policy *found = NULL;
  weir_plan plan;
  weir_table_text table;
  const bool bits =
      find_policy(policy, &found, &plan, &table) == WEIR_OK && found == &weir_policy_bits;
  size_t count = 0, full = 0;
  for (int last = 0; last <= 1; last++)
    for (size_t t = 0; t < layout->tensors; t++) {
      const size_t numel = layout->offset[t + 1] - layout->offset[t];
      const bool kept =
          weir_filter_takes(filter, names[t], numel) || (bits && weir_bits_keeps(names[t], numel));
      if (kept == (last == 1)) order[count++] = (uint32_t)t;
      full += last == 1 && kept;
    }
  return *filter != '\0' ? full : 0;
}

static void take_gaps(weir_controller *c) {
  weir_loop *loop = &c->loop;
  if (loop->overlap && weir_mailbox_take_gaps(&c->mailbox, loop->gap_s, loop->layout.tensors))
    loop->has_gaps = true;
}

/* A training goes on with the plan that it has where nothing could be decided. */
static void answer(weir_controller *c, const weir_observation *seen) {
  take_gaps(c);
  const bool failed = weir_loop_step(&c->loop, seen) != WEIR_OK;
  if (failed && !c->failed)
    weir_log(WEIR_LOG_WARN, "step %llu: no decision could be made: %s",
             (unsigned long long)seen->step, weir_last_error());
  c->failed = failed;
  weir_mailbox_answer(&c->mailbox, &c->loop);
}

static void *run(void *user) {
  weir_controller *c = user;
  weir_scope_join(c->scope, "controller");
  weir_observation seen;
  while (weir_mailbox_get(&c->mailbox, &seen, &c->loop.dropped)) {
    answer(c, &seen);
  }
  return NULL;
}

/* The loop's own layout and tables. */
static weir_status copy_layout(weir_controller *c, const weir_layout *layout, const size_t *rows) {
  for (size_t i = 0; rows != NULL && i < WEIR_LOW_RANKS; i++)
    c->loop.low_rank[i] = (double)weir_powersgd_kept(layout, rows, (size_t)1 << i);
  const size_t tensors = layout->offset ? layout->tensors : 0;
  size_t *offset = calloc(tensors + 1, sizeof *offset);
  c->loop.layout = (weir_layout){tensors, offset};
  c->loop.table = calloc(tensors + 1, sizeof *c->loop.table);
  c->taken = calloc(tensors + 1, sizeof *c->taken);
  c->mailbox.table = calloc(tensors + 1, sizeof *c->mailbox.table);
  c->loop.next_table = calloc(tensors + 1, sizeof *c->loop.next_table);
  c->loop.gap_s = calloc(tensors + 1, sizeof *c->loop.gap_s);
  c->mailbox.gap_s = calloc(tensors + 1, sizeof *c->mailbox.gap_s);
  if (!offset || !c->loop.table || !c->taken || !c->mailbox.table || !c->loop.next_table ||
      !c->loop.gap_s || !c->mailbox.gap_s)
    return weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", tensors);
  for (size_t t = 0; t <= tensors; t++) offset[t] = layout->offset ? layout->offset[t] : 0;
  c->loop.elements = offset[tensors];
  return WEIR_OK;
}

static void release(weir_controller *c) {
  weir_journal_close(c->loop.journal);
  weir_bits_close(c->loop.bits);
  free(c->mailbox.gap_s);
  free(c->loop.gap_s);
  free(c->loop.next_table);
  weir_turns_free(&c->loop.turns);
  free(c->mailbox.table);
  free(c->taken);
  free(c->loop.table);
  free((void *)c->loop.layout.offset);
  free(c);
}

/* Not in silence: whoever asked for overlap learns that this job has none. */
static void say_no_overlap(const weir_controller_config *config, const weir_policy *policy) {
  if (!config->overlap) return;
  if (policy->id != WEIR_POLICY_WEIR)
    weir_log(WEIR_LOG_WARN, "overlap has no effect: policy %s plans no buckets, only weir does",
             policy->name);
  else if (config->layout.tensors < 2)
    weir_log(WEIR_LOG_WARN, "overlap has no effect: one tensor cannot be divided into buckets");
}

/* Of an earlier process. */
static weir_status restore(weir_controller *c, const weir_controller_config *config,
                           uint64_t *journal) {
  weir_loop *loop = &c->loop;
  weir_saved_parts parts = {.loop = loop, .mailbox = &c->mailbox, .taken = c->taken};
  const weir_status status =
      weir_saved_read(config->saved, config->saved_bytes, config->saved_alike, &parts);
  *journal = parts.journal;
  if (loop->turns.count > 0) loop->turns.now %= loop->turns.count;
  if (loop->stages.count > 0 && loop->stage >= loop->stages.count) loop->stage = 0;
  if (loop->stages.count > 0)
    loop->open = loop->stages.stage[loop->stage].plan.algorithm == WEIR_ALGORITHM_ANY;
  c->kept = loop->current;
  return status;
}

/* A group that has lost ranks may have lost what a stage needs, such as a second machine.  It goes
 * on without that stage, and may have it again once others have joined. */
static void leave_out(weir_stages *stages, const weir_controller_config *config) {
  char plan[WEIR_PLAN_TEXT_MAX];
  for (size_t i = 0; i < stages->count && config->runs != NULL; i++) {
    stages->stage[i].left_out = config->runs(config->runs_user, &stages->stage[i].plan) != WEIR_OK;
    if (!stages->stage[i].left_out) continue;
    weir_plan_format(&stages->stage[i].plan, plan);
    weir_log(WEIR_LOG_WARN, "the schedule goes on without its stage %zu, %s: %s", i + 1, plan,
             weir_last_error());
  }
}

/* Under the stage that the group has begun with. */
static weir_status take_stages(weir_loop *loop, const weir_controller_config *config) {
  const weir_status status =
      weir_stages_parse(config->policy + strlen(loop->policy->name) + 1, &loop->stages);
  if (status != WEIR_OK) return status;
  leave_out(&loop->stages, config);
  loop->stage = weir_stages_at(&loop->stages, 0);
  loop->current = loop->stages.stage[loop->stage].plan;
  loop->open = loop->current.algorithm == WEIR_ALGORITHM_ANY;
  return WEIR_OK;
}

weir_status weir_controller_create(weir_controller **out, const weir_controller_config *config) {
  *out = NULL;
  const weir_policy *policy = NULL;
  weir_plan first;
  weir_table_text text = {0};
  weir_status status = find_policy(config->policy, &policy, &first, &text);
  uint32_t risk = WEIR_RISK_MEASURED, rule = WEIR_RULE_UNKNOWN;
  if (status == WEIR_OK && config->risk) status = weir_risk_parse(config->risk, &risk);
  if (status == WEIR_OK) status = weir_rule_parse(config->update_rule, &rule);
  if (status != WEIR_OK) return status;
  if (config->world_size < 1)
    return weir_fail(WEIR_E_INVALID, "a controller needs at least one rank, not %d",
                     config->world_size);
  const weir_beginning with = {config->world_size, config->risk, config->update_rule};
  status = start_of_several(policy, &with, &first);
  if (status != WEIR_OK) return status;
  weir_controller *c = calloc(1, sizeof *c);
  if (!c) return weir_fail(WEIR_E_NOMEM, "no memory for the controller");
  c->loop.policy = policy;
  c->loop.workers = config->world_size;
  c->loop.hosts = config->hosts;
  c->loop.largest = config->largest;
  c->loop.order = config->order;
  c->loop.devices = config->devices;
  c->loop.told = config->told;
  c->loop.seed = config->seed;
  c->loop.current = first;
  c->loop.open =
      policy->takes_table || (policy->takes_plan && first.algorithm == WEIR_ALGORITHM_ANY);
  c->loop.warm_cr = first.cr;
  c->loop.warmup_steps = config->warmup_steps;
  c->loop.overlap = config->overlap;
  say_no_overlap(config, policy);
  c->loop.next_id = 1;
  c->loop.risk = risk;
  c->loop.memory_limit = config->memory_limit;
  c->loop.codec_threads = config->codec_threads;
  c->loop.rounds.budget = config->trial_budget;
  c->loop.rounds.checkpoint_bytes = config->checkpoint_bytes;
  c->loop.rounds.steps = config->steps;
  c->loop.rounds.rule = rule;
  if (rule == WEIR_RULE_UNKNOWN && policy->first_of_several != NULL && config->world_size > 1 &&
      risk != WEIR_RISK_BOLD)
    weir_log(
        WEIR_LOG_WARN,
        "update_rule is unknown, so gradients take 16 bits at the least; where the optimizer is "
        "SGD, or divides by what gradients were like as Adam does, say \"sgd\" or \"adaptive\"");
  c->loop.curve = policy->curve && risk == WEIR_RISK_BOLD;
  c->since_curve = curve_spacing;
  c->room = UINT64_MAX;
  c->threaded =
      config->threaded && !policy->takes_stages; /* stages begin at the same step always */
  weir_learn_start(&c->loop.learnt);
  const bool resumes = config->saved != NULL;
  status = weir_mailbox_open(&c->mailbox);
  if (status != WEIR_OK) goto no_mailbox;
  status = copy_layout(c, &config->layout, config->rows);
  if (status == WEIR_OK && config->measure && policy->curve && !resumes)
    status = weir_learn_codecs(&c->loop, config->price, config->price_user);
  weir_policy_warm_start(&c->loop, config->step);
  if (status == WEIR_OK && c->loop.has_directive) weir_mailbox_answer(&c->mailbox, &c->loop);
  if (status == WEIR_OK && policy->takes_stages) status = take_stages(&c->loop, config);
  text.full = config->full;
  if (status == WEIR_OK && policy->takes_table)
    status = weir_turns_build(&c->loop.turns, &text, &c->loop.layout, config->names);
  if (status == WEIR_OK && policy == &weir_policy_bits)
    status = weir_bits_open(&c->loop.bits, config->policy + strlen(policy->name), &c->loop.layout,
                            config->names, config->full, WEIR_BITS_SIZES);
  if (status == WEIR_OK && policy == &weir_policy_paper)
    status = weir_paper_parse(config->policy + strlen(policy->name), &c->loop.trials.codecs);
  uint64_t journal = 0;
  if (status == WEIR_OK && resumes) status = restore(c, config, &journal);
  if (status == WEIR_OK && config->journal_path)
    status = weir_journal_open(&c->loop.journal, config->journal_path, config->journal_bytes,
                               config->journal_goes_on);
  if (status == WEIR_OK && c->loop.journal && resumes && config->saved_alike)
    status = weir_journal_cut(c->loop.journal, journal);
  c->scope = weir_scope_here();
  if (status == WEIR_OK && c->threaded && pthread_create(&c->thread, NULL, run, c) != 0)
    status = weir_fail(WEIR_E_NOMEM, "the controller's thread cannot be started");
  if (status != WEIR_OK) goto failed;
  c->running = c->threaded;
  *out = c;
  return WEIR_OK;
failed:
  weir_mailbox_destroy(&c->mailbox);
no_mailbox:
  release(c);
  return status;
}

void weir_controller_free(weir_controller *controller) {
  if (!controller) return;
  if (controller->running) {
    weir_mailbox_close(&controller->mailbox);
    (void)pthread_join(controller->thread, NULL);
  }
  weir_mailbox_destroy(&controller->mailbox);
  release(controller);
}

weir_status weir_controller_save(weir_controller *c, void **data, size_t *bytes) {
  static const double patience_s = 10;
  weir_saved saved;
  weir_saved_parts parts = {.loop = &c->loop, .mailbox = &c->mailbox, .taken = c->taken};
  *data = NULL;
  if (c->threaded && !weir_mailbox_settle(&c->mailbox, patience_s))
    return weir_fail(WEIR_E_STATE, "a decision has been under way for %g s", patience_s);
  if (c->loop.journal) {
    const weir_status status = weir_journal_keep(c->loop.journal, &parts.journal);
    if (status != WEIR_OK) return status;
  }
  weir_saved_write(&saved, &parts);
  if (saved.starved) {
    free(saved.data);
    return weir_fail(WEIR_E_NOMEM, "no memory to save what was learnt");
  }
  *data = saved.data;
  *bytes = saved.at;
  return WEIR_OK;
}

weir_status weir_controller_saved_check(const void *data, size_t bytes, size_t tensors,
                                        bool *ours) {
  *ours = weir_saved_ours(data, bytes);
  if (!*ours) return WEIR_OK; /* nothing of it is read */
  weir_loop *loop = calloc(1, sizeof *loop);
  weir_mailbox *mailbox = calloc(1, sizeof *mailbox);
  weir_saved_parts parts = {.loop = loop, .mailbox = mailbox};
  weir_status status = WEIR_OK;
  if (!loop || !mailbox || !(loop->table = calloc(tensors + 1, sizeof *loop->table)) ||
      !(loop->gap_s = calloc(tensors + 1, sizeof *loop->gap_s)) ||
      !(mailbox->table = calloc(tensors + 1, sizeof *mailbox->table)) ||
      !(parts.taken = calloc(tensors + 1, sizeof *parts.taken)))
    status = weir_fail(WEIR_E_NOMEM, "no memory to read what was learnt");
  if (status == WEIR_OK) {
    loop->layout.tensors = tensors;
    status = weir_saved_read(data, bytes, true, &parts);
  }
  if (loop) free(loop->table);
  if (loop) free(loop->gap_s);
  if (mailbox) free(mailbox->table);
  free(parts.taken);
  free(mailbox);
  free(loop);
  return status;
}

static bool usable(double x) { return isfinite(x) && x >= 0.0; }

/* Mean curve over the ranks that measured one. */
static bool mean_curve(const weir_header *headers, int ranks, double *curve) {
  int have = 0;
  double sum[WEIR_CURVE_POINTS] = {0};
  for (int r = 0; r < ranks; r++) {
    bool whole = true;
    for (size_t i = 0; i < WEIR_CURVE_POINTS; i++) whole &= usable(headers[r].curve[i]);
    if (!whole) continue;
    have++;
    for (size_t i = 0; i < WEIR_CURVE_POINTS; i++) sum[i] += fmin(headers[r].curve[i], 1.0);
  }
  for (size_t i = 0; i < WEIR_CURVE_POINTS; i++) curve[i] = have ? sum[i] / have : 0.0;
  return have > 0;
}

static double mean_loss(const weir_header *headers, int ranks) {
  double sum = 0.0;
  for (int r = 0; r < ranks; r++) sum += headers[r].loss / ranks; /* NaN where one is missing */
  return sum;
}

/* What no rank has less of than any other, if all have counted. */
static void most_nonzero(const weir_header *headers, int ranks, weir_observation *seen) {
  double nonzero = 0.0, runs = 0.0;
  for (int r = 0; r < ranks; r++) {
    const double share = (double)headers[r].nonzero;
    if (!(share > 0.0 && share <= 1.0)) return;
    nonzero = fmax(nonzero, share);
    runs = fmax(runs, (double)headers[r].runs); /* NaN counts as nothing */
  }
  seen->nonzero = nonzero;
  seen->runs = fmin(runs, 1.0);
}

/* What the headers tell of the step before.  The rank that arrives last waits for the wire alone:
 * the least comm_s is the collective's own time, the rest is waiting for slower ranks.  On
 * processors that ranks share, who computes long and who waits long varies from step to step, and
 * their sum hardly does: so it is told too.  Where one rank selects for all, the others wait for
 * it: what compressing costs is then that rank's. */
static void hear(const weir_controller *c, const weir_header *headers, int ranks,
                 weir_observation *seen) {
  if (!c->has_last) return;
  const bool one_selects = weir_one_selects(c->last.plan.codec);
  double compress = 0.0, most = 0.0, gain = 0.0, comm = INFINITY, wait = INFINITY;
  double mean_comm = 0.0, whole = 0.0;
  for (int r = 0; r < ranks; r++) {
    if (!usable(headers[r].compress_s) || !usable(headers[r].gain) || !usable(headers[r].comm_s) ||
        !usable(headers[r].wait_s) || !usable(headers[r].compute_s))
      return;
    compress += headers[r].compress_s / ranks;
    most = fmax(most, headers[r].compress_s);
    gain += fmin(headers[r].gain, 1.0) / ranks;
    comm = fmin(comm, headers[r].comm_s);
    mean_comm += headers[r].comm_s / ranks;
    wait = fmin(wait, headers[r].wait_s);
    whole += (headers[r].compress_s + headers[r].wait_s + headers[r].compute_s) / ranks;
  }
  seen->heard.valid = true;
  seen->heard.trial = c->last.trial;
  seen->heard.plan = c->last.plan;
  seen->heard.terms = c->last_terms;
  seen->heard.network = c->last.network;
  seen->heard.compute = c->last.compute;
  seen->heard.compress = one_selects ? most : compress;
  seen->heard.comm = comm;
  seen->heard.wait = wait;
  seen->heard.mean_comm = mean_comm;
  seen->heard.whole = whole;
  seen->heard.gain = gain;
}

void weir_controller_observe(void *controller, const weir_header *headers, int ranks,
                             const weir_step_record *record) {
  weir_controller *c = controller;
  weir_observation seen = {.step = record->info.step,
                           .epoch = c->epoch,
                           .room = c->room,
                           .adapts = c->adapts,
                           .unknown = c->unknown,
                           .plan = record->info.plan,
                           .trial = record->info.trial,
                           .shortened = record->shortened,
                           .squares_known = record->squares_known,
                           .rooms = record->rooms,
                           .room_bytes = record->room_bytes};
  for (int r = 0; r < ranks; r++)
    if (usable(headers[r].compute_s)) seen.compute = fmax(seen.compute, headers[r].compute_s);
  seen.loss = mean_loss(headers, ranks);
  most_nonzero(headers, ranks, &seen);
  weir_network_reduce(headers, ranks, &seen.network);
  c->network = seen.network;
  seen.has_curve = mean_curve(headers, ranks, seen.curve);
  c->since_curve = seen.has_curve ? 0 : c->since_curve + 1;
  hear(c, headers, ranks, &seen);
  if (!seen.trial) c->kept = seen.plan;
  c->last = seen;
  c->last_terms = record->terms;
  c->has_last = true;
  if (c->threaded) {
    weir_mailbox_put(&c->mailbox, &seen);
    return;
  }
  answer(c, &seen);
}

void weir_controller_processors(weir_controller *controller, const weir_link *processors) {
  controller->loop.processors = *processors;
}

void weir_controller_fed(void *controller, size_t tensor, const float *e, size_t n) {
  weir_controller *c = controller;
  if (c->loop.bits != NULL) weir_bits_fed(c->loop.bits->sampler, tensor, e, n);
}

bool weir_controller_sample(void *controller, size_t tensor, size_t n, weir_runs *runs) {
  weir_controller *c = controller;
  return c->loop.bits != NULL && weir_bits_sample(c->loop.bits->sampler, tensor, n, runs);
}

void weir_controller_seen(void *controller, size_t tensor, size_t n, const weir_runs *runs,
                          const float *sample) {
  weir_controller *c = controller;
  weir_bits_seen(c->loop.bits->sampler, tensor, n, runs, sample);
}

void weir_controller_gaps(weir_controller *controller, const double *gap_s) {
  weir_mailbox_put_gaps(&controller->mailbox, gap_s, controller->loop.layout.tensors);
}

/* Policy paper's trials are of ten steps each. */
static uint64_t trial_room(const weir_loop *loop, const weir_plan *plan) {
  if (loop->policy->id != WEIR_POLICY_WEIR) return 32;
  return weir_round_room(weir_round_form_of(plan, loop->rounds.rule));
}

/* The thread that decides may be late, and a trainer without room cannot wait for it. */
static void keep_to_room(const weir_controller *c, weir_directive *directive) {
  if (directive->action == WEIR_ACTION_TRIAL && c->room < trial_room(&c->loop, &directive->plan))
    *directive = (weir_directive){.action = WEIR_ACTION_KEEP};
  if (c->has_last && c->last.trial && c->room < WEIR_ROOM_LEAST &&
      directive->action != WEIR_ACTION_SWITCH)
    *directive = (weir_directive){.action = WEIR_ACTION_SWITCH, .plan = c->kept};
}

void weir_controller_propose(void *controller, weir_directive *directive) {
  weir_controller *c = controller;
  if (!weir_mailbox_take(&c->mailbox, directive, c->taken))
    *directive = (weir_directive){.action = WEIR_ACTION_KEEP};
  keep_to_room(c, directive);
}

weir_status weir_controller_buckets(void *controller, uint32_t layout, weir_plan_bucket *table,
                                    size_t capacity, size_t *count) {
  weir_controller *c = controller;
  *count = 0;
  for (size_t k = 0; k < c->loop.layout.tensors && *count == 0; k++)
    if (c->taken[k].end == c->loop.layout.tensors) *count = k + 1;
  if (*count == 0 || *count > capacity || weir_buckets_name(c->taken, *count) != layout)
    return weir_fail(WEIR_E_INTERNAL, "the table of buckets %08x is not at hand", layout);
  memcpy(table, c->taken, *count * sizeof *table);
  return WEIR_OK;
}

bool weir_controller_want_curve(void *controller) {
  weir_controller *c = controller;
  return c->loop.curve && (c->since_curve + 1 >= curve_spacing || c->network.changed ||
                           weir_mailbox_wants_curve(&c->mailbox));
}

void weir_controller_set_epoch(weir_controller *controller, uint32_t epoch) {
  controller->epoch = epoch;
}

void weir_controller_set_room(weir_controller *controller, uint64_t steps) {
  controller->room = steps;
}

void weir_controller_doubt_rule(weir_controller *controller, bool unknown) {
  controller->adapts = true;
  controller->unknown = controller->unknown || unknown;
}

void weir_controller_said(weir_controller *controller, char *text, size_t room) {
  weir_mailbox_said(&controller->mailbox, text, room);
}
