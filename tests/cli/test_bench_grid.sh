#!/bin/bash
# `weir bench grid`: bad usage is exit 2 and says what was expected; results that were kept are reported
# with figures worked out by hand.  (The grid itself: tests/lab.)
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
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
expected=budget-s
refused --budget-s 0
refused --budget-s nan
expected=network
refused --network sim
expected=unexpected
refused more

# Clocks: named, of User-Mode Linux alone, and of a kernel that has them.
unset WEIR_UML_KERNEL
expected="expected --clock: real, skip-idle or free-cpu"
refused --clock sundial
expected="expected --network uml"
refused --clock free-cpu --network tc
expected="scripts/uml-kernel.sh"
refused --clock free-cpu
export WEIR_UML_KERNEL=$work/none
expected="No such file"
refused --clock skip-idle
WEIR_UML_KERNEL=$work
expected="not a program that can be run"
refused --clock skip-idle
WEIR_UML_KERNEL=none
expected="the whole path"
refused --clock skip-idle
WEIR_UML_KERNEL=$work/kernel
printf '\177ELF, something else' >"$work/kernel"
chmod +x "$work/kernel"
expected="expected a kernel of User-Mode Linux, which it is not"
refused --clock skip-idle
printf 'User Mode Linux v6' >"$work/kernel"
refused --clock skip-idle
: >"$work/kernel"
refused --clock skip-idle
printf '\177ELF User Mode Linux v6' >"$work/kernel"
expected="CONFIG_UML_TIME_TRAVEL_SUPPORT"
refused --clock skip-idle
unset WEIR_UML_KERNEL

# 4 workers, 10 ms, 10 ns a byte, 1 MiB: ring 6 * 10 + 1.5 * 10.48576 = 75.729 ms, which it took; tree
# 4 * 10 + 4 * 10.48576 = 81.943 ms, and took 70: errors 0 and 17.06 %.  Choosing the ring cost 8.18 %.
shape='"workers":4,"set_bytes_s":1e8,"set_delay_s":0.01,"alpha":0.01,"beta":1e-8,"duplex_beta":1e-8'
shape="$shape"',"inner_alpha":0.01,"inner_beta":1e-8,"burst":0,"message_s":0,"byte_s":0,"answer_s":0,"sum_s":0,"sums_s":0'
cell='"collective":"all-reduce","gradient":1048576,"cr":1'
ring="{$cell"',"measured_ms":75.72864,"least_ms":0,"parts":[0,0,1048576]}'
tree="{$cell"',"measured_ms":70,"least_ms":0,"parts":[0,1,1048576]}'
echo "{$shape,\"cells\":[$ring,$tree]}" >"$work/kept"
"$weir" bench grid --read "$work/kept" >"$work/table" || { echo "not read"; exit 1; }
awk '$1 == "all" && $2 == 2 { found = $3 == 8.5 && $5 == 17.1 && $6 == "2/2" && $7 == "1.00" && $8 == 8.2 }
     END { exit !found }' "$work/table" || { echo "wrong table:"; cat "$work/table"; exit 1; }
grep -q 'all-reduce .*8.2 .*all-reduce ring 75.7 ms, all-reduce tree 70.0 ms' "$work/table" ||
  { echo "wrong choice:"; cat "$work/table"; exit 1; }

# By which clock: of the file's shapes one is by none that is named, which is the real one.
{ cat "$work/kept"; echo "{\"clock\":\"free-cpu\",$shape,\"cells\":[$ring]}"; } >"$work/clocks"
"$weir" bench grid --read "$work/clocks" >"$work/table" || { echo "not read"; exit 1; }
grep -q "^# clock real, 1 of 2 shapes" "$work/table" && grep -q "^# clock free-cpu, 1 of 2 shapes" "$work/table" ||
  { echo "wrong clocks:"; cat "$work/table"; exit 1; }

expected="line 2: expected a shape"
bad() {
  { cat "$work/kept"; echo "$1"; } >"$work/bad"
  refused --read "$work/bad"
}
bad '{'
bad '[]'
bad "{$shape}"
bad "{$shape,\"cells\":[]}"
bad "{$shape,\"cells\":[7]}"
bad "{$shape,\"cells\":[{$cell,\"measured_ms\":0,\"least_ms\":0,\"parts\":[0,0,8]}]}"
bad "{$shape,\"cells\":[{$cell,\"measured_ms\":1,\"least_ms\":0,\"parts\":[0,0]}]}"
bad "{$shape,\"cells\":[{$cell,\"measured_ms\":1,\"least_ms\":0,\"parts\":[7,0,8]}]}"
bad "{$shape,\"cells\":[{$cell,\"measured_ms\":1,\"least_ms\":0,\"parts\":[0,99,8]}]}"
bad "{$shape,\"cells\":[{$cell,\"measured_ms\":1,\"least_ms\":0,\"parts\":[0,0,-8]}]}"
bad "${ring/all-reduce/all}"
bad "{$(sed 's/"workers":4/"workers":17/' <<<"$shape"),\"cells\":[$ring]}"
bad "{$(sed 's/"beta":1e-8/"beta":0/' <<<"$shape"),\"cells\":[$ring]}"
bad "{\"clock\":\"sundial\",$shape,\"cells\":[$ring]}"
bad "{\"clock\":7,$shape,\"cells\":[$ring]}"
expected="No such file"
refused --read "$work/none"
expected="expected a shape"
: >"$work/empty"
refused --read "$work/empty"
"$weir" bench grid --help | grep -q -- --latency-ms || exit 1
