/* The controller's knowledge as bytes, little-endian: a version, a digest of what the values are
 * about (arms, codecs, the structs they are kept in), what is known of codecs, then of everything
 * else.  A function a struct, which writes or reads it, so that both are the same list; what is
 * read is checked against what the controller could have written.
 *
 * Not kept: the network itself, which is measured at every start and compared with what the last
 * decision knew of it; a round of trials that is under way, which begins again; and what the
 * processors' messages take. */
#include "controller/saved.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define VERSION 4u

static const double most_s = 1e9; /* of any time */
static const double most = 1e18;  /* of any other figure */
static const uint64_t most_steps = UINT64_C(1) << 62, most_id = UINT64_C(1) << 62;

/* --- values ----------------------------------------------------------------------------------- */

static void move(weir_saved *s, void *what, size_t bytes) {
  if (s->reading) {
    if (bytes > s->bytes - s->at) s->bad = true;
    if (s->bad)
      memset(what, 0, bytes);
    else
      memcpy(what, s->data + s->at, bytes);
  } else if (s->at + bytes > s->bytes) {
    unsigned char *data = realloc(s->data, 2 * (s->at + bytes));
    s->starved = s->starved || data == NULL;
    if (data == NULL) return;
    s->data = data;
    s->bytes = 2 * (s->at + bytes);
  }
  if (!s->reading && !s->starved) memcpy(s->data + s->at, what, bytes);
  if (!s->bad && !s->starved) s->at += bytes;
}

/* NaN is within no bounds.  What is written keeps to them, lest it could not be read. */
static void real(weir_saved *s, double *x, double low, double high) {
  double value = s->reading ? 0 : fmin(fmax(isnan(*x) ? 0.0 : *x, low), high);
  move(s, &value, sizeof value);
  if (!s->reading) return;
  s->bad = s->bad || !(value >= low && value <= high);
  *x = s->bad ? 0.0 : value;
}

static void reals(weir_saved *s, double *x, size_t count, double low, double high) {
  for (size_t i = 0; i < count; i++) real(s, &x[i], low, high);
}

static void whole(weir_saved *s, uint64_t *x, uint64_t high) {
  uint64_t value = *x < high ? *x : high;
  move(s, &value, sizeof value);
  if (!s->reading) return;
  s->bad = s->bad || value > high;
  *x = s->bad ? 0 : value;
}

static void size(weir_saved *s, size_t *x, size_t high) {
  uint64_t value = *x;
  whole(s, &value, high);
  if (s->reading) *x = (size_t)value;
}

static void number(weir_saved *s, int *x) {
  uint64_t value = *x > 0 ? (uint64_t)*x : 0;
  whole(s, &value, 1000000000);
  if (s->reading) *x = (int)value;
}

static void counter(weir_saved *s, unsigned *x) {
  uint64_t value = *x;
  whole(s, &value, UINT32_MAX);
  if (s->reading) *x = (unsigned)value;
}

static void small(weir_saved *s, uint32_t *x, uint32_t high) {
  uint64_t value = *x;
  whole(s, &value, high);
  if (s->reading) *x = (uint32_t)value;
}

static void flag(weir_saved *s, bool *x) {
  unsigned char value = *x ? 1 : 0;
  move(s, &value, 1);
  if (!s->reading) return;
  s->bad = s->bad || value > 1;
  *x = value == 1 && !s->bad;
}

/* --- structs ---------------------------------------------------------------------------------- */

/* Of so many tensors; or, where there may be none, all zero. */
static void plan(weir_saved *s, weir_plan *p, size_t tensors, bool optional) {
  static const weir_plan none;
  _Static_assert(sizeof(weir_plan) == 40, "a plan is saved as it lies in memory, without gaps");
  move(s, p, sizeof *p);
  if (!s->reading || s->bad || (optional && memcmp(p, &none, sizeof none) == 0)) return;
  s->bad = weir_plan_check(p) != WEIR_OK || p->buckets > tensors ||
           (p->buckets == 0) != (p->layout == 0) || p->id > most_id;
  if (s->bad) *p = none;
}

/* That of a plan. */
static void table(weir_saved *s, weir_plan_bucket *buckets, const weir_plan *of, size_t tensors) {
  move(s, buckets, of->buckets * sizeof *buckets);
  if (!s->reading || s->bad || of->buckets == 0) return;
  s->bad = weir_buckets_check(buckets, of->buckets, tensors) != WEIR_OK ||
           weir_buckets_name(buckets, of->buckets) != of->layout;
}

