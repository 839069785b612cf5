#!/usr/bin/env bash
# DistributedDataParallel's own hooks and Weir's, side by side on the same emulated links: seconds to a
# target, by model, network and method.
#
#   bench/ddp.sh OUT [MODEL...]                          default: mlp cnn gpt
#   bench/ddp.sh OUT --cell MODEL:MBIT_S:MS:SEED...      these cells alone, such as mlp:30:1:2
#   bench/ddp.sh OUT --cell MODEL:C1:SEED...             over schedule C1, as below
#
# C1 has the four phases of scenarios/c1.ini, whose bandwidth is a twentieth of the paper's; each lasts
# 20 s here from the first exchange on, and after the last one the first is back.
#
# OUT/cells gets one JSON file a cell and method (one that is there is not run again), OUT/table.md the tables,
# OUT/ratios.json what policy weir took beside the best of PyTorch's hooks and the best fixed plan.
# RATES (Mbit/s; "30 100 1000"), DELAYS (ms one way; 0; others take netem, or User-Mode Linux), SEEDS ("1 2 3"),
# METHODS and LIMIT_S (of a training; 900) choose other cells; WHOLE=1 trains on after the target, by
# which the last loss or accuracy is compared.  PYTHON (python3) is one that has torch, and for methods
# weir:* the package weir (`pip install ./python`).  WEIR (build-release/cli/weir) runs them.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
weir=${WEIR:-$here/../build-release/cli/weir}
python=${PYTHON:-python3}
limit=${LIMIT_S:-900}
usage() {
  sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
[[ $# -ge 1 && $1 != -* ]] || usage
out=$1
shift
read -ra methods <<<"${METHODS:-fp32 fp16 bf16 powersgd:1:2 powersgd:1:10 powersgd:4:2 powersgd:4:10 local:4:20 \
  weir weir:fixed:none:1:dense-ring weir:fixed:bf16:1:dense-halving weir:fixed:qsgd:0.125:sra weir:fixed:powersgd:4:dense-ring \
  weir:fixed:powersgd:4:dense-sra}"

cells=()
if [[ ${1:-} == --cell ]]; then
  cells=("${@:2}")
else
  read -ra rates <<<"${RATES:-30 100 1000}"
  read -ra delays <<<"${DELAYS:-0}"
  read -ra seeds <<<"${SEEDS:-1 2 3}"
  [[ $# -gt 0 ]] || set -- mlp cnn gpt
  for seed in "${seeds[@]}"; do
    for rate in "${rates[@]}"; do
      for delay in "${delays[@]}"; do
        for model; do cells+=("$model:$rate:$delay:$seed"); done
      done
    done
  done
fi
[[ ${#cells[@]} -gt 0 ]] || usage
for cell in "${cells[@]}"; do
  [[ $cell =~ ^(mlp|cnn|gpt|lstm|lstm-clipped|vit):(C1|[0-9.]+:[0-9.]+):[0-9]+$ ]] || {
    echo "ddp: cell '$cell'; expected MODEL:MBIT_S:MS:SEED or MODEL:C1:SEED, with model mlp, cnn, gpt, lstm," \
      "lstm-clipped or vit, such as mlp:30:1:2" >&2
    exit 2
  }
done
# phase NAME SECONDS MS MBIT_S, of a scenario.
phase() {
  printf '[phase %s]\nseconds = %s\nlatency_ms = %s\nbandwidth_gbps = %s\n' "$1" "$2" "$3" \
    "$(awk -v r="$4" 'BEGIN { print r / 1000 }')"
}
# network NET: the scenario's phases, of MBIT_S:MS or C1.
network() {
  if [[ $1 != C1 ]]; then
    phase all 1 "${1#*:}" "${1%:*}"
    return
  fi
  for ((round = 1; round <= 16; round++)); do # a scenario has up to 64 phases: 21 minutes
    phase "fast-$round" 20 1 1250
    phase "narrow-$round" 20 1 50
    phase "far-and-narrow-$round" 20 50 50
    phase "far-$round" 20 50 1250
  done
}
"$python" -c 'import torch' || {
  echo "ddp: $python has no torch; PYTHON names one that has" >&2
  exit 2
}
mkdir -p "$out/cells"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

total=$((${#cells[@]} * ${#methods[@]}))
number=0
began=$SECONDS
ran=0
for cell in "${cells[@]}"; do
  model=${cell%%:*} seed=${cell##*:} net=${cell#*:}
  net=${net%:*}
  for method in "${methods[@]}"; do
    number=$((number + 1))
    name=$model-$([[ $net == C1 ]] && echo C1 || echo "${net%:*}mbit-${net#*:}ms")-${method//:/_}-$seed
    file=$out/cells/$name.json
    [[ -e $file ]] && { [[ -z ${WHOLE:-} ]] || grep -q '"whole": true' "$file"; } && continue
    eta=$((ran ? (SECONDS - began) * (total - number + 1) / ran : 0))
    echo "cell $number of $total: $name (ETA $((eta / 60)) min)" >&2
    {
      printf '[scenario]\nname = %s\nworkers = 4\n' "$name"
      network "$net"
    } >"$scratch/cell.ini"
    rm -rf "$scratch/out"
    # Rank 0 writes into WEIR_OUT, which it may do over either network.
    # shellcheck disable=SC2016
    if "$weir" emulate "$scratch/cell.ini" --out "$scratch/out" --quiet --grace-s 60 --await-traffic \
      --timeout-s $((limit + 900)) -- \
      sh -c 'exec "$@" --result "$WEIR_OUT/result.json"' sh "$python" "$here/ddp_train.py" --model "$model" \
      --method "$method" --seed "$seed" --limit "$limit" ${WHOLE:+--whole} 2>"$scratch/errors" &&
      "$python" "$here/ddp_table.py" --cell "$scratch/out" "$net" >"$scratch/cell.json"; then
      cp "$scratch/cell.json" "$file.new"
      mv "$file.new" "$file"
    else
      # Who ended first may be why, and stands before what the others say of it.
      echo "ddp: $name failed: $(grep -m 1 " ended " "$scratch/errors")" >&2
      tail -n 3 "$scratch/errors" "$scratch/out/rank-0.log" >&2 2>/dev/null || true
    fi
    ran=$((ran + 1))
  done
done
"$python" "$here/ddp_table.py" "$out" | tee "$out/.table.md.new"
mv "$out/.table.md.new" "$out/table.md"
