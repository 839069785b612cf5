#!/bin/bash
# A disk that fills up while `weir run` trains: nothing of the training is lost, the error says what to
# do, and `weir report` ends the work later.  A disk without room for the results is refused at once.
weir=$1
source=$2
[ -d /usr/share/datasets/fashion-mnist ] || { echo "SKIPPED: dataset-fashion-mnist is not installed"; exit 77; }
if [ -z "$WEIR_TEST_FOLDER" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir "$work/disk"
  unshare -rm mount -t tmpfs -o size=1m none "$work/disk" 2>/dev/null ||
    { echo "SKIPPED: no tmpfs of our own can be mounted here"; exit 77; }
  WEIR_TEST_FOLDER=$work unshare -rm bash "$0" "$weir" "$source"
  exit
fi
work=$WEIR_TEST_FOLDER # what the test itself writes is not on the disk that is full
mount -t tmpfs -o size=8m none "$work/disk" && cd "$work/disk" || exit 1
fail() { echo "FAILED: $*: $(cat "$work/errors")"; exit 1; }
fill() { cat /dev/zero >>filling 2>/dev/null; }
keep_full() {
  until [ -e "$work/enough" ]; do
    fill
    sleep 0.01
  done
}

# Long enough for the disk to be filled meanwhile; under a sanitizer every step takes several times as long.
steps=120
grep -q __asan_init "$weir" && steps=20
# shellcheck source=tests/images.sh
. "$source/tests/images.sh"
few_images "$work/few" || exit 1
sed "s/^steps_per_epoch .*/steps_per_epoch = $steps/; s|^batch|model = cnn\nchannels = 4\ndata_dir = $work/few\nbatch|" "$source/tests/lab/quick.ini" >"$work/run.ini" || exit 1

filler=
stop_filling() {
  [ -n "$filler" ] || return
  touch "$work/enough"
  wait $filler # and for what fills at this moment
  filler=
  rm "$work/enough"
}
trap stop_filling EXIT

# Trains while the disk is full: what the run gives back at its end, the rest of the journal's room, is filled before
# it draws its report.  False: on a busy machine this script had no time for that, or to see the run before its last
# decision.
train() {
  rm -rf out filling
  "$weir" run "$work/run.ini" --network sim --out out >"$work/words" 2>"$work/errors" &
  pid=$!
  until [ -s out/.weir-decisions.tmp ]; do
    kill -0 $pid 2>/dev/null || break
    sleep 0.02
  done
  fill
  keep_full & # whatever the run gives back
  filler=$!
  before=$(wc -l 2>/dev/null <out/.weir-decisions.tmp)
  wait $pid
  code=$?
  decisions=$(wc -l <out/decisions.jsonl)
  [ $code -eq 0 ] && tail -c 100 out/report.html 2>/dev/null | grep -q "</html>" && return 1
  [ -n "$before" ] && [ "$decisions" -gt "$before" ]
}
for turn in 1 2 3 4 5; do
  train && break
  [ $turn -lt 5 ] || fail "exit $code with $decisions decisions, $before of them before the disk was full, five times"
  stop_filling
done
[ $code -eq 1 ] || fail "exit $code"
grep -q "the training is done and its files are in .*/out, .*No space left on device; .weir report .*/out. draws it" "$work/errors" ||
  fail "the error does not say so"
[ "$(ls -A out | xargs)" = "decisions.jsonl steps.csv summary.json" ] || fail "there are $(ls -A out | xargs)"
[ "$(awk -F, 'NR > 1 && $3 == 0' out/steps.csv | wc -l)" -eq $((6 * steps)) ] || fail "not $((6 * steps)) steps"
grep -q "\"steps\" : $((6 * steps))" out/summary.json || fail "the summary has other steps"
[ "$(grep -Eo '"[0-9a-f]{64}"' out/summary.json | wc -l)" -eq 3 ] || fail "not one digest a rank"
# Decisions went on, none is missing, and each is whole: a replay reads them all.
[ "$(grep -Eo '^.\"format\":2,\"decision\":[0-9]+' out/decisions.jsonl | cut -d: -f3 | xargs)" = "$(seq -s ' ' 0 $((decisions - 1)))" ] ||
  fail "decisions are missing"
"$weir" replay out >/dev/null 2>"$work/errors" || fail "the decisions cannot be replayed"

fill # nothing is given back any more
"$weir" report out >/dev/null 2>"$work/errors" && fail "a report without room"
stop_filling
rm filling
"$weir" report out >/dev/null 2>"$work/errors" || fail "no report later"
[ "$(ls -A out | xargs)" = "decisions.jsonl report.html steps.csv summary.json" ] || fail "there are $(ls -A out | xargs)"

# Without room for the results there is no run; nothing is left.
fill
"$weir" run "$work/run.ini" --network sim --out other >"$work/words" 2>"$work/errors"
code=$?
[ $code -eq 2 ] || fail "without room: exit $code"
grep -q "^weir run: --out .*/other: .* there is no room: No space left on device" "$work/errors" || fail "without room"
[ -z "$(ls -A other)" ] || fail "without room there are $(ls -A other | xargs)"
