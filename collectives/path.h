/* An exchange by a path (base/path.h): its tasks, one after the other, as they are written
 * ("ByteComp", section 4.2).
 *
 * What a rank holds between two tasks is a range of the gradient, as floats, or compressed as the
 * messages of one or more ranks that have not been added up yet.  A path divides ranges: so that a
 * message can be divided on its way, each cell that the gradient will be divided into, until it is
 * decompressed, is a message of the codec's of its own, with its place and length in front.  A task
 * maps one such state to the next; what collectives of compressed data do with messages is to put
 * them one behind the other, in the order of ranks.
 *
 * What compressing loses is added to the residual of the rank that compresses, whether that is of
 * its own gradient, or of a sum: so that sum of inputs = result + sum over ranks of error.  Where
 * machines hold the same sums and each compresses them again, to send them on inside, all draw
 * alike, and one machine's rank keeps the loss.
 *
 * Machines of different sizes count as one a rank. */
#ifndef WEIR_COLLECTIVES_PATH_H
#define WEIR_COLLECTIVES_PATH_H

#include "base/path.h"
#include "collectives/collective.h"
#include "collectives/cost.h"
#include "kernels/codec.h"

/* What the rank that has most holds at one point of a path. */
typedef struct weir_path_held {
  size_t elements;       /* of its range */
  size_t whole[2];       /* before it was divided among all or inside of machines, and between */
  size_t messages;       /* compressed, of so many ranks; 0: floats */
  size_t cells, longest; /* of each message, and the elements of the longest */
  size_t senders;        /* ranks of a machine that talk to other machines */
  unsigned at;           /* in which of two buffers messages are */
} weir_path_held;
weir_path_held weir_path_begins(weir_group_shape shape, size_t elements);
/* Ranks at a place: of a machine, machines, or all. */
int weir_path_group(weir_group_shape shape, weir_site place);
/* After task i. */
void weir_path_advance(const weir_path *path, size_t i, weir_group_shape shape,
                       weir_path_held *held);

/* Bytes of what is held at the most, compressed. */
size_t weir_path_bytes(const weir_plan *plan, const weir_path_held *held);

/* What a rank needs besides: two buffers of so many bytes, and lists of so many elements
 * (selections; 0 for encoders).  shape: hosts as ranks where machines differ. */
typedef struct weir_path_room {
  size_t bytes[2], kept;
} weir_path_room;
weir_path_room weir_path_room_of(const weir_plan *plan, weir_group_shape shape, size_t elements);

/* One rank's run of a path. */
typedef struct weir_path_run {
  weir_comm *comm;
  const weir_plan *plan;
  weir_codec_context *context;
  uint64_t seed; /* the same on all ranks, another in every step and bucket */
  float *x;      /* [n]: e comes in, the sum over ranks of what was sent goes out */
  float *error;  /* [n]: what this rank's compressing has lost */
  size_t n;
  weir_path_room room;
  unsigned char *buffer[2]; /* of room.bytes */
  uint32_t *index;          /* room.kept each */
  float *value, *rounded;
  size_t bytes; /* in buffer[0], once its first task has compressed */
  double share; /* of the squares of what it compressed, what was sent */
} weir_path_run;

/* Sets error and share; compresses, where that is the first task.  No communication: on any thread,
 * before weir_path_run_rest. */
weir_status weir_path_run_first(weir_path_run *run);
/* All other tasks: x has the same bits on all ranks.  error is complete before another rank can be
 * through. */
weir_status weir_path_run_rest(weir_path_run *run, weir_headers *headers);

/* A communication of `bytes` that each of n ranks holds, by the rows that run it; an all-reduce by
 * a ring. */
weir_cost_terms weir_cost_path_task(weir_task task, unsigned routine, int n, double bytes);
/* The whole path, as weir_cost_plan_between; and what of it goes on inside of machines, where there
 * are several, by links of their own. */
weir_cost_terms weir_cost_path(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                               size_t elements);
weir_cost_terms weir_cost_path_inside(const weir_plan *plan, weir_group_shape shape,
                                      size_t elements);

#endif
