/* The same command, inside a Linux kernel of our own that has netem. */
#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/runner_private.h"
#include "lab/uml.h"

#define BOOT_AND_DATA_MIB 512

extern char **environ;

typedef struct uml_view {
  weir_progress *progress;
  char said[512]; /* what the inner run said when it failed */
  char last[512]; /* the last plain line, where it said nothing */
} uml_view;

static const char prefix[] = "weir run: ";

static void take_line(void *user, bool is_error, const char *line) {
  uml_view *view = user;
  (void)is_error;
  if (!strncmp(line, prefix, strlen(prefix))) {
    (void)g_strlcpy(view->said, line + strlen(prefix), sizeof view->said);
    return;
  }
  if (*line && *line != '~') (void)g_strlcpy(view->last, line, sizeof view->last);
  weir_progress_relay(view->progress, line);
}

static weir_status outcome(weir_status status, int code, const uml_view *view) {
  if (status) return status;
  if (!code) return WEIR_OK;
  const char *why = *view->said ? view->said : view->last;
  return weir_fail(WEIR_E_PEER, "%s",
                   *why ? why : "the run inside User-Mode Linux failed without saying why");
}

/* A trace in the output folder goes to where that is seen inside; elsewhere nothing can be
 * written, and the session says so. */
static char *moved(const char *entry, const char *out) {
  static const char trace[] = "WEIR_TRACE=";
  if (!g_str_has_prefix(entry, trace)) return g_strdup(entry);
  g_autofree char *path = g_canonicalize_filename(entry + strlen(trace), NULL);
  const bool within = g_str_has_prefix(path, out) && path[strlen(out)] == '/';
  return g_strconcat(trace, within ? "/run/out" : "", path + (within ? strlen(out) : 0), NULL);
}

/* What logs, traces and tunes a session, under names that a shell takes.  A secret is not handed on
 * in a file: the run inside draws its own. */
static char **environment(const char *out) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  GPtrArray *kept = g_ptr_array_new();
  for (char **entry = environ; *entry; entry++)
    if (g_str_has_prefix(*entry, "WEIR_") && !g_str_has_prefix(*entry, "WEIR_SECRET") &&
        (*entry)[strspn(*entry, letters)] == '=')
      g_ptr_array_add(kept, moved(*entry, out));
  g_ptr_array_add(kept, NULL);
  return (char **)g_ptr_array_free(kept, FALSE);
}

weir_status weir_run_uml(weir_run *run) {
  char self[4096], workers[32], seed[32];
  const char *clock = weir_uml_clock_name(run->clock);
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0) return weir_fail(WEIR_E_IO, "/proc/self/exe: %s", strerror(errno));
  self[length] = 0;
  (void)g_snprintf(workers, sizeof workers, "%" PRIu32, run->scenario.workers);
  (void)g_snprintf(seed, sizeof seed, "%" PRIu64, run->scenario.seed);
  g_autofree char *whole = g_canonicalize_filename(run->options.scenario, NULL);
  g_autofree char *scenario = weir_uml_seen_at(whole);
  const bool live = run->progress.style != WEIR_PROGRESS_PLAIN;
  const char *argv[] = {self,
                        "run",
                        scenario,
                        run->options.resume ? "--resume" : "--out",
                        "/run/out",
                        "--policy",
                        run->policy,
                        "--risk",
                        run->scenario.risk,
                        "--network",
                        "tc",
                        "--workers",
                        workers,
                        "--seed",
                        seed,
                        "--inside-uml",
                        "--clock",
                        clock,
                        NULL,
                        NULL,
                        NULL};
  size_t given = sizeof argv / sizeof *argv - 3;
  if (live) argv[given++] = "--relay";
  if (run->options.profile) argv[given] = "--profile";
  g_auto(GStrv) variables = environment(run->out);
  const char *paths[] = {run->policy, run->scenario.data_dir, run->scenario.trace.file, NULL};
  uml_view view = {.progress = &run->progress};
  const weir_uml_config config = {
      .argv = argv,
      .environment = (const char *const *)variables,
      .paths = paths,
      .out = run->out,
      .memory_mib = (size_t)(1.5 * (double)run->memory_bytes / 1048576) + BOOT_AND_DATA_MIB,
      .timeout_s = INFINITY, /* training takes as long as it takes */
      .clock = run->clock,
      .line = take_line,
      .user = &view};
  int code = 0;
  const weir_status status = weir_uml_run(&config, &code);
  weir_progress_end(&run->progress);
  return outcome(status, code, &view);
}
