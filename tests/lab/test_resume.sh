#!/bin/bash
# `weir run --resume`: everything is killed at random moments, and goes on to the same bits.
#   test_resume.sh WEIR SOURCE [KILLS [NETWORK [SEED [CLOCK]]]]
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
needs_images
cd "$work" || exit 1
kills=3 # one of each kind
grep -q __asan_init "$weir" || kills=5
kills=${3:-$kills}
network=${4:-sim}
clock=${6:+--clock=$6} # of User-Mode Linux
RANDOM=${5:-$(date +%s | tail -c 5)}
echo "seed ${5:-$RANDOM}"
sum() { grep -Eo '"[0-9a-f]{64}"' "$1/summary.json"; }

few_images few || exit 1
cat >small.ini <<'END'
[scenario]
name = small
workers = 3
bandwidth_scale = 0.05
timeout_s = 20
[training]
model = cnn
channels = 4
batch = 8
learning_rate = 0.05
epochs = 4
steps_per_epoch = 30
checkpoint_steps = 7
evaluate_every = 2
data_dir = few
[phase one]
epochs = 1-2
latency_ms = 1
bandwidth_gbps = 25
[phase two]
epochs = 3-4
latency_ms = 5
bandwidth_gbps = 1
END
sed 's/^batch/momentum_correction = 1\nwarmup_epochs = 2\nbatch/' small.ini >warm.ini
sed 's/^batch/optimizer = adamw\nclip_norm = 1\nbatch/' small.ini >adam.ini
sed 's/^batch/optimizer = lamb\ndivided_step = 1\nbatch/' small.ini >lamb.ini

# Scenario and policy of a kind of run; those of sim may name no algorithm, as the network is the model's.
kinds=("small fixed:topk:0.01:ag-ring" "warm fixed:dgc:0.01:ag-bruck" "adam fixed:powersgd:2:dense-ring"
  "small fixed:qsgd:0.125:sra" "small schedule:star:0.05:art-tree;epoch=3:none:1:dense-ring"
  "adam groups:even=3:topk:0.05:ag-ring" "lamb fixed:topk:0.05:ag-ring" "small fixed:none:1:dense-ring" "small fixed:terngrad:0.0625:ag-ring")
[ "$network" = sim ] || kinds=("${kinds[@]:0:2}")

# same A B: what does not go by the clock is the same of both.
same() {
  [ "$(sum "$1")" = "$(sum "$2")" ] || fail "$2: other weights than $1"
  cmp <(cut -d, -f1-7,14,15,21,23 "$1/steps.csv") <(cut -d, -f1-7,14,15,21,23 "$2/steps.csv") ||
    fail "$2/steps.csv tells of other steps than $1's"
  awk -F, 'NR > 1 { if ($20 + 0 < last) exit 1; last = $20 + 0 }' "$2/steps.csv" || fail "$2: elapsed_s goes back"
  [ "$(cut -d, -f2 "$2/decisions.jsonl" | cut -d: -f2 | xargs)" = \
    "$(seq 0 $(($(wc -l <"$2/decisions.jsonl") - 1)) | xargs)" ] || fail "$2: decisions are missing, or there twice"
  [ "$(ls -A "$2" | xargs)" = "decisions.jsonl report.html steps.csv summary.json" ] || fail "$2: $(ls -A "$2")"
}

# The run's process group, and with User-Mode Linux the machine, which its warden ends.
put_down() {
  kill -9 -- "-$pid" 2>/dev/null
  wait $pid 2>/dev/null
}

