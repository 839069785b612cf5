#!/usr/bin/env bash
# SIGINT and SIGTERM in the midst of `weir run` and `weir compare`: they end soon, with 1, and say so;
# no process and no half-written result is left, and a comparison tells of the runs that it had done.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
needs_images
fail() { echo "FAILED: $*: $(tail -3 "$work/errors")"; exit 1; }

# Of a model whose steps take little, and few images, which a comparison loads for each of its runs.
few_images "$work/few" || exit 1
sed -e 's/^model = .*/model = cnn\nchannels = 4/' -e "s|^batch = .*|batch = 8\ndata_dir = $work/few|" "$source/scenarios/demo.ini" >"$work/small.ini"
# Long enough to be interrupted anywhere; with checkpoints it would leave them (lab.test_resume).
sed -e 's/^steps_per_epoch = .*/steps_per_epoch = 400\ncheckpoint_steps = 0/' "$work/small.ini" >"$work/long.ini"
# One run that ends, and many that do not.
sed -e '/^\[phase/,$d' -e 's/^epochs = .*/epochs = 1/' -e '/^decay_epochs/d' \
  -e 's/^steps_per_epoch = .*/steps_per_epoch = 3/' -e 's/^seed = .*/seed = 7/' "$work/small.ini" >"$work/short.ini"
printf '[phase one]\nepochs = 1\nlatency_ms = 1\nbandwidth_gbps = 10\n' >>"$work/short.ini"

# until REGEX FILE: or until the command has ended.
until_said() {
  until grep -Eq "$1" "$2" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.1
  done
}
all_gone() { # whatever was given a file of this test's
  for _ in $(seq 600); do
    ps -eo args= | grep -F "$work/" | grep -Fq -- --network || return 0
    sleep 0.1
  done
  return 1
}

# Its code; a minute is far more than any of it takes.
ends_soon() {
  for _ in $(seq 600); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -0 "$pid" 2>/dev/null && kill -KILL "$pid"
  wait "$pid"
  code=$?
}

# Before its first checkpoint a run leaves what is known of it, and begins again.
sed 's/checkpoint_steps = 0/checkpoint_steps = 100000/' "$work/long.ini" >"$work/keeps.ini"
for how in --out --resume; do
  begin=("$work/keeps.ini" --network sim)
  [ $how = --resume ] && begin=()
  : >"$work/errors"
  "$weir" run "${begin[@]}" $how "$work/kept" >"$work/out" 2>"$work/errors" &
  pid=$!
  until_said '^epoch 1/' "$work/errors" || fail "the run does not begin: $how"
  kill -INT "$pid"
  ends_soon
  [ $code -eq 1 ] || fail "$how: the run ended with $code"
  grep -q "weir run: .*interrupted.*\`weir run --resume $work/kept\` begins again" "$work/errors" || fail "$how: no word"
  [ -s "$work/kept/.weir-run.json" ] && [ -z "$(ls "$work/kept")" ] || fail "$how: left: $(ls -A "$work/kept")"
done
grep -q "has saved nothing yet: it begins again" "$work/errors" || fail "not begun again"
rm -r "$work/kept"

for signal in INT TERM; do
  "$weir" run "$work/long.ini" --network sim --out "$work/run-$signal" \
    >"$work/out" 2>"$work/errors" &
  pid=$!
  # The workers are in a child, which exists once all input has been found good.
  for _ in $(seq 600); do
    [ -n "$(ps -o pid= --ppid "$pid")" ] && break
    sleep 0.1
  done
  sleep 1
  kill -s $signal "$pid" || fail "$signal: the run had ended"
  ends_soon
  [ $code -eq 1 ] || fail "$signal: the run ended with $code"
  grep -q "weir run: .*interrupted" "$work/errors" || fail "$signal: no word"
  all_gone || fail "$signal: a process is left"
  left=$(ls -A "$work/run-$signal" 2>/dev/null)
  [ -z "$left" ] || fail "$signal: left behind: $left"
done

policies=none:1:dense-ring
for step in $(seq 40); do policies+=,lwtopk:0.$((100 + step)):ag; done
"$weir" compare "$work/short.ini" --network sim --policies $policies --out "$work/compared" \
  >"$work/out" 2>"$work/errors" &
pid=$!
until_said '^run 3 of 41' "$work/errors" || fail "the comparison does not come to its third run"
kill -s TERM "$pid"
ends_soon
[ $code -eq 1 ] || fail "the comparison ended with $code"
all_gone || fail "the comparison left a process"
[ -s "$work/compared/none-1-dense-ring/summary.json" ] || fail "the first run's results are gone"
# What it has is told, and that it is not all.
/usr/bin/python3 - "$work/compared" <<'CHECK' || fail "compare.json or report.html is not as expected"
import json, sys
folder = sys.argv[1]
with open(folder + "/compare.json") as file:
    told = json.load(file)
runs = told["runs"]
states = [run["status"] for run in runs]
done = states.count("done")
assert told["complete"] is False and len(runs) == 41, states
assert 2 <= done < 41 and runs[0]["final_accuracy"] > 0, states
assert states[:done] == ["done"] * done, states
assert set(states[done:]) <= {"interrupted", "not run"} and states[-1] == "not run", states
assert {run["seed"] for run in runs} == {7}
assert states.count("interrupted") <= 1 and runs[-1]["final_accuracy"] is None
page = open(folder + "/report.html").read()
assert f"{41 - done} of 41 runs are missing" in page
CHECK
grep -q "interrupted; [0-9]* of 41 runs are compared" "$work/errors" || fail "the comparison says nothing"
grep -Eq '^lwtopk:0.140:ag +7  not run$' "$work/out" || fail "the table: $(cat "$work/out")"
[ -z "$(find "$work/compared" -name '*.tmp*')" ] || fail "half-written: $(find "$work/compared" -name '*.tmp*')"
