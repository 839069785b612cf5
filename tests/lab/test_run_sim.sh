#!/bin/bash
# `weir run` and `weir compare` in virtual time: the files, the summary, exit codes, and what a crash
# leaves.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
needs_images
cd "$work" || exit 1

# Of a model whose steps take little, and few images; nothing here depends on which they are.
few_images few || exit 1
sed 's/^batch/model = cnn\nchannels = 4\ndata_dir = few\nbatch/' "$source/tests/lab/quick.ini" >quick.ini || exit 1

"$weir" run quick.ini --network sim --out out --json >printed.json || fail "exit $?"
for file in summary.json steps.csv decisions.jsonl report.html; do
  [ -f out/$file ] || fail "$file is missing"
done
[ "$(ls -A out | wc -l)" -eq 4 ] || fail "more than the four files: $(ls -A out)"
cmp -s printed.json out/summary.json || fail "--json is not summary.json"
# What a network cannot do is said, by the runner and not by its workers.
sed 's/^latency_ms.*/&\nloss_percent = 1/; s/^steps_per_epoch.*/steps_per_epoch = 1/' quick.ini >lossy.ini
"$weir" run lossy.ini --network sim --policy none:1:dense-ring --out lossy >/dev/null 2>log
[ "$(grep -c "^network sim has no packets: loss_percent, .* of lossy.ini change nothing" log)" = 1 ] || fail "loss in sim: $(cat log)"

# In words: 3 workers, 60 steps, and the accuracy of the file.
"$weir" run quick.ini --network sim --policy none:1:dense-ring --out words >words.txt 2>/dev/null || fail "exit $?"
accuracy=$(awk -F'[:,]' '/final_accuracy/ {printf "%.2f", 100 * $2}' words/summary.json)
grep -q "^network sim, policy fixed:none:1:dense-ring, 3 workers: accuracy $accuracy %" words.txt &&
  grep -q "^60 steps; changes of plan: 0; .*weights are alike" words.txt || fail "$(cat words.txt)"
digests=$(grep -Eo '"[0-9a-f]{64}"' out/summary.json)
[ "$(echo "$digests" | wc -l)" -eq 3 ] || fail "not one digest a rank"
[ "$(echo "$digests" | sort -u | wc -l)" -eq 1 ] || fail "the weights differ"
grep -q '"network" : "sim"' out/summary.json || fail "network is not sim"
grep -q '"workers" : 3' out/summary.json || fail "workers is not 3"
# 6 epochs of 10 steps that count, whatever was tried beside them; accuracy after epochs 3 and 6.
[ "$(awk -F, 'NR > 1 && $3 == 0' out/steps.csv | wc -l)" -eq 60 ] || fail "not 60 steps"
[ "$(awk -F, 'NR > 1 && $21 != ""' out/steps.csv | wc -l)" -eq 2 ] || fail "not 2 evaluations"
awk -F, 'NR > 1 && $2 <= 3 && ($18 != 1 || $19 != 1.25)' out/steps.csv | grep -q . && fail "phase one was not in force"
awk -F, 'NR > 1 && $2 >= 4 && ($18 != 50 || $19 != 0.05)' out/steps.csv | grep -q . && fail "phase two was not in force"
awk -F, 'NR > 1 { if ($20 + 0 < last) exit 1; last = $20 + 0 }' out/steps.csv || fail "elapsed_s goes back"

# A fixed policy runs what it says and nothing else.  Under the paper's ring formula 3 ranks move
# 2(N-1)/N of the gradient each: the wire time of a dense step in phase two is known by hand.
"$weir" run quick.ini --network sim --policy none:1:dense-ring --seed 7 --out fixed || fail "fixed policy"
[ "$(awk -F, 'NR > 1 {print $4}' fixed/steps.csv | sort -u)" = none:1:dense-ring ] || fail "another plan was run"
grep -q '"seed" : 7' fixed/summary.json || fail "the seed was not taken"

# A trace with an outage in every other second, of 75 bytes/s, and 150 kB/s in between: what has to wait for its end
# goes on by the rate after it.
{ echo 0; for _ in {1..2000}; do echo 1500; done; } >outages.down
{ sed '/^\[phase/,$d' quick.ini; printf '[trace]\nfile = outages.down\nlatency_ms = 1\n'; } >outages.ini
"$weir" run outages.ini --network sim --policy none:1:dense-ring --out outages >log 2>&1 || fail "outages: $(cat log)"
awk -F, 'NR > 1 { if ($10 > most) most = $10; if ($10 > 1000) met++ }
         END { exit !(met >= 3 && met <= 30 && most < 1500) }' outages/steps.csv ||
  fail "outages: $(cut -d, -f10 outages/steps.csv | xargs)"

# What Deep Gradient Compression does beside selecting: 4 epochs of warm-up are four stages of an epoch
# each, and momentum that is kept before compression, or a gradient that is clipped, ends at other weights.
digest() { grep -Eom1 '"[0-9a-f]{64}"' $1/summary.json; }
policy=dgc:0.001:ag-bruck
"$weir" run quick.ini --network sim --policy $policy --out plain >log 2>&1 || fail "dgc: $(cat log)"
for key in "warmup_epochs = 4" "momentum_correction = 1" "clip_norm = 0.5"; do
  sed "s/^batch/$key\nbatch/" quick.ini >dgc.ini
  "$weir" run dgc.ini --network sim --policy $policy --out dgc >log 2>&1 || fail "$key: $(cat log)"
  [ "$(digest dgc)" != "$(digest plain)" ] || fail "$key changes nothing"
  ratios=$(awk -F, 'NR > 1 {print $6}' dgc/steps.csv | uniq -c | xargs)
  due="60 0.001"
  [ "${key%% *}" = warmup_epochs ] && due="10 0.25 10 0.0625 10 0.015625 10 0.00390625 20 0.001"
  [ "$ratios" = "$due" ] || fail "$key: ratios $ratios"
  [ "${key%% *}" = warmup_epochs ] || continue
  # Every stage is a decision, which comes out the same again.
  triggers=$(grep -Eo '"trigger":"[a-z]+"' dgc/decisions.jsonl | cut -d'"' -f4 | xargs)
  [ "$triggers" = "start stage stage stage stage" ] || fail "decisions of a warm-up: $triggers"
  "$weir" replay dgc >log 2>&1 && grep -q "^5 decisions, 0 different" log || fail "replay: $(cat log)"
