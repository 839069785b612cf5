#!/bin/bash
# The models' scenarios in virtual time, shortened: they learn, alike for a seed on all ranks, and a
# compressor that starves a GPT shows it.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
cd "$work" || exit 1
needs_images
[ -d /usr/share/games/fortunes ] || skip "fortunes is not installed"

# shortened MODEL EPOCHS: its scenario for so many epochs, evaluated at the end.
shortened() {
  sed -E "s/^epochs = [0-9]+$/epochs = $2/; s/^epochs = 1-.*/epochs = 1-$2/; s/^decay_epochs.*//
    s/^evaluate_every.*/evaluate_every = $2/" "$source/scenarios/$1.ini" >"$1.ini"
}
# trained MODEL OUT POLICY
trained() {
  "$weir" run "$1.ini" --network sim --policy "$3" --out "$2" >log 2>&1 || fail "$1 under $3: $(tail -1 log)"
  [ "$(grep -Eo '"[0-9a-f]{64}"' "$2/summary.json" | sort | uniq -c | awk '{print $1}')" = 4 ] ||
    fail "$1 under $3: the workers' weights differ"
}
figure() { awk -F'[:,]' -v name="\"$2\"" '$1 ~ name { print $2; exit }' "$1/summary.json"; }
digest() { grep -Eom1 '"[0-9a-f]{64}"' "$1/summary.json"; }
# between FIGURE OUT LOW HIGH
between() {
  awk -v x="$(figure "$2" "$1")" -v low="$3" -v high="$4" 'BEGIN { exit !(x > low && x < high) }' ||
    fail "$1 of $2 is $(figure "$2" "$1"), expected $3 to $4"
}

# Without learning: log 10, log 2, and log 256.
shortened cnn 3
trained cnn cnn fixed:none:1:dense-ring
between final_loss cnn 0.3 0.8
between final_accuracy cnn 0.7 0.95
shortened recommender 4
trained recommender recommender fixed:none:1:dense-ring
between final_loss recommender 0.4 0.62
between final_accuracy recommender 0.62 0.9
# The text's bytes taken by themselves have 3.28 nats.
shortened gpt 4
trained gpt gpt fixed:none:1:dense-ring
between final_loss gpt 2.2 3.0
between final_accuracy gpt 0.2 0.5
trained gpt starved fixed:topk:0.001:ag
between final_loss starved 3.2 3.6

# For this one epoch, of 50 steps, is as good as all.
for model in cnn recommender; do
  shortened $model 1
  for run in once again; do trained $model $run fixed:none:1:dense-ring; done
  [ "$(digest again)" = "$(digest once)" ] || fail "$model: another run has other weights"
  # The same with trials in between that are rolled back: all ranks decide alike and end alike.
  trained $model once paper
  awk -F, 'NR > 1 && $3 == 1' once/steps.csv | grep -q . || fail "$model: no trials"
done

# Columns and list of the loss on the test set, beside the accuracy's.
[ "$(head -1 gpt/steps.csv | tr , '\n' | tail -1)" = test_loss ] || fail "steps.csv: $(head -1 gpt/steps.csv)"
[ "$(awk -F, 'NR > 1 && $23 != ""' gpt/steps.csv | wc -l)" -eq 1 ] || fail "not one evaluation"

mkdir empty
sed "s|^model = gpt|model = gpt\ndata_dir = $work/empty|" gpt.ini >bad.ini
"$weir" run bad.ini --network sim --out bad 2>log
[ $? -eq 2 ] && grep -q "^weir run: bad.ini:11: .*empty/art.*package fortunes" log || fail "an empty folder: $(cat log)"
sed "s/^channels.*/channels = 80/" gpt.ini >bad.ini
"$weir" run bad.ini --network sim --out bad 2>log
[ $? -eq 2 ] && grep -q "^weir run: bad.ini:[0-9]*: a gpt of .*80 channels.*expected" log || fail "channels: $(cat log)"
echo "the models learn as they should"
