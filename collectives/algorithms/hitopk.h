/* Inside of HiTopKComm: what hitopk.c and hitopk_windows.c share. */
#ifndef WEIR_COLLECTIVES_ALGORITHMS_HITOPK_H
#define WEIR_COLLECTIVES_ALGORITHMS_HITOPK_H

#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

/* n elements in `inside` shares of about as many, a rank of each machine's; at most `kept` of a
 * share are sent. */
typedef struct weir_hitopk_form {
  size_t n, kept;
  int inside, hosts; /* ranks of a machine, machines */
  weir_wire_format wire;
} weir_hitopk_form;

typedef struct weir_hitopk_run {
  weir_comm *comm;
  weir_comm *inner, *outer; /* NULL: nobody else there */
  const weir_codec *codec;
  weir_codec_context *context;
  double cr;
  weir_hitopk_form form;
  float *e, *sum;
  weir_chunk share;      /* this rank's, of its machine's sum */
  int place, host;       /* of this rank inside of its machine; the machine's */
  size_t stride;         /* of a machine's message */
  size_t spread;         /* of a column of machines' messages, each with its length in front */
  unsigned char *column; /* [hosts]: messages for this place */
  unsigned char *blocks; /* [inside]: the columns of all places */
  size_t *bytes;         /* of columns: inside entries, then hosts entries of the own column */
  weir_hitopk_told told;
} weir_hitopk_run;

/* Bytes of the place of a machine's message of so many elements of a share. */
size_t weir_hitopk_stride(const weir_hitopk_form *form, size_t elements);
/* Bytes of the longest column of messages, each with its length in front. */
size_t weir_hitopk_spread(const weir_hitopk_form *form);
/* Do the lists that a share is selected into and a column of messages have room where the sum will
 * be?  Floats of either. */
bool weir_hitopk_in_sum(const weir_hitopk_form *form);
size_t weir_hitopk_lists(const weir_hitopk_form *form);
size_t weir_hitopk_column(const weir_hitopk_form *form);
/* The wider of the stretches of n elements beside a share, from *begin on. */
size_t weir_hitopk_beside(weir_chunk share, size_t n, size_t *begin);

/* Elements of a window of a share, the same on all ranks.  0: everything has room without windows,
 * or there are too few elements for any. */
size_t weir_hitopk_window(const weir_hitopk_form *form);
/* The sum, in windows of so many elements; bytes has room for all machines' lengths. */
weir_status weir_hitopk_windows(weir_hitopk_run *run, size_t window, size_t *bytes);
/* All machines' messages for this place have come: their bytes travelled. */
void weir_hitopk_count(weir_hitopk_run *run, const size_t *bytes);
/* A message of this machine's sum to another was malformed: ends the group.  WEIR_E_PROTOCOL. */
weir_status weir_hitopk_blame(const weir_hitopk_run *run, int host);

#endif
