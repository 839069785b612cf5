#!/bin/bash
# `weir replay`: a run's decisions come out the same again; a doctored journal does not; bad input is
# exit 2 with file and line.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
replayed() { expect "$1" "$2" "$weir" replay "${@:3}"; }

replayed 2 'No such file' "$work/none.jsonl"
replayed 2 'expected one run' 
replayed 2 'Unknown option' --what x
printf '{"decision":0}\n' >"$work/a.jsonl"
replayed 2 'a.jsonl:1: .*expected format 2' "$work/a.jsonl"
printf '{"format":3,"decision":0}\n' >"$work/a.jsonl"
replayed 2 'a.jsonl:1: format 3; weir .* reads format 2' "$work/a.jsonl"
printf '{"format":"1","decision":0}\n' >"$work/a.jsonl"
replayed 2 'a.jsonl:1: format: expected a number' "$work/a.jsonl"
printf '{"format":2,"decision":0}\n' >"$work/a.jsonl"
replayed 2 "a.jsonl:1: expected a member 'input'" "$work/a.jsonl"
printf '{]\n' >"$work/b.jsonl"
replayed 2 'b.jsonl:1: expected a JSON object' "$work/b.jsonl"
: >"$work/empty.jsonl"
replayed 0 '^0 decisions, 0 different' "$work/empty.jsonl"
mkdir "$work/pipe" && mkfifo "$work/pipe/decisions.jsonl"
replayed 2 'pipe/decisions.jsonl: is no regular file' "$work/pipe"

"$weir" bench zip >/dev/null 2>&1; [ $? -eq 2 ] || fail "weir bench zip: not exit 2"

few_images "$work/few" || exit 1
# Few short steps on few images, and what they learn is not the subject: only evaluated at the end.
sed 's/^steps_per_epoch *=.*/steps_per_epoch = 2/; s/^evaluate_every.*/evaluate_every = 50/
  s/^model *=.*/model = cnn\nchannels = 16/; s|^batch *=.*|batch = 8\ndata_dir = '"$work"'/few|' "$source/scenarios/demo.ini" >"$work/short.ini"
# Policy paper's many trials take half of the time of all; under a sanitizer the others' journals do.
policies=(weir weir-bold paper fixed:star:0.01:art-tree bits:knapsack:2:10)
sanitized && policies=(weir weir-bold fixed:star:0.01:art-tree bits:knapsack:2:10)
for policy in "${policies[@]}"; do
  run=$work/run-${policy%%:*}
  risk=()
  [ $policy = weir-bold ] && risk=(--risk bold)
  "$weir" run "$work/short.ini" --network sim --policy "${policy%-bold}" "${risk[@]}" --out "$run" >"$work/log" 2>&1 ||
    { tail -5 "$work/log"; fail "weir run --policy $policy"; }
  [ -s "$run/decisions.jsonl" ] || fail "$policy: no decisions"
  replayed 0 ', 0 different' "$run"
  replayed 0 '"different":0' --json "$run/decisions.jsonl" --steps "$run/steps.csv"
done

# Steps of a plan in buckets are steps of the choice that was divided.
run=$work/run-weir
counted() { "$weir" replay --json "$run/decisions.jsonl" --steps "$1" | grep -o '"steps":[0-9]*'; }
sed -E '2,$s|^([^,]*,[^,]*,[^,]*,[^,/]*)|\1/7|' "$run/steps.csv" >"$work/divided.csv"
grep -q '/7,' "$work/divided.csv" || fail "no step is in buckets"
[ "$(counted "$work/divided.csv")" = "$(counted "$run/steps.csv")" ] || fail "steps in buckets are not counted"

# Other errors lead to other widths; what no journal holds is refused.
run=$work/run-bits
sed -E '1s/"error2":\[[^],]+/"error2":[0/g' "$run/decisions.jsonl" >"$work/g.jsonl"
replayed 1 'DIFFERS' "$work/g.jsonl"
sed -E '2s/"error2":\[[0-9][^],]*,/"error2":[/' "$run/decisions.jsonl" >"$work/h.jsonl"
replayed 2 'h.jsonl:2: expected .bits.' "$work/h.jsonl"
sed -E '1s/"alpha":[^,]*/"alpha":0.5/' "$run/decisions.jsonl" >"$work/i.jsonl"
replayed 2 'i.jsonl:1: expected .bits.' "$work/i.jsonl"

