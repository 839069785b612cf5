/* Timelines as trace events (Chrome's Trace Event Format: complete events "X", metadata "M"). */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "planner/timeline.h"

enum { ROWS = 1024 }; /* of a resource, so that a row's number says both */

/* Names come from profiles, which are printable ASCII: two characters need escaping. */
static void text(FILE *file, const char *name) {
  putc('"', file);
  for (; *name; name++) {
    if (*name == '"' || *name == '\\') putc('\\', file);
    putc(*name, file);
  }
  putc('"', file);
}

static void rows(FILE *file, const weir_trace_part *part, size_t pid) {
  const weir_timeline *timeline = part->timeline;
  if (part->name) {
    fprintf(file, "{\"ph\":\"M\",\"pid\":%zu,\"name\":\"process_name\",\"args\":{\"name\":", pid);
    text(file, part->name);
    fputs("}},\n", file);
  }
  size_t used[WEIR_RESOURCES] = {0};
  for (size_t i = 0; i < timeline->count; i++) {
    const weir_span *span = &timeline->spans[i];
    if (span->server + 1 > used[span->resource]) used[span->resource] = span->server + 1;
  }
  for (size_t r = 0; r < WEIR_RESOURCES; r++)
    for (size_t k = 0; k < used[r]; k++)
      fprintf(file,
              "{\"ph\":\"M\",\"pid\":%zu,\"tid\":%zu,\"name\":\"thread_name\","
              "\"args\":{\"name\":\"%s %zu\"}},\n",
              pid, r * ROWS + k, weir_resource_name((weir_resource)r), k);
}

static void events(FILE *file, const weir_timeline *timeline, size_t pid,
                   const weir_profile *profile) {
  for (size_t i = 0; i < timeline->count; i++) {
    const weir_span *span = &timeline->spans[i];
    fprintf(file,
            "%s{\"ph\":\"X\",\"pid\":%zu,\"tid\":%zu,\"ts\":%.6f,\"dur\":%.6f,\"cat\":\"%s\","
            "\"name\":\"%s %zu\",\"args\":{\"tensor\":",
            i || pid > 1 ? ",\n" : "", pid, (size_t)span->resource * ROWS + span->server,
            span->start_s * 1e6, (span->end_s - span->start_s) * 1e6, span->what, span->what,
            span->chain == SIZE_MAX ? span->tensor : span->chain);
    text(file, profile->tensors[span->tensor].name);
    fprintf(file, ",\"waited_us\":%.6f}}", (span->start_s - span->ready_s) * 1e6);
  }
}

/* A pipe, a terminal or a device is written to, never replaced by a file. */
static bool is_file(const char *path) {
  struct stat found;
  return stat(path, &found) != 0 || S_ISREG(found.st_mode);
}

weir_status weir_trace_write(const weir_trace_part *parts, size_t count,
                             const weir_profile *profile, const char *path) {
  const size_t size = strlen(path) + sizeof ".partial";
  const bool replace = is_file(path);
  char *partial = malloc(size);
  if (!partial) return weir_fail(WEIR_E_NOMEM, "no memory for a file name");
  (void)snprintf(partial, size, "%s%s", path, replace ? ".partial" : "");
  weir_status status = WEIR_OK;
  FILE *file = fopen(partial, "w");
  if (!file) {
    status = weir_fail(WEIR_E_IO, "%s: cannot be written: %s", partial, strerror(errno));
    goto done;
  }
  fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
  for (size_t k = 0; k < count; k++) rows(file, &parts[k], k + 1);
  for (size_t k = 0; k < count; k++) events(file, parts[k].timeline, k + 1, profile);
  fputs("\n]}\n", file);
  const int bad = ferror(file);
  if (fclose(file) || bad || (replace && rename(partial, path))) {
    status = weir_fail(WEIR_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (replace) (void)unlink(partial);
  }
done:
  free(partial);
  return status;
}

weir_status weir_timeline_trace(const weir_timeline *timeline, const weir_profile *profile,
                                const char *path) {
  return weir_trace_write(&(weir_trace_part){NULL, timeline}, 1, profile, path);
}
