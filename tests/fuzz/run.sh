#!/usr/bin/env bash
# Fuzzes every part for some time, one after the other, and prints a line each:
#   run.sh BUILD SECONDS [PART...]
# What is found grows in BUILD/tests/fuzz/found; the corpora beside this script are only read.  To
# make one of them small again from that: FUZZER -merge=1 NEW_FOLDER FOUND CORPUS.
set -eu
build=$(realpath "$1") seconds=$2
shift 2
here=$(dirname "$(readlink -f "$0")")
corpora=$here/corpus
cmake --build "$build" --target fuzzers >/dev/null
cd "$build/tests/fuzz"
for part in ${*:-$(ls "$corpora")}; do
  # What has no fuzzer of its own is one of the decoders.
  fuzzer=decoders most=4096
  [ ! -e "$here/fuzz_$part.c" ] || fuzzer=$part most=1500
  [ $part != runs ] || most=16384 # a decision's line
  [ $part != states ] || most=200 # changes
  mkdir -p "found/$part"
  code=0
  # A machine that stands still is no slow input: no limit below five minutes.
  WEIR_FUZZ=$part ./fuzz_$fuzzer -max_total_time="$seconds" -max_len=$most -rss_limit_mb=2048 \
    -timeout=300 -report_slow_units=300 -artifact_prefix="found/$part." -verbosity=0 \
    -print_final_stats=1 -close_fd_mask=1 "found/$part" "$corpora/$part" >"found/$part.log" 2>&1 || code=$?
  echo "$part: exit $code, $(grep -Eo 'executed_units: [0-9]+' "found/$part.log" || echo 'no inputs'), found/$part.log"
  [ $code = 0 ] || exit 1
done
