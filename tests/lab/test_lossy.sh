#!/bin/bash
# Links that lose 1 % of the packets, send 5 % ahead of the others and repeat 1 %: every all-reduce and
# training give the same bits as over links that do not.  What the monitor took the links for is told.
# Where this kernel has no netem, inside User-Mode Linux.
set -u
weir=$(realpath "$1")
tools=$(cd "$(dirname "$1")/../tests" && pwd)
if grep -Eq "__(asan|tsan)_init" "$weir"; then
  echo "SKIPPED: User-Mode Linux has 39 bits of address space, and a sanitizer's shadow memory needs 47"
  exit 77
fi
work=$(mktemp -d)
# shellcheck source=tests/images.sh
. "$2/tests/images.sh"
pids=()
finish() {
  ((${#pids[@]} == 0)) || { kill "${pids[@]}"; wait; }
  rm -rf "$work"
}
trap finish EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*"; exit 1; }

# --- collectives ------------------------------------------------------------------------------------------------

ranks() { # LOSS REORDER DUPLICATE
  "$tools/lossy_ranks" 4 200 5 "$@"
  local code=$?
  [ $code = 77 ] || return $code
  "$tools/uml_exec" -t 1500 "$tools/lossy_ranks" 4 200 5 "$@"
}
ranks 0 0 0 >clean 2>log
code=$?
[ $code = 77 ] && { echo "SKIPPED: neither netem nor User-Mode Linux is to be had here"; exit 77; }
[ $code = 0 ] || fail "without faults: exit $code: $(cat log)"
ranks 1 5 1 >lossy 2>log || fail "with faults: exit $?: $(cat log)"
grep -Eq '^results [0-9a-f]{16}$' clean || fail "no digest: $(cat clean)"
[ "$(grep ^results clean)" = "$(grep ^results lossy)" ] ||
  fail "other results over lossy links: $(cat clean lossy)"
# The links really were so: TCP sent some packets again, and heard that others had come twice.
awk '/^mended/ { exit !($2 > 20 && $6 > 0) }' lossy || fail "nothing was lost: $(grep ^mended lossy)"
echo "collectives: $(grep ^results lossy); $(grep ^mended lossy); without faults: $(grep ^mended clean)"

# --- training ---------------------------------------------------------------------------------------------------

[ -d /usr/share/datasets/fashion-mnist ] ||
  { echo "SKIPPED: dataset-fashion-mnist is not installed"; exit 77; }
few_images few || exit 1
scenario() { # LOSS REORDER DUPLICATE
  cat <<INI
[scenario]
name = lossy
workers = 4
bandwidth_scale = 1
timeout_s = 120
seed = 3
[training]
data_dir = $work/few
batch = 16
learning_rate = 0.05
epochs = 2
steps_per_epoch = 5
[phase only]
epochs = 1-2
latency_ms = 5
bandwidth_gbps = 0.1
loss_percent = $1
reorder_percent = $2
duplicate_percent = $3
INI
}
scenario 0 0 0 >clean.ini
scenario 1 5 1 >lossy.ini
weights() { grep -Eo '"[0-9a-f]{64}"' "$1/summary.json" | sort -u; }
# Three plans in one training: dense, of indices that a rank tells, and of messages that are gathered.
# What one of them had lost would be missing at the end.
plans='none:1:dense-ring;step=3:star:0.01:art-tree;step=6:topk:0.01:ag:auto-bf16'
for links in clean lossy; do # both at once: they wait most of the time
  "$weir" run "$work/$links.ini" --policy "schedule:$plans" --out "$work/$links.out" >$links.log 2>&1 &
  pids+=($!)
done
for links in clean lossy; do
  wait "${pids[0]}" || fail "$links: exit $?: $(cat $links.log)"
  pids=("${pids[@]:1}")
  grep -Eq '"network" : "(tc|uml)"' $links.out/summary.json || fail "not over a real network"
  [ "$(weights $links.out | wc -l)" = 1 ] || fail "$links: the weights differ between ranks"
  # How messages and lists of indices are gathered goes by what is measured of the links.
  [ "$(awk -F, 'NR > 1 { sub(/ag-[a-z-]+/, "ag", $4); sub(/[+][a-z-]+/, "", $4); print $4 }' \
    $links.out/steps.csv | uniq -c | xargs)" = \
    "3 none:1:dense-ring 3 star:0.01:art-tree 4 topk:0.01:ag:auto-bf16" ] || fail "$links: other plans"
done
[ "$(weights clean.out)" = "$(weights lossy.out)" ] || fail "other weights over lossy links"
for links in clean lossy; do
  awk -F, -v what="$links" 'NR > 1 && $17 != "" { seen = $17 / $19; delay = $16 / $18 }
    END { printf "%s: bandwidth %.3f, latency %.3f of what is set\n", what, seen, delay }' \
    $links.out/steps.csv
done
