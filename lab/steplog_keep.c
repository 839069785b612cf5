/* The rows of a run that is under way, on the disk: DIR/.weir-steps.log.  A header, then a row and its
 * checksum after the other, as they lie in memory: whoever reads them is the same program. */
#include <errno.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "lab/steplog.h"

typedef struct header {
  char magic[8];
  uint64_t run, row_bytes;
} header;
typedef struct record {
  weir_row row;
  uint64_t crc;
} record;
static const char magic[8] = {'W', 'E', 'I', 'R', 'S', 'T', 'E', 'P'};

static header header_of(uint64_t run) {
  header h = {.run = run, .row_bytes = sizeof(weir_row)};
  memcpy(h.magic, magic, sizeof magic);
  return h;
}

static weir_status trouble(const char *path) {
  return weir_fail(WEIR_E_IO, "%s: %s", path, strerror(errno));
}

static bool put_rows(FILE *file, const weir_steplog *log) {
  for (size_t i = log->kept; i < log->count; i++) {
    record r;
    memset(&r, 0, sizeof r);
    r.row = log->rows[i];
    r.crc = weir_crc32c(0, &r.row, sizeof r.row);
    if (fwrite(&r, sizeof r, 1, file) != 1) return false;
  }
  return true;
}

weir_status weir_steplog_keep(weir_steplog *log, const char *directory, uint64_t run) {
  g_autofree char *path = g_build_filename(directory, WEIR_STEPLOG_KEPT, NULL);
  const header h = header_of(run);
  FILE *file = fopen(path, log->kept ? "r+e" : "we");
  if (!file) return trouble(path);
  /* What an attempt that failed has left lies behind the rows that count. */
  const off_t end = (off_t)(log->kept ? sizeof h + log->kept * sizeof(record) : 0);
  bool good = !fseeko(file, end, SEEK_SET);
  if (good && !log->kept) good = fwrite(&h, sizeof h, 1, file) == 1;
  good = good && put_rows(file, log) && !fflush(file) && !fsync(fileno(file));
  weir_status status = good ? WEIR_OK : trouble(path);
  if (fclose(file) && !status) status = trouble(path);
  if (!status) log->kept = log->count;
  return status;
}

/* Can it be written as text, and added up?  A bool that is neither must not be looked at as one. */
static bool sound(const record *r) {
  unsigned char trial;
  memcpy(&trial, &r->row.info.trial, 1);
  return r->crc == weir_crc32c(0, &r->row, sizeof r->row) && trial <= 1 &&
         weir_plan_check(&r->row.info.plan) == WEIR_OK;
}

weir_status weir_steplog_recall(weir_steplog *log, const char *directory, uint64_t run,
                                uint64_t rows) {
  g_autofree char *path = g_build_filename(directory, WEIR_STEPLOG_KEPT, NULL);
  const header due = header_of(run);
  header h;
  FILE *file = fopen(path, "re");
  if (!file) return trouble(path);
  weir_status status = WEIR_OK;
  if (fread(&h, sizeof h, 1, file) != 1 || memcmp(&h, &due, sizeof h))
    status = weir_fail(WEIR_E_PARSE, "%s is not of this run", path);
  for (uint64_t i = 0; i < rows && !status; i++) {
    record r;
    if (fread(&r, sizeof r, 1, file) != 1 || !sound(&r))
      status = weir_fail(WEIR_E_PARSE, "%s: row %llu of %llu is missing or damaged", path,
                         (unsigned long long)i, (unsigned long long)rows);
    else
      status = weir_steplog_add(log, &r.row);
  }
  (void)fclose(file);
  log->kept = log->count;
  return status;
}
