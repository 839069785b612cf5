/* Divisions that take turns (see table.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/table.h"

bool weir_turns_piece(const weir_table_text *text, size_t k, char *piece) {
  const char *begin = text->path;
  for (; k > 0 && begin != NULL; k--) {
    begin = strchr(begin, ';');
    if (begin != NULL) begin++;
  }
  if (begin == NULL) return false;
  const size_t length = strcspn(begin, ";");
  if (length >= WEIR_TURNS_TEXT_MAX) return false;
  memcpy(piece, begin, length);
  piece[length] = '\0';
  return true;
}

static weir_status build_all(weir_turns *turns, const weir_table_text *text,
                             const weir_layout *layout, const char *const *names) {
  char piece[WEIR_TURNS_TEXT_MAX];
  for (size_t k = 0; k < turns->count; k++) {
    weir_table_text one = *text;
    weir_status status = WEIR_OK;
    if (text->kind == WEIR_TABLE_TURNS) {
      if (!weir_turns_piece(text, k, piece))
        return weir_fail(WEIR_E_INTERNAL, "turn %zu of %zu is missing", k, turns->count);
      status = weir_table_parse(piece, &one);
      one.turn = true;
    }
    one.full = text->full;
    if (status == WEIR_OK)
      status = weir_table_build(&one, layout, names, turns->table + k * (layout->tensors + 1),
                                &turns->buckets[k]);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

weir_status weir_turns_build(weir_turns *turns, const weir_table_text *text,
                             const weir_layout *layout, const char *const *names) {
  char piece[WEIR_TURNS_TEXT_MAX];
  *turns = (weir_turns){.count = 1};
  if (text->kind == WEIR_TABLE_TURNS) {
    turns->steps = (uint64_t)fmin(text->number, 1e9);
    while (turns->count < WEIR_TURNS_MAX && weir_turns_piece(text, turns->count, piece))
      turns->count++;
  }
  turns->buckets = calloc(turns->count, sizeof *turns->buckets);
  turns->table = calloc(turns->count * (layout->tensors + 1), sizeof *turns->table);
  weir_status status = WEIR_OK;
  if (turns->buckets == NULL || turns->table == NULL)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu divisions of %zu tensors", turns->count,
                       layout->tensors);
  if (status == WEIR_OK) status = build_all(turns, text, layout, names);
  if (status != WEIR_OK) weir_turns_free(turns);
  return status;
}

void weir_turns_free(weir_turns *turns) {
  free(turns->buckets);
  free(turns->table);
  *turns = (weir_turns){0};
}

void weir_turns_next(weir_turns *turns, size_t tensors, weir_plan_bucket *table, size_t *count) {
  *count = turns->buckets[turns->now];
  memcpy(table, turns->table + turns->now * (tensors + 1), *count * sizeof *table);
  turns->now = (turns->now + 1) % turns->count;
}
