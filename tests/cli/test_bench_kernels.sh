#!/usr/bin/env bash
# weir bench kernels: every codec is there, messages have the sizes worked out by hand, absent peers
# are named, bad usage is refused.  Nothing here looks at a time.
set -euo pipefail
weir=$1

json=$("$weir" bench kernels --elements 64000 --rounds 3 --fit-ms 5 --no-peers --json)
for name in read copy 'error feedback' 'gain curve' 'gain curve, sampled' 'topk cr 0.01' 'mstopk cr 0.1' 'lwtopk cr 0.01' \
  'dgc cr 0.01' 'sidco cr 0.01' 'randomk cr 0.01' 'qsgd 4 bits encode' 'terngrad 2 bits decode add' \
  'decode auto-fp32 cr 0.001' 'decode dense auto-fp16 cr 0.1'; do
  grep -qF "{\"name\":\"$name\",\"data\":\"normal\",\"ms\":" <<<"$json" || { echo "no $name: $json"; exit 1; }
done
for data in gradient equal huge denormal sorted zero; do
  grep -qF "{\"name\":\"topk cr 0.01\",\"data\":\"$data\"" <<<"$json" || { echo "no $data: $json"; exit 1; }
done
# 64000 elements in buckets of 128: 16 bytes, and 500 times 8 bytes of scales and 64 of codes: 36016.
# u32-fp32 at 0.01: 16 bytes and 8 for each of 640.
grep -qE '"qsgd 4 bits encode","data":"normal",[^}]*"bytes_each":0.5627[0-9]*}' <<<"$json" ||
  { echo "qsgd: $json"; exit 1; }
grep -qE '"encode u32-fp32 cr 0.01","data":"normal",[^}]*"bytes_each":8.02[0-9]*}' <<<"$json" ||
  { echo "u32-fp32: $json"; exit 1; }
grep -qF '"torch.topk":{"absent":"not asked for"}' <<<"$json" || { echo "peers: $json"; exit 1; }

# Every codec has a line.
for codec in none bf16 topk star randomk qsgd fp16; do
  grep -qE "\{\"codec\":\"$codec\",\"cr\":[^{]*\"compress\":\[\{\"alpha_us\":[0-9.e+-]*,\"beta_ns\":" <<<"$json" ||
    { echo "no line of $codec: $json"; exit 1; }
done

# Fitted on what is always run alone: of 1500, 5000, 20000 and 50000 elements, and of no larger size,
# every codec's cells tell how far they are off and how far apart two measurements are.
json=$("$weir" bench kernels --elements 64000 --rounds 2 --fits --fit-ms 0 --json)
grep -qF '"fit_each_ms":0.0,' <<<"$json" || { echo "budget: $json"; exit 1; }
for n in 1500 5000 20000 50000; do
  cells=$(grep -oE "\"elements\":$n.0,\"error_pct\":[0-9.e+-]+,\"single_pct\":[0-9.e+-]+,\"noise_pct\":[0-9.e+-]+,\"verdict\":\"(within|off|cannot tell)\"}" <<<"$json" | wc -l)
  [ "$cells" = 26 ] || { echo "$cells cells of $n: $json"; exit 1; }
done
# The tally is that of the cells: 4 sizes of 26 codecs, and a verdict for each.
count() { grep -oE "\"$1\":$2" <<<"$json" | wc -l; }
tally() { grep -oE "\"$1\":[0-9]+" <<<"$json" | grep -oE '[0-9]+$'; }
[ "$(tally fit_cells)" = 104 ] || { echo "cells: $json"; exit 1; }
[ "$(tally fit_cells_off)" = "$(count verdict '"off"')" ] || { echo "off: $json"; exit 1; }
[ "$(tally fit_cells_that_cannot_tell)" = "$(count verdict '"cannot tell"')" ] || { echo "unclear: $json"; exit 1; }
if grep -qF '"elements":180000.0,' <<<"$json"; then echo "not asked for: $json"; exit 1; fi

table=$("$weir" bench kernels --elements 1000 --rounds 1 --fit-ms 5 --cpu scalar --cr 0.02 --no-peers)
grep -q '^# 1000 floats, one core, scalar' <<<"$table" || { echo "$table"; exit 1; }
grep -q '^# no torch.topk: not asked for' <<<"$table" || { echo "$table"; exit 1; }
grep -q '^sorted *topk cr 0.02 ' <<<"$table" || { echo "$table"; exit 1; }

# A python without torch, and one that is none: said, and not a failure.
folder=$(mktemp -d)
printf '#!/bin/sh\nexit 3\n' >"$folder/python3"
chmod +x "$folder/python3"
peers=$(PATH="$folder:$PATH" "$weir" bench kernels --elements 1000 --rounds 1 --fit-ms 5)
grep -q 'torch.topk' <<<"$peers" || { echo "$peers"; exit 1; }
"$weir" bench kernels --help | grep -q -- '--no-peers'
"$weir" bench kernels --help | grep -q 'cannot tell, whatever the fit says'

refused() {
  local code=0
  "$weir" bench kernels "$@" >/dev/null 2>"$folder/refused.txt" || code=$?
  [ $code = 2 ] && grep -qE 'expected|unexpected|Unknown|Cannot parse' "$folder/refused.txt" ||
    { echo "not refused ($code): $*"; cat "$folder/refused.txt"; exit 1; }
}
refused --elements 10
refused --elements many
refused --rounds 0
refused --rounds 102
refused --cr 0
refused --cr 0.5
refused --cr nan
refused --fit-ms -1
refused --fit-ms 1001
refused --fit-ms nan
refused --cpu abacus
refused --fast
refused now
rm -r "$folder"
