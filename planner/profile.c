#include "planner/profile.h"

#include <stdlib.h>
#include <string.h>

#include "planner/csv.h"

static const double most_elements = 1099511627776.0; /* 2^40 */
static const double most_gap_us = 1e9;

typedef struct reader {
  weir_profile *profile;
  size_t room;
} reader;

static weir_status append(void *user, const weir_csv *csv) {
  reader *r = user;
  weir_profile *profile = r->profile;
  if (profile->count == r->room) {
    const size_t more = r->room ? 2 * r->room : 64;
    weir_profile_tensor *grown = realloc(profile->tensors, more * sizeof *grown);
    if (!grown) return weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", more);
    profile->tensors = grown;
    r->room = more;
  }
  weir_profile_tensor *tensor = &profile->tensors[profile->count];
  double gap_us = 0.0;
  if (!*csv->field[0]) return weir_csv_fail(csv, "no name: expected the tensor's name");
  weir_status status = weir_csv_whole(csv, 1, 1.0, most_elements, &tensor->numel);
  if (status == WEIR_OK) status = weir_csv_number(csv, 2, 0.0, most_gap_us, &gap_us);
  if (status != WEIR_OK) return status;
  tensor->gap_s = gap_us * 1e-6;
  tensor->name = strdup(csv->field[0]);
  if (!tensor->name) return weir_fail(WEIR_E_NOMEM, "no memory for a tensor's name");
  profile->count++;
  return WEIR_OK;
}

typedef struct named_line {
  const char *name;
  size_t line;
} named_line;

static int by_name_then_line(const void *a, const void *b) {
  const named_line *x = a, *y = b;
  const int order = strcmp(x->name, y->name);
  return order ? order : (x->line > y->line) - (x->line < y->line);
}

static weir_status refuse_duplicates(const weir_profile *profile, const char *path) {
  named_line *lines = malloc(profile->count * sizeof *lines);
  if (!lines) return weir_fail(WEIR_E_NOMEM, "no memory for %zu names", profile->count);
  for (size_t i = 0; i < profile->count; i++)
    lines[i] = (named_line){profile->tensors[i].name, i + 2};
  qsort(lines, profile->count, sizeof *lines, by_name_then_line);
  weir_status status = WEIR_OK;
  for (size_t i = 1; i < profile->count && status == WEIR_OK; i++)
    if (!strcmp(lines[i].name, lines[i - 1].name))
      status = weir_fail(WEIR_E_PARSE,
                         "%s:%zu: tensor '%.80s' is on line %zu already: expected unique names",
                         path, lines[i].line, lines[i].name, lines[i - 1].line);
  free(lines);
  return status;
}

weir_status weir_profile_load(weir_profile *profile, const char *path) {
  *profile = (weir_profile){0};
  reader r = {.profile = profile};
  weir_status status = weir_csv_read(path, "tensor,numel,gap_us", append, &r);
  if (status == WEIR_OK) status = refuse_duplicates(profile, path);
  if (status != WEIR_OK) weir_profile_free(profile);
  return status;
}

void weir_profile_free(weir_profile *profile) {
  for (size_t i = 0; i < profile->count; i++) free(profile->tensors[i].name);
  free(profile->tensors);
  *profile = (weir_profile){0};
}

double weir_profile_bytes(const weir_profile *profile, size_t tensor) {
  return 4.0 * profile->tensors[tensor].numel;
}

void weir_profile_sums(const weir_profile *profile, double *ready_s, double *bytes) {
  ready_s[0] = bytes[0] = 0.0;
  for (size_t i = 0; i < profile->count; i++) {
    ready_s[i + 1] = ready_s[i] + profile->tensors[i].gap_s;
    bytes[i + 1] = bytes[i] + weir_profile_bytes(profile, i);
  }
}

weir_status weir_profile_fuse(const weir_profile *profile, const size_t *end, size_t buckets,
                              weir_profile *fused) {
  *fused = (weir_profile){.tensors = calloc(buckets, sizeof *fused->tensors)};
  if (!fused->tensors) return weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", buckets);
  for (size_t k = 0, i = 0; k < buckets; k++) {
    weir_profile_tensor *bucket = &fused->tensors[k];
    for (; i < end[k]; i++) {
      bucket->numel += profile->tensors[i].numel;
      bucket->gap_s += profile->tensors[i].gap_s;
    }
    bucket->name = strdup(profile->tensors[end[k] - 1].name);
    fused->count++;
    if (bucket->name) continue;
    weir_profile_free(fused);
    return weir_fail(WEIR_E_NOMEM, "no memory for a tensor's name");
  }
  return WEIR_OK;
}