again=0
from_start=0
for k in $(seq 0 $((kills - 1))); do
  read -r scenario policy <<<"${kinds[$((k % ${#kinds[@]}))]}"
  whole=whole-$((k % ${#kinds[@]}))
  if [ ! -d $whole ]; then
    begun=$(date +%s%N)
    "$weir" run $scenario.ini --network $network $clock --policy "$policy" --out $whole >log 2>&1 || fail "$policy: $(cat log)"
    took[k % ${#kinds[@]}]=$((($(date +%s%N) - begun) / 1000000))
  fi
  ms=${took[k % ${#kinds[@]}]}
  setsid "$weir" run $scenario.ini --network $network $clock --policy "$policy" --out cut >log 2>&1 &
  pid=$!
  moment=$((RANDOM * ms / 32768 + 20))
  # A start takes its time: two thirds of the moments lie behind the first checkpoint.
  if [ $((k % 3)) -ne 1 ]; then
    for _ in $(seq 3000); do
      [ -f cut/.weir-rank-2.$((k / 3 % 2)) ] || [ -f cut/summary.json ] && break
      sleep 0.01
    done
    moment=$((moment / 4))
  fi
  sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
  put_down
  # Now and then what goes on is killed, too.
  if [ $((k % 3)) -eq 2 ] && [ -f cut/.weir-run.json ]; then
    setsid "$weir" run --resume cut >log 2>&1 &
    pid=$!
    sleep "0.$(printf %03d $((RANDOM % 600 + 50)))"
    put_down
    again=$((again + 1))
  fi
  if [ -f cut/.weir-run.json ]; then
    "$weir" run --resume cut >log 2>&1 || fail "kill $k after $moment ms, $policy: $(cat log)"
    grep -q "goes on after step" log || from_start=$((from_start + 1))
  elif [ ! -f cut/summary.json ]; then # it had not begun
    "$weir" run --resume cut >log 2>&1
    [ $? -eq 2 ] && grep -q "begin with --out\|there is no such folder" log || fail "an empty folder: $(cat log)"
    "$weir" run $scenario.ini --network $network $clock --policy "$policy" --out cut >log 2>&1 || fail "$policy: $(cat log)"
    from_start=$((from_start + 1))
  else # it had ended, maybe in the midst of removing what it could have gone on from; the next run there would
    rm -f cut/.weir-*
  fi
  same $whole cut
  rm -r cut
done
echo "$kills kills at random moments and $again of what went on ended at the same bits; $from_start came before a checkpoint"
[ "$network" = sim ] || exit 0

# What cannot go on says why, and what to do; nothing in the folder is touched.
refused() {
  before=$(ls -A cut 2>/dev/null | xargs)
  "$weir" run "${@:2}" >log 2>&1
  [ $? -eq 2 ] && grep -q -- "$1" log || fail "'$1' is not what ${*:2} says: $(cat log)"
  [ "$(ls -A cut 2>/dev/null | xargs)" = "$before" ] || fail "${*:2} has touched the folder"
}
refused "there is no such folder" --resume missing
refused "the run there is finished" --resume whole-0
sed 's/^steps_per_epoch.*/steps_per_epoch = 4000/' small.ini >long.ini
setsid "$weir" run long.ini --network sim --policy none:1:dense-ring --out cut >log 2>&1 &
pid=$!
for _ in $(seq 600); do
  [ -f cut/.weir-rank-2.1 ] && break
  sleep 0.1
done
"$weir" run small.ini --out cut --network sim >log 2>&1
[ $? -eq 2 ] && grep -q "another run is writing there" log || fail "two runs in a folder: $(cat log)"
put_down
refused "has policy fixed:none:1:dense-ring, not weir" --resume cut --policy weir
refused "has workers: 3, not 4" --resume cut --workers 4
refused "has seed 1, not 2" --resume cut --seed 2
refused "has network sim, not uml" --resume cut --network uml
refused "is not the scenario that was begun there" --resume cut small.ini
refused "takes the place of --out" --resume cut --out other
cp long.ini kept.ini
echo "# changed" >>long.ini
refused "has been changed since" --resume cut
mv kept.ini long.ini
sed -i 's/"weir" : "[^"]*"/"weir" : "0.0.1"/' cut/.weir-run.json
refused "begun by Weir 0.0.1 and this is" --resume cut
sed -i "s/\"weir\" : \"0.0.1\"/\"weir\" : \"$("$weir" --version | grep -Eo '[0-9]+\.[0-9]+\.[0-9]+' | head -1)\"/" cut/.weir-run.json

# A generation that is damaged is none: the other one goes on.  Interrupted, a run can go on, too.
newest=$(ls -t cut/.weir-rank-1.? | head -1)
printf x | dd of="$newest" bs=1 seek=5000 conv=notrunc status=none
setsid "$weir" run --resume cut >log 2>&1 &
pid=$!
for _ in $(seq 600); do
  grep -q "goes on after step" log && [ "$(ls -t cut/.weir-rank-1.? | head -1)" -nt log ] && break
  sleep 0.1
done
kill -TERM $pid
wait $pid
[ $? -eq 1 ] && grep -q "interrupted; .weir run --resume .* goes on after step" log || fail "interrupted: $(cat log)"
[ -z "$(ls cut)" ] || fail "an interrupted run has results: $(ls cut)"
for slot in 0 1; do printf x | dd of=cut/.weir-rank-2.$slot bs=1 seek=6000 conv=notrunc status=none; done
(
  "$weir" run --resume cut >log 2>&1 &
  pid=$!
  for _ in $(seq 100); do
    grep -q "has saved nothing yet: it begins again" log && break
    sleep 0.1
  done
  kill -9 $pid
  wait $pid 2>/dev/null
)
grep -q "has saved nothing yet: it begins again" log || fail "both generations are damaged: $(cat log)"
echo "what cannot go on is refused, and damaged checkpoints are none"
