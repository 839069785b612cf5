#!/usr/bin/env bash
# weir train in the environments of torchrun and Slurm, which are only imitated here: the same weights
# as everywhere; and environments that make no sense are refused.
set -u
source=$2
case ${WEIR_CFLAGS:-} in *fsanitize=thread*) echo "skipped: OpenMP's runtime is not built for ThreadSanitizer"; exit 77 ;; esac
# shellcheck source=tests/ports.sh
. "$source/tests/ports.sh"
# shellcheck source=tests/mpi/common.sh
. "$source/tests/mpi/common.sh"
policy=fixed:star:0.01:art-tree
due=$(expected $policy) || exit 1

# group NAME VARIABLE=VALUE...: four ranks; %r in a value stands for the rank.
group() {
  local name=$1 rank pid code=0
  shift
  pids=()
  for rank in 0 1 2 3; do
    timeout -k 5 450 env "${@//%r/$rank}" "$weir" train "$folder/short.ini" --out "$folder/$name" \
      --policy $policy >"$folder/$name.$rank.log" 2>&1 &
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
    port=$(free_port) || return
    group "$1" "${@:2}" MASTER_PORT=$port SLURM_JOB_ID=$port && return
    grep -q 'already in use' "$folder/$1.0.log" || return 1
  done
  return 1
}

attempt torchrun RANK=%r WORLD_SIZE=4 LOCAL_RANK=%r LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 \
  TORCHELASTIC_RUN_ID=test || fail torchrun
[[ $(digest "$folder/torchrun") == "$due" ]] || fail "torchrun: other weights"
# What "auto" came to: all four share this machine's memory.
grep -q '"network" : "shm"' "$folder/torchrun/summary.json" || fail "torchrun: $(grep '"network"' "$folder/torchrun/summary.json")"
grep -q 'no launcher' "$folder"/torchrun.*.log && fail "torchrun is not seen"
echo "ok: torchrun"
attempt slurm SLURM_PROCID=%r SLURM_NTASKS=4 SLURM_LOCALID=%r SLURM_STEP_ID=0 \
  SLURM_JOB_NODELIST=localhost || fail slurm
[[ $(digest "$folder/slurm") == "$due" ]] || fail "slurm: other weights"
echo "ok: slurm"
attempt pmi PMI_RANK=%r PMI_SIZE=4 MASTER_ADDR=localhost || fail pmi
[[ $(digest "$folder/pmi") == "$due" ]] || fail "pmi: other weights"
echo "ok: pmi"

# One worker, without any launcher.
"$weir" train "$folder/short.ini" --out "$folder/alone" --policy fixed:none:1:dense-ring \
  >"$folder/alone.log" 2>&1 || fail "a worker alone"
grep -q '"workers" : 1' "$folder/alone/summary.json" || fail "a worker alone is one of more"
grep -q 'no launcher.*alone, as rank 0 of 1' "$folder/alone.log" || fail "a worker does not say that it is alone"
grep -q '^network inproc, .* 1 worker:' "$folder/alone.log" || fail "a worker alone has a network"
echo "ok: alone"

refused() { # WHAT-IT-SAYS VARIABLE=VALUE...
  local code=0
  timeout 450 env "${@:2}" "$weir" train "$folder/short.ini" --out "$folder/refused" \
    >"$folder/refused.log" 2>&1 || code=$?
  [[ $code == 2 ]] || fail "exit code $code with ${*:2}"
  grep -qF -- "$1" "$folder/refused.log" || fail "does not say '$1' with ${*:2}"
  [[ ! -e $folder/refused ]] || fail "made a folder with ${*:2}"
  echo "ok: refused ${*:2}"
}
refused 'RANK is "4"' RANK=4 WORLD_SIZE=4 MASTER_ADDR=h
refused 'WORLD_SIZE is "many"' RANK=0 WORLD_SIZE=many MASTER_ADDR=h
refused 'RANK is set, but WORLD_SIZE is not' RANK=0
refused 'MASTER_PORT is "70000"' RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=70000
refused 'unset the pair' RANK=0 WORLD_SIZE=2 MASTER_ADDR=h OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2
