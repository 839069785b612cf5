#!/bin/bash
# The torus follows the machines: 2 x 2 and 2 x 4 ranks, fast inside and 30 Mbit/s between, take at most
# 1.15 of what the best hierarchical row takes, and what the cost row says within a quarter.  Shortest
# of seven, as other work on the machine adds to times and never takes from them.
set -u
tools=$(cd "$(dirname "$1")/../tests" && pwd)
fail() { echo "FAILED: $*"; exit 1; }

for machines in abab abababab; do
  each=$((${#machines} / 2))
  times=$("$tools/machine_ranks" $machines 30 0 131072 torus hier- 2>&1)
  code=$?
  [ $code = 77 ] && { echo "SKIPPED: links cannot be shaped here: $times"; exit 77; }
  [ $code = 0 ] || fail "2 x $each: exit $code: $times"
  echo "2 x $each (shortest, median, predicted ms):"
  echo "$times"
  awk '/^hier-/ && (!best || $2 < best) { best = $2 } /^torus/ { torus = $2; due = $4 }
    END { printf "torus %.1f ms, best hierarchy %.1f ms: %.3f; predicted %.1f ms: %.3f\n", torus, best,
            torus / best, due, due / torus
          exit !(best > 0 && torus <= 1.15 * best && due > 0.75 * torus && due < 1.25 * torus) }' <<<"$times" ||
    fail "2 x $each"
done
