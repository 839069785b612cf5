#!/bin/bash
# How many steps a ratio costs: trains one model under fixed plans, without a network that matters, and
# prints steps until test accuracies are reached and the accuracy at the end, means over seeds.
# It is where the progress model of controller/candidates.c comes from.
#
#   bench/ratio_steps.sh WEIR [SEEDS=3] [STEPS=400]
set -euo pipefail
weir=$(realpath "${1:?usage: bench/ratio_steps.sh WEIR [SEEDS] [STEPS]}")
seeds=${2:-3}
steps=${3:-400}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/ratio.ini" <<INI
[scenario]
name = ratio
workers = 4
timeout_s = 300
[training]
batch = 64
learning_rate = 0.05
momentum = 0.9
epochs = $((steps / 10))
steps_per_epoch = 10
evaluate_every = 1
[phase all]
epochs = 1-$((steps / 10))
latency_ms = 0.1
bandwidth_gbps = 100
INI
plans=(none:1:dense-ring topk:{0.1,0.03,0.01,0.003,0.001}:ag star:{0.1,0.03,0.01,0.003}:art-ring)
echo "plan                      gain  to 0.80  to 0.84  accuracy at $steps"
done=0
total=$((${#plans[@]} * seeds))
for plan in "${plans[@]}"; do
  rm -f "$work"/rows
  for seed in $(seq "$seeds"); do
    "$weir" run "$work/ratio.ini" --network sim --policy "$plan" --seed "$seed" --out "$work/out" \
      >/dev/null 2>"$work/error" || { cat "$work/error" >&2; exit 1; }
    # columns 14 gain and 21 accuracy, which is that of the last test; a mean over three tests
    awk -F, -v s="$steps" 'NR > 1 {
        gain += $14; count++
        if (count % 10) next
        a3 = a2; a2 = a1; a1 = $21
        mean = count >= 30 ? (a1 + a2 + a3) / 3 : a1
        if (!lo && mean >= 0.80) lo = count
        if (!hi && mean >= 0.84) hi = count
      }
      END { print gain / count, lo ? lo : "never", hi ? hi : "never", mean }' \
      "$work/out/steps.csv" >>"$work/rows"
    done=$((done + 1))
    printf '\r%d of %d runs, %d s' "$done" "$total" "$SECONDS" >&2
  done
  awk -v plan="$plan" '
    function mean(sum, missing) { return missing ? "never" : sprintf("%.0f", sum / NR) }
    { g += $1; a += $4
      if ($2 == "never") no_lo = 1; else lo += $2
      if ($3 == "never") no_hi = 1; else hi += $3 }
    END { printf "\r%-24s %5.3f %8s %8s  %.4f\n", plan, g / NR, mean(lo, no_lo), mean(hi, no_hi), a / NR }
  ' "$work/rows"
done