run=$work/run-weir
sed '1s/"latency_s":[^,]*/"latency_s":"x"/' "$run/decisions.jsonl" >"$work/c.jsonl"
replayed 2 'c.jsonl:1: input.latency_s: expected a number' "$work/c.jsonl"
sed '2s/"bandwidth_bytes_s":[^,]*/"bandwidth_bytes_s":-1/' "$run/decisions.jsonl" >"$work/d.jsonl"
replayed 2 'd.jsonl:2: .*bandwidth' "$work/d.jsonl"
head -c 300 "$run/decisions.jsonl" >"$work/e.jsonl"
replayed 2 'e.jsonl:1: expected a JSON object' "$work/e.jsonl"
# Journals from before there were risks are of what is bold now.
run=$work/run-weir-bold
sed -E 's/"(risk|largest)":[0-9]+,//g; s/"(overhead_more_(s|latencies)|shown)":\[[^]]*\],//g' "$run/decisions.jsonl" >"$work/k.jsonl"
grep -qE "\"(risk|largest)\"" "$work/k.jsonl" && fail "the older journal is none"
replayed 0 ', 0 different' "$work/k.jsonl"
run=$work/run-weir
# Another network in the input leads to another choice: the difference must be noticed.
sed -E '1s/"(bandwidth|goodput)_bytes_s":[^,]*/"\1_bytes_s":1e5/g' "$run/decisions.jsonl" >"$work/f.jsonl"
replayed 1 'DIFFERS' "$work/f.jsonl"
# A trial's verdict follows from its samples: six that are all 1 hold the loss.
trial() { # trial FILE VERDICT SAMPLES
  sed "1s/\"trigger\":1,/\"trigger\":8,/; 1s/\"input\":/\"trial\":{\"plan\":\"powersgd:16:dense-sra\",\"verdict\":\"$2\",\"samples\":$3},\"input\":/" \
    "$run/decisions.jsonl" >"$1"
}
trial "$work/l.jsonl" holds '[1,1,1,1,1,1]'
replayed 0 ', 0 different' "$work/l.jsonl"
trial "$work/m.jsonl" falls '[1,1,1,1,1,1]'
replayed 1 'DIFFERS' "$work/m.jsonl"
trial "$work/n.jsonl" holds '["x"]'
replayed 2 "n.jsonl:1: expected 'trial'" "$work/n.jsonl"
sed 's/"trial":{"plan":"[^"]*"/"trial":{"plan":"qsgd"/' "$work/l.jsonl" >"$work/o.jsonl"
replayed 2 "o.jsonl:1: expected 'trial'" "$work/o.jsonl"
sed '1s/"risk":[0-9]*/"risk":3/' "$run/decisions.jsonl" >"$work/j.jsonl"
replayed 2 'j.jsonl:1: .*risk' "$work/j.jsonl"
run=$work/run-weir-bold
# As a spreadsheet stores them; and a journal in parts, the oldest of them dropped.
{ printf '\357\273\277' && sed 's/$/\r/' "$run/steps.csv"; } >"$work/crlf.csv"
{ printf '\357\273\277' && sed 's/$/\r/' "$run/decisions.jsonl"; } >"$work/crlf.jsonl"
"$weir" replay --json "$run/decisions.jsonl" --steps "$run/steps.csv" >"$work/plain.json"
"$weir" replay --json "$work/crlf.jsonl" --steps "$work/crlf.csv" >"$work/crlf.json" || fail "CR LF"
cmp "$work/plain.json" "$work/crlf.json" || fail "CR LF makes a difference"
lines=$(wc -l <"$run/decisions.jsonl")
[ "$lines" -ge 4 ] || fail "only $lines decisions"
sed -n '2p' "$run/decisions.jsonl" >"$work/parts.2"
sed -n '3p' "$run/decisions.jsonl" >"$work/parts.1"
sed '1,3d' "$run/decisions.jsonl" >"$work/parts"
"$weir" replay --json "$work/parts" >"$work/parts.json" || fail "a journal in parts"
[ "$(grep -o '"decision":[0-9]*' "$work/parts.json" | cut -d: -f2 | xargs)" = "$(seq -s ' ' 1 $((lines - 1)))" ] ||
  fail "a journal in parts is read in another order: $(cat "$work/parts.json")"
echo '{]' >>"$work/parts.1"
replayed 2 'parts.1:2: expected a JSON object' "$work/parts"
sed '3s/,/,,/' "$run/steps.csv" >"$work/steps.csv"
replayed 2 'steps.csv:3: expected' "$run/decisions.jsonl" --steps "$work/steps.csv"
echo ok
