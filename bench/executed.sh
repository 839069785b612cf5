#!/bin/bash
# Steps predicted and measured on the demo's network, phase by phase, for the demo's model and a deep one:
# one bucket, several, every tensor alone, and the plan (`weir profile`, which this calls for every cell).
#
#   bench/executed.sh WEIR OUT NETWORK [CELL...]     NETWORK: uml, tc or sim; CELL: MODEL-PHASE
#
# Prints a line a division and, of the plan, how many times as fast it is as one bucket and as every
# tensor alone, with the most that any division could be in the model.  4 workers.
#
# MODEL: mlp, the demo's; deep, 42 tensors, with batches for which its backward pass is about as long as its
# communication at 30 Mbit/s; accel, the same model as if an accelerator computed it (21 layers of 4 ms
# and 8 ms): on an emulated network all workers and the network itself share one processor, and what
# computes there cannot overlap with what sends there.
#
# paced and paceddeep: the demo's trainer and batch with either model, every worker as if on a processor of
# its own of 1 to 4 GFLOP/s (scenario key `gflops`), for which computing and communication weigh about the
# same; large gradients come in slices, for three quarters of the demo's model are one.  quant is paced with
# a codec that costs little, for an emulated network whose one processor also has to compress.
#
# Any other MODEL is the name of a profile, $PROFILES/MODEL.csv (tensor,numel,gap_us, as `weir plan` reads): tensors of
# its sizes divided by DIVIDE (100) whose gradients come at its gaps times STRETCH (1), sent compressed (PLAN) or as
# they are (NONE).  `PROFILES=DIR bench/executed.sh WEIR OUT NETWORK shapes` is all profiles of DIR in phase narrow:
# the plan against one bucket, every tensor alone and myopic choices, compressed and not; the last line of each says
# whether all predictions are within 10 % of what was measured, and the exit code is 1 where one is not.  What `weir plan
# fusion`, `weir plan strategy` and `weir plan bits` find for the shape is executed, too.
#
# With CLOCK=free-cpu the emulated network runs on a clock of its own (docs/guide/scenarios.md).  STEPS, TURN, PLAN,
# FAST (the plan in the phase fast), BATCH, GFLOPS, LATENCY (ms; 0 where there is no netem for tc),
# CODEC (`codec_gbps`; 0: as fast as it can) and SLICE in the environment replace what is set here.
set -u
[ $# -ge 3 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
weir=$1 out=$2 network=$3
shift 3
[ $# -gt 0 ] || set -- mlp-fast mlp-narrow mlp-far-and-narrow mlp-far \
  deep-fast deep-narrow deep-far-and-narrow deep-far
mkdir -p "$out" || exit 2
if [ "$*" = shapes ]; then
  set --
  for profile in "${PROFILES:?a folder of profiles}"/*.csv; do
    name=$(basename "$profile" .csv)
    set -- "$@" "$name-narrow"
  done
fi

# Names as short as a model's are, sizes and gaps in proportion.
shape() { # PROFILE
  awk -F, -v divide="${DIVIDE:-100}" -v stretch="${STRETCH:-1}" '
    NR == 1 { print; next }
    { n = int($2 / divide); printf "t%03d,%d,%.3f\n", NR - 2, (n > 1 ? n : 1), $3 * stretch }' "$1"
}

scenario() { # model phase -> file; sets plan, turn
  local batch=64 latency=${LATENCY:-1} gbps=25 steps=${STEPS:-96}
  plan=topk:0.01:ag:auto-bf16 turn=${TURN:-4}
  local model=$1 layer_ms=0 gflops=0 slice=0 shape=
  none=
  case $1 in
    deep) batch=1024 plan=topk:0.05:ag:auto-bf16 ;;
    accel) model=deep batch=16 layer_ms=4 plan=topk:0.06:ag:auto-bf16 ;;
    paced) model=mlp gflops=1.5 slice=50176 plan=topk:0.05:ag:auto-bf16 ;;
    paceddeep) model=deep gflops=3 slice=100352 plan=star:0.05:art-ring:auto-bf16 ;;
    quant) model=mlp gflops=1 slice=100352 plan=qsgd:0.09375:sra ;;
    mlp) ;;
    *)
      [ -f "${PROFILES:-}/$1.csv" ] || { echo "no model or profile $1" >&2; exit 2; }
      shape "$PROFILES/$1.csv" > "$out/$1-shape.csv"
      model=shaped batch=1 plan=topk:0.05:ag:auto-bf16 none=${NONE:-none:1:dense-ring} steps=${STEPS:-288}
      shape="shape = $1-shape.csv"
      ;;
  esac
  case $2 in
    fast)
      plan=${FAST:-bf16:1:dense-ring}
      [ "$1" != paced ] || { plan=${FAST:-none:1:dense-ring}; gflops=2; }
      [ "$1" != paceddeep ] || gflops=4
      ;;
    narrow) gbps=1 ;;
    far-and-narrow) latency=${LATENCY:-50} gbps=1 turn=${TURN:-3} steps=${STEPS:-84} ;;
    far) latency=${LATENCY:-50} turn=${TURN:-3} steps=${STEPS:-84} ;;
    *) echo "no phase $2" >&2; exit 2 ;;
  esac
  cat > "$out/$1-$2.ini" <<INI
[scenario]
name = executed
workers = 4
bandwidth_scale = 0.03
timeout_s = 30
segments = ${SEGMENTS:-16}
[training]
dataset = fashion-mnist
model = $model
$shape
$([ -n "$shape" ] || printf 'layer_ms = %s\ngflops = %s\nslice = %s\n' "$layer_ms" "${GFLOPS:-$gflops}" "${SLICE:-$slice}")
codec_gbps = ${CODEC:-0}
batch = ${BATCH:-$batch}
learning_rate = 0.02
momentum = 0.8
epochs = 1
steps_per_epoch = $steps
[phase all]
epochs = 1-1
latency_ms = $latency
bandwidth_gbps = $gbps
INI
}

# What `weir plan fusion` and `weir plan strategy` find for a shape, from what `weir profile` has learnt of it, executed:
# fusion by the measured costs of PLAN's codec; strategy by the link alone: buckets of top-k at a
# twentieth, which sends 0.036 of the bytes with indices and 16-bit values, or of nothing compressed.
planners() { # cell
  local dir=$out/$1 found
  "$weir" plan fusion "$dir/profile.csv" --compress-table "$dir/compress-1.csv" --comm-table "$dir/comm-1.csv" \
    --plan "${PLAN:-$plan}" --out "$dir/fusion.csv" --json > "$dir/fusion.json" &&
    "$weir" plan strategy "$dir/profile.csv" --machines 4 --per-machine 1 --inter $((1000 * ${LATENCY:-1})),0.03 --codec topk:0.05,0.036 \
      --gpu-ms 1000,0 --cpu-ms 0,0 --forbid 'all-to-all*,gather*' --no-hierarchical --fuse --out "$dir/strategy.csv" \
      --json > "$dir/strategy.json" || return 1
  sed -i 's/:0.05:ag,/:0.05:ag:auto-bf16,/' "$dir/strategy.csv"
  sed 's/^steps_per_epoch.*/steps_per_epoch = 40/' "$out/$1.ini" > "$out/$1-planner.ini"
  for found in fusion strategy; do
    "$weir" run "$out/$1-planner.ini" --out "$dir/$found" --network "$network" ${CLOCK:+--clock "$CLOCK"} \
      --policy "groups:$dir/$found.csv" > "$dir/$found.log" 2>&1 || { tail -1 "$dir/$found.log"; return 1; }
    python3 - "$1" "$found" "$dir" <<'PY'
import csv, json, statistics, sys
cell, found, folder = sys.argv[1:]
told = json.load(open(f'{folder}/{found}.json'))
at = [float(r['elapsed_s']) for r in csv.DictReader(open(f'{folder}/{found}/steps.csv'))][4:]
p, m = told['iteration_ms'], 1e3 * statistics.median(b - a for a, b in zip(at, at[1:]))
groups = sum(1 for _ in open(f'{folder}/{found}.csv')) - 1
print(f"{cell:20} {found:11} {'by weir plan ' + found:26} {groups:3} buckets  predicted {p:8.1f}"
      f"  measured {m:8.1f}  error {100 * (p / m - 1):+6.1f} %")
PY
  done
}

# What `weir plan bits` finds for a shape, from what policy bits has measured of its gradients, executed beside 4 bits for all, as
# one bucket and every tensor alone.  It foretells bytes, of which each of N ranks sends
# 2 (N - 1) / N, and the iteration by latency, rate and burst of the link alone (lab/shaper.c).
widths() { # cell
  local dir=$out/$1 name policy
  sed 's/^steps_per_epoch.*/steps_per_epoch = 40/' "$out/$1.ini" > "$out/$1-bits.ini"
  "$weir" run "$out/$1-bits.ini" --out "$dir/measured" --network sim --policy bits:knapsack:2 > "$dir/bits.log" 2>&1 &&
    "$weir" replay "$dir/measured" --bits "$dir/stats.csv" >> "$dir/bits.log" 2>&1 &&
    "$weir" plan bits "$dir/stats.csv" --profile "$dir/profile.csv" --link $((1000 * ${LATENCY:-1})),0.03 --burst 4096 --out "$dir/bits.csv" --json > "$dir/bits.json" ||
    { tail -1 "$dir/bits.log"; return 1; }
  for name in bits four tensors; do
    case $name in
      bits) policy=groups:$dir/bits.csv ;;
      four) policy=fixed:qsgd:0.125:sra ;;
      tensors) policy=groups:layers:qsgd:0.125:sra ;;
    esac
    "$weir" run "$out/$1-bits.ini" --out "$dir/$name" --network "$network" ${CLOCK:+--clock "$CLOCK"} \
      --policy "$policy" > "$dir/$name.log" 2>&1 || { tail -1 "$dir/$name.log"; return 1; }
  done
  python3 - "$1" "$dir" <<'PY'
