#!/usr/bin/env bash
# `weir cost`: values worked out by hand from the paper's formulas, and every bad input.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"

# costs WORKERS MS GBPS BYTES CR BEST RING TREE AG ART-RING ART-TREE
costs() {
  local json
  json=$("$weir" cost --workers "$1" --latency-ms "$2" --bandwidth-gbps "$3" --bytes "$4" --cr "$5" \
    --json) || fail "cost $* exited with $?"
  [[ $json == '{"ms":{'*'},"best":"'"$6"'"}' ]] || fail "cost $*: $json"
  local names=(dense-ring dense-tree ag art-ring art-tree) want=("${@:7}")
  for i in "${!names[@]}"; do
    close "$(value "$json" "${names[$i]}")" "${want[$i]}" || fail "${names[$i]} of $*: $json"
  done
}

# M*beta = 37.44 ms, L = 3.
costs 8 1 10 46800000 0.1 art-ring 79.52 230.64 55.416 34.784 42.696
# M*beta = 100 ms, m*beta = 1 ms, L = 2: 2*2*10+133.33.., 4*110, 20+4, 60+(4/3+2), 60+6.
costs 3 10 1 12500000 0.01 ag 173.33333333333 440 24 63.333333333333 66
# M*beta = 1 ms, L = 12: the ring's latency hurts at 4096.
costs 4096 0.5 8 1000000 0.25 art-tree 4096.99951171875 36 2053.5 4104.4998779296875 27
# One worker pays nothing.
costs 1 1 10 1000 0.1 dense-ring 0 0 0 0 0

expect 2 "at most 65536 workers" "$weir" cost --workers 65537 --latency-ms 1 --bandwidth-gbps 10 --bytes 1000 --cr 0.1 --model weir
good=(--workers 8 --latency-ms 1 --bandwidth-gbps 10 --bytes 46800000 --cr 0.1)
own=$("$weir" cost "${good[@]}" --model weir --wire u32-fp32 --json) || fail "model weir"
# 11.7e6 elements, 1.17e6 kept: one all-gather in 3 latencies (straight to everybody: 1), of 7 messages of 8 bytes a kept
# element and 16 of their own: 3 + 7 * 9360016 * 0.8e-6 ms.  Where none is named, the fastest.
close "$(value "$own" ag-bruck)" 55.4160896 || fail "Weir's row of ag-bruck: $own"
close "$(value "$own" ag-direct)" 53.4160896 || fail "Weir's row of ag-direct: $own"
close "$(value "$own" ag)" 53.4160896 || fail "Weir's row of ag: $own"
close "$(value "$own" dense-ring)" 79.52 || fail "Weir's row of dense-ring: $own"
"$weir" cost "${good[@]}" | grep -Eq '^ +art-ring +34\.7840 ms +best$' || fail "the table"
# On two machines four shares of 11.7 MB go around a ring of 2, one behind the other, while all latencies
# but the last one's pass: 1 + 46.8e6 * 0.8e-6; each machine its own: the ring above.
own=$("$weir" cost "${good[@]}" --model weir --hosts 2 --json) || fail "two machines"
close "$(value "$own" dense-hier-ring)" 38.44 || fail "hier-ring on two machines: $own"
own=$("$weir" cost "${good[@]}" --model weir --hosts 8 --json) || fail "a machine each"
close "$(value "$own" dense-hier-ring)" 79.52 || fail "hier-ring on a machine each: $own"
# NCCL's ring on 8 machines 14 + 1.75 * 37.44 ms, its tree 6 + 2 * 37.44.
close "$(value "$own" native-ring)" 79.52 || fail "NCCL's ring: $own"
close "$(value "$own" native-tree)" 80.88 || fail "NCCL's tree: $own"
for name in hitopk sra hier-sra compressed-ring compressed-tree native native-tree art-native-ring art-hier-double-tree; do
  [[ $own == *"\"$name\":"* ]] || fail "no row $name"
  "$weir" run --help | grep -qw -- "$name" || fail "$name is not in weir run --help"
done
"$weir" cost --help | grep -q -- --bandwidth-gbps || fail "--help"

# refused ARGUMENTS...: exit 2, nothing on stdout, one line on stderr that names the culprit.
refused() {
  local out err code
  err=$("$weir" cost "$@" --json 2>&1 >"$work/out")
  code=$?
  out=$(cat "$work/out")
  [[ $code == 2 && -z $out && $err == "weir cost: "* && $err != *$'\n'* ]] ||
    fail "cost $* gave $code, '$out', '$err'"
}
for i in 0 2 4 6 8; do
  for bad in 0 -1 nan NaN inf -inf 1x '' ' 1' 1e999 1,5 abc; do
    arguments=("${good[@]}")
    arguments[i + 1]=$bad
    refused "${arguments[@]}"
  done
  refused "${good[@]:0:i}" "${good[@]:i+2}" # missing
done
refused "${good[@]}" --cr 1.0000001
refused "${good[@]}" --workers 2.5
refused "${good[@]}" --workers 99999999999
refused "${good[@]}" --model star
refused "${good[@]}" --wire auto-fp32
refused "${good[@]}" --hosts 2
for hosts in 0 9 2.5 x; do refused "${good[@]}" --model weir --hosts $hosts; done
refused "${good[@]}" --model weir --wire zip
refused "${good[@]}" --model weir --bytes 3
refused "${good[@]}" --model weir --bytes 1e30
refused "${good[@]}" --bytes 1e308 --bandwidth-gbps 1e-300
refused "${good[@]}" --frobnicate 1
refused "${good[@]}" stray
refused "${good[@]:0:9}" # --cr without its value
"$weir" cost >/dev/null 2>&1
[[ $? == 2 ]] || fail "no options at all"
echo "cost: all as expected"
