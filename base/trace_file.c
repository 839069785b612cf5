/* The trace file: a buffer, a lock, and a limit on what is written. */
#include "base/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/numerals.h"

enum { BUFFER = 1 << 16, EVENT = 512, FIRST_PEER = 100, MB_DEFAULT = 256, MB_MOST = 1 << 20 };

struct weir_tracer {
  pthread_mutex_t lock;
  int file;
  int rank;
  uint64_t written, most; /* bytes */
  bool full, failed;      /* nothing more comes in; nothing more can be written */
  bool any;               /* an event has been put in: the next one needs a comma */
  uint64_t named;         /* bit a peer: its tracks have names; peers above 63 have none */
  size_t filled;
  char path[4096];
  char buffer[BUFFER];
};

/* FILE with %r replaced; false: it is too long. */
static bool expand(const char *name, int rank, char *path, size_t room) {
  size_t at = 0;
  for (const char *p = name; *p != 0; p++) {
    const bool here = p[0] == '%' && p[1] == 'r';
    const int put = here ? snprintf(path + at, room - at, "%d", rank)
                         : snprintf(path + at, room - at, "%c", *p);
    at += (size_t)put;
    if (at >= room) return false;
    p += here;
  }
  return true;
}

static weir_status read_limit(uint64_t *bytes) {
  const char *text = getenv("WEIR_TRACE_MB");
  char *end = NULL;
  errno = 0;
  const bool set = text != NULL && *text != 0;
  const long mb = set ? strtol(text, &end, 10) : MB_DEFAULT;
  if (set && (end == text || *end != 0 || errno != 0 || mb < 1 || mb > MB_MOST))
    return weir_fail(WEIR_E_INVALID, "WEIR_TRACE_MB is \"%.40s\"; expected a number from 1 to %d",
                     text, MB_MOST);
  *bytes = (uint64_t)mb << 20;
  return WEIR_OK;
}

/* --- under the lock -------------------------------------------------------------------------- */

static void write_out(weir_tracer *t) {
  size_t at = 0;
  while (at < t->filled && !t->failed) {
    const ssize_t put = weir_write(t->file, t->buffer + at, t->filled - at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      weir_log(WEIR_LOG_WARN, "the trace %s cannot be written, and ends: %s", t->path,
               strerror(errno));
      t->failed = true;
      break;
    }
    at += (size_t)put;
  }
  t->written += at;
  t->filled = 0;
}

static void put(weir_tracer *t, const char *event, size_t bytes) {
  if (t->filled + bytes + 2 > BUFFER) write_out(t);
  if (t->failed) return;
  memcpy(t->buffer + t->filled, ",\n", 2);
  t->filled += t->any ? 2 : 0;
  t->any = true;
  memcpy(t->buffer + t->filled, event, bytes);
  t->filled += bytes;
}

/* Is there room for one more event, and the one that says that there is none? */
static bool fits(weir_tracer *t, size_t bytes) {
  if (t->full || t->failed) return false;
  if (t->written + t->filled + bytes + 2 * EVENT <= t->most) return true;
  char last[EVENT];
  const int length =
      snprintf(last, sizeof last,
               "{\"name\":\"WEIR_TRACE_MB is reached\",\"cat\":\"weir\",\"ph\":\"X\","
               "\"pid\":%d,\"tid\":0,\"ts\":%.0f,\"dur\":0,\"args\":{}}",
               t->rank, weir_now_s() * 1e6);
  put(t, last, (size_t)length);
  write_out(t);
  t->full = true;
  weir_log(WEIR_LOG_WARN, "the trace %s has reached its %llu MB (WEIR_TRACE_MB), and ends", t->path,
           (unsigned long long)(t->most >> 20));
  return false;
}

static void add(weir_tracer *t, const char *event, int length) {
  if (length <= 0 || length >= EVENT) return; /* none of ours is so long */
  (void)pthread_mutex_lock(&t->lock);
  if (fits(t, (size_t)length)) put(t, event, (size_t)length);
  (void)pthread_mutex_unlock(&t->lock);
}

/* --- events ---------------------------------------------------------------------------------- */

static void name(weir_tracer *t, const char *kind, int track, const char *what) {
  char event[EVENT];
  add(t, event,
      snprintf(event, sizeof event,
               "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
               kind, t->rank, track, what));
}

void weir_tracer_name(weir_tracer *tracer, int track, const char *what) {
  name(tracer, "thread_name", track, what);
}

