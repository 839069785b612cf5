/* Log lines: to stderr, or to the program that the library is part of. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/scope.h"

static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
enum { LEVELS = sizeof names / sizeof *names };

_Atomic int weir_log_most = LEVELS;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weir_log_fn receiver; /* NULL: stderr */
static void *receiver_user;

/* A pipe takes a line whole, so that lines of several ranks do not mix. */
static void write_line(const weir_log_line *line) {
  char text[1200];
  char who[64] = "";
  if (line->rank >= 0)
    (void)snprintf(who, sizeof who, " rank %d step %llu", line->rank,
                   (unsigned long long)line->step);
  const int length = snprintf(text, sizeof text, "weir %s %.6f%s: %s\n", names[line->level],
                              line->time_s, who, line->text);
  if (length <= 0) return;
  size_t bytes = (size_t)length;
  if (bytes >= sizeof text) {
    bytes = sizeof text - 1;
    text[bytes - 1] = '\n';
  }
  /* Nobody to tell when stderr is closed. */
  if (write(STDERR_FILENO, text, bytes) < 0) return;
}

static void hand_out(weir_log_level level, const char *text) {
  const weir_scope *scope = weir_scope_here();
  weir_log_line line = {.level = level, .time_s = weir_now_s(), .rank = -1, .text = text};
  if (scope != NULL) {
    line.rank = atomic_load_explicit(&scope->live->rank, memory_order_relaxed);
    line.step = atomic_load_explicit(&scope->live->step, memory_order_relaxed);
  }
  (void)pthread_mutex_lock(&lock);
  if (receiver != NULL)
    receiver(receiver_user, &line);
  else
    write_line(&line);
  (void)pthread_mutex_unlock(&lock);
}

static void read_environment(void) {
  const char *text = getenv("WEIR_LOG");
  int level = WEIR_LOG_WARN;
  bool known = text == NULL || *text == 0;
  for (int i = 0; i < LEVELS && !known; i++)
    if (strcmp(text, names[i]) == 0) {
      level = i;
      known = true;
    }
  /* A level that the program has set meanwhile stays. */
  int unread = LEVELS;
  (void)atomic_compare_exchange_strong(&weir_log_most, &unread, level);
  if (known) return;
  char complaint[160];
  (void)snprintf(complaint, sizeof complaint,
                 "WEIR_LOG is \"%.40s\"; error, warn, info, debug and trace are known, and warn is "
                 "taken",
                 text);
  hand_out(WEIR_LOG_ERROR, complaint);
}

void weir_log_open(void) { (void)pthread_once(&once, read_environment); }

void weir_log(weir_log_level level, const char *format, ...) {
  if (!weir_log_on(level)) return;
  weir_log_open();
  if (!weir_log_on(level)) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  hand_out(level, text);
}

void weir_log_set(weir_log_fn log, void *user) {
  (void)pthread_mutex_lock(&lock);
  receiver = log;
  receiver_user = user;
  (void)pthread_mutex_unlock(&lock);
}

weir_status weir_log_set_level(weir_log_level level) {
  if ((int)level < 0 || (int)level >= LEVELS)
    return weir_fail(WEIR_E_INVALID, "%d is no level of logging; 0 (error) to 4 (trace) are",
                     (int)level);
  atomic_store(&weir_log_most, (int)level);
  return WEIR_OK;
}
