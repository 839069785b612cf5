/* A JSON document that is being built, member by member: what --json prints, what lies in a run's
 * folder, what a report tells (report_doc.h). */
#ifndef WEIR_LAB_DOC_H
#define WEIR_LAB_DOC_H

#include <json-glib/json-glib.h>
#include <stdbool.h>

typedef JsonBuilder weir_doc;

/* Members of the object that is being built, or elements of the list where name is NULL.  A number
 * that is not finite is null. */
void weir_doc_text(weir_doc *doc, const char *name, const char *text);
void weir_doc_format(weir_doc *doc, const char *name, const char *format, ...) G_GNUC_PRINTF(3, 4);
void weir_doc_number(weir_doc *doc, const char *name, double value);
void weir_doc_whole(weir_doc *doc, const char *name, gint64 value);
void weir_doc_flag(weir_doc *doc, const char *name, bool value);
void weir_doc_object(weir_doc *doc, const char *name);
void weir_doc_list(weir_doc *doc, const char *name);
void weir_doc_end(weir_doc *doc); /* an object */
void weir_doc_end_list(weir_doc *doc);

/* Each ends the outermost object.  The caller frees the text with g_free(). */
char *weir_doc_line(weir_doc *doc);  /* all in one line */
char *weir_doc_lines(weir_doc *doc); /* a member a line, without the last line's end */
void weir_doc_print(weir_doc *doc);  /* the line, to stdout */

#endif
