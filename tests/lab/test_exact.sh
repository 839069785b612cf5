#!/bin/bash
# A training whose gradients are mostly zero: policy weir sends all of them by top-k, without a trial and
# without a reported loss, says why, and decides the same again; not with momentum correction.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"

sed 's/^steps_per_epoch *=.*/steps_per_epoch = 2/; s/^evaluate_every.*/evaluate_every = 20/
     s/^epochs *= 20/&\nreport_loss = 0/' "$source/scenarios/recommender.ini" >"$work/sparse.ini"
sed 's/^batch *=.*/&\nmomentum_correction = 1/' "$work/sparse.ini" >"$work/momentum.ini"

trained() { # scenario, risk
  rm -rf "$work/run"
  "$weir" run "$work/$1.ini" --network sim --risk "$2" --out "$work/run" >"$work/log" 2>&1 ||
    { tail -5 "$work/log"; fail "weir run $1 --risk $2"; }
}

for risk in measured safe; do
  trained sparse $risk
  # The first plan until its decision is in force; then at most a sixteenth of the elements.
  plans=$(cut -d, -f"$(head -1 "$work/run/steps.csv" | tr , '\n' | grep -nx plan | cut -d: -f1)" \
    "$work/run/steps.csv" | sed 1d | uniq | tr '\n' ' ')
  [[ $plans =~ ^bf16:1:dense-ring\ topk:0\.0[3-6][0-9]*:ag(-direct)?:auto-bf16\ $ ]] || fail "$risk: plans $plans"
  expect 0 'is not zero, which is all sent' "$weir" explain "$work/run"
  expect 0 ', 0 different' "$weir" replay "$work/run"
done

trained momentum measured
grep -q 'topk:' "$work/run/steps.csv" && fail "momentum correction: top-k was taken"
grep -q '"nonzero":0,' "$work/run/decisions.jsonl" || fail "momentum correction: something was counted"
exit 0