done
# Clipping at a norm that no gradient has changes nothing.
sed "s/^batch/clip_norm = 1e6\nbatch/" quick.ini >dgc.ini
"$weir" run dgc.ini --network sim --policy $policy --out dgc >log 2>&1 || fail "clip_norm = 1e6: $(cat log)"
[ "$(digest dgc)" = "$(digest plain)" ] || fail "clip_norm = 1e6 clips"

# Policy weir says once that nobody tells it the loss, where the scenario has it so.
for reports in 1 0; do
  sed "s/^batch/report_loss = $reports\nbatch/" quick.ini >told.ini
  "$weir" run told.ini --network sim --policy weir --out told >log 2>&1 || fail "report_loss: $(cat log)"
  [ "$(grep -c "no loss is reported" log)" = $((1 - reports)) ] || fail "report_loss = $reports: $(cat log)"
done

# Half precision of 1068810 elements from 3 ranks, in one all-gather: 2 latencies of 1 ms, and 2 messages of
# 16 + 2 n bytes at 156.25 MB/s.  So it takes, and so it is predicted from what is measured of the link.
"$weir" run "$source/tests/lab/quick.ini" --network sim --policy fp16:0.5:ag --out gathered || fail "gathering"
want=$(awk 'BEGIN { print 2 + 2 * (16 + 2 * 1068810) / 156250 }')
awk -F, -v want="$want" 'NR > 1 && $2 <= 3 && ($10 / want > 1.0001 || $10 / want < 0.9999)' gathered/steps.csv |
  grep -q . && fail "a gathered step did not take $want ms"
predicted=$(head -1 gathered/decisions.jsonl | grep -Eo '"t_comm_ms":[0-9.]+' | head -1 | cut -d: -f2)
awk -v got="$predicted" -v want="$want" 'BEGIN { exit !(got > 0.95 * want && got < 1.05 * want) }' ||
  fail "$predicted ms were predicted of a gathered step instead of $want"

# begun OUT: wait until the run with the number $pid has decided something in OUT.
begun() {
  for _ in $(seq 600); do
    [ -s "$1/.weir-decisions.tmp" ] && return
    kill -0 $pid 2>/dev/null || fail "the long run ended by itself"
    sleep 0.1
  done
  fail "no decision in $1 within a minute"
}
sed 's/^steps_per_epoch.*/steps_per_epoch = 4000/' quick.ini >long.ini

# What a killed run leaves is removed by the next.
"$weir" run long.ini --network sim --out crash 2>/dev/null &
pid=$!
begun crash
kill -9 $pid
wait $pid 2>/dev/null
sleep 0.5
[ -e crash/summary.json ] && fail "a killed run looks complete"
touch crash/.weir-decisions.tmp crash/steps.csv.ABC123
echo keep >crash/mine.txt
"$weir" run quick.ini --network sim --out crash || fail "the run after a crash"
[ "$(ls -A crash | wc -l)" -eq 5 ] || fail "left over: $(ls -A crash)"
[ "$(cat crash/mine.txt)" = keep ] || fail "a stranger's file was touched"

# The report, again: the same, from the same files.
mkdir none
cp -r out redrawn || fail "no run to draw again"
rm redrawn/report.html
"$weir" report redrawn >report.path && cmp out/report.html "$(cat report.path)" || fail "the report, later"
"$weir" report none 2>stderr
[ $? -eq 2 ] && grep -q "none: neither.*expected a folder" stderr || fail "report: $(cat stderr)"

# Interrupted: exit 1, no results, no process; nothing at all where it saves no checkpoints.
sed -i 's/^batch/checkpoint_steps = 0\nbatch/' long.ini
"$weir" run long.ini --network sim --out stopped 2>stderr &
pid=$!
begun stopped
kill -TERM $pid
wait $pid
[ $? -eq 1 ] || fail "an interrupted run did not exit 1"
grep -q interrupted stderr || fail "it did not say why: $(cat stderr)"
[ "$(ls -A stopped)" = "" ] || fail "an interrupted run left $(ls -A stopped)"

"$weir" compare quick.ini --network sim --policies none:1:dense-ring,star:0.01:art-tree --seeds 1,2 \
  --out compared --json >compare.json || fail "compare: exit $?"
cmp -s compare.json compared/compare.json || fail "--json is not compare.json"
for run in none-1-dense-ring-seed1 none-1-dense-ring-seed2 star-0.01-art-tree-seed1 star-0.01-art-tree-seed2; do
  [ -f compared/$run/summary.json ] || fail "compare: no $run"
done
[ -f compared/report.html ] || fail "compare: no report"

# It reads its data once: when it has begun to train, nothing needs their files any more.
"$weir" compare quick.ini --network sim --policies none:1:dense-ring,bf16:1:dense-ring --seeds 1,2 --out once \
  >log 2>&1 &
pid=$!
begun once/none-1-dense-ring-seed1
mv few gone
wait $pid || fail "compare without its data: $(cat log)"
echo "runs and comparisons in virtual time are as they should be"
