/* `weir train`: this process is one worker of a group that mpirun, srun or torchrun started; the
 * network is the one there is. */
#ifndef WEIR_LAB_TRAIN_H
#define WEIR_LAB_TRAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/status.h>

typedef struct weir_train_options {
  const char *scenario;
  const char *out;       /* folder, made by rank 0; the other ranks do not look at it */
  const char *policy;    /* NULL: the scenario's */
  const char *transport; /* "auto" (or NULL), "tcp", "mpi", ... */
  bool has_seed;
  uint64_t seed;
} weir_train_options;

typedef struct weir_train weir_train;

/* Read what the launcher says and check everything a user can get wrong.  Any failure is the
 * input's (exit code 2). */
weir_status weir_train_prepare(weir_train **out, const weir_train_options *options);
int weir_train_rank(const weir_train *train);
/* Train to the end.  On WEIR_OK rank 0 has written summary.json, decisions.jsonl, steps.csv and
 * report.html, and all ranks' weights are the same; otherwise none of the files is there. */
weir_status weir_train_execute(weir_train *train);
/* Once executed, on rank 0: the digest of the weights. */
const char *weir_train_weights_sha256(const weir_train *train);
void weir_train_free(weir_train *train);

#endif
