/* The folder that a run writes its files to. */
#ifndef WEIR_LAB_OUT_H
#define WEIR_LAB_OUT_H

#include <weir/status.h>

weir_status weir_out_check(const char *out); /* writable, or could be made; touches nothing */
weir_status weir_out_open(const char *out);  /* make it; remove an older run's files */
void weir_out_discard(const char *out);      /* remove this run's files, whole or not */
#define WEIR_OUT_JOURNAL ".weir-decisions.tmp"

/* One file of it, under another name first: it is whole or not there.  WEIR_E_IO. */
weir_status weir_out_write(const char *out, const char *name, const char *text);

#endif
