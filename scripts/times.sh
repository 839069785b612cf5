#!/usr/bin/env bash
# Where the time of the tests goes: processor seconds by preset and of the dearest tests, as tests/guarded has told
# them in CTest's logs.  A preset whose failed tests were run again has only these in its log.
#   scripts/times.sh [TESTS]     so many tests; 10
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

[[ ${1:-10} =~ ^[1-9][0-9]{0,3}$ ]] || {
  echo "usage: scripts/times.sh [TESTS]     so many tests; 10" >&2
  exit 2
}
logs=() presets=()
for preset in release asan ubsan tsan; do
  log=build-$preset/Testing/Temporary/LastTest.log
  [[ ! -e $log ]] || logs+=("$log") presets+=("$preset")
done
((${#logs[@]})) || {
  echo "times: no preset has been tested here" >&2
  exit 1
}
# The first row, which sorts before all others, is the sum.
awk -v presets="${presets[*]}" '
  FNR == 1 { preset++ }
  / Testing: / { test = $NF }
  /^guarded: processor/ { of[test, preset] += $3; all[test] += $3; of["all tests", preset] += $3; all["all tests"] += $3 }
  END {
    for (test in all) {
      row = sprintf("%.1f\t| %s |", all[test], test)
      for (p = 1; p <= preset; p++) row = row ((test, p) in of ? sprintf(" %.1f |", of[test, p]) : " |")
      print row
    }
  }' "${logs[@]}" | sort -rn | head -n $((${1:-10} + 1)) | cut -f2- | {
  printf '| processor, s |'
  printf ' %s |' "${presets[@]}"
  printf '\n|---|'
  printf -- '---|%.0s' "${presets[@]}"
  printf '\n'
  cat
}
