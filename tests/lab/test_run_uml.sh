#!/bin/bash
# `weir run` over the real emulated network (tc where the kernel has netem, else User-Mode Linux): the
# schedule in force, and workers that are killed, frozen or exit in mid-step: every other one ends with
# an error that names the rank, the runner exits 1, and nothing is left.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
needs_images
cd "$work" || exit 1
export TMPDIR=$work/tmp # a machine's folder would show
mkdir "$TMPDIR" || exit 1

few_images few || exit 1
scenario() { # TIMEOUT_S: long, unless it is what a test waits for
  cat <<INI
[scenario]
name = short
workers = 4
bandwidth_scale = 0.05
timeout_s = $1
[training]
model = cnn
channels = 4
data_dir = $work/few
batch = 16
learning_rate = 0.05
epochs = 2
steps_per_epoch = 4
[phase fast]
epochs = 1
latency_ms = 1
bandwidth_gbps = 10
[phase far]
epochs = 2
latency_ms = 20
bandwidth_gbps = 4
INI
}
links() { ip -o link show 2>/dev/null | awk -F': ' '{print $2}' | sort; }
# Processes of ours: this binary, or a machine of ours.
left() { pgrep -f "weir.* (run|compare) $work" ; pgrep -f "$work/(out|tmp)"; ls -A "$TMPDIR"; }

links_before=$(links)
scenario 120 >short.ini
WEIR_LOG=info WEIR_TRACE=$work/out/trace.json WEIR_SECRET_FILE=$work/nowhere \
  "$weir" run "$work/short.ini" --policy star:0.01:art-tree --out "$work/out" >log 2>&1
code=$?
if grep -q "network: sim" log; then
  echo "SKIPPED: neither tc with netem nor User-Mode Linux: $(grep 'network: sim' log)"
  exit 77
fi
if grep -q "network: uml" log && grep -Eq "__(asan|tsan)_init" "$weir"; then
  echo "SKIPPED: User-Mode Linux has 39 bits of address space, and a sanitizer's shadow memory needs 47"
  exit 77
fi
[ $code -eq 0 ] || fail "exit $code: $(cat log)"
grep -Eq '"network" : "(tc|uml)"' out/summary.json || fail "not over a real network"
grep -q "^weir info .* rank 0 step 0: started" log || fail "WEIR_LOG is not heard inside: $(cat log)"
[ -s out/trace.json ] || fail "no trace: $(cat log; ls -A out)"
rm out/trace.json
[ "$(grep -Eo '"[0-9a-f]{64}"' out/summary.json | sort -u | wc -l)" -eq 1 ] || fail "the weights differ"
[ "$(awk -F, 'NR > 1 && $3 == 0' out/steps.csv | wc -l)" -eq 8 ] || fail "not 8 steps"
[ "$(awk -F, 'NR > 1 && $2 == 1 {print $18 "," $19}' out/steps.csv | sort -u)" = 1,0.5 ] || fail "phase fast was not in force"
[ "$(awk -F, 'NR > 1 && $2 == 2 {print $18 "," $19}' out/steps.csv | sort -u)" = 20,0.2 ] || fail "phase far was not in force"
# An all-reduce cannot end before every gradient has come to every rank and the sum has gone back: no
# less than two latencies a step, 120 ms in three steps once the delay is 20 ms.
awk -F, 'NR > 1 && $2 == 2 {if (!first) first = $20; last = $20} END {exit !(last - first < 0.12)}' out/steps.csv &&
  fail "steps are faster than the latency that was set allows"

# struck KIND TIMEOUT_S WORDS: rank 2 has a fault before its third exchange.
struck() {
  { scenario "$2"; printf '[fault]\nkind = %s\nrank = 2\nstep = 2\n' "$1"; } >fault.ini
  "$weir" run "$work/fault.ini" --policy star:0.01:art-ring --out "$work/out" >log 2>&1
  code=$?
  [ $code -eq 1 ] || fail "$1: exit $code, expected 1: $(cat log)"
  grep -q "worker 2 $3" log || fail "$1: the runner does not say 'worker 2 $3': $(cat log)"
  for survivor in 0 1 3; do
    grep -Eq "rank $survivor: [^;]*(rank|worker) 2" log || fail "$1: rank $survivor does not name rank 2: $(cat log)"
  done
  [ -z "$(ls -A out)" ] || fail "$1: files are left: $(ls -A out)"
  [ -z "$(left)" ] || fail "$1: left: $(left)"
  [ "$(links)" = "$links_before" ] || fail "$1: links are left: $(links)"
}
struck kill 120 "was killed by signal 9"
struck freeze 15 "froze"
struck exit 120 "exited with code 3"

# begun: until the run with the number $pid has decided something.
begun() {
  until grep -q . out/.weir-decisions.tmp 2>/dev/null; do
    kill -0 $pid 2>/dev/null || fail "the long run ended by itself: $(cat log)"
    sleep 0.1
  done
}

# The runner itself is killed: its workers, namespaces and machine go with it.
scenario 120 | sed 's/steps_per_epoch = 4/steps_per_epoch = 400\ncheckpoint_steps = 0/' >long.ini
"$weir" run "$work/long.ini" --policy none:1:dense-ring --out "$work/out" >log 2>&1 &
pid=$!
begun
kill -9 $pid
wait $pid 2>/dev/null
for _ in $(seq 200); do [ -z "$(left)" ] && break; sleep 0.1; done
[ -z "$(left)" ] || fail "left: $(left)"
[ "$(links)" = "$links_before" ] || fail "links are left: $(links)"
[ -e out/summary.json ] && fail "a killed run looks complete"
# Of images in the host's /dev/shm, which is elsewhere inside.
shared=$(mktemp -d /dev/shm/weir-test-XXXXXX 2>/dev/null || mktemp -d)
cp -r few "$shared"
sed "s|^data_dir = .*|data_dir = $shared/few|" short.ini >shared.ini
"$weir" run "$work/shared.ini" --policy star:0.01:art-tree --out "$work/out" >log 2>&1
code=$?
rm -r "$shared"
[ $code = 0 ] || fail "the run after a crash: $(cat log)"
[ "$(ls -A out | wc -l)" -eq 4 ] || fail "left over: $(ls -A out)"

# Ctrl-C.
"$weir" run "$work/long.ini" --policy none:1:dense-ring --out "$work/out" >log 2>&1 &
pid=$!
begun
kill -INT $pid
wait $pid
[ $? -eq 1 ] || fail "an interrupted run did not exit 1: $(cat log)"
[ -z "$(left)" ] || fail "left after an interrupt: $(left)"
[ -z "$(ls -A out)" ] || fail "files are left after an interrupt: $(ls -A out)"
[ "$(links)" = "$links_before" ] || fail "links are left after an interrupt: $(links)"
echo "runs over a real network, and faults in them, end as they should"
