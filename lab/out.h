/* The folder that a run writes its files to. */
#ifndef WEIR_LAB_OUT_H
#define WEIR_LAB_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/status.h>

weir_status weir_out_check(const char *out); /* writable, or could be made; touches nothing */
/* Would a run that writes to `out` remove `path`, its own `what` ("scenario", "trace")?
 * WEIR_E_INVALID if so. */
weir_status weir_out_spares(const char *out, const char *what, const char *path);
/* Make it, keep other runs out of it until weir_out_close(lock), and remove an older run's files.
 * Where no run has left anything, files of such names are a user's and stay, but for those that
 * this run comes to write. */
weir_status weir_out_open(const char *out, int *lock);
/* The same for a run that goes on there: what it was killed with is given a moment to end, and what
 * it goes on from stays. */
weir_status weir_out_reopen(const char *out, int *lock);
void weir_out_close(int lock);
void weir_out_discard(const char *out); /* remove this run's files, whole or not */
/* All but what it could go on from, and but for logs: they say why it failed. */
void weir_out_empty(const char *out);
void weir_out_settle(const char *out); /* it is finished: only its results stay */
#define WEIR_OUT_JOURNAL ".weir-decisions.tmp"
#define WEIR_OUT_RECORD ".weir-run.json" /* see run_record.h */
/* Has a run been trained to its end here?  Its decisions have got their name then. */
bool weir_out_trained(const char *out);

/* Take so much room for a file before hours are spent, so that it can be written at their end
 * whatever else the disk has been filled with.  WEIR_E_IO: there is none. */
weir_status weir_out_reserve(const char *out, const char *name, size_t bytes);
/* One file of it, under another name first: it is whole or not there.  WEIR_E_IO. */
weir_status weir_out_write(const char *out, const char *name, const char *text);

#endif
