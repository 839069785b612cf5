/* Tensor profiles: what the backward pass hands over, and when.
 *
 * File: CSV `tensor,numel,gap_us`, one line a tensor in backward order.  numel: elements (fp32),
 * 1 to 2^40.  gap_us: microseconds of computation between the previous gradient's being ready and
 * this one's, 0 to 1e9; the first line's counts from the begin of the backward pass. */
#ifndef WEIR_PLANNER_PROFILE_H
#define WEIR_PLANNER_PROFILE_H

#include <stddef.h>
#include <weir/status.h>

typedef struct weir_profile_tensor {
  char *name; /* unique within the profile */
  double numel;
  double gap_s;
} weir_profile_tensor;

/* A value that owns its tensors; read-only after loading, then free to share between threads. */
typedef struct weir_profile {
  size_t count; /* >= 1 */
  weir_profile_tensor *tensors;
} weir_profile;

/* WEIR_E_PARSE ("FILE:LINE: ...: expected ..."), WEIR_E_IO or WEIR_E_NOMEM; then *profile is
 * empty and needs no freeing. */
weir_status weir_profile_load(weir_profile *profile, const char *path);
void weir_profile_free(weir_profile *profile); /* leaves it empty */

/* fp32 bytes of one tensor. */
double weir_profile_bytes(const weir_profile *profile, size_t tensor);

/* Sums over the first j tensors, j = 0..count (two arrays of count + 1, owned by the caller):
 * when the j-th gradient is ready without any compression, and bytes. */
void weir_profile_sums(const weir_profile *profile, double *ready_s, double *bytes);

/* Buckets of consecutive tensors as the tensors of a new profile, named after their last; end: one
 * past each bucket's last.  WEIR_E_NOMEM; then *fused is empty. */
weir_status weir_profile_fuse(const weir_profile *profile, const size_t *end, size_t buckets,
                              weir_profile *fused);

#endif
