/* Training samples as a source has them that is slow to read, and a cache of them (weir/cache.h)
 * that the workers share: as if the data set did not lie on the workers' own disks. */
#ifndef WEIR_LAB_SAMPLES_H
#define WEIR_LAB_SAMPLES_H

#include <weir/weir.h>

#include "lab/dataset.h"
#include "lab/trainer.h"

typedef struct weir_samples_config {
  const weir_dataset *data; /* borrowed */
  double latency_s;         /* until the first byte of a sample comes */
  double bytes_s;           /* of the rest; 0: at once */
  uint64_t cache_bytes;     /* of each worker; 0: no cache, every read is the source's */
  size_t batch;
} weir_samples_config;

typedef struct weir_samples weir_samples;

/* With a cache: collective, once the session has started. */
weir_status weir_samples_open(weir_samples **out, weir_session *session,
                              const weir_samples_config *config);
/* Where a trainer has its batches from. */
weir_trainer_source weir_samples_source(weir_samples *samples);
/* Read nothing ahead any more: before workers end, so that none asks another that is gone. */
weir_status weir_samples_rest(weir_samples *samples);
void weir_samples_close(weir_samples *samples);

#endif
