#!/usr/bin/env bash
# DistributedDataParallel's own hooks and Weir's, side by side on the same emulated links: seconds to a
# target, by model, network and method.
#
#   bench/ddp.sh OUT [MODEL...]           default: mlp cnn gpt
#
# OUT/cells gets one JSON file a cell (a cell that has one is not run again), OUT/table.md the table.
# RATES (Mbit/s; "30 100 1000"), DELAYS (ms one way; 0, and 1 and 20 where there is netem), SEEDS ("1 2 3"),
# METHODS and LIMIT_S (of a training; 900) choose other cells; PYTHON (python3) is one that has torch, and
# for methods weir:* the package weir (`pip install ./python`).  WEIR (build-release/cli/weir) runs them.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
weir=${WEIR:-$here/../build-release/cli/weir}
python=${PYTHON:-python3}
limit=${LIMIT_S:-900}
[[ $# -ge 1 ]] || {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
models=("$@")
[[ $# -gt 0 ]] || models=(mlp cnn gpt)
read -ra rates <<<"${RATES:-30 100 1000}"
read -ra delays <<<"${DELAYS:-0}"
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra methods <<<"${METHODS:-fp32 fp16 bf16 powersgd:1:2 powersgd:1:10 powersgd:4:2 powersgd:4:10 local:4:20 \
  weir weir:fixed:none:1:dense-ring weir:fixed:bf16:1:dense-halving weir:fixed:qsgd:0.125:sra weir:fixed:powersgd:4:dense-ring}"
"$python" -c 'import torch' || {
  echo "ddp: $python has no torch; PYTHON names one that has" >&2
  exit 2
}
mkdir -p "$out/cells"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

total=$((${#models[@]} * ${#rates[@]} * ${#delays[@]} * ${#seeds[@]} * ${#methods[@]}))
number=0
began=$SECONDS
ran=0
for seed in "${seeds[@]}"; do
  for rate in "${rates[@]}"; do
    for delay in "${delays[@]}"; do
      for model in "${models[@]}"; do
        for method in "${methods[@]}"; do
          number=$((number + 1))
          cell=$model-${rate}mbit-${delay}ms-${method//:/_}-$seed
          [[ -e $out/cells/$cell.json ]] && continue
          eta=$((ran ? (SECONDS - began) / ran * (total - number + 1) : 0))
          echo "cell $number of $total: $cell (ETA $((eta / 60)) min)" >&2
          printf '[scenario]\nname = %s\nworkers = 4\n[phase all]\nseconds = 1\nlatency_ms = %s\nbandwidth_gbps = %s\n' \
            "$cell" "$delay" "$(awk -v r="$rate" 'BEGIN { print r / 1000 }')" >"$scratch/cell.ini"
          # Rank 0 writes into WEIR_OUT, which it may do over either network.
          # shellcheck disable=SC2016
          if "$weir" emulate "$scratch/cell.ini" --out "$scratch/out" --quiet --grace-s 60 --timeout-s $((limit + 300)) -- \
            sh -c 'exec "$@" --result "$WEIR_OUT/result.json"' sh "$python" "$here/ddp_train.py" --model "$model" \
            --method "$method" --seed "$seed" --limit "$limit" 2>"$scratch/errors"; then
            "$python" "$here/ddp_table.py" --cell "$scratch/out" "$rate" "$delay" >"$scratch/cell.json"
            mv "$scratch/cell.json" "$out/cells/$cell.json"
          else
            echo "ddp: $cell failed: $(tail -n 3 "$scratch/errors" "$scratch/out/rank-0.log" 2>/dev/null)" >&2
          fi
          ran=$((ran + 1))
        done
      done
    done
  done
done
"$python" "$here/ddp_table.py" "$out" | tee "$out/table.md"
