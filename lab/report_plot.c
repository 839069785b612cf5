#include "lab/report_plot.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/report.h"

/* Dense blue, all-gather orange, all-reduce of top-k green; ring dark, tree light. */
const char *const weir_report_colour[WEIR_COLL_COUNT] = {
    [WEIR_COLL_DENSE_RING] = "#27568b",
    [WEIR_COLL_DENSE_TREE] = "#6fa3d8",
    [WEIR_COLL_AG] = "#cf6a1c",
    [WEIR_COLL_ART_RING] = "#1f7a56",
    [WEIR_COLL_ART_TREE] = "#7dbb5b",
    [WEIR_COLL_DENSE_HALVING] = "#3f77b5",
    [WEIR_COLL_DENSE_DOUBLE_TREE] = "#8fb9e4",
    [WEIR_COLL_DENSE_TORUS] = "#4b8fa8",
    [WEIR_COLL_DENSE_STAR] = "#98a9bd",
    [WEIR_COLL_ART_HALVING] = "#3c9169",
    [WEIR_COLL_ART_DOUBLE_TREE] = "#9ccc86",
    [WEIR_COLL_ART_TORUS] = "#4aa08f",
    [WEIR_COLL_ART_STAR] = "#a9b98a",
    [WEIR_COLL_DENSE_HIER_RING] = "#1c3d66",
    [WEIR_COLL_DENSE_HIER_TREE] = "#5b8ac0",
    [WEIR_COLL_DENSE_HIER_HALVING] = "#33618f",
    [WEIR_COLL_DENSE_HIER_DOUBLE_TREE] = "#7ea6d0",
    [WEIR_COLL_ART_HIER_RING] = "#165c40",
    [WEIR_COLL_ART_HIER_TREE] = "#69a64b",
    [WEIR_COLL_ART_HIER_HALVING] = "#2f7a58",
    [WEIR_COLL_ART_HIER_DOUBLE_TREE] = "#87b972",
    [WEIR_COLL_HITOPK] = "#b04a5a",
    [WEIR_COLL_SRA] = "#8a5aa8",
    [WEIR_COLL_COMPRESSED_RING] = "#a57fbf",
    [WEIR_COLL_COMPRESSED_TREE] = "#c0a6d3",
    [WEIR_COLL_HIER_SRA] = "#6f4487",
    [WEIR_COLL_NATIVE] = "#5c6470",
};

void weir_figures_init(weir_figures *figures) {
  *figures = (weir_figures){.script = g_string_new(NULL), .time_out_s = 60};
}

void weir_figures_free(weir_figures *figures) {
  if (figures->script) g_string_free(figures->script, TRUE);
  for (int i = 0; i < WEIR_FIGURES_MAX; i++) g_free(figures->svg[i]);
  *figures = (weir_figures){0};
}

void weir_figures_begin(weir_figures *figures, int width, int height) {
  g_string_append_printf(
      figures->script,
      "set output\nreset\n"
      "set terminal svg size %d,%d dynamic noenhanced font 'sans-serif,13' linewidth 1.3\n"
      "set output '%d.svg'\n"
      "set encoding utf8\n"
      "set border 3 lc rgb '#98a2ae'\nset tics nomirror out scale 0.5 tc rgb '#46525f'\n"
      "set grid ytics lc rgb '#e6eaee' lt 1 lw 0.8\n"
      "set key tmargin right horizontal tc rgb '#2b3540' samplen 1.6\n"
      "set lmargin 11\nset rmargin 3\n",
      width, height, figures->count++);
}

/* What gnuplot said last. */
static weir_status failed(const char *folder, const char *what) {
  char *path = g_build_filename(folder, "errors", NULL), *text = NULL;
  if (!g_file_get_contents(path, &text, NULL, NULL)) text = g_strdup("");
  /* Warnings come first, what stopped it last. */
  g_strchomp(text);
  const char *last = strrchr(text, '\n');
  const weir_status status = weir_fail(WEIR_E_IO, "gnuplot %s: %.300s", what,
                                       last    ? last + 1
                                       : *text ? text
                                               : "it did not say why");
  g_free(text);
  g_free(path);
  return status;
}

