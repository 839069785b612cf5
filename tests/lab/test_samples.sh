#!/usr/bin/env bash
# Samples by way of a slow source, and of a cache of it: every model learns the same as from the data set itself.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
. "$source/tests/ports.sh"

# train NAME MODEL KEYS: two workers over TCP on the loopback; prints rank 0's weights and seconds.
train() {
  local name=$1 model=$2 keys=$3 port pids=()
  port=$(free_port)
  cat >"$work/$name.ini" <<END
[scenario]
workers = 2
seed = 3
timeout_s = 60
policy = fixed:none:1:dense-ring
[training]
model = $model
batch = 16
learning_rate = 0.05
epochs = 3
steps_per_epoch = 10
evaluate_every = 3
train_limit = 320
$keys
[phase one]
epochs = 1-3
latency_ms = 1
bandwidth_gbps = 1
END
  for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 300 \
      "$weir" train "$work/$name.ini" --out "$work/$name" >"$work/$name.$rank" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || fail "$name: $(cat "$work/$name".[01])"
  done
}
weights() {
  python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["weights_sha256"])' "$work/$1/summary.json"
}

# What sources and caches do goes by bytes: under a sanitizer one model shows it.
models=(mlp gpt recommender)
sanitized && models=(mlp)
for model in "${models[@]}"; do
  train plain-$model $model ""
  [[ $model != mlp ]] || train slow-$model $model "source_ms = 1"
  train cached-$model $model $'source_ms = 1\nsource_mb_s = 50\ncache_mb = 4'
  for way in slow cached; do
    [[ -e $work/$way-$model ]] || continue
    [[ -n $(weights plain-$model) && $(weights plain-$model) == $(weights $way-$model) ]] ||
      fail "$model: other weights by way of the $way source"
  done
  grep -q "asks rank" "$work"/cached-$model.[01] && fail "$model: a rank was lost: $(cat "$work"/cached-$model.[01])"
done

# Virtual time knows nothing of sources, and says so.
sed 's/^cache_mb.*/cache_mb = 1/' "$work/cached-mlp.ini" >"$work/sim.ini"
"$weir" run "$work/sim.ini" --network sim --out "$work/sim" 2>"$work/errors" && fail "network sim took a source"
grep -q "are for real time" "$work/errors" || fail "network sim: $(cat "$work/errors")"
