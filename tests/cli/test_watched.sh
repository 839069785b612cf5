#!/bin/bash
# The tests' own runner: a failure counts at once, unless the machine stood still meanwhile; then the test is
# run again, five times at most.
watched=$(dirname "$1")/../tests/watched
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
runs() { # CODE RUNS COMMAND...: what the runner returns, and how often it has run the command
  local code=0
  : >"$work/runs"
  "$watched" bash -c "echo run >>'$work/runs'; $3" >"$work/out" || code=$?
  [ $code = "$1" ] || fail "$3: $code, not $1"
  [ "$(wc -l <"$work/runs")" = "$2" ] || fail "$3: $(wc -l <"$work/runs") runs, not $2: $(cat "$work/out")"
}
# Others than this test's own may make the machine stand still: then a single run is tried again.
once() { for _ in $(seq 20); do (runs "$@") >"$work/why" && return; grep -q still "$work/why" || break; done; fail "$(cat "$work/why")"; }
standstill='kill -STOP $PPID; sleep 0.5; kill -CONT $PPID'
once 0 1 'exit 0'
once 77 1 'exit 77'
once 3 1 'exit 3'
once 137 1 'kill -9 $$'
runs 0 1 "$standstill; exit 0"
runs 0 2 "$standstill; [ \$(wc -l <'$work/runs') = 2 ]"
runs 4 5 "$standstill; exit 4"
once 127 1 'exec /nothing/such'
"$watched" /nothing/such 2>"$work/out"
[ $? -eq 127 ] && grep -q 'No such file' "$work/out" || fail "a command that is not there"
echo ok
