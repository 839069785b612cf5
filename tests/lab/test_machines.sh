#!/bin/bash
# Rows among ranks that share machines' links take what is foretold of them: on links of 100 Mbit/s, of rows over
# 0.5 MB, within a quarter (shortest of seven; buckets let some tens of kilobytes through at once); and of 20 ms,
# over 1.5 MB, within 6 % where WEIR_UML_KERNEL names a kernel whose clock does not see other work.
set -u
tools=$(cd "$(dirname "$1")/../tests" && pwd)
fail() { echo "FAILED: $*"; exit 1; }
# hold SHARE OUTPUT: every row's shortest time is that near to what is foretold.
hold() {
  awk -v share="$1" '{ ratio = $4 / $2; rows++ }
    !(ratio > 1 - share && ratio < 1 + share) { print $1, "takes", $2, "ms of", $4; bad = 1 }
    END { exit !(rows > 20 && !bad) }' <<<"$2"
}

for machines in abab aaab; do
  times=$("$tools/machine_ranks" $machines 100 0 131072 2>&1)
  code=$?
  [ $code = 77 ] && { echo "SKIPPED: links cannot be shaped here: $times"; exit 77; }
  [ $code = 0 ] || fail "$machines: exit $code: $times"
  hold 0.25 "$times" || fail "$machines: $times"
done
[ -n "${WEIR_UML_KERNEL:-}" ] || exit 0
for machines in aabb abab; do
  times=$("$tools/uml_exec" -c free-cpu -t 500 "$tools/machine_ranks" $machines 100 20 393216) || fail "$machines: $times"
  hold 0.06 "$times" || fail "$machines at 20 ms: $times"
done