import csv, json, statistics, sys
cell, folder = sys.argv[1:]
def steps(name):
    rows = list(csv.DictReader(open(f'{folder}/{name}/steps.csv')))[6:]
    at = [float(r['elapsed_s']) for r in rows]
    period = statistics.median(b - a for a, b in zip(at, at[1:]))
    return 1e3 * period, statistics.median(float(r['wire_bytes']) for r in rows)
told = json.load(open(f'{folder}/bits.json'))
bits, four, tensors = steps('bits'), steps('four'), steps('tensors')
groups = sum(1 for _ in open(f'{folder}/bits.csv')) - 1
sent, p = told['bytes'] * 2 * 3 / 4, told['iteration_ms']
print(f"{cell:20} {'bits':11} {'by weir plan bits':26} {groups:3} buckets  predicted {p:8.1f}"
      f"  measured {bits[0]:8.1f}  error {100 * (p / bits[0] - 1):+6.1f} %")
print(f"{cell:20} by weir plan bits: {sent:.0f} bytes foretold, {bits[1]:.0f} sent, error {100 * (sent / bits[1] - 1):+.1f} %;"
      f" 4 bits in one bucket {four[0]:.1f} ms ({four[1]:.0f} bytes), every tensor {tensors[0]:.1f}")
PY
}

