/* What a run in a folder is, so that it can go on there after it was killed: DIR/.weir-run.json,
 * from when the run begins until it is finished. */
#ifndef WEIR_LAB_RUN_RECORD_H
#define WEIR_LAB_RUN_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/status.h>

typedef struct weir_run_options weir_run_options;

typedef struct weir_run_record {
  uint64_t run;                                                       /* drawn when it began */
  char *scenario, *scenario_sha256, *policy, *risk, *network, *clock; /* as canonical as they get */
  uint32_t workers;
  uint64_t seed;
  bool profile;
} weir_run_record;

/* A file's SHA-256 in hexadecimal, which the caller frees with g_free(); NULL: it cannot be
 * read. */
char *weir_file_sha256(const char *path);
weir_status weir_run_record_write(const weir_run_record *record, const char *out);
/* WEIR_E_INVALID says what is the matter with the folder, and what to do. */
weir_status weir_run_record_read(weir_run_record *record, const char *out);
void weir_run_record_free(weir_run_record *record);
/* Fill in what the record says; WEIR_E_INVALID where the options say something else.  They then
 * borrow from the record. */
weir_status weir_run_record_apply(const weir_run_record *record, weir_run_options *options);

#endif
