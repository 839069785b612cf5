#!/bin/bash
# `weir bench grid`: bad usage is exit 2 and says what was expected.  (The grid itself: tests/lab.)
weir=$1
refused() {
  out=$("$weir" bench grid "$@" 2>&1)
  [ $? -eq 2 ] && grep -q "$expected" <<<"$out" || { echo "not refused: $* : $out"; exit 1; }
}
expected=workers
refused --workers 1
refused --workers 4,x
refused --workers 17
refused --workers 2.5
expected=latency-ms
refused --latency-ms 0
refused --latency-ms 1,2,3,4,5
expected=mbit
refused --mbit -3
expected=network
refused --network sim
expected=unexpected
refused more
"$weir" bench grid --help | grep -q -- --latency-ms || exit 1
