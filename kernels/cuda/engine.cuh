/* What the files of the engine's device share (kernels/device.h): engine.cu has its life and
 * memory, engine_room.cu room for buckets, engine_step.cu what is queued in a step, and what goes
 * along with that engine_parts.cu (sums of messages), engine_share.cu (HiTopKComm), engine_rooms.cu
 * (messages that stay on devices), engine_lowrank.cu (powersgd), engine_velocity.cu (momentum) and
 * engine_norm.cu (clipping). */
#ifndef WEIR_KERNELS_CUDA_ENGINE_CUH
#define WEIR_KERNELS_CUDA_ENGINE_CUH

#include "kernels/cuda/select.cuh"

extern "C" {
#include "kernels/device.h"
#include "kernels/half.h"
}

/* What finish reads of a bucket; page-locked. */
struct weir_verdict {
  uint32_t fault;
  uint32_t overflow;
};

/* A bucket's own: contexts, since faults and tables of tensors are a context's; its event; and
 * buffers in the device's block. */
struct weir_device_unit {
  weir_device_bucket bucket;
  weir_cuda *near; /* on the caller's stream */
  weir_cuda *far;  /* on the device's own */
  cudaEvent_t ready;
  uint32_t *index;
  float *value, *error;
  unsigned char *out; /* its message: here, or in a room */
  unsigned char *out_here;
  weir_cuda_messages taken; /* what encoders have sent, in the part of the block for that */
  weir_device_told *told;
  uint32_t *overflow;
  weir_cuda_gain_bin *bins;
};

struct weir_device {
  int device;
  cudaStream_t caller, own;
  /* On either stream, as one thread may wait for the one and another for the other. */
  cudaEvent_t asked, done;
  size_t n;
  double timeout_s;
  bool feedback;                    /* otherwise residual is NULL, but for one that was loaded */
  float *residual, *e, *sum, *kept; /* kept: NULL before keep_room */
  float momentum;                   /* 0: none, and none of these */
  float *u, *next, *kept_u;
  double *norm, *norm_host; /* sum of squares of what is to be clipped, the room of
                               weir_cuda_measure; the second page-locked */
  weir_device_unit *unit;
  size_t units;   /* there are contexts for */
  size_t buckets; /* in force */
  unsigned char *block;
  size_t block_bytes;
  unsigned char *in; /* messages of all ranks, a part of the block */
  size_t in_bytes, in_used;
  weir_device_told *told_host; /* page-locked, told_room of them, then as many verdicts */
  size_t told_room;
  weir_verdict *verdict;
  uint64_t waits;
};

/* Whichever thread comes: the device becomes its current one. */
weir_status weir_device_enter(const weir_device *device);
/* Wait for an event, timeout_s at most. */
weir_status weir_device_wait(weir_device *device, cudaEvent_t event);

/* What was queued on the caller's stream, or the own one, is done. */
weir_status weir_device_wait_for_caller(weir_device *device);
weir_status weir_device_wait_for_own(weir_device *device);
weir_status weir_device_make_event(cudaEvent_t *out);
weir_status weir_device_floats(float **out, size_t n);
/* What clipping takes; what momentum takes, where there is one, u being zero. */
weir_status weir_device_open_norm(weir_device *device);
void weir_device_close_norm(weir_device *device);
weir_status weir_device_open_velocity(weir_device *device);
void weir_device_close_velocity(weir_device *device);

/* Instead of a bucket's gradient *g, m u + g; then no velocity is left where something was sent. */
weir_status weir_device_correct(weir_device *device, weir_device_unit *unit, const float **g);
weir_status weir_device_mask(weir_device *device, weir_device_unit *unit, weir_cuda *cuda,
                             const uint32_t *index, size_t k);
/* Of a bucket of matrices: what travels first, to values. */
weir_status weir_device_project(weir_device *device, weir_device_unit *unit, float *values);

/* Rooms that other ranks' devices read (engine_rooms.cu). */
weir_status weir_device_make_room(weir_device *device, size_t bytes, void **room,
                                  weir_device_room *told);
weir_status weir_device_open_room(weir_device *device, const weir_device_room *told, int reader,
                                  void **room);
void weir_device_close_room(weir_device *device, void *room);

weir_status weir_device_reserve(weir_device *device, const weir_device_bucket *buckets,
                                size_t count, size_t ranks);
weir_status weir_device_compress(weir_device *device, size_t bucket, const weir_device_task *task);
weir_status weir_device_await(weir_device *device, size_t bucket, const weir_device_told **told);
weir_status weir_device_decode(weir_device *device, size_t bucket, const void *message,
                               size_t bytes, bool first);
weir_status weir_device_leave(weir_device *device, size_t bucket, void *room, const void *message,
                              size_t bytes);
weir_status weir_device_read(weir_device *device, size_t bucket, const void *list, size_t bytes);
weir_status weir_device_fetch(weir_device *device, size_t bucket, const uint32_t *index,
                              float *value);
weir_status weir_device_settle(weir_device *device, size_t bucket, const float *error,
                               const float *value);
weir_status weir_device_encode(weir_device *device, size_t bucket, const weir_device_part *part,
                               void *to);
weir_status weir_device_add(weir_device *device, size_t bucket, const weir_device_part *part,
                            const void *from, bool add);
weir_status weir_device_drop(weir_device *device, size_t bucket);
weir_status weir_device_arrive(weir_device *device);
/* What the device has found so far of a bucket's messages is queued to be in its verdict; and what
 * was there: WEIR_E_PROTOCOL, a message was malformed, as far as the host has been told. */
weir_status weir_device_tell_fault(weir_device *device, size_t bucket);
weir_status weir_device_verdict(const weir_device *device);
/* What is lost of a bucket, for finish. */
weir_status weir_device_lost(weir_device *device, size_t bucket);
weir_status weir_device_pick(weir_device *device, size_t bucket, size_t at, size_t count, size_t k,
                             const float *x, void *message, const weir_device_told **told);
weir_status weir_device_take(weir_device *device, size_t bucket, size_t at, size_t count,
                             const void *message, size_t bytes);
/* The bucket's codec selects `kept` elements of e, which fed and layout name, and what they take is
 * encoded as the bucket's message. */
weir_status weir_device_select(weir_device_unit *unit, weir_cuda *cuda, const weir_cuda_fed *fed,
                               const weir_layout *layout, size_t kept, uint64_t seed);
/* The message and what is told go to page-locked memory; bytes 0: as long as is told. */
weir_status weir_device_ship(weir_device *device, size_t bucket, weir_cuda *cuda, size_t bytes,
                             void *message);
weir_status weir_device_stale(weir_device *device, size_t bucket, const uint32_t *index, size_t k);
weir_status weir_device_store(weir_device *device, size_t bucket, const float *next,
                              const float *sum);
weir_status weir_device_project_back(weir_device *device, size_t bucket, float *values,
                                     const float *lost);
weir_status weir_device_take_off(weir_device *device, size_t bucket, const float *q);
weir_status weir_device_expand(weir_device *device, size_t bucket, const float *values);
weir_status weir_device_publish(weir_device *device, size_t bucket, void *const *g, float share);
weir_status weir_device_finish(weir_device *device, bool *overflow);
weir_status weir_device_measure(weir_device *device, const void *x, unsigned type, size_t n,
                                bool add);
weir_status weir_device_clip(weir_device *device, void *x, unsigned type, size_t n, double limit);
weir_status weir_device_norm(weir_device *device, double *norm);

#endif
