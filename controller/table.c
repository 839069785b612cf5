#include "controller/table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/numerals.h"
#include "planner/csv.h"

static const char first_of_file[] = "bf16:1:dense-ring";
static const char expected[] =
    "layers:PLAN, bucket=MB:PLAN, even=N:PLAN, a file or turns=K:...;...";

static weir_status parse_number(const char *text, const char *end, double *number) {
  char *stop = NULL;
  errno = 0;
  *number = weir_strtod(text, &stop);
  if (stop != end || end == text || errno == ERANGE || !(*number > 0) || !isfinite(*number))
    return weir_fail(WEIR_E_INVALID, "buckets '%s': expected a number above 0 and a plan behind it",
                     text);
  return WEIR_OK;
}

/* Each must be something else than turns, and not depend on where the process stands. */
static weir_status check_turns(weir_table_text *table) {
  char piece[WEIR_TURNS_TEXT_MAX];
  if (strlen(table->path) >= sizeof piece || table->number != floor(table->number))
    return weir_fail(WEIR_E_INVALID,
                     "turns: expected a whole number of steps, and less than %d letters",
                     WEIR_TURNS_TEXT_MAX);
  for (size_t k = 0; weir_turns_piece(table, k, piece); k++) {
    weir_table_text one;
    if (k == WEIR_TURNS_MAX)
      return weir_fail(WEIR_E_INVALID, "turns: expected at most %d divisions", WEIR_TURNS_MAX);
    const weir_status status = weir_table_parse(piece, &one);
    if (status != WEIR_OK) return status;
    if (one.kind == WEIR_TABLE_TURNS || (one.kind == WEIR_TABLE_FILE && *piece != '/'))
      return weir_fail(WEIR_E_INVALID, "turn '%s': expected no turns, and files by absolute paths",
                       piece);
    if (k == 0) table->plan = one.plan;
  }
  return WEIR_OK;
}

weir_status weir_table_parse(const char *text, weir_table_text *table) {
  static const struct {
    const char *name;
    weir_table_kind kind;
    bool number;
  } forms[] = {{"layers", WEIR_TABLE_LAYERS, false},
               {"bucket=", WEIR_TABLE_BUCKET, true},
               {"even=", WEIR_TABLE_EVEN, true},
               {"turns=", WEIR_TABLE_TURNS, true}};
  *table = (weir_table_text){.kind = WEIR_TABLE_FILE, .path = text};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    const size_t length = strlen(forms[i].name);
    const char *colon = strchr(text, ':');
    if (strncmp(text, forms[i].name, length) != 0 || colon == NULL) continue;
    if (!forms[i].number && colon != text + length) continue;
    table->kind = forms[i].kind;
    weir_status status = WEIR_OK;
    if (forms[i].number) status = parse_number(text + length, colon, &table->number);
    table->path = colon + 1;
    if (status != WEIR_OK) return status;
    return table->kind == WEIR_TABLE_TURNS ? check_turns(table)
                                           : weir_plan_parse(colon + 1, &table->plan);
  }
  if (*text == '\0') return weir_fail(WEIR_E_INVALID, "no groups: expected %s", expected);
  return weir_plan_parse(first_of_file, &table->plan);
}

/* --- files ---------------------------------------------------------------------------------- */

static weir_status find_tensor(const weir_csv *csv, const weir_layout *layout,
                               const char *const *names, size_t first, uint32_t *end) {
  for (size_t t = first; t < layout->tensors; t++)
    if (names != NULL && !strcmp(names[t], csv->field[0])) {
      *end = (uint32_t)t + 1;
      return WEIR_OK;
    }
  for (size_t t = 0; names != NULL && t < first; t++)
    if (!strcmp(names[t], csv->field[0]))
      return weir_csv_fail(csv, "last '%s': expected a tensor behind those of the bucket before",
                           csv->field[0]);
  return weir_csv_fail(csv,
                       "last '%s': expected the name of a tensor of this model, such as '%s', and "
                       "not of one that is kept in full precision",
                       csv->field[0],
                       names != NULL && layout->tensors > 0 ? names[layout->tensors - 1] : "");
}

static weir_status read_bucket(const weir_csv *csv, weir_plan_bucket *bucket) {
  static const char *const places[WEIR_PLACE_COUNT] = {"caller", "thread"};
  weir_plan plan;
  const weir_status status = weir_plan_parse(csv->field[1], &plan);
  if (status != WEIR_OK) {
    char why[256];
    strncpy(why, weir_last_error(), sizeof why - 1);
    why[sizeof why - 1] = '\0';
    return weir_csv_fail(csv, "%s", why);
  }
  weir_bucket_set_plan(bucket, &plan);
  for (uint32_t p = 0; p < WEIR_PLACE_COUNT; p++)
    if (!strcmp(csv->field[2], places[p])) {
      bucket->place = p;
      return WEIR_OK;
    }
  return weir_csv_fail(csv, "place '%s': expected caller or thread", csv->field[2]);
}

static const char full[] = "full"; /* instead of a plan */

static bool is_filter(const weir_csv *csv) { return !strcmp(csv->field[1], full); }

