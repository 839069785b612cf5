/* What `weir plan` found, as the table of buckets that policy groups:TABLE executes. */
#include "base/base.h"
#include "plan.h"

void plan_table_add(GString *table, const char *last, const weir_plan *plan, weir_place place) {
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(plan, text);
  if (table->len == 0) g_string_append(table, "last,plan,place\n");
  g_string_append_printf(table, "%s,%s,%s\n", last, text,
                         place == WEIR_PLACE_THREAD ? "thread" : "caller");
}

weir_status plan_table_write(const GString *table, const char *path) {
  g_autoptr(GError) error = NULL;
  if (g_file_set_contents(path, table->str, (gssize)table->len, &error)) return WEIR_OK;
  return weir_fail(WEIR_E_IO, "%s", error->message);
}
