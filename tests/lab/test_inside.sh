#!/usr/bin/env bash
# Looking inside a running job: four ranks, one of which computes four times as long as the others.  Within ten
# seconds `weir top` and WEIR_LOG=info name it; traces hold what they promise, also of a rank that is killed;
# what lies in the status folder is not trusted.
set -u
weir=$1 source=$2
rank=$(dirname "$weir")/../tests/slow_rank
check=$source/tests/lab/trace_check.py
dir=$(mktemp -d) || exit 1
mkdir -m 700 "$dir/status"
export WEIR_STATUS_DIR=$dir/status
pids=()
cleanup() {
  [[ ${#pids[@]} -eq 0 ]] || kill "${pids[@]}" 2>/dev/null
  wait
  rm -rf "$dir"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $*"
  cat "$dir"/err* 2>/dev/null
  exit 1
}
. "$source/tests/ports.sh"

# start NAME RANKS SECONDS POLICY: ranks with what the environment says; rank 2's computing takes 80 ms, 20 the others'.
start() {
  local port r
  port=$(free_port)
  pids=()
  for ((r = 0; r < $2; r++)); do
    "$rank" "127.0.0.1:$port" $r "$2" "${compute:-$((r == 2 ? 80 : 20))}" "$3" "$4" >"$dir/out-$1-$r" 2>"$dir/err-$1-$r" &
    pids+=($!)
  done
}
finish() {
  local pid
  for pid in "${pids[@]}"; do wait "$pid" || fail "a rank of $1 ended with $?"; done
  pids=()
}
top() { "$weir" top "$@" --once --json >"$dir/top" 2>"$dir/err-top"; }
ask() { python3 -c "import json,sys; t=json.load(open('$dir/top')); sys.exit(0 if ($1) else 1)"; }

# --- who is slow ------------------------------------------------------------------------------------------------
WEIR_LOG=info WEIR_TRACE=$dir/trace-%r start slow 4 10 fixed:topk:0.1:ag
begin=$SECONDS named= logged=
while [[ (-z $named || -z $logged) && $((SECONDS - begin)) -lt 10 ]]; do
  top 4711 && ask 't["slow"] and t["slow"]["rank"] == 2 and t["slow"]["what"] == "compute"' && named=yes
  grep -q 'weir info [0-9.]* rank 0 step [0-9]*: rank 2 computes [0-9.]* x the median' "$dir/err-slow-0" && logged=yes
  sleep 0.2
done
[[ -n $named ]] || fail "weir top does not name rank 2: $(cat "$dir/top" "$dir/err-top")"
[[ -n $logged ]] || fail "the log does not name rank 2"
ask '2 < t["slow"]["ratio"] < 8' || fail "the ratio is far from four: $(cat "$dir/top")"
ask '[r["rank"] for r in t["ranks"]] == [0, 1, 2, 3] and all(r["here"] for r in t["ranks"])' || fail "ranks are missing"
ask 't["plan"] == "topk:0.1:ag" and t["transport"] == "tcp" and t["world_size"] == 4 and t["job"] == "%016x" % 4711' ||
  fail "the head: $(cat "$dir/top")"
mkdir "$dir/run"
printf '%016x\n' 4711 >"$dir/run/job"
top "$dir/run" && ask 't["world_size"] == 4' || fail "a run's folder: $(cat "$dir/err-top")"
# Its end, which takes the file away, is nobody's mistake.
timeout 20 "$weir" top "$dir/run" --json >"$dir/top" 2>"$dir/err-top" &
watcher=$!
until [[ $(wc -l <"$dir/top") -ge 2 ]]; do sleep 0.1; done
rm "$dir/run/job"
wait $watcher || fail "a run that ended: exit $?"
top "$dir/status"
[[ $? -eq 1 ]] && grep -q "holds no file .job." "$dir/err-top" || fail "another folder: $(cat "$dir/err-top")"
waiting=
for _ in {1..50}; do
  top && ask 'any(2 in r["waits_for"] and r["phase"] == "exchange" for r in t["ranks"])' &&
    ask 't["ranks"][2]["phase"] == "compute" and not t["ranks"][2]["waits_for"]' && waiting=yes && break
done
[[ -n $waiting ]] || fail "nobody is seen waiting for rank 2: $(cat "$dir/top")"
"$weir" top | grep -q "^rank 2 computes" || fail "the table does not name rank 2"
finish slow
[[ -z $(ls "$dir/status") ]] || fail "sessions left $(ls "$dir/status")"
for r in 1 2 3; do
  grep -q "computes" "$dir/err-slow-$r" && fail "rank $r repeats what rank 0 says"
done
# A TCP frame has a header of 48 bytes and a checksum of 4.
for r in 0 1 2 3; do python3 "$check" "$dir/trace-$r" $r 52 || fail "the trace of rank $r"; done

# --- weir_dump's keys are those of the document -------------------------------------------------------------------
sed -n '/^## `weir_dump`/,/^## T/s/^| `\([a-z_]*\)` |.*/\1/p' "$source/docs/guide/inside.md" >"$dir/documented"
sed 's/:.*//' "$dir/out-slow-1" | diff - "$dir/documented" || fail "docs/guide/inside.md lists other keys than weir_dump has"
grep -qx 'plan: topk:0.1:ag' "$dir/out-slow-1" || fail "the dump lacks the plan"
grep -q '^slow: rank 2 computes' "$dir/out-slow-1" || fail "the dump does not name rank 2"
grep -qE '^decision: decision [0-9]+ at step' "$dir/out-slow-0" || fail "rank 0's dump lacks its decision"

# --- one rank is killed -----------------------------------------------------------------------------------------
WEIR_TRACE=$dir/killed-%r start killed 3 60 groups:even=2:topk:0.1:ag
for _ in {1..100}; do
  top && ask 't["steps"] > 10' && break
  sleep 0.1
done
ask 't["steps"] > 10' || fail "no steps: $(cat "$dir/err-top")"
kill -9 "${pids[1]}"
wait "${pids[1]}" 2>/dev/null
top && ask 'not t["ranks"][1]["here"] and t["ranks"][0]["here"]' || fail "a dead rank is shown: $(cat "$dir/top")"
ls "$dir/status" | grep -q -- "-1-${pids[1]}-" && fail "a dead rank's file is left"
wait "${pids[0]}" && fail "rank 0 goes on without rank 1"
wait "${pids[2]}"
pids=()
grep -q 'weir error [0-9.]* rank 0 step [0-9]*: the group has ended: .*rank 1' "$dir/err-killed-0" || fail "the loss is not logged"
python3 "$check" "$dir/killed-1" 1 52 --cut || fail "the trace of a killed rank"
python3 "$check" "$dir/killed-0" 0 52 || fail "the trace of a rank that lost another"

# --- limits and switches ----------------------------------------------------------------------------------------
compute=0 WEIR_LOG=verbose WEIR_TRACE=$dir/small WEIR_TRACE_MB=1 WEIR_STATUS=off start small 2 4 fixed:none:1:dense-ring
sleep 1.5
top
[[ $? -eq 1 ]] || fail "WEIR_STATUS=off: $(cat "$dir/top")"
finish small
[[ $(grep -c 'WEIR_LOG is "verbose"; error, warn, info, debug and trace are known' "$dir/err-small-0") -eq 1 ]] ||
  fail "a wrong level: $(cat "$dir/err-small-0")"
grep -q "has reached its 1 MB (WEIR_TRACE_MB)" "$dir/err-small-0" || fail "a full trace is not told"
size=$(stat -c %s "$dir/small")
[[ $size -le 1048576 && $size -gt 900000 ]] || fail "a trace of $size bytes"
python3 -c "import json; assert json.load(open('$dir/small'))[-1]['name'] == 'WEIR_TRACE_MB is reached'" || fail "a full trace"

# --- what lies in the folder ------------------------------------------------------------------------------------
top nonesuch
[[ $? -eq 1 ]] || fail "a job that is not there: $?"
garbage=$dir/status/0000000000000001-0-1-0
head -c 3000 /dev/urandom >"$garbage"
: >"$dir/status/0000000000000001-1-1-0"
ln -s /etc/passwd "$dir/status/0000000000000001-2-1-0"
mkfifo "$dir/status/0000000000000001-3-1-0"
echo mine >"$dir/status/notes"
timeout 20 "$weir" top --once 2>"$dir/err-top"
[[ $? -eq 1 ]] || fail "garbage: $(cat "$dir/err-top")"
[[ $(ls "$dir/status" | wc -l) -eq 5 ]] || fail "files that are not ours are gone"
chmod 777 "$dir/status"
top
[[ $? -eq 1 ]] || fail "a folder that others may write to is read"
chmod 700 "$dir/status"
start one 2 8 fixed:none:1:dense-ring
first=("${pids[@]}")
start two 2 8 fixed:none:1:dense-ring
pids+=("${first[@]}")
for _ in {1..50}; do
  top
  [[ $? -eq 2 && $(grep -c '^  [0-9a-f]\{8\}  job' "$dir/err-top") -eq 2 ]] && break
  sleep 0.1
done
run=$(sed -n 's/^  \([0-9a-f]\{8\}\)  job .*/\1/p' "$dir/err-top" | tail -1)
top "$run" && ask "t['run'] == '$run' and len(t['ranks']) == 2" || fail "one of two: $(cat "$dir/err-top")"
finish two
echo "all right"
