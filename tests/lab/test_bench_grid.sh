#!/bin/bash
# `weir bench grid` inside User-Mode Linux: a link of 20 ms and 20 Mbit/s is found to be no better, nor so bad
# that a round trip passes for one way, and every cell has a prediction and a measurement.  How near the link
# is on a machine that does nothing else, lab.test_uml_clock looks at.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
command -v linux.uml >/dev/null || skip "user-mode-linux is not installed"
no_sanitizer_in_uml
"$weir" bench grid --workers 2 --latency-ms 20 --mbit 20 --budget-s 25 --json >"$work/out" \
  2>"$work/err" || {
  grep -q "more registers (AMX)" "$work/err" && skip "$(cat "$work/err")"
  cat "$work/err"
  exit 1
}
awk -F'"alpha":|,"beta":|,"duplex_beta":' '
  { if (!($2 >= 0.02 && $2 < 0.04)) { print "latency", $2; exit 1 }
    rate = 8e-6 / $3
    if (!(rate > 2 && rate < 21)) { print "rate", rate; exit 1 } }
  END { if (NR != 1) { print NR, "shapes"; exit 1 } }' "$work/out" || exit 1
tr '{' '\n' <"$work/out" | awk -F'"predicted_ms":|,"measured_ms":|,"parts":' '
  /measured_ms/ { cells++; if (!($2 > 0 && $3 > 0)) { print "cell", $0; exit 1 } }
  END { if (cells < 50) { print cells, "cells"; exit 1 } }' || exit 1
"$weir" bench grid --read "$work/out" >"$work/table" || exit 1
awk '$1 == "all" { found = $2 >= 50 && $3 < 50 } END { exit !found }' "$work/table" ||
  { cat "$work/table"; exit 1; }
for name in all-reduce broadcast ag art; do
  grep -q "\"collective\":\"$name\"" "$work/out" || { echo "no $name"; exit 1; }
done
echo ok