failed=0
for cell; do
  scenario "${cell%%-*}" "${cell#*-}"
  if ! "$weir" profile "$out/$cell.ini" --out "$out/$cell" --network "$network" ${CLOCK:+--clock "$CLOCK"} --turn "$turn" \
    --plan "${PLAN:-$plan}" ${none:+--plan "$none" --within 10} --json > "$out/$cell.json" 2> "$out/$cell.log"; then
    echo "$cell: $(tail -1 "$out/$cell.log")"
    failed=1
    [ -s "$out/$cell.json" ] || continue
  fi
  python3 - "$cell" "$out/$cell.json" <<'PY'
import json, sys
cell, told = sys.argv[1], json.load(open(sys.argv[2]))
for r in told['runs']:
    p, m = r['predicted_ms'], r['measured_ms']
    print(f"{cell:20} {r['division']:11} {r['plan']:26} {r['groups']:3} buckets  predicted {p:8.1f}"
          f"  measured {m:8.1f}  error {100 * (p / m - 1):+6.1f} %")
planned = next(r for r in told['runs'] if r['division'] == 'planned')
for r in told['runs']:
    if r is not planned and len({r['plan'] for r in told['runs']}) > 2:
        print(f"{cell:20} {r['division']:11} {r['plan']:26} takes {r['measured_ms'] / planned['measured_ms']:.2f} times the plan's time")
worst = max(abs(r['predicted_ms'] / r['measured_ms'] - 1) for r in told['runs'])
print(f"{cell:20} largest error {100 * worst:.1f} %, {'within' if worst <= 0.1 else 'beyond'} 10 %")
print(f"{cell:20} plan / one bucket {told['over_one']:.2f} (bound {told['bound_over_one']:.2f})"
      f"   plan / every tensor {told['over_layers']:.2f} (bound {told['bound_over_layers']:.2f})"
      f"   order {told['order_right']:.0f} of {told['order_pairs']:.0f}")
PY
  [ -z "$none" ] || { planners "$cell" && widths "$cell"; } || failed=1
done
exit $failed