static void directive(weir_saved *s, weir_directive *d, size_t tensors) {
  small(s, &d->action, WEIR_ACTION_FOLLOW);
  plan(s, &d->plan, tensors, true);
  if (s->reading && weir_action_plans(d->action) && d->plan.cr == 0.0) s->bad = true;
}

static void network(weir_saved *s, weir_network *n) {
  real(s, &n->latency, 0, most_s);
  real(s, &n->latency_error, 0, most);
  real(s, &n->bandwidth, 0, most);
  real(s, &n->bandwidth_error, 0, most);
  real(s, &n->goodput, 0, most);
  real(s, &n->goodput_error, 0, most);
  real(s, &n->deviation, 0, most);
}

static void recent(weir_saved *s, weir_recent *r) {
  reals(s, r->value, WEIR_RECENT, -most, most);
  counter(s, &r->count);
}

static void long_recent(weir_saved *s, weir_long_recent *r) {
  reals(s, r->value, WEIR_LONG_RECENT, -most, most);
  counter(s, &r->count);
}

static void bucket_costs(weir_saved *s, weir_bucket_costs *b) {
  reals(s, b->each_s, WEIR_ARMS, -1, most_s);
  real(s, &b->taken_s, -1, most_s);
}

/* What holds whoever decides, in whatever group. */
static void codecs(weir_saved *s, weir_learnt *l) {
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) {
    real(s, &l->compress[c], 1e-3, 1e3);
    recent(s, &l->factor[c]);
  }
}

static void arms(weir_saved *s, weir_learnt *l) {
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    real(s, &l->overhead[a], -most_s, most_s);
    real(s, &l->latencies[a], 0, most);
    real(s, &l->floor[a], 0, INFINITY);
    flag(s, &l->tried[a]);
    /* What is tried has a floor, which becomes its overhead when the network changes. */
    if (s->reading && l->tried[a] && !isfinite(l->floor[a])) s->bad = true;
    recent(s, &l->excess[a]);
    recent(s, &l->each[a]);
  }
}

static void learnt(weir_saved *s, weir_learnt *l) {
  arms(s, l);
  real(s, &l->overlap, 0, 1);
  real(s, &l->compute, 0, most_s);
  long_recent(s, &l->rests);
  recent(s, &l->whole_computes);
  bucket_costs(s, &l->bucket_costs);
  recent(s, &l->taken);
  real(s, &l->gain, -1, 1);
  whole(s, &l->gain_steps, most_steps);
  reals(s, l->curve, WEIR_CURVE_POINTS, 0, 1);
  flag(s, &l->has_curve);
  whole(s, &l->curve_age, most_steps);
  real(s, &l->step_s, 0, most_s);
  real(s, &l->nonzero, 0, 1);
  real(s, &l->runs, 0, 1);
  reals(s, l->shortened, WEIR_ARMS, 0, 1);
  whole(s, &l->step_count, most_steps);
  number(s, &l->departures);
  number(s, &l->leaps);
  number(s, &l->absorb);
}

static void probation(weir_saved *s, weir_loop *loop) {
  flag(s, &loop->probation.armed);
  plan(s, &loop->probation.previous, loop->layout.tensors, !loop->probation.armed);
  real(s, &loop->probation.previous_rate, 0, most);
  real(s, &loop->probation.predicted_s, 0, most_s);
  number(s, &loop->probation.slow);
  flag(s, &loop->probation.in_doubt);
}

static void probe(weir_saved *s, weir_loop *loop) {
  whole(s, &loop->probe.since, most_steps);
  whole(s, &loop->probe.wait, most_steps);
  whole(s, &loop->probe.doubt_wait, most_steps);
  number(s, &loop->probe.suspected);
  flag(s, &loop->probe.pending);
  flag(s, &loop->probe.doubt);
  flag(s, &loop->probe.unseen);
}

