/* Reading steps.csv for the report, without trust. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/base.h"
#include "lab/report_data.h"

typedef enum column_kind { NUMBER, SILENT, ANY_NUMBER, NAME, PLAN } column_kind;

/* SILENT columns may be empty; ANY_NUMBER may be empty, negative or not finite (a loss). */
static const struct column {
  const char *name;
  column_kind kind;
  size_t offset;
} columns[] = {
    {"step", NUMBER, offsetof(weir_report_step, step)},
    {"epoch", NUMBER, offsetof(weir_report_step, epoch)},
    {"trial", NUMBER, offsetof(weir_report_step, trial)},
    {"plan", PLAN, offsetof(weir_report_step, plan)},
    {"codec", NAME, offsetof(weir_report_step, codec)},
    {"cr", NUMBER, offsetof(weir_report_step, cr)},
    {"collective", NAME, offsetof(weir_report_step, collective)},
    {"compute_ms", NUMBER, offsetof(weir_report_step, compute_ms)},
    {"compress_ms", NUMBER, offsetof(weir_report_step, compress_ms)},
    {"comm_ms", NUMBER, offsetof(weir_report_step, comm_ms)},
    {"overhead_ms", SILENT, offsetof(weir_report_step, overhead_ms)},
    {"predicted_comm_ms", SILENT, offsetof(weir_report_step, predicted_comm_ms)},
    {"wire_bytes", NUMBER, offsetof(weir_report_step, wire_bytes)},
    {"gain", SILENT, offsetof(weir_report_step, gain)},
    {"loss", ANY_NUMBER, offsetof(weir_report_step, loss)},
    {"latency_ms", SILENT, offsetof(weir_report_step, latency_ms)},
    {"bandwidth_gbps", SILENT, offsetof(weir_report_step, bandwidth_gbps)},
    {"set_latency_ms", SILENT, offsetof(weir_report_step, set_latency_ms)},
    {"set_bandwidth_gbps", SILENT, offsetof(weir_report_step, set_bandwidth_gbps)},
    {"elapsed_s", NUMBER, offsetof(weir_report_step, elapsed_s)},
    {"accuracy", SILENT, offsetof(weir_report_step, accuracy)},
    {"goodput_gbps", SILENT, offsetof(weir_report_step, goodput_gbps)},
    {"test_loss", SILENT, offsetof(weir_report_step, test_loss)},
};
/* Runs of earlier versions are without the last ones. */
enum { COLUMNS = sizeof columns / sizeof *columns, COLUMNS_ONCE = COLUMNS - 2 };

/* Split in place at commas; returns how many fields there are, at most `most` of them stored. */
static size_t split(char *line, char **field, size_t most) {
  size_t count = 0;
  for (char *at = line; at; count++) {
    char *comma = strchr(at, ',');
    if (comma) *comma++ = 0;
    if (count < most) field[count] = at;
    at = comma;
  }
  return count;
}

static size_t check_header(weir_report_place *place, char *line) {
  char *field[COLUMNS];
  const size_t count = split(line, field, COLUMNS);
  for (size_t i = 0; i < COLUMNS && i < count; i++)
    if (strcmp(field[i], columns[i].name))
      weir_report_refuse(place, "column %zu is '%s', expected '%s'", i + 1, field[i],
                         columns[i].name);
  if (count < COLUMNS_ONCE || count > COLUMNS)
    weir_report_refuse(place, "%zu columns, expected %d", count, (int)COLUMNS);
  return count;
}

static void set_number(weir_report_place *place, const struct column *column, const char *text,
                       double *to) {
  *to = NAN;
  if (!*text && column->kind != NUMBER) return;
  char *end = NULL;
  const double value = g_ascii_strtod(text, &end);
  const bool loss = column->kind == ANY_NUMBER;
  if (end == text || *end || (!loss && !(isfinite(value) && value >= 0)))
    weir_report_refuse(place, "%s is '%s', expected a number%s", column->name, text,
                       loss ? "" : ", 0 or more");
  else if (isfinite(value))
    *to = value;
}

static bool is_made_of(const char *text, const char *letters, size_t less_than) {
  const size_t length = strlen(text);
  return length > 0 && length < less_than && strspn(text, letters) == length;
}

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyz0123456789-+=."

static void set_name(weir_report_place *place, const struct column *column, const char *text,
                     const char **to) {
  if (!is_made_of(text, NAME_LETTERS, WEIR_COLLECTIVE_TEXT_MAX))
    weir_report_refuse(place, "%s is '%.80s', expected a name", column->name, text);
  *to = g_intern_string(place->status ? "" : text);
}

/* Earlier versions have written a number there. */
static void set_plan(const char *text, const char **to) {
  const bool good = strchr(text, ':') && is_made_of(text, NAME_LETTERS ":/", WEIR_PLAN_TEXT_MAX);
  *to = g_intern_string(good ? text : "");
}

static void parse_line(weir_report_place *place, char *line, size_t expected,
                       weir_report_step *step) {
  char *field[COLUMNS];
  const size_t count = split(line, field, COLUMNS);
  if (count != expected) {
    weir_report_refuse(place, "%zu fields, expected %zu", count, expected);
    return;
  }
  step->goodput_gbps = step->test_loss = NAN;
  for (size_t i = 0; i < expected; i++) {
    const struct column *c = &columns[i];
    void *to = (char *)step + c->offset;
    if (c->kind == NAME)
      set_name(place, c, field[i], to);
    else if (c->kind == PLAN)
      set_plan(field[i], to);
    else
      set_number(place, c, field[i], to);
  }
  /* Earlier versions have written 0 for what was not predicted. */
  if (!(step->predicted_comm_ms > 0)) step->predicted_comm_ms = NAN;
  if (!place->status && !(step->cr > 0 && step->cr <= 1))
    weir_report_refuse(place, "cr is %g, expected more than 0 and at most 1", step->cr);
  if (!place->status && step->accuracy > 1)
    weir_report_refuse(place, "accuracy is %g, expected at most 1", step->accuracy);
}

weir_status weir_report_steps_read(weir_report_data *data, const char *directory) {
  weir_report_place place = {.file = "steps.csv"};
  size_t bytes = 0;
  g_autofree char *text = weir_report_slurp(&place, directory, &bytes);
  if (!text) return place.status;
  if (bytes && text[bytes - 1] != '\n') weir_report_refuse(&place, "ends in the middle of a line");
  GArray *steps = g_array_new(FALSE, TRUE, sizeof(weir_report_step));
  char *line = text + weir_text_mark(text, bytes);
  size_t expected = COLUMNS;
  for (place.line = 1; !place.status && *line; place.line++) {
    char *next = strchr(line, '\n');
    line[weir_text_line(line, (size_t)(++next - line))] = 0;
    weir_report_step step = {0};
    if (place.line == 1)
      expected = check_header(&place, line);
    else
      parse_line(&place, line, expected, &step);
    if (place.line > 1 && steps->len && !place.status) {
      const weir_report_step *before = &g_array_index(steps, weir_report_step, steps->len - 1);
      if (step.elapsed_s < before->elapsed_s)
        weir_report_refuse(&place, "elapsed_s goes back from %g to %g", before->elapsed_s,
                           step.elapsed_s);
    }
    if (place.line > 1) g_array_append_val(steps, step);
    line = next;
  }
  place.line = 0;
  if (!steps->len) weir_report_refuse(&place, "holds no steps");
  data->step_count = steps->len;
  data->steps = (weir_report_step *)(void *)g_array_free(steps, FALSE);
  return place.status;
}
