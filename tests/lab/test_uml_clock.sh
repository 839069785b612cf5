#!/bin/bash
# Clocks of User-Mode Linux, with the kernel of scripts/uml-kernel.sh: what passes while waiting and while
# computing, inside and outside; a link's time to the per mille; a run's record of its clock; and that a
# command that never waits is ended.  CI has no such kernel.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
tools=$(dirname "$weir")/../tests
[ -n "${WEIR_UML_KERNEL:-}" ] ||
  skip "WEIR_UML_KERNEL does not name a kernel with virtual time (scripts/uml-kernel.sh builds one)"
no_sanitizer_in_uml
export TMPDIR=$work/tmp
mkdir "$TMPDIR" || exit 1
uml() { "$tools/uml_exec" "$@"; }

# Nanoseconds inside of sleeping 100 s (a minute of them outside would show) and of counting.
cat >"$work/times" <<'END'
a=$(date +%s%N); sleep 100; b=$(date +%s%N)
i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done
c=$(date +%s%N); echo $((b - a)) $((c - b))
END
for clock in skip-idle free-cpu; do
  SECONDS=0
  read -r slept counted <<<"$(uml -c $clock -t 60 sh "$work/times")"
  [ "${slept:-0}" -ge 100000000000 ] || fail "$clock: 100 s of sleep took ${slept:-no} ns inside"
  [ $SECONDS -lt 60 ] || fail "$clock: and $SECONDS s outside"
  echo "$clock: slept $slept ns, counted in $counted ns, $SECONDS s outside"
  if [ $clock = free-cpu ]; then
    [ "$slept" -lt 100010000000 ] && [ "$counted" -lt 1000000 ] || fail "computing took time: $slept, $counted"
  else
    [ "$counted" -gt 1000000 ] || fail "computing took no time: $counted"
  fi
done

uml -c free-cpu -t 5 sh -c 'while :; do :; done' 2>/dev/null
[ $? -eq 124 ] || fail "a command that computes for ever was not ended"
[ -z "$(ls -A "$TMPDIR")" ] || fail "left: $(ls -A "$TMPDIR")"

# A link of 20 ms and 20 Mbit/s: frames of 1514 bytes carry 1448, so that 2.5e6 bytes/s are 2.391e6 of payload.
"$weir" bench grid --clock free-cpu --workers 2 --latency-ms 20 --mbit 20 --budget-s 20 --json \
  >"$work/grid" 2>"$work/err" || fail "$(cat "$work/err")"
grep -q '"clock":"free-cpu"' "$work/grid" || fail "the clock is not recorded"
awk -F'"alpha":|,"beta":|,"duplex_beta":' '{ rate = 1 / $3 / (2.5e6 * 1448 / 1514)
  exit !($2 > 0.02 && $2 < 0.0202 && rate > 0.99 && rate < 1.01) }' "$work/grid" ||
  fail "not 20 ms and 20 Mbit/s: $(cut -c 1-200 "$work/grid")"

[ -d /usr/share/datasets/fashion-mnist ] || { echo "the rest is skipped: no data set"; exit 0; }
cat >"$work/short.ini" <<'END'
[scenario]
name = short
workers = 2
timeout_s = 30
[training]
batch = 16
learning_rate = 0.05
epochs = 1
steps_per_epoch = 4
[phase far]
epochs = 1
latency_ms = 200
bandwidth_gbps = 0.1
END
"$weir" run "$work/short.ini" --clock skip-idle --policy none:1:dense-ring --out "$work/out" \
  >"$work/log" 2>&1 || fail "$(cat "$work/log")"
grep -q '"clock" : "skip-idle"' "$work/out/summary.json" || fail "summary.json: no clock skip-idle"
grep -q '"network" : "uml"' "$work/out/summary.json" || fail "summary.json: another network"
[ "$(grep -Eo '"[0-9a-f]{64}"' "$work/out/summary.json" | sort -u | wc -l)" -eq 1 ] || fail "weights differ"
# Two hops of 200 ms a step at least.
awk -F'[:,]' '/"elapsed_s"/ { exit !($2 >= 1.6) }' "$work/out/summary.json" || fail "faster than its links"
echo "clocks are what they say"
