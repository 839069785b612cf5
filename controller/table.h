/* Tables of buckets as text, for the policy that takes one and for files:
 *
 *   layers:PLAN      every tensor alone
 *   bucket=MB:PLAN   a bucket is closed once it holds so many megabytes (1e6) of fp32
 *   even=N:PLAN      N buckets whose numbers of tensors differ by at most one
 *   FILE             CSV `last,plan,place`, a line a bucket: its last tensor's name, its plan, and
 *                    where it is compressed, "caller" or "thread".  Lines before them whose plan
 *                    is "full" name tensors that stay in full precision, by an item of a filter
 *                    (filter.h) instead of a name; buckets are then of the other tensors
 *   turns=K:TEXT;TEXT...   each of these divisions for K steps (or a few more, until the ranks have
 *                    heard of the next), over and over: for comparing them within one job.  A FILE
 *                    among them is an absolute path. */
#ifndef WEIR_CONTROLLER_TABLE_H
#define WEIR_CONTROLLER_TABLE_H

#include <stdbool.h>
#include <weir/plan.h>

#include "controller/filter.h"
#include "kernels/codec.h"

typedef enum weir_table_kind {
  WEIR_TABLE_LAYERS,
  WEIR_TABLE_BUCKET,
  WEIR_TABLE_EVEN,
  WEIR_TABLE_FILE,
  WEIR_TABLE_TURNS
} weir_table_kind;

typedef struct weir_table_text {
  weir_table_kind kind;
  double number;
  weir_plan plan;   /* of every bucket; a file's is that of the first steps; of turns the first's */
  const char *path; /* borrowed from the text; of turns: what they are */
  /* Set by whoever builds: tensors at the layout's end that buckets are not for.  They make the
   * last one of every table, which the engine replaces by its own. */
  size_t full;
  bool turn; /* it is one of several, whose files hold no filter */
} weir_table_text;

/* Divisions that take turns; a single one for every other text. */
typedef struct weir_turns {
  size_t count, now;       /* now: the next one's number */
  uint64_t steps;          /* of each turn; 0: for ever */
  size_t *buckets;         /* of each */
  weir_plan_bucket *table; /* of each, room for one a tensor */
} weir_turns;
enum { WEIR_TURNS_MAX = 64, WEIR_TURNS_TEXT_MAX = 8192 };

/* Opens no file.  WEIR_E_INVALID or WEIR_E_PARSE with what is expected. */
weir_status weir_table_parse(const char *text, weir_table_text *table);
/* names: of the layout's tensors, for files.  table has room for one bucket a tensor. */
weir_status weir_table_build(const weir_table_text *text, const weir_layout *layout,
                             const char *const *names, weir_plan_bucket *table, size_t *count);
/* What a file keeps in full precision, as further items of the filter; none of another text. */
weir_status weir_table_filter(const weir_table_text *text, char filter[WEIR_FILTER_MAX]);
/* All divisions of a text.  On failure *turns is empty. */
weir_status weir_turns_build(weir_turns *turns, const weir_table_text *text,
                             const weir_layout *layout, const char *const *names);
void weir_turns_free(weir_turns *turns);
/* The next turn's table, copied to where there is room for one bucket a tensor. */
void weir_turns_next(weir_turns *turns, size_t tensors, weir_plan_bucket *table, size_t *count);
/* The k-th text of turns, from 0, without what follows; false behind the last.  piece has room for
 * WEIR_TURNS_TEXT_MAX. */
bool weir_turns_piece(const weir_table_text *text, size_t k, char *piece);
/* A plan that names the table, with the fields of its largest bucket; id is not touched. */
void weir_table_plan(const weir_plan_bucket *table, size_t count, const weir_layout *layout,
                     weir_plan *plan);

#endif
