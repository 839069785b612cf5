/* List scheduling without a record (see course.h). */
#include "planner/course.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static void copy_state(weir_course_state *to, const weir_course_state *from, size_t cores) {
  to->next = from->next;
  to->end_s = from->end_s;
  memcpy(to->idle, from->idle, sizeof to->idle);
  memcpy(to->left, from->left, sizeof to->left);
  memcpy(to->core, from->core, cores * sizeof *to->core);
  to->agenda.count = from->agenda.count;
  memcpy(to->agenda.heap, from->agenda.heap, from->agenda.count * sizeof *to->agenda.heap);
}

static double serve(weir_course *c, double ready_s, weir_resource resource, double seconds) {
  weir_course_state *s = &c->now;
  double *idle = &s->idle[resource];
  if (resource == WEIR_ON_CPU) {
    idle = s->core;
    for (size_t k = 1; k < c->cores; k++)
      if (s->core[k] < *idle) idle = &s->core[k];
  }
  const double end = fmax(ready_s, *idle) + seconds;
  *idle = end;
  s->left[resource] -= seconds;
  if (end > s->end_s) s->end_s = end;
  c->served++;
  return end;
}

static void note_bubble(weir_course *c, const weir_wait *w, weir_resource resource) {
  if (resource != WEIR_ON_INTRA && resource != WEIR_ON_INTER) return;
  const size_t link = resource == WEIR_ON_INTER;
  const double idle = c->now.idle[resource];
  if (w->ready_s > idle && !c->queued[w->chain]) c->bubble_s[link] = w->ready_s;
  c->queued[w->chain] |= w->ready_s < idle;
  c->last_s[link][w->chain] = fmax(w->ready_s, idle);
}

static void save(weir_course *c) {
  weir_course_state *s = &c->now;
  if (s->next % c->stride || c->saved_count == WEIR_COURSE_SAVED) return;
  copy_state(&c->saved[c->saved_count++], s, c->cores);
}

/* From c->now to the end; marking saves states and bubbles, all of them even where a time is
 * infinite. */
static double run(weir_course *c, bool marking, double most_s) {
  weir_course_state *s = &c->now;
  while (s->agenda.count) {
    weir_resource resource = WEIR_ON_COMPUTE;
    if (marking && s->agenda.heap[0].chain == c->n) save(c);
    const weir_wait w = weir_agenda_pop(&s->agenda);
    if (w.chain == c->n) {
      const size_t tensor = s->next++;
      const double end = serve(c, w.ready_s, resource, c->profile->tensors[tensor].gap_s);
      if (c->chain[tensor].count)
        weir_agenda_push(&s->agenda, (weir_wait){end, (uint32_t)tensor, 0});
      if (s->next < c->n) weir_agenda_push(&s->agenda, (weir_wait){end, (uint32_t)c->n, 0});
    } else {
      const weir_course_chain *chain = &c->chain[w.chain];
      resource = chain->ops[w.op].resource;
      if (marking) note_bubble(c, &w, resource);
      const double end = serve(c, w.ready_s, resource, chain->ops[w.op].seconds);
      if (w.op + 1 < chain->count)
        weir_agenda_push(&s->agenda, (weir_wait){end, w.chain, w.op + 1});
    }
    if (!marking && resource != WEIR_ON_CPU && s->idle[resource] + s->left[resource] >= most_s)
      return INFINITY;
  }
  return s->end_s < most_s ? s->end_s : INFINITY;
}

static void begin(weir_course *c) {
  weir_course_state *s = &c->now;
  s->next = s->agenda.count = 0;
  s->end_s = 0.0;
  memset(s->idle, 0, sizeof s->idle);
  memset(s->core, 0, c->cores * sizeof *s->core);
  memcpy(s->left, c->work, sizeof s->left);
  weir_agenda_push(&s->agenda, (weir_wait){0.0, (uint32_t)c->n, 0});
}

/* Sums taken off and put on again leave rounding behind; by this much giving up is put off. */
static double slack(double most_s) { return most_s * (1.0 + 1e-9); }

static void account(const weir_course_chain *chain, double sign, double *work) {
  for (size_t k = 0; k < chain->count; k++)
    work[chain->ops[k].resource] += sign * chain->ops[k].seconds;
}

static void count_work(weir_course *c) {
  memset(c->work, 0, sizeof c->work);
  for (size_t i = 0; i < c->n; i++) {
    c->work[WEIR_ON_COMPUTE] += c->profile->tensors[i].gap_s;
    account(&c->chain[i], 1.0, c->work);
  }
}

weir_status weir_course_create(weir_course *course, const weir_profile *profile, size_t cores) {
  const size_t n = profile->count;
  *course = (weir_course){.profile = profile, .n = n, .cores = cores};
  course->stride = (n + WEIR_COURSE_SAVED - 1) / WEIR_COURSE_SAVED;
  course->chain = calloc(n, sizeof *course->chain);
  course->heaps = malloc((WEIR_COURSE_SAVED + 1) * (n + 1) * sizeof *course->heaps);
  course->last_s[0] = malloc(2 * n * sizeof *course->last_s[0]);
  course->queued = malloc(n * sizeof *course->queued);
  if (!course->chain || !course->heaps || !course->last_s[0] || !course->queued) {
    weir_course_free(course);
    return weir_fail(WEIR_E_NOMEM, "no memory to schedule %zu tensors", n);
  }
  course->last_s[1] = course->last_s[0] + n;
  course->now.agenda.heap = course->heaps;
  for (size_t k = 0; k < WEIR_COURSE_SAVED; k++)
    course->saved[k].agenda.heap = course->heaps + (k + 1) * (n + 1);
  count_work(course);
  return WEIR_OK;
}

void weir_course_free(weir_course *course) {
  free(course->chain);
  free(course->heaps);
  free(course->last_s[0]);
  free(course->queued);
  *course = (weir_course){0};
}

void weir_course_set(weir_course *course, size_t tensor, weir_course_chain chain) {
  account(&course->chain[tensor], -1.0, course->work);
  course->chain[tensor] = chain;
  account(&chain, 1.0, course->work);
}

double weir_course_mark(weir_course *course) {
  count_work(course);
  course->saved_count = 0;
  course->bubble_s[0] = course->bubble_s[1] = -1.0;
  for (size_t i = 0; i < 2 * course->n; i++) course->last_s[0][i] = -1.0;
  memset(course->queued, 0, course->n * sizeof *course->queued);
  begin(course);
  return run(course, true, INFINITY);
}

double weir_course_time(weir_course *course, double most_s) {
  begin(course);
  const double end_s = run(course, false, slack(most_s));
  return end_s < most_s ? end_s : INFINITY;
}

double weir_course_try(weir_course *course, size_t tensor, weir_course_chain chain, double most_s) {
  const weir_course_chain kept = course->chain[tensor];
  copy_state(&course->now, &course->saved[tensor / course->stride], course->cores);
  account(&kept, -1.0, course->now.left);
  account(&chain, 1.0, course->now.left);
  course->chain[tensor] = chain;
  const double end_s = run(course, false, slack(most_s));
  course->chain[tensor] = kept;
  return end_s < most_s ? end_s : INFINITY;
}

bool weir_course_before_bubble(const weir_course *course, size_t tensor) {
  for (size_t link = 0; link < 2; link++)
    if (course->last_s[link][tensor] >= course->bubble_s[link] &&
        course->last_s[link][tensor] >= 0.0)
      return false;
  return true;
}
