#include "lab/report_page.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/plan.h>

#include "base/base.h"
#include "lab/report_plot.h"

static const char style[] =
    ":root{color-scheme:light dark}\n"
    "body{margin:0;background:#f4f6f8;color:#1d2733;font:15px/1.5 system-ui,-apple-system,"
    "'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "main{max-width:1200px;margin:0 auto;padding:28px 24px 60px}\n"
    "h1{font-size:25px;margin:0 0 2px;font-weight:650}\n"
    "h2{font-size:17px;margin:0 0 2px;font-weight:650}\n"
    ".sub{color:#566372;margin:0 0 18px}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;"
    "margin:0 0 16px}\n"
    ".card{background:#fff;border:1px solid #dfe4ea;border-radius:8px;padding:12px 14px}\n"
    ".card b{display:block;font-size:23px;font-weight:650;line-height:1.25}\n"
    ".card i{display:block;font-style:normal;color:#2b3540}\n"
    ".card small{color:#667381}\n"
    "section{background:#fff;border:1px solid #dfe4ea;border-radius:8px;padding:16px 18px 12px;"
    "margin:0 0 16px;overflow-x:auto}\n"
    "section>p{margin:0 0 8px;color:#566372}\n"
    "svg{display:block;width:100%;min-width:860px;height:auto}\n" /* so that 13 px stay legible */
    "svg text{font-family:inherit}\n"
    "table{border-collapse:collapse;width:100%;font-size:13.5px}\n"
    "th{text-align:left;color:#566372;font-weight:600;border-bottom:1px solid #c9d1da;"
    "padding:5px 8px;vertical-align:bottom}\n"
    "td{padding:5px 8px;border-bottom:1px solid #edf0f3;vertical-align:top}\n"
    "th.n,td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "tr.kept td{color:#667381}\n"
    "tr.more>td{padding:0 8px 6px;border-bottom:1px solid #d5dce3;color:#566372}\n"
    "tr.head>td{border-bottom:0;padding-top:8px}\n"
    "details{color:#566372}summary{cursor:pointer;font-size:13px}\n"
    "details table{width:auto;margin:4px 0 6px 14px}\n"
    ".plan{display:inline-flex;align-items:center;gap:6px;white-space:nowrap;color:#1d2733;"
    "font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:12.5px}\n"
    ".dot{flex:none;display:inline-block;width:10px;height:10px;border-radius:3px}\n"
    ".legend{display:flex;gap:18px;flex-wrap:wrap;margin:0 0 14px;color:#3c4957}\n"
    ".legend span{display:inline-flex;align-items:center;gap:6px}\n"
    ".bad{color:#a3222a;font-weight:600}.good{color:#1f6b45}\n"
    "mark{background:#e4efe9;color:#1f6b45;padding:0 5px;border-radius:3px;font-size:12px}\n"
    "a{color:#27568b}\n"
    /* Figures are drawn in dark ink on nothing: turned over, their hues stay what they are. */
    "@media(prefers-color-scheme:dark){\n"
    "body{background:#14181d;color:#e3e8ed}\n"
    ".card,section{background:#1d232a;border-color:#333c46}\n"
    ".card i,.plan,.legend{color:#d3dae1}\n"
    ".sub,.card small,section>p,th,details,tr.kept td,tr.more>td{color:#a3afbb}\n"
    "th{border-color:#46525f}td,tr.more>td{border-color:#2b333c}\n"
    "svg,.dot{filter:invert(1) hue-rotate(180deg)}\n"
    "mark{background:#23423a;color:#9fd8bd}a{color:#8fb9e4}.bad{color:#f08a8f}.good{color:#86cfa9}"
    "\n"
    "}\n"
    "@media print{section,.card{break-inside:avoid}}\n";

void weir_page_begin(GString *page, const char *title) {
  g_string_append(page,
                  "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                  "<title>");
  weir_page_escape(page, title);
  g_string_append_printf(page, "</title>\n<style>\n%s</style></head><body><main>\n", style);
}

void weir_page_end(GString *page) { g_string_append(page, "</main></body></html>\n"); }

void weir_page_escape(GString *page, const char *text) {
  char *safe = g_markup_escape_text(text, -1);
  g_string_append(page, safe);
  g_free(safe);
}

void weir_page_card(GString *page, const char *value, const char *name, const char *note) {
  g_string_append(page, "<div class=\"card\"><b>");
  weir_page_escape(page, value);
  g_string_append(page, "</b><i>");
  weir_page_escape(page, name);
  g_string_append(page, "</i><small>");
  weir_page_escape(page, note);
  g_string_append(page, "</small></div>\n");
}

void weir_page_number(GString *page, const char *format, double value) {
  g_string_append(page, "<td class=\"n\">");
  if (isnan(value))
    g_string_append(page, "–");
  else
    g_string_append_printf(page, format, value);
  g_string_append(page, "</td>");
}

/* gnuplot's drawing has no text of its own that says what it is. */
static void drawing(GString *page, const char *heading, const char *note, const char *svg) {
  const char *tag = strstr(svg, "<svg");
  const size_t before = tag ? (size_t)(tag - svg) + strlen("<svg") : 0;
  g_string_append_len(page, svg, (gssize)before);
  if (tag) g_string_append_printf(page, " role=\"img\" aria-label=\"%s. %s\"", heading, note);
  g_string_append(page, svg + before);
}

void weir_page_legend(GString *page, const char *introduction, const weir_page_key *keys) {
  g_string_append_printf(page, "<div class=\"legend\">%s", introduction);
  for (; keys->meaning; keys++)
    g_string_append_printf(page, "<span><i class=\"dot\" style=\"background:%s\"></i>%s</span>",
                           keys->colour, keys->meaning);
  g_string_append(page, "</div>\n");
}

void weir_page_figure(GString *page, const char *heading, const char *note,
                      const weir_page_key *keys, const char *svg) {
  g_string_append_printf(page, "<section><h2>%s</h2><p>%s</p>\n", heading, note);
  if (keys) weir_page_legend(page, "", keys);
  drawing(page, heading, note, svg);
  g_string_append(page, "\n</section>\n");
}

void weir_page_plan(GString *page, const char *plan, unsigned collective) {
  g_string_append_printf(page, "<span class=\"plan\"><i class=\"dot\" style=\"background:%s\"></i>",
                         collective < WEIR_COLL_COUNT ? weir_report_colour[collective] : "#1d2733");
  weir_page_escape(page, plan);
  g_string_append(page, "</span>");
}

weir_status weir_page_write(const GString *page, const char *directory) {
  char *path = g_build_filename(directory, "report.html", NULL);
  char *temporary = g_strdup_printf("%s.tmp.%ld", path, (long)getpid());
  weir_status status = WEIR_OK;
  FILE *file = fopen(temporary, "we");
  if (!file) {
    status = weir_fail(WEIR_E_IO, "%s: cannot write: %s", temporary, strerror(errno));
  } else {
    const bool written = fwrite(page->str, 1, page->len, file) == page->len && !fflush(file);
    const int error = errno;
    if (fclose(file) || !written)
      status = weir_fail(WEIR_E_IO, "%s: cannot write: %s", temporary, strerror(error));
    else if (g_rename(temporary, path))
      status = weir_fail(WEIR_E_IO, "%s: cannot rename: %s", path, strerror(errno));
    if (status) (void)g_unlink(temporary);
  }
  g_free(temporary);
  g_free(path);
  return status;
}
