/* The engine's steps on a device (kernels/device.h has what a device does, docs/internals/device.md
 * the whole): gradients, residuals and sums are the device's, messages come to the host.  The
 * host's residual and spare are never touched then; spare stays zero. */
#ifndef WEIR_ENGINE_DEVICE_H
#define WEIR_ENGINE_DEVICE_H

#include "engine/lowrank.h"
#include "engine/state.h"
#include "kernels/device.h"

struct weir_on_device {
  const weir_device_ops *ops;
  weir_device *device;
  weir_device_group *groups; /* as they were reserved last */
  weir_thin *thin;           /* a tensor */
  bool *overflow;            /* a group */
  size_t capacity;           /* of groups and overflow */
  float *whole, *lost;       /* page-locked, n floats: gradients that go to the host whole, and what
                                rounding loses of them; NULL until a plan needs them */
  unsigned char *bins;       /* page-locked, a histogram a group; NULL without a gain curve */
  size_t bins_groups;
  /* What hooks->look has asked for in this step, in the order of tensors; page-locked, NULL without
   * that hook. */
  weir_device_look *looks;
  float *seen;
  size_t *looked; /* tensors */
  size_t look_count, seen_count;
  bool in_flight; /* something may be queued that finish has not waited for */
};

/* What an operation of the library gave, with its words. */
weir_status weir_on_device_status(const weir_on_device *on, weir_status status);

/* config.device_ops is not NULL: open config.device.  NULL is allowed. */
weir_status weir_on_device_open(weir_engine *engine);
void weir_on_device_close(weir_engine *engine);
/* Can a group that has devices run this plan? */
weir_status weir_on_device_accepts(const weir_plan *plan);
/* Room for a set's groups. */
weir_status weir_on_device_reserve(weir_engine *engine, const weir_group_set *set);
/* Page-locked memory for messages, or plain memory without a device. */
unsigned char *weir_on_device_arena(const weir_engine *engine, size_t bytes);
void weir_on_device_free_arena(const weir_engine *engine, unsigned char *arena);

/* Is a gradient where it should be? */
weir_status weir_on_device_check(const weir_engine *engine, const float *gradient);
/* All of a group's tensors are there: its compression is queued. */
void weir_on_device_ready(weir_group *group);
/* What is to be seen of it (device_look.c): asked when it is compressed, told before this rank's
 * note. */
weir_status weir_on_device_open_looks(weir_engine *engine);
void weir_on_device_close_looks(weir_engine *engine);
void weir_on_device_look(weir_group *group, weir_device_task *task);
void weir_on_device_show(const weir_engine *engine);
/* Its message is in page-locked memory, and its moments are known; does nothing the second time. */
weir_status weir_on_device_await(weir_group *group);
/* Before this rank's note: the last group's moments, and the gain curve. */
weir_status weir_on_device_note(weir_engine *engine);
/* Before a group's collective: its message, or the blame for having none. */
weir_status weir_on_device_begin(weir_group *group);
/* submitted = share * sum. */
weir_status weir_on_device_publish(weir_group *group, float share);
/* All of the step has been queued: the caller's stream waits for it.  Sets groups' overflow. */
weir_status weir_on_device_finish(weir_engine *engine);
/* The step that ended counts, or what it would have published is zero. */
void weir_on_device_commit(weir_engine *engine);
weir_status weir_on_device_zero(weir_engine *engine);
/* A group of a step that failed here and counts elsewhere: its next residual. */
void weir_on_device_settle(weir_group *group);
/* Nothing of a step that failed is under way any more. */
void weir_on_device_rest(weir_engine *engine);
weir_status weir_on_device_keep_room(const weir_engine *engine);
void weir_on_device_keep(weir_engine *engine, bool restore);
/* The residual, on the host; NaN where the device does not tell. */
float *weir_on_device_residual(const weir_engine *engine);

/* What a group's kind is on a device. */
weir_device_kind weir_on_device_kind(const weir_group *group);

/* Where among blocks a rank's own list of indices lies at first. */
size_t weir_on_device_list_at(const weir_group *group);

/* The compositions, in the place of weir_exchanges[]. */
extern const weir_exchange weir_on_device_exchanges[WEIR_WAY_COUNT];
weir_status weir_on_device_dense(weir_group *group, const weir_allreduce *allreduce,
                                 weir_notes *notes);
weir_status weir_on_device_publish_dense(weir_group *group, float share);
/* What rounding loses of a group, page-locked; NULL: it rounds nothing. */
float *weir_on_device_lost(const weir_group *group);
/* Low rank: where to start from, for compressing. */
void weir_on_device_columns(const weir_group *group);
weir_status weir_on_device_art(weir_group *group, const weir_allreduce *allreduce,
                               weir_notes *notes);

#endif
