/* The backend of gradients on a device (kernels/device.h has what a device does,
 * docs/internals/device.md the whole): gradients, residuals and sums are the device's, messages
 * come to the host. */
#ifndef WEIR_ENGINE_DEVICE_H
#define WEIR_ENGINE_DEVICE_H

#include <stdatomic.h>

#include "engine/backend.h"
#include "engine/lowrank.h"
#include "kernels/device.h"

struct weir_on_device {
  const weir_device_ops *ops;
  weir_device *device;
  weir_device_bucket *buckets; /* as they were reserved last */
  weir_thin *thin;             /* a tensor */
  bool *overflow;              /* a bucket */
  size_t capacity;             /* of buckets and overflow */
  float *whole, *lost; /* page-locked, n floats: gradients that go to the host whole, and what
                                rounding loses of them; NULL until a plan needs them */
  unsigned char *bins; /* page-locked, a histogram a bucket; NULL without a gain curve */
  size_t bins_groups;
  /* What hooks->sample has asked for in this step, in the order of tensors; page-locked, NULL
   * without that hook. */
  weir_device_sample *samples;
  float *seen;
  size_t *sampled; /* tensors */
  size_t sample_count, seen_count;
  size_t half;          /* bytes of one of the two halves of a room; 0: there are no rooms */
  unsigned char **room; /* a rank's; NULL without rooms */
  int rooms;            /* so many, of which some are NULL where others are on other machines */
  int *from, *slot;     /* in whose room a rank's message is, and as which there */
  bool zero, kept_zero; /* as weir_host has it: the residual is all zero */
  float *residual, *velocity; /* on the host, for who asks; NULL before the first time */
  void *table, *lent;         /* page-locked: of pieces of optimizers, and weir_engine_lend's */
  size_t table_bytes, lent_bytes;
  atomic_bool in_flight; /* something may be queued that finish has not waited for; any lane */
};

/* What an operation of the library gave, with its words. */
weir_status weir_on_device_status(const weir_on_device *on, weir_status status);

/* What a bucket's kind is on a device. */
weir_device_kind weir_on_device_kind(const weir_bucket *bucket);

/* What is to be seen of a bucket (device_sample.c): asked when it is compressed, told before this
 * rank's header. */
weir_status weir_on_device_open_samples(weir_engine *engine);
void weir_on_device_close_samples(weir_engine *engine);
void weir_on_device_sample(weir_bucket *bucket, weir_device_task *task);
void weir_on_device_show(const weir_engine *engine);

/* Messages that stay on devices (device_rooms.c): room for them, and where a rank's of the
 * step under way begins. */
weir_status weir_on_device_share(weir_engine *engine, size_t bytes, bool *yes);
void weir_on_device_unshare(weir_engine *engine);
unsigned char *weir_on_device_room(const weir_bucket *bucket, int rank);
/* Where on the host it is that goes to other machines, or comes from there; NULL: nowhere. */
unsigned char *weir_on_device_column(const weir_bucket *bucket, int rank);
weir_status weir_on_device_pass_on(weir_bucket *bucket);
/* The device has found a message malformed, says the last error: whose it is the host finds out. */
weir_status weir_on_device_find_culprit(weir_engine *engine, weir_status status);

/* One bucket's way (device_bucket.c). */
weir_status weir_on_device_check(const weir_bucket *bucket, const void *message, size_t bytes);
void weir_on_device_feed(weir_bucket *bucket);
weir_status weir_on_device_compress(weir_bucket *bucket);
weir_status weir_on_device_await(weir_bucket *bucket);
weir_status weir_on_device_add(weir_bucket *bucket, int rank);
weir_status weir_on_device_decode(const weir_bucket *bucket, const void *message, size_t bytes,
                                  bool first);
weir_status weir_on_device_list(weir_bucket *bucket, size_t *bytes);
weir_status weir_on_device_read(weir_bucket *bucket, int rank, size_t bytes);
weir_status weir_on_device_fetch(weir_bucket *bucket);
weir_status weir_on_device_settle(weir_bucket *bucket, const float *value);
weir_status weir_on_device_store(weir_bucket *bucket, const float *sum);
weir_status weir_on_device_project_back(weir_bucket *bucket);
weir_status weir_on_device_take_off(weir_bucket *bucket, const float *q);
extern const weir_coder_ops weir_on_device_coder;
extern const weir_hitopk_away weir_on_device_away;
/* Of a bucket that is sent in parts or as thin matrices, what of it was: known when the step is
 * through. */
void weir_on_device_count(weir_bucket *bucket);
weir_status weir_on_device_publish(weir_bucket *bucket, float share);

#endif
