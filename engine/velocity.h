/* Momentum correction with factor masking (kernels/decorate.h), for any codec: what is fed is
 * v = m u + g instead of the gradient, u being the velocity.
 *
 * u stays as it is until the step counts: so one that is dropped leaves it, bit for bit.  Then v
 * takes its place, 0 where something was sent.  No buffer keeps v meanwhile where it can be made
 * again of what is there:
 *
 *   told: v = e - r, r being the residual from before.  Selections, and encoders, which take what
 *     their message says off e when the step counts, not before it goes out.
 *   gradient: v = m u + g, g staying in the submitted buffers when there is no residual.  Dense
 *     sums; while the average takes g's place, v takes the sum's.
 *   next: v is kept in `next` from the beginning.  bf16's sums, low rank and compressed
 *     all-reduces, of which e is not left; and a dense sum that flushes a residual, once.
 *
 * In a trial v takes u's place when it is fed: a step that is dropped falls back to the trial's
 * begin, as the residual does, and `next` holds the velocity from there.
 *
 * What is told of e and r is what the residual has really taken, e being rounded: within an ulp of
 * the larger of e and r of m u + g.  It is this rank's alone, so that ranks need not agree on it,
 * and no matter of mass: what was fed is in e whatever becomes of u.
 *
 * A device has u and `next` itself (kernels/device.h), and keeps v in `next` always. */
#ifndef WEIR_ENGINE_VELOCITY_H
#define WEIR_ENGINE_VELOCITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

struct weir_engine;
struct weir_group;

/* NULL all without. */
typedef struct weir_velocity {
  float *u;        /* n floats, of the steps that count */
  float *next;     /* n floats, whose pages are there only where they are wanted */
  uint32_t *marks; /* what was selected and gathered, by a bit an element; likewise */
} weir_velocity;

/* What to feed instead of a group's gradient, from its first element on. */
typedef struct weir_velocity_feed {
  const float *u; /* NULL: nothing else */
  float *v;       /* where momentum * u + g is kept; NULL: nowhere; may be u */
  float momentum;
} weir_velocity_feed;

/* Where a group's v is. */
typedef enum weir_velocity_place {
  WEIR_VELOCITY_SETTLED = 0,  /* in u, or there is none */
  WEIR_VELOCITY_TOLD = 1,     /* to be made of e and r */
  WEIR_VELOCITY_GRADIENT = 2, /* of u and the gradient in the submitted buffers */
  WEIR_VELOCITY_SUM = 3,      /* where the sum was */
  WEIR_VELOCITY_NEXT = 4
} weir_velocity_place;

/* config.momentum checked and room made. */
weir_status weir_velocity_create(struct weir_engine *engine);
void weir_velocity_release(weir_velocity *velocity);
/* Is a group's v told by e and r, but for trials; does its plan keep v in `next`, whatever the
 * residual? */
bool weir_velocity_told(const struct weir_group *group);
bool weir_velocity_keeps(const struct weir_group *group);

/* The group is about to be fed. */
weir_velocity_feed weir_velocity_open(struct weir_group *group);
/* Where elements are sent: count indices, of the group's elements from `from` on. */
void weir_velocity_cut(const struct weir_group *group, size_t from, const uint32_t *index,
                       size_t count);
/* Nothing can fail any more: v becomes u, before e and the old residual are let go of; that of all
 * groups which are not settled yet. */
void weir_velocity_settle(struct weir_group *group);
void weir_velocity_commit(struct weir_engine *engine);
/* The step is dropped. */
void weir_velocity_forget(struct weir_engine *engine);
/* It has failed on this rank alone: v of all groups goes to `next`. */
void weir_velocity_part(struct weir_engine *engine);

/* A trial begins; it, or a step of it, is undone. */
void weir_velocity_save(struct weir_engine *engine);
void weir_velocity_restore(struct weir_engine *engine);
/* Pages that the plan in force does not use; in a trial `next` is in use. */
void weir_velocity_give_back(struct weir_engine *engine, bool trial);

#endif