/* Another item of the filter, from a line that is one. */
static weir_status add_filter(const weir_csv *csv, char filter[WEIR_FILTER_MAX]) {
  const size_t length = strlen(filter), more = strlen(csv->field[0]);
  if (weir_filter_check(csv->field[0]) != WEIR_OK || more == 0)
    return weir_csv_fail(csv, "'%.60s': expected a pattern of names, or <N, to be kept %s",
                         csv->field[0], full);
  if (length + more + 2 > WEIR_FILTER_MAX)
    return weir_csv_fail(csv, "expected filters of less than %d letters in all", WEIR_FILTER_MAX);
  if (strcmp(csv->field[2], "caller") != 0)
    return weir_csv_fail(csv, "place '%s': expected caller, of what is kept %s", csv->field[2],
                         full);
  (void)snprintf(filter + length, WEIR_FILTER_MAX - length, "%s%s", length > 0 ? "," : "",
                 csv->field[0]);
  return WEIR_OK;
}

weir_status weir_table_filter(const weir_table_text *text, char filter[WEIR_FILTER_MAX]) {
  weir_csv csv;
  if (text->kind != WEIR_TABLE_FILE) return WEIR_OK;
  weir_status status = weir_csv_open(&csv, text->path, "last,plan,place");
  if (status != WEIR_OK) return status;
  for (bool more = true; more && status == WEIR_OK;) {
    status = weir_csv_next(&csv, &more);
    if (status != WEIR_OK || !more || !is_filter(&csv)) break;
    status = add_filter(&csv, filter);
  }
  weir_csv_close(&csv);
  return status;
}

/* Lines before the buckets; of a turn's file none, as its filter is not known at the start. */
static weir_status skip_filters(weir_csv *csv, bool turn, bool *more) {
  weir_status status;
  do status = weir_csv_next(csv, more);
  while (status == WEIR_OK && *more && !turn && is_filter(csv));
  return status;
}

static weir_status read_file(const char *path, const weir_layout *layout, const char *const *names,
                             bool turn, weir_plan_bucket *table, size_t *count) {
  weir_csv csv;
  weir_status status = weir_csv_open(&csv, path, "last,plan,place");
  if (status != WEIR_OK) return status;
  bool more = false;
  size_t first = 0;
  for (*count = 0;; first = table[(*count)++].end) {
    status = *count == 0 ? skip_filters(&csv, turn, &more) : weir_csv_next(&csv, &more);
    if (status != WEIR_OK || !more) break;
    if (first == layout->tensors)
      status = weir_csv_fail(&csv, "another bucket: expected none behind the last tensor");
    weir_plan_bucket *bucket = &table[*count];
    if (status == WEIR_OK) {
      memset(bucket, 0, sizeof *bucket);
      status = find_tensor(&csv, layout, names, first, &bucket->end);
    }
    if (status == WEIR_OK) status = read_bucket(&csv, bucket);
    if (status != WEIR_OK) break;
  }
  if (status == WEIR_OK && first != layout->tensors)
    status =
        weir_fail(WEIR_E_PARSE, "%s: the buckets end at tensor %zu of %zu: expected the last one",
                  path, first, layout->tensors);
  weir_csv_close(&csv);
  return status;
}

/* --- the other forms ------------------------------------------------------------------------ */

static bool closes(const weir_table_text *text, const weir_layout *layout, size_t begin, size_t end,
                   size_t count) {
  const size_t tensors = layout->tensors;
  if (end == tensors || text->kind == WEIR_TABLE_LAYERS) return true;
  if (text->kind == WEIR_TABLE_BUCKET)
    return 4.0 * (double)(layout->offset[end] - layout->offset[begin]) >= text->number * 1e6;
  /* Bucket `count` of even ones ends at the first tensor past its share. */
  const double buckets = fmin(floor(fmax(text->number, 1)), (double)tensors);
  return (double)end * buckets >= ((double)count + 1) * (double)tensors;
}

static weir_status divide(const weir_table_text *text, const weir_layout *layout,
                          const char *const *names, weir_plan_bucket *table, size_t *count) {
  if (text->kind == WEIR_TABLE_FILE)
    return read_file(text->path, layout, names, text->turn, table, count);
  size_t begin = 0;
  for (size_t end = 1; end <= layout->tensors; end++) {
    if (!closes(text, layout, begin, end, *count)) continue;
    table[*count] = (weir_plan_bucket){.end = (uint32_t)end};
    weir_bucket_set_plan(&table[(*count)++], &text->plan);
    begin = end;
  }
  return WEIR_OK;
}

weir_status weir_table_build(const weir_table_text *text, const weir_layout *layout,
                             const char *const *names, weir_plan_bucket *table, size_t *count) {
  *count = 0;
  if (layout->tensors == 0) return weir_fail(WEIR_E_INVALID, "no tensors to make buckets of");
  const weir_layout planned = {layout->tensors - text->full, layout->offset};
  const weir_status status =
      planned.tensors > 0 ? divide(text, &planned, names, table, count) : WEIR_OK;
  if (status != WEIR_OK || text->full == 0) return status;
  static const weir_plan dense = {.codec = WEIR_CODEC_NONE, .scheme = WEIR_SCHEME_DENSE, .cr = 1};
  table[*count] = (weir_plan_bucket){.end = (uint32_t)layout->tensors};
  weir_bucket_set_plan(&table[(*count)++], &dense);
  return WEIR_OK;
}

void weir_table_plan(const weir_plan_bucket *table, size_t count, const weir_layout *layout,
                     weir_plan *plan) {
  size_t first = 0, largest = 0, most = 0;
  for (size_t k = 0; k < count; first = table[k++].end) {
    const size_t n = layout->offset[table[k].end] - layout->offset[first];
    if (n > most) {
      most = n;
      largest = k;
    }
  }
  weir_plan_of_bucket(&table[largest], plan);
  plan->buckets = (uint32_t)count;
  plan->layout = weir_buckets_name(table, count);
}
