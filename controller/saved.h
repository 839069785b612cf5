/* What a controller has learnt, as bytes that outlive the process: for weir_controller_save and
 * weir_controller_create. */
#ifndef WEIR_CONTROLLER_SAVED_H
#define WEIR_CONTROLLER_SAVED_H

#include "controller/loop.h"
#include "controller/mailbox.h"

/* Bytes that grow while they are written, or that are read. */
typedef struct weir_saved {
  unsigned char *data;
  size_t at, bytes; /* where the next value goes or comes from; while writing: room */
  bool reading;
  bool bad;     /* while reading: a value that cannot be, or an early end */
  bool starved; /* while writing: no memory */
} weir_saved;

/* Where it is kept. */
typedef struct weir_saved_parts {
  weir_loop *loop;
  weir_mailbox *mailbox;
  weir_plan_bucket *taken; /* table of the directive last taken; room for one a tensor */
  uint64_t journal;        /* bytes of the journal's file that belong to it */
} weir_saved_parts;

/* Write all that is known; changes none of it. */
void weir_saved_write(weir_saved *saved, weir_saved_parts *parts);

/* Read what weir_saved_write wrote: what it knows of codecs, and with `alike` (the same policy,
 * ranks and tensors) everything, into parts that are as at their start.  WEIR_E_PARSE: it is
 * damaged, and the parts are not to be used.  Only of what weir_saved_ours. */
weir_status weir_saved_read(const void *data, size_t bytes, bool alike, weir_saved_parts *parts);
/* Is it of this version, and of a library with these arms and codecs? */
bool weir_saved_ours(const void *data, size_t bytes);

#endif
