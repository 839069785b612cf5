#!/bin/bash
# `weir bench grid` inside User-Mode Linux: a link of 20 ms and 20 Mbit/s is found to be one, and every
# cell has a prediction and a measurement.
weir=$1
command -v linux.uml >/dev/null || { echo "SKIPPED: user-mode-linux is not installed"; exit 77; }
if grep -Eq "__(asan|tsan)_init" "$weir"; then
  echo "SKIPPED: User-Mode Linux has 39 bits of address space, and a sanitizer's shadow memory needs 47"
  exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$weir" bench grid --workers 2 --latency-ms 20 --mbit 20 --json >"$work/out" 2>"$work/err" ||
  { cat "$work/err"; exit 1; }
tr '{' '\n' <"$work/out" | awk -F'"latency_ms":|,"mbit":|,"collective":|"predicted_ms":|,"measured_ms":' '
  /measured_ms/ { cells++
    if (!($2 >= 20 && $2 < 30)) { print "latency", $2; exit 1 }
    if (!($3 > 10 && $3 < 21)) { print "rate", $3; exit 1 }
    if (!($5 > 0 && $6 + 0 > 0)) { print "cell", $0; exit 1 } }
  END { if (cells < 60) { print cells, "cells"; exit 1 } }' || exit 1
for name in all-reduce broadcast ag art; do
  grep -q "\"collective\":\"$name\"" "$work/out" || { echo "no $name"; exit 1; }
done
echo ok
