/* The template of all reports, report.html with the chart library in it; made by
 * lab/CMakeLists.txt. */
#ifndef WEIR_LAB_REPORT_TEMPLATE_H
#define WEIR_LAB_REPORT_TEMPLATE_H

extern const unsigned char weir_report_template[]; /* ends with a zero byte */

#endif