/* In the child, before exec: it works in the folder and reports into a file there. */
static void enter(gpointer folder) {
  if (chdir(folder)) _exit(126);
  const int errors = open("errors", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (errors < 0 || dup2(errors, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0) _exit(126);
}

static weir_status wait_for(GPid child, double time_out_s, const char *folder) {
  const double until = weir_now_s() + time_out_s;
  int state = 0;
  for (;;) {
    const pid_t ended = waitpid(child, &state, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR)
      return weir_fail(WEIR_E_IO, "waiting for gnuplot: %s", strerror(errno));
    if (weir_now_s() > until) {
      (void)kill(child, SIGKILL);
      (void)waitpid(child, &state, 0);
      return weir_fail(WEIR_E_TIMEOUT, "gnuplot was not done after %g s", time_out_s);
    }
    g_usleep(5000);
  }
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return WEIR_OK;
  return failed(folder, "failed");
}

weir_status weir_report_possible(void) {
  g_autofree char *path = g_find_program_in_path("gnuplot");
  return path ? WEIR_OK
              : weir_fail(WEIR_E_UNSUPPORTED,
                          "gnuplot is not installed; the report's figures need it (Debian package "
                          "gnuplot-nox)");
}

static weir_status run(const weir_figures *figures, char *folder) {
  char *script = g_build_filename(folder, "script", NULL);
  char *arguments[] = {(char *)"gnuplot", (char *)"-d", (char *)"script", NULL};
  GError *error = NULL;
  GPid child = 0;
  weir_status status = WEIR_OK;
  if (!g_file_set_contents(script, figures->script->str, (gssize)figures->script->len, &error) ||
      !g_spawn_async(NULL, arguments, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD, enter,
                     folder, &child, &error)) {
    status = weir_fail(WEIR_E_IO, "%s", error->message);
    g_error_free(error);
  }
  g_free(script);
  return status ? status : wait_for(child, figures->time_out_s, folder);
}

/* The drawing without XML prolog, its element names made unique within the page. */
static weir_status fetch(weir_figures *figures, const char *folder, int number) {
  char name[16];
  (void)g_snprintf(name, sizeof name, "%d.svg", number);
  char *path = g_build_filename(folder, name, NULL), *text = NULL;
  weir_status status = WEIR_OK;
  const char *begin = NULL;
  if (g_file_get_contents(path, &text, NULL, NULL)) begin = strstr(text, "<svg");
  if (!begin || !strstr(begin, "</svg>")) {
    status = failed(folder, "drew nothing");
  } else {
    GString *svg = g_string_new(begin);
    char unique[32];
    (void)g_snprintf(unique, sizeof unique, "id=\"figure%d_", number);
    (void)g_string_replace(svg, "id=\"gnuplot_", unique, 0);
    figures->svg[number] = g_string_free(svg, FALSE);
  }
  g_free(text);
  g_free(path);
  return status;
}

unsigned weir_figures_rows(const weir_report_data *data, int row[WEIR_COLL_COUNT]) {
  gboolean used[WEIR_COLL_COUNT] = {FALSE};
  unsigned rows = 0;
  for (size_t i = 0; i < data->step_count; i++) used[data->steps[i].collective] = TRUE;
  for (unsigned c = 0; c < WEIR_COLL_COUNT; c++)
    row[c] = c < WEIR_COLL_PAPER_COUNT || used[c] ? (int)rows++ : -1;
  return rows;
}

void weir_figures_set_rows(weir_figures *figures, const int row[WEIR_COLL_COUNT], unsigned rows) {
  g_string_append_printf(figures->script, "set yrange [%g:-0.6]\nset ytics (", rows - 0.4);
  for (unsigned c = 0; c < WEIR_COLL_COUNT; c++)
    if (row[c] >= 0)
      g_string_append_printf(figures->script, "%s'%s' %d", c ? ", " : "", weir_collective_name(c),
                             row[c]);
  g_string_append(figures->script, ")\n");
}

static void clear(const char *folder, int figures) {
  char name[16];
  for (int i = -2; i < figures; i++) {
    (void)g_snprintf(name, sizeof name, "%d.svg", i);
    char *path = g_build_filename(folder, i == -2 ? "script" : i == -1 ? "errors" : name, NULL);
    (void)g_unlink(path);
    g_free(path);
  }
  (void)g_rmdir(folder);
}

weir_status weir_figures_draw(weir_figures *figures) {
  GError *error = NULL;
  if (weir_report_possible()) return WEIR_E_UNSUPPORTED;
  char *folder = g_dir_make_tmp("weir-report-XXXXXX", &error);
  if (!folder) {
    const weir_status status = weir_fail(WEIR_E_IO, "no temporary folder: %s", error->message);
    g_error_free(error);
    return status;
  }
  g_string_append(figures->script, "set output\n");
  weir_status status = run(figures, folder);
  for (int i = 0; !status && i < figures->count; i++) status = fetch(figures, folder, i);
  clear(folder, figures->count);
  g_free(folder);
  return status;
}
