/* A rank's status block: what others may see of a session while it runs.
 *
 * It lies in a file of the status folder, mapped by the session, so that publishing is a few stores
 * and no system call.  Who reads it may be another thread (weir_dump) or another process (`weir
 * top`): the live part is told field by field, the rest whole by a sequence number that is odd
 * while it changes.  The layout is this machine's; version and size stand in front, and readers
 * trust nothing of it. */
#ifndef WEIR_SESSION_STATUS_H
#define WEIR_SESSION_STATUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>

#include "base/scope.h"

#define WEIR_STATUS_MAGIC UINT64_C(0x7375746174537277) /* "wrStatus" */
enum { WEIR_STATUS_VERSION = 2, WEIR_STATUS_RANKS = 4096, WEIR_STATUS_WHY = 256 };

/* Which of the ranks is slow, and in what (slow.h). */
typedef enum weir_slow_kind {
  WEIR_SLOW_NONE = 0,
  WEIR_SLOW_COMPUTE = 1,
  WEIR_SLOW_LATENCY = 2,
  WEIR_SLOW_BANDWIDTH = 3
} weir_slow_kind;
typedef struct weir_slow_verdict {
  int32_t rank;  /* -1: none */
  uint32_t kind; /* weir_slow_kind */
  double ratio;  /* times the median of the others; of a bandwidth, what part of it */
  double own, median;
} weir_slow_verdict;

/* Of one rank, as its telemetry tells all others. */
typedef struct weir_status_rank {
  double compute_s;                    /* of the last step */
  double compress_s, comm_s, wait_s;   /* of the one before */
  double latency_s, bandwidth_bytes_s; /* 0: unknown */
} weir_status_rank;

/* What changes with each step; rows of world_size ranks follow. */
typedef struct weir_status_facts {
  uint64_t steps; /* executed, trials included; 0: the first is still to end */
  double time_s;  /* when the last ended, CLOCK_MONOTONIC */
  double step_s;  /* from the end of the one before to that */
  double compute_s, compress_s, comm_s, exchange_s, predicted_comm_s, overhead_s, gain;
  uint64_t wire_bytes;
  double latency_s, bandwidth_bytes_s, goodput_bytes_s; /* as agreed on by all ranks */
  double own_latency_s, latency_error, latency_age_s;   /* as this rank's monitor has it */
  double own_bandwidth_bytes_s, bandwidth_error, bandwidth_age_s;
  uint64_t plan_steps; /* executed under the plan in force */
  uint64_t gradient_bytes;
  weir_slow_verdict slow;
  int32_t world_size;
  uint32_t trial, buckets, failed; /* failed: a weir_status that has ended the group */
  char plan[WEIR_PLAN_TEXT_MAX];
  char transport[16];
  char policy[WEIR_PLAN_TEXT_MAX];
  char decision[WEIR_STATUS_WHY]; /* rank 0's last, and why; of other ranks empty */
} weir_status_facts;

typedef struct weir_status_block {
  uint64_t magic;
  uint32_t version;
  uint32_t capacity; /* rows that there is room for */
  uint64_t bytes;    /* of the whole block */
  uint64_t job_id;
  _Atomic uint64_t run; /* the same on all ranks of a job's run; 0: they have not met */
  int32_t pid;
  uint32_t reserved;
  weir_live live;
  _Atomic uint64_t sequence;
  _Atomic uint64_t words[]; /* facts, then rows */
} weir_status_block;

_Static_assert(sizeof(weir_status_facts) % 8 == 0 && sizeof(weir_status_rank) % 8 == 0,
               "facts and rows are copied in words");
enum {
  WEIR_STATUS_FACT_WORDS = sizeof(weir_status_facts) / 8,
  WEIR_STATUS_RANK_WORDS = sizeof(weir_status_rank) / 8
};
size_t weir_status_bytes(uint32_t capacity);

/* --- the block (status.c) ------------------------------------------------------------------- */

/* By the session's thread alone; rows: facts->world_size of them. */
void weir_status_publish(weir_status_block *block, const weir_status_facts *facts,
                         const weir_status_rank *rows);
/* A whole state of the block; rows has room for `room`, and *count tells how many there are.
 * false: it keeps changing, which it does not for long, or holds what cannot be. */
bool weir_status_read(const weir_status_block *block, weir_status_facts *facts,
                      weir_status_rank *rows, size_t room, size_t *count);
/* The phase as text. */
void weir_status_phase(const weir_live *live, char text[9]);

/* --- the file (status_file.c) --------------------------------------------------------------- */

typedef struct weir_status_file {
  weir_status_block *block; /* mapped; NULL before open */
  size_t bytes;
  int file; /* -1: memory of this process alone */
  char path[512];
} weir_status_file;

/* The folder that WEIR_STATUS_DIR names, $XDG_RUNTIME_DIR/weir, or /tmp/weir-UID; made (make), and
 * refused where it is another user's or others may write to it.  which: 0; or, without
 * WEIR_STATUS_DIR, also where sessions of other environments have theirs, as those of a batch job
 * and of a login are: 1 .. WEIR_STATUS_FOLDERS - 1, of which some may be the same. */
enum { WEIR_STATUS_FOLDERS = 3 };
weir_status weir_status_folder(int which, char *path, size_t room, bool make);
/* A block for a rank: in a file that is locked as long as this process lives, or, with
 * WEIR_STATUS=off and where no file can be had, in memory.  The file is in folder 0, or else, which
 * is warned of, in the last one.  WEIR_E_NOMEM; WEIR_E_INVALID for a
 * WEIR_STATUS that is neither on nor off. */
weir_status weir_status_open(weir_status_file *out, uint64_t job_id, int rank, int ranks);
void weir_status_close(weir_status_file *file); /* removes it; fine when it never opened */
/* A copy of somebody's block, checked, to be freed; NULL: it is none of this version, or its
 * process is gone, and then the file too. */
weir_status_block *weir_status_load(const char *path);

#endif
