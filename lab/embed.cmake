# Puts the chart library into the reports' template and that into a C file: report.html is one file that
# needs nothing beside it.  Variables: TEMPLATE, SCRIPT, STYLE, LICENCE, OUTPUT.
file(READ ${TEMPLATE} page)
file(READ ${SCRIPT} script)
file(READ ${STYLE} style)
file(READ ${LICENCE} licence)
# What only a debugger would look for, in files that do not come along.
string(REGEX REPLACE "//# sourceMappingURL=[^\n]*" "" script "${script}")
string(REGEX REPLACE "/[*]# sourceMappingURL=[^\n]*" "" style "${style}")
string(REPLACE "{{library style}}" "${style}" page "${page}")
string(REPLACE "{{library licence}}" "${licence}" page "${page}")
string(REPLACE "{{library}}" "${script}" page "${page}")
file(WRITE ${OUTPUT}.html "${page}")
file(READ ${OUTPUT}.html bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "((0x..,){20})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"lab/report_template.h\"\n\n"
                     "const unsigned char weir_report_template[] = {\n${bytes}0x00};\n")
