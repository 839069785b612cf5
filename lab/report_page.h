/* What both reports' pages share. */
#ifndef WEIR_LAB_REPORT_PAGE_H
#define WEIR_LAB_REPORT_PAGE_H

#include <glib.h>
#include <weir/plan.h>
#include <weir/status.h>

void weir_page_begin(GString *page, const char *title);
void weir_page_end(GString *page);
/* Text from a file, made harmless. */
void weir_page_escape(GString *page, const char *text);
/* A headline figure; value and note are plain text. */
void weir_page_card(GString *page, const char *value, const char *name, const char *note);
/* A table cell with a number in the given printf format of one double; a dash for NAN. */
void weir_page_number(GString *page, const char *format, double value) G_GNUC_PRINTF(2, 0);
/* What a colour means. */
typedef struct weir_page_key {
  const char *colour, *meaning; /* meaning NULL: the end of a list */
} weir_page_key;
/* A line of them, after a word of introduction. */
void weir_page_legend(GString *page, const char *introduction, const weir_page_key *keys);
/* A section with a heading, one sentence and a drawing, which they describe to those who cannot see
 * it: plain text, without quotes.  keys may be NULL. */
void weir_page_figure(GString *page, const char *heading, const char *note,
                      const weir_page_key *keys, const char *svg);
/* A plan with its collective's colour. */
void weir_page_plan(GString *page, const char *plan, unsigned collective);
/* Write the page into directory/report.html under a temporary name, then rename it. */
weir_status weir_page_write(const GString *page, const char *directory);

#endif
