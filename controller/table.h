/* Tables of groups as text, for the policy that takes one and for files:
 *
 *   layers:PLAN      every tensor alone
 *   bucket=MB:PLAN   a group is closed once it holds so many megabytes (1e6) of fp32
 *   even=N:PLAN      N groups whose numbers of tensors differ by at most one
 *   FILE             CSV `last,plan,place`, a line a group: its last tensor's name, its plan, and
 *                    where it is compressed, "caller" or "thread" */
#ifndef WEIR_CONTROLLER_TABLE_H
#define WEIR_CONTROLLER_TABLE_H

#include <weir/plan.h>

#include "kernels/codec.h"

typedef enum weir_table_kind {
  WEIR_TABLE_LAYERS,
  WEIR_TABLE_BUCKET,
  WEIR_TABLE_EVEN,
  WEIR_TABLE_FILE
} weir_table_kind;

typedef struct weir_table_text {
  weir_table_kind kind;
  double number;
  weir_plan plan;   /* of every group; a file's is that of the first steps */
  const char *path; /* borrowed from the text */
} weir_table_text;

/* Opens no file.  WEIR_E_INVALID or WEIR_E_PARSE with what is expected. */
weir_status weir_table_parse(const char *text, weir_table_text *table);
/* names: of the layout's tensors, for files.  table has room for one group a tensor. */
weir_status weir_table_build(const weir_table_text *text, const weir_layout *layout,
                             const char *const *names, weir_plan_group *table, size_t *count);
/* A plan that names the table, with the fields of its largest group; id is not touched. */
void weir_table_plan(const weir_plan_group *table, size_t count, const weir_layout *layout,
                     weir_plan *plan);

#endif