/* Of policy paper.  Trials that were running run again. */
static void trials(weir_saved *s, weir_loop *loop) {
  bool done = loop->trials.phase == WEIR_TRIALS_DONE;
  flag(s, &done);
  for (size_t i = 0; i < WEIR_TRIALS; i++) {
    real(s, &loop->trials.compress[i], 0, most_s);
    real(s, &loop->trials.gain[i], 0, 1);
  }
  uint32_t shared = loop->trials.codecs.shared;
  small(s, &shared, WEIR_CODEC_COUNT - 1);
  if (s->reading && loop->trials.codecs.both) loop->trials.codecs.shared = shared;
  if (shared != WEIR_CODEC_NONE && shared != WEIR_CODEC_STAR && shared != WEIR_CODEC_VAR)
    s->bad = true;
  real(s, &loop->trials.reference, -1, 1);
  small(s, &loop->trials.trigger, WEIR_TRIGGER_COUNT - 1);
  if (s->reading) loop->trials.phase = done ? WEIR_TRIALS_DONE : WEIR_TRIALS_NONE;
}

static void evidence(weir_saved *s, weir_evidence *e) {
  size(s, &e->count, WEIR_SAMPLES_MAX);
  reals(s, e->sample, e->count, -most, most);
}

static void method_record(weir_saved *s, weir_method_record *r) {
  uint32_t standing = r->standing;
  small(s, &standing, WEIR_METHOD_REFUSED);
  if (s->reading) r->standing = (weir_standing_of_method)standing;
  evidence(s, &r->evidence);
  real(s, &r->progress, 0, most);
  whole(s, &r->due, UINT64_MAX);
  whole(s, &r->good_until, UINT64_MAX);
}

static void slope(weir_saved *s, weir_slope *x) {
  real(s, &x->level, -most, most);
  real(s, &x->per_step, -most, most);
  real(s, &x->error, 0, INFINITY);
  real(s, &x->scatter, 0, most);
}

static void course(weir_saved *s, weir_course *c) {
  whole(s, &c->each, most_steps / WEIR_COURSE_BLOCKS);
  size(s, &c->blocks, WEIR_COURSE_BLOCKS - 1);
  whole(s, &c->begun, most_steps);
  real(s, &c->sum, -most, most);
  reals(s, c->mean, c->blocks, -most, most);
  if (c->each == 0 ? c->blocks > 0 || c->begun > 0 : c->begun >= c->each) s->bad = true;
}

/* Of policy weir: what trials have shown and taken, and how the loss goes; not the round itself. */
static void rounds(weir_saved *s, weir_rounds *r) {
  reals(s, r->loss, WEIR_LOSSES, -most, most);
  size(s, &r->losses, WEIR_LOSSES);
  course(s, &r->course);
  real(s, &r->begun, -most, most);
  whole(s, &r->told, most_steps);
  whole(s, &r->silent, most_steps);
  flag(s, &r->settled);
  flag(s, &r->withheld);
  real(s, &r->elapsed_s, 0, most_s);
  real(s, &r->spent_s, 0, most_s);
  whole(s, &r->timed, most_steps);
  counter(s, &r->in_vain);
  small(s, &r->rule, WEIR_RULES - 1);
  flag(s, &r->said);
  for (size_t m = 0; m < WEIR_METHODS; m++) method_record(s, &r->record[m]);
  flag(s, &r->following);
  slope(s, &r->promised);
  whole(s, &r->promised_at, most_steps);
  real(s, &r->anchor, -most, most);
  real(s, &r->anchor_loss, -most, most);
  if (s->reading) r->judged = WEIR_METHODS;
}

/* Which plan it is that was directed, and since when. */
static void standing(weir_saved *s, weir_loop *loop) {
  const size_t tensors = loop->layout.tensors;
  whole(s, &loop->steps, most_steps);
  plan(s, &loop->current, tensors, false);
  table(s, loop->table, &loop->current, tensors);
  whole(s, &loop->next_id, most_id);
  whole(s, &loop->decisions, most_steps);
  whole(s, &loop->dwell, most_steps);
  whole(s, &loop->waiting, most_steps);
  directive(s, &loop->last, tensors);
  if (!s->reading) return;
  if (loop->next_id <= loop->current.id) s->bad = true;
  /* A trial that has not begun is directed anew, if it still is to be. */
  if (loop->last.action != WEIR_ACTION_SWITCH) loop->waiting = 0;
}

static void decided(weir_saved *s, weir_loop *loop) {
  network(s, &loop->at_decision);
  reals(s, loop->curve_at_decision, WEIR_CURVE_POINTS, 0, 1);
  real(s, &loop->nonzero_at_decision, 0, 1);
  whole(s, &loop->since_decision, most_steps);
}

