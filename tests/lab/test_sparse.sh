#!/bin/bash
# A training whose gradients are mostly zero: policy weir sends what they touch and no more, without a trial
# and without a reported loss, says why, and decides the same again; not with momentum correction.
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

column() { # name
  cut -d, -f"$(head -1 "$work/run/steps.csv" | tr , '\n' | grep -nx "$1" | cut -d: -f1)" "$work/run/steps.csv" | sed 1d
}

for risk in measured safe; do
  trained sparse $risk
  # The first plan until its decision is in force.  That sends each of three others 5.25 bits of a twentieth, which are
  # 0.8 an element and the runs; the first one sent 1.5 times 5.25.
  plans=$(column plan | uniq | tr '\n' ' ')
  [[ $plans =~ ^companded:0\.15625:sra\ nonzero:0\.15625:ag(-direct)?:huffman\ $ ]] || fail "$risk: plans $plans"
  column wire_bytes | awk 'NR == 1 { whole = $1 } { last = $1 } END { exit !(last > 0 && last < whole / 7) }' ||
    fail "$risk: $(column wire_bytes | tr '\n' ' ')"
  expect 0 'is not zero, and no more is sent' "$weir" explain "$work/run"
  expect 0 ', 0 different' "$weir" replay "$work/run"
done

trained momentum measured
grep -q 'nonzero:' "$work/run/steps.csv" && fail "momentum correction: a sparse plan was taken"
grep -q '"nonzero":0,' "$work/run/decisions.jsonl" || fail "momentum correction: something was counted"
exit 0
