#!/usr/bin/env bash
# weir bench cache: a second epoch comes from memory; JSON is one object; bad usage is refused, by the option's name.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"

# 20 samples of 20 ms each, read one after the other: 0.2 s a rank, of which the cache needs nothing again.
cache=("$weir" bench cache --ranks 2 --samples 20 --sample-kb 1)
json=$("${cache[@]}" --json 2>"$work/errors") || fail "--json: $(cat "$work/errors")"
[[ ! -s $work/errors ]] || fail "--json complains: $(cat "$work/errors")"
[[ $json == '{"ranks":2,"samples":20,"sample_kb":1,"source_s":'*'"third_s":'*'}' ]] || fail "$json"
awk -v source="$(value "$json" source_s)" -v second="$(value "$json" second_s)" \
  'BEGIN { exit !(source >= 0.2 && second < source) }' || fail "$json"
[[ $("${cache[@]}" --latency-ms 0 | wc -l) == 7 ]] || fail "no table"

for wrong in '--ranks 17' '--samples 3' '--sample-kb 0' '--readers 65' '--latency-ms nan' '--mb-s 0'; do
  # shellcheck disable=SC2086
  expect 2 "^weir bench cache: expected ${wrong% *}: " "$weir" bench cache $wrong
done