/* What single policies keep besides. */
static void policies(weir_saved *s, weir_loop *loop) {
  uint64_t since = loop->bits != NULL ? loop->bits->since : 0;
  size(s, &loop->turns.now, WEIR_TURNS_MAX);
  size(s, &loop->stage, WEIR_STAGES_MAX);
  whole(s, &since, most_steps);
  if (s->reading && loop->bits != NULL) loop->bits->since = since;
  flag(s, &loop->fuse_failed);
  real(s, &loop->undivided_s, 0, most_s);
  flag(s, &loop->has_gaps);
  if (loop->has_gaps) reals(s, loop->gap_s, loop->layout.tensors, 0, most_s);
}

/* What the ranks have not been told of; a trial goes with its round. */
static void mailbox(weir_saved *s, weir_mailbox *m, const weir_loop *loop) {
  flag(s, &m->has_directive);
  if (!m->has_directive) return;
  directive(s, &m->directive, loop->layout.tensors);
  table(s, m->table, &m->directive.plan, loop->layout.tensors);
  const uint32_t action = m->directive.action;
  if (s->reading && (action == WEIR_ACTION_TRIAL || action == WEIR_ACTION_FOLLOW))
    m->has_directive = false;
}

/* A table that is there, or none. */
static void taken(weir_saved *s, weir_plan_bucket *buckets, size_t tensors) {
  size_t count = 0;
  for (size_t k = 0; !s->reading && k < tensors && count == 0; k++)
    if (buckets[k].end == tensors) count = k + 1;
  size(s, &count, tensors);
  move(s, buckets, count * sizeof *buckets);
  if (s->reading && !s->bad && count > 0)
    s->bad = weir_buckets_check(buckets, count, tensors) != WEIR_OK;
}

static void everything(weir_saved *s, weir_saved_parts *parts) {
  weir_loop *loop = parts->loop;
  standing(s, loop);
  learnt(s, &loop->learnt);
  decided(s, loop);
  probation(s, loop);
  probe(s, loop);
  trials(s, loop);
  rounds(s, &loop->rounds);
  policies(s, loop);
  mailbox(s, parts->mailbox, loop);
  taken(s, parts->taken, loop->layout.tensors);
  whole(s, &parts->journal, INT64_MAX);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Arms and codecs go by their numbers, and another size of a struct is another version of it. */
static uint64_t layout(void) {
  const uint64_t sizes[] = {sizeof(weir_loop), sizeof(weir_learnt), sizeof(weir_rounds),
                            WEIR_CURVE_POINTS, WEIR_TRIALS,         WEIR_METHODS,
                            WEIR_LOSSES,       WEIR_ROUND_BATCHES,  WEIR_SAMPLES_MAX,
                            WEIR_TRIGGER_COUNT};
  uint64_t hash = weir_hash(WEIR_HASH_INIT, sizes, sizeof sizes);
  for (uint32_t c = 0; c < WEIR_CODEC_COUNT; c++)
    hash = weir_hash(hash, weir_codec_name(c), strlen(weir_codec_name(c)) + 1);
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const weir_arm *arm = weir_arm_at(a);
    const uint64_t of[] = {weir_plan_digest(&arm->plan), arm->safe, arm->machines, arm->method};
    hash = weir_hash(hash, of, sizeof of);
  }
  return hash;
}

void weir_saved_write(weir_saved *s, weir_saved_parts *parts) {
  uint64_t version = VERSION, of = layout();
  *s = (weir_saved){.reading = false};
  whole(s, &version, UINT64_MAX);
  whole(s, &of, UINT64_MAX);
  codecs(s, &parts->loop->learnt);
  everything(s, parts);
}

static bool open_saved(weir_saved *s, const void *data, size_t bytes) {
  uint64_t version = 0, of = 0;
  *s = (weir_saved){.data = (unsigned char *)data, .bytes = bytes, .reading = true};
  whole(s, &version, UINT64_MAX);
  whole(s, &of, UINT64_MAX);
  return version == VERSION && of == layout();
}

bool weir_saved_ours(const void *data, size_t bytes) {
  weir_saved s;
  return open_saved(&s, data, bytes);
}

weir_status weir_saved_read(const void *data, size_t bytes, bool alike, weir_saved_parts *parts) {
  weir_saved s;
  const bool ours = open_saved(&s, data, bytes);
  s.bad = s.bad || !ours;
  codecs(&s, &parts->loop->learnt);
  if (alike) everything(&s, parts);
  if (s.bad || (alike && s.at != bytes))
    return weir_fail(WEIR_E_PARSE, "what a controller has learnt is damaged in its saved state");
  return WEIR_OK;
}
