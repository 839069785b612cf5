/* The same command, inside a Linux kernel of our own that has netem. */
#include <errno.h>
#include <glib.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/emulate_private.h"
#include "lab/stage.h"
#include "lab/uml.h"

#define WORKER_MIB 2048 /* PyTorch with its test data */
#define BOOT_MIB 512

extern char **environ;

static const char prefix[] = "weir emulate: ";

typedef struct uml_view {
  weir_emulate *emulate;
  char last[512]; /* what the inner command said when it failed by itself */
} uml_view;

static void take_line(void *user, bool is_error, const char *line) {
  uml_view *view = user;
  weir_progress *progress = &view->emulate->progress;
  if (!is_error) {
    weir_progress_wipe(progress);
    (void)puts(line);
    (void)fflush(stdout);
  } else if (!strncmp(line, prefix, strlen(prefix))) {
    (void)g_strlcpy(view->last, line + strlen(prefix), sizeof view->last);
  } else {
    weir_progress_relay(progress, line);
  }
}

/* What has a value of its own inside, and what no shell takes as a variable's name. */
static bool stays_outside(const char *name) {
  static const char *const own[] = {"HOME", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"};
  for (size_t i = 0; i < G_N_ELEMENTS(own); i++)
    if (!strcmp(name, own[i])) return true;
  for (const char *at = name; *at; at++)
    if (!g_ascii_isalpha(*at) && *at != '_' && (at == name || !g_ascii_isdigit(*at))) return true;
  return !*name;
}

static char **environment(void) {
  GPtrArray *kept = g_ptr_array_new();
  for (char **entry = environ; *entry; entry++) {
    g_autofree char *name = g_strndup(*entry, strcspn(*entry, "="));
    if (!stays_outside(name)) g_ptr_array_add(kept, g_strdup(*entry));
  }
  g_ptr_array_add(kept, NULL);
  return (char **)g_ptr_array_free(kept, FALSE);
}

/* As much as there is, and no more than what the workers may want. */
static size_t memory(const weir_emulate *e) {
  if (e->options.memory_mib) return e->options.memory_mib;
  const size_t there = (size_t)(weir_stage_memory() / 1048576);
  return MAX(BOOT_MIB, MIN(BOOT_MIB + WORKER_MIB * (size_t)e->scenario.workers, there / 4 * 3));
}

static void add(GPtrArray *argv, const char *option, const char *value) {
  g_ptr_array_add(argv, g_strdup(option));
  if (value) g_ptr_array_add(argv, g_strdup(value));
}

static void add_number(GPtrArray *argv, const char *option, double value) {
  char text[32];
  (void)g_snprintf(text, sizeof text, "%.17g", value);
  add(argv, option, text);
}

/* What the command is called with inside. */
static char **inner(const weir_emulate *e, const char *self) {
  const weir_emulate_options *o = &e->options;
  GPtrArray *argv = g_ptr_array_new();
  g_autofree char *whole = g_canonicalize_filename(o->scenario, NULL);
  g_autofree char *scenario = weir_uml_seen_at(whole);
  add(argv, self, "emulate");
  add(argv, scenario, NULL);
  add(argv, "--network", "tc");
  add(argv, "--inside-uml", NULL);
  if (e->out) add(argv, "--out", "/run/out");
  if (o->launcher) add(argv, "--launcher", o->launcher);
  if (o->quiet) add(argv, "--quiet", NULL);
  if (o->await_traffic) add(argv, "--await-traffic", NULL);
  if (e->progress.style != WEIR_PROGRESS_PLAIN) add(argv, "--relay", NULL);
  add_number(argv, "--workers", e->scenario.workers);
  add_number(argv, "--epoch-s", o->epoch_s);
  add_number(argv, "--grace-s", o->grace_s);
  if (o->timeout_s > 0) add_number(argv, "--timeout-s", o->timeout_s);
  add(argv, "--", NULL);
  for (char **word = o->command; *word; word++) add(argv, *word, NULL);
  g_ptr_array_add(argv, NULL);
  return (char **)g_ptr_array_free(argv, FALSE);
}

/* Words of the command, and the trace. */
static const char **named_paths(const weir_emulate *e) {
  GPtrArray *paths = g_ptr_array_new();
  for (char **word = e->options.command; *word; word++) g_ptr_array_add(paths, *word);
  g_ptr_array_add(paths, (gpointer)e->scenario.trace.file);
  g_ptr_array_add(paths, NULL);
  return (const char **)g_ptr_array_free(paths, FALSE);
}

weir_status weir_emulate_uml(weir_emulate *e, int *exit_code) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0) return weir_fail(WEIR_E_IO, "/proc/self/exe: %s", strerror(errno));
  self[length] = 0;
  g_auto(GStrv) argv = inner(e, self);
  g_auto(GStrv) variables = environment();
  g_autofree const char **paths = named_paths(e);
  uml_view view = {.emulate = e};
  const weir_uml_config config = {
      .argv = (const char *const *)argv,
      .environment = (const char *const *)variables,
      .paths = paths,
      .out = e->out,
      .memory_mib = memory(e),
      .timeout_s = e->options.timeout_s > 0 ? e->options.timeout_s + 120 : INFINITY,
      .line = take_line,
      .user = &view};
  weir_status status = weir_uml_run(&config, exit_code);
  if (!status && *view.last) status = weir_fail(WEIR_E_PEER, "%s", view.last);
  return status;
}
