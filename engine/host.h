/* The backend of gradients in host memory: what its files share. */
#ifndef WEIR_ENGINE_HOST_H
#define WEIR_ENGINE_HOST_H

#include "engine/backend.h"

/* host_feed.c */
void weir_host_feed(weir_bucket *bucket);
void weir_host_show(weir_bucket *bucket);
/* host_bucket.c */
weir_status weir_host_compress(weir_bucket *bucket);
weir_status weir_host_add(weir_bucket *bucket, int rank);
weir_status weir_host_list(weir_bucket *bucket, size_t *bytes);
weir_status weir_host_fetch(weir_bucket *bucket);
weir_status weir_host_settle(weir_bucket *bucket, const float *value);
weir_status weir_host_project_back(weir_bucket *bucket);
weir_status weir_host_take_off(weir_bucket *bucket, const float *q);
weir_status weir_host_publish(weir_bucket *bucket, float share);
/* Lends the bucket's context the memory of its sum, which is not made yet, for selecting. */
void weir_host_lend(weir_bucket *bucket);

#endif
