#!/usr/bin/env bash
# weir train over NCCL, for which a library stands in (tests/nccl/mock_processes.c): it has NCCL load Weir's tuner, and
# plans switch ring and tree at the same all-reduce on all ranks.
set -u
source=$2
# shellcheck source=tests/nccl/library.sh
. "$source/tests/nccl/library.sh"
has_mock || { echo "skipped: this build has no NCCL"; exit 77; }
case ${WEIR_CFLAGS:-} in *fsanitize=thread*) echo "skipped: OpenMP's runtime is not built for ThreadSanitizer"; exit 77 ;; esac
# shellcheck source=tests/ports.sh
. "$source/tests/ports.sh"
# shellcheck source=tests/mpi/common.sh
. "$source/tests/mpi/common.sh"
unset NCCL_ALGO NCCL_TUNER_PLUGIN
link_mock "$folder/lib"

# group NAME POLICY TRANSPORT [VARIABLE=VALUE...]: four ranks.
group() {
  local name=$1 rank pid port code=0
  rm -rf "${folder:?}/$name" "$folder/$name".ran.*
  port=$(free_port) || exit 1
  pids=()
  for rank in 0 1 2 3; do
    timeout -k 5 450 env LD_LIBRARY_PATH="$folder/lib" WEIR_MOCK_RAN="$folder/$name.ran" RANK=$rank WORLD_SIZE=4 \
      MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "${@:4}" "$weir" train "$folder/short.ini" --out "$folder/$name" \
      --policy "$2" --transport "$3" >"$folder/$name.$rank.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
  pids=()
  return $code
}

# A port may be somebody's all the same.
attempt() {
  local try
  for try in 1 2 3; do
    group "$@" && return 0
    grep -q 'already in use' "$folder/$1".*.log || return 1
  done
  return 1
}

# ran NAME: by what the all-reduces of all ranks ran, which must be one.
ran() {
  local rank all
  all=$(cat "$folder/$1.ran.0")
  for rank in 1 2 3; do
    [[ $(cat "$folder/$1.ran.$rank") == "$all" ]] || fail "$1: rank $rank ran $(cat "$folder/$1.ran.$rank"), rank 0 $all"
  done
  echo "$all"
}

attempt own fixed:none:1:native nccl || fail "NCCL's own choice"
[[ $(ran own) == oooooooooooo ]] || fail "NCCL's own choice: $(ran own)"
due=$(digest "$folder/own") || exit 1
# The library that stands for NCCL adds in the order of ranks, whatever the algorithm.
attempt switched 'schedule:none:1:native-ring;step=4:none:1:native-tree;step=9:none:1:native' nccl || fail "a schedule"
[[ $(ran switched) == rrrrtttttooo ]] || fail "a schedule ran $(ran switched)"
[[ $(digest "$folder/switched") == "$due" ]] || fail "a schedule: other weights than NCCL's own choice"
echo "ok: ring, tree and NCCL's own choice, from step to step"

attempt chosen weir nccl || fail "policy weir"
grep -q '"told":1' "$folder/chosen/decisions.jsonl" || fail "policy weir does not know that NCCL can be told"
grep -q 'none:1:native-tree' "$folder/chosen/decisions.jsonl" || fail "policy weir does not look at NCCL's tree"
echo "ok: policy weir looks at NCCL's ring and tree"

# refused WHY TRANSPORT [VARIABLE=VALUE...]: on all ranks.
refused() {
  local rank
  group refused fixed:none:1:native-ring "${@:2}" && fail "not refused: ${*:2}"
  for rank in 0 1 2 3; do
    grep -qF -- "$1" "$folder/refused.$rank.log" || fail "rank $rank does not say '$1' with ${*:2}"
  done
  echo "ok: refused ${*:2}"
}
refused 'NCCL_ALGO is set, which no tuner can change' nccl NCCL_ALGO=Tree
refused 'NCCL has not loaded the library that NCCL_TUNER_PLUGIN names' nccl NCCL_TUNER_PLUGIN=/nowhere/tuner.so
refused 'collective native-ring needs transport nccl' tcp