void weir_tracer_span(weir_tracer *tracer, int track, const char *what, double begin_s,
                      double end_s, const char *format, ...) {
  char event[EVENT], arguments[EVENT / 2];
  va_list list;
  va_start(list, format);
  const locale_t before = weir_numerals_begin();
  const int put = vsnprintf(arguments, sizeof arguments, format, list);
  va_end(list);
  if (put >= 0 && (size_t)put < sizeof arguments)
    add(tracer, event,
        snprintf(event, sizeof event,
                 "{\"name\":\"%s\",\"cat\":\"weir\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,"
                 "\"ts\":%.3f,\"dur\":%.3f,\"args\":{%s}}",
                 what, tracer->rank, track, begin_s * 1e6, (end_s - begin_s) * 1e6, arguments));
  weir_numerals_end(before);
}

/* A track a peer and direction: messages of one transfer are on their way together. */
void weir_tracer_message(weir_tracer *tracer, bool received, int peer, size_t bytes, uint64_t step,
                         double begin_s, double end_s) {
  const int track = FIRST_PEER + 2 * peer;
  const uint64_t bit = peer < 64 ? UINT64_C(1) << peer : 0;
  if (bit != 0 && !(tracer->named & bit)) {
    char text[48];
    tracer->named |= bit;
    (void)snprintf(text, sizeof text, "to rank %d", peer);
    weir_tracer_name(tracer, track, text);
    (void)snprintf(text, sizeof text, "from rank %d", peer);
    weir_tracer_name(tracer, track + 1, text);
  }
  weir_tracer_span(tracer, track + received, received ? "recv" : "send", begin_s, end_s,
                   "\"step\":%llu,\"peer\":%d,\"bytes\":%zu", (unsigned long long)step, peer,
                   bytes);
}

void weir_tracer_flush(weir_tracer *tracer) {
  (void)pthread_mutex_lock(&tracer->lock);
  write_out(tracer);
  (void)pthread_mutex_unlock(&tracer->lock);
}

/* --- life ------------------------------------------------------------------------------------ */

/* A pipe that nobody reads is not waited for; one that is read is written to like a file. */
static int open_file(const char *path) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file >= 0) (void)fcntl(file, F_SETFL, 0);
  return file;
}

static weir_status create(weir_tracer **out, const char *file, int rank, uint64_t most) {
  weir_tracer *t = calloc(1, sizeof *t);
  if (t == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a trace");
  t->rank = rank;
  t->most = most;
  weir_status status = WEIR_OK;
  if (!expand(file, rank, t->path, sizeof t->path))
    status = weir_fail(WEIR_E_INVALID, "WEIR_TRACE names a file of more than %zu bytes",
                       sizeof t->path - 1);
  else if ((t->file = open_file(t->path)) < 0)
    status = weir_fail(WEIR_E_IO, "the trace %s (WEIR_TRACE) cannot be written: %s", t->path,
                       strerror(errno));
  else if (pthread_mutex_init(&t->lock, NULL) != 0) {
    (void)close(t->file);
    status = weir_fail(WEIR_E_NOMEM, "no lock for a trace");
  }
  if (status != WEIR_OK) {
    free(t);
    return status;
  }
  memcpy(t->buffer, "[\n", 2);
  t->filled = 2;
  *out = t;
  return WEIR_OK;
}

weir_status weir_tracer_open(weir_tracer **out, int rank) {
  const char *file = getenv("WEIR_TRACE");
  uint64_t most = 0;
  *out = NULL;
  if (file == NULL || *file == 0 || (rank != 0 && strstr(file, "%r") == NULL)) return WEIR_OK;
  weir_status status = read_limit(&most);
  if (status == WEIR_OK) status = create(out, file, rank, most);
  if (status != WEIR_OK) return status;
  char text[32];
  (void)snprintf(text, sizeof text, "rank %d", rank);
  name(*out, "process_name", 0, text);
  name(*out, "thread_name", 0, "caller");
  weir_tracer_flush(*out);
  return WEIR_OK;
}

void weir_tracer_close(weir_tracer *tracer) {
  if (tracer == NULL) return;
  write_out(tracer);
  memcpy(tracer->buffer, "\n]\n", 3);
  tracer->filled = 3;
  write_out(tracer);
  (void)close(tracer->file);
  (void)pthread_mutex_destroy(&tracer->lock);
  free(tracer);
}
