#!/bin/bash
# Two runs into one folder: the second is refused and touches nothing, the first ends as if it had been
# alone; a run that was killed leaves the folder free.
weir=$1
source=$2
[ -d /usr/share/datasets/fashion-mnist ] || { echo "SKIPPED: dataset-fashion-mnist is not installed"; exit 77; }
work=$(mktemp -d)
# shellcheck source=tests/images.sh
. "$source/tests/images.sh"
pid=
trap '[ -z "$pid" ] || kill -9 $pid 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*: $(cat errors other)"; exit 1; }
few_images few || exit 1
sed 's/^steps_per_epoch .*/steps_per_epoch = 160/; s/^batch/model = cnn\nchannels = 4\ndata_dir = few\nbatch/' "$source/tests/lab/quick.ini" >run.ini || exit 1

begin() { # a run, up to its first decision
  "$weir" run run.ini --network sim --out out >words 2>errors &
  pid=$!
  until [ -s out/.weir-decisions.tmp ]; do
    kill -0 $pid 2>/dev/null || fail "the run has ended"
    sleep 0.02
  done
}
refused() { # ARGUMENTS...
  "$weir" "$@" --network sim --out out >words 2>other
  code=$?
  [ $code -eq 2 ] || fail "$*: exit $code"
  grep -q "out: another run is writing there; expected a folder of its own" other || fail "$*: no clear word"
}

begin
refused run run.ini --policy paper
refused compare run.ini --policies paper
kill -0 $pid 2>/dev/null || fail "the run was over before the others began"
wait $pid || fail "exit $? of the first run"
pid=
[ "$(ls -A out | xargs)" = "decisions.jsonl report.html steps.csv summary.json" ] || fail "there are $(ls -A out | xargs)"
grep -q '"policy" : "weir"' out/summary.json || fail "not the first run's files"

begin
kill -9 $pid
wait $pid 2>/dev/null
pid=
sed -i 's/^steps_per_epoch .*/steps_per_epoch = 2/' run.ini
for try in $(seq 100); do # its child ends with it, if not in the same moment
  "$weir" run run.ini --network sim --out out >words 2>other && exit 0
  sleep 0.1
done
fail "the folder of a killed run stays locked"
