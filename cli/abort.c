/* GLib ends the process when it gets no memory: here with a sentence and exit code 1, not by a
 * signal */
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"

/* One large allocation has failed, and GLib could still say so. */
static void in_words(const char *domain, GLogLevelFlags level, const char *message, void *user) {
  (void)domain, (void)level, (void)user;
  (void)fprintf(stderr, "weir: %s\n", message);
  _exit(WEIR_EXIT_FAILED);
}

/* Nothing can be had any more.  Whatever else aborts is a fault, and leaves its core. */
static void at_abort(int number) {
  enum { LITTLE = 16 << 20 };
  static const char words[] = "weir: there is no memory left\n";
  void *some = mmap(NULL, LITTLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (some == MAP_FAILED && write(STDERR_FILENO, words, sizeof words - 1) > 0)
    _exit(WEIR_EXIT_FAILED);
  (void)signal(number, SIG_DFL); /* abort() raises it once more */
}

void cli_catch_aborts(void) {
  (void)g_log_set_handler("GLib", G_LOG_LEVEL_ERROR | G_LOG_FLAG_FATAL | G_LOG_FLAG_RECURSION,
                          in_words, NULL);
  (void)signal(SIGABRT, at_abort);
}
