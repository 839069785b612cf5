#!/usr/bin/env bash
# `weir explain`: a run by hand, told in words and as JSON, and every bad input.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
told() { expect "$1" "$2" "$weir" explain "${@:3}"; }

told 2 "expected one run's folder"
told 2 "expected one run's folder" "$work" "$work"
told 2 'Unknown option' --what "$work"
told 2 'decisions.jsonl.*No such file' "$work"
# What to do about a run that was ended before its end, and where a comparison's runs are.
mkdir "$work/cut" "$work/compared"
echo '{}' >"$work/cut/.weir-run.json"
echo '{}' >"$work/compared/compare.json"
for command in explain replay report; do
  expect 2 "weir $command: .*cut: the run there has not been finished; .*weir run --resume .*cut. goes on" \
    "$weir" $command "$work/cut"
done
for command in explain replay; do
  expect 2 "weir $command: .*compared: it holds a comparison" "$weir" $command "$work/compared"
done
: >"$work/decisions.jsonl"
# A run that was too short to decide, or whose policy never does.
told 0 '^0 decisions, 0 of them switched the plan; 0 rounds of trials.$' "$work"
told 0 '"whole":"0 decisions, .*"reasons":\[\]' --json "$work"
expect 0 '^0 decisions, 0 different' "$weir" replay "$work"
expect 0 '^{"decisions":0,"different":0,.*"list":\[\]}$' "$weir" replay --json "$work"
# What would end json-glib by its recursion, also behind what it takes for comments and quotes; and what ends a text.
for before in '{"a":' '/* " */ {"a":' "{'\"':1,\"a\":"; do
  { printf '%s' "$before"; head -c 1000000 /dev/zero | tr '\0' '['; } >"$work/decisions.jsonl"
  told 2 'decisions.jsonl:1: ' "$work"
  expect 2 'decisions.jsonl:1: ' "$weir" replay "$work"
  cp "$work/decisions.jsonl" "$work/.weir-run.json"
  expect 2 'weir-run.json: it is no JSON object' "$weir" run --resume "$work"
done
rm "$work/.weir-run.json"
printf '\n\0' >"$work/decisions.jsonl"
told 2 'holds a zero byte' "$work"
expect 2 'holds a zero byte' "$weir" replay "$work"
echo '{]' >"$work/decisions.jsonl"
told 2 'decisions.jsonl:1: ' "$work"
echo '{"step":5,"epoch":1,"trigger":"start"}' >"$work/decisions.jsonl"
told 2 "decisions.jsonl:1: 'choice' must be an object" "$work"

echo '{"step":5,"epoch":1,"trigger":"start","latency_ms":2,"bandwidth_gbps":0.5,"predicted_ms":7,"switched":true,' \
  '"why":"9 % more","choice":{"plan":"bf16:1:dense-tree","progress_per_s":3}}' >"$work/decisions.jsonl"
told 0 '^Step 5: from the plan that the run began with to bf16:1:dense-tree$' "$work"
told 0 'Measured: This was the first decision. The network was at 2 ms one way and 0.5 Gbit/s.' "$work"
told 0 'Believed: 9 % more. A step under bf16:1:dense-tree was believed to take 7 ms.' "$work"
told 0 'Came of it: There is no steps.csv' "$work"
told 0 '"reasons":\[{"step":5,"switched":true,' --json "$work"
"$weir" explain --json "$work" | python3 -c '
import json, sys
(reason,) = json.load(sys.stdin)["reasons"]
assert reason["tried"] == "Nothing was tried for it." and "regret" not in reason, reason' || fail "the JSON"
echo 'step,epoch' >"$work/steps.csv"
told 2 'steps.csv:1: 2 columns' "$work"
told 0 'Exit codes: 0 done; 2 bad usage or bad input' --help
