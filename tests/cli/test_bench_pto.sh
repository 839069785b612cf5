#!/usr/bin/env bash
# weir bench pto: every work is there, divided or not to the same bits, and modelled up to 128 ranks; bad
# usage is refused.  Nothing here looks at a time.
set -euo pipefail
weir=$1

json=$("$weir" bench pto --ranks 3 --tensors 7 --elements 400001 --repeats 2 --json)
for work in 'lars scales' 'lamb scales' 'lamb step' 'all of it'; do
  grep -qE "\"work\":\"$work\",\"one_ms\":[0-9.e+-]+,\"every_ms\":[0-9.e+-]+,\"divided_ms\":[0-9.e+-]+,\"every_cpu_ms\":[0-9.e+-]+,\"divided_cpu_ms\":[0-9.e+-]+,\"same_bits\":true" <<<"$json" ||
    { echo "no $work: $json"; exit 1; }
done
[ "$(grep -oE '"ranks":128,"ms":[0-9.e+-]+' <<<"$json" | wc -l)" = 4 ] || { echo "model: $json"; exit 1; }
table=$("$weir" bench pto --ranks 1 --tensors 1 --elements 1 --repeats 1)
[ "$(grep -c ' same$' <<<"$table")" = 4 ] || { echo "$table"; exit 1; }
[ "$("$weir" bench pto --ranks 2 --elements 1000 --repeats 1 --work 'all of it' | grep -c ' same$')" = 1 ]
"$weir" bench pto --help | grep -q -- '--tensors'

refused() {
  local code=0 told named=${*: -2:1}
  told=$("$weir" bench pto "$@" 2>&1 >/dev/null) || code=$?
  [[ $code == 2 && $told == *"$named"* ]] || { echo "exit code $code of: $*: $told"; exit 1; }
}
refused --ranks 0
refused --ranks 129
refused --tensors 5 --elements 4
refused --repeats 0
refused --work 'none of it'
refused --bandwidth-gbps 0
refused --latency-ms nan
refused --ranks three
