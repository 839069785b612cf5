#!/usr/bin/env bash
# mpirun -n 4 weir train: the same weights, bit for bit, whatever carries the messages.
set -u
source=$2
command -v mpirun >/dev/null || { echo "skipped: no mpirun here"; exit 77; }
[[ -x $(dirname "$(dirname "$1")")/tests/mpi_ranks ]] || { echo "skipped: this build has no MPI"; exit 77; }
case ${WEIR_CFLAGS:-} in *fsanitize=thread*) echo "skipped: Open MPI is not built for ThreadSanitizer"; exit 77 ;; esac
# shellcheck source=tests/mpi/common.sh
. "$source/tests/mpi/common.sh"
# shellcheck source=tests/nccl/library.sh
. "$source/tests/nccl/library.sh"
unset NCCL_ALGO NCCL_TUNER_PLUGIN

train() { # NAME TRANSPORT POLICY [mpirun's options...]
  timeout -k 5 600 mpirun --oversubscribe -n 4 --mca btl_tcp_if_include lo "${@:4}" \
    "$weir" train "$folder/short.ini" --out "$folder/$1" --policy "$3" --transport "$2" \
    >"$folder/$1.log" 2>&1
}

for policy in fixed:star:0.01:art-tree fixed:none:1:dense-ring; do
  due=$(expected "$policy") || exit 1
  train auto auto "$policy" || fail "mpirun, $policy"
  grep -q '^network shm+mpi,' "$folder/auto.log" || fail "mpirun does not lead to transport shm+mpi"
  [[ $(digest "$folder/auto") == "$due" ]] || fail "shm+mpi: other weights under $policy"
  train mpi mpi "$policy" || fail "transport mpi, $policy"
  grep -q '^network mpi,' "$folder/mpi.log" || fail "transport mpi is not what was asked for"
  [[ $(digest "$folder/mpi") == "$due" ]] || fail "mpi: other weights under $policy"
  train tcp tcp "$policy" || fail "mpirun over TCP, $policy"
  [[ $(digest "$folder/tcp") == "$due" ]] || fail "tcp: other weights under $policy"
  echo "ok: $policy $due"
done
# MPI's own all-reduce sums in an order of its own: four ranks alike, twice the same.
train native mpi fixed:none:1:native || fail "MPI's own all-reduce"
due=$(digest "$folder/native") || exit 1
train again mpi fixed:none:1:native || fail "MPI's own all-reduce, again"
[[ $(digest "$folder/again") == "$due" ]] || fail "MPI's own all-reduce: other weights the second time"
if train refused tcp fixed:none:1:native; then fail "native was accepted over TCP"; fi
grep -q 'needs transport shm, mpi, shm+mpi, nccl or shm+nccl' "$folder/refused.log" || fail "native over TCP: not said why"
echo "ok: native"
train btl mpi fixed:star:0.01:art-ring --mca btl tcp,self || fail "Open MPI's TCP"
[[ $(digest "$folder/btl") == "$(expected fixed:star:0.01:art-ring)" ]] || fail "Open MPI's TCP: other weights"
echo "ok: Open MPI's TCP"

# On machines, a letter a rank: memory inside of them, MPI between them.
on() { # MACHINES NAME TRANSPORT POLICY [mpirun's options for each]
  local i words=()
  for ((i = 0; i < ${#1}; i++)); do
    words+=(-n 1 -x "WEIR_HOST=${1:i:1}" -x WEIR_LOG=info "${@:5}" "$weir" train "$folder/short.ini" --out "$folder/$2"
      --policy "$4" --transport "$3" :)
  done
  timeout -k 5 600 mpirun --oversubscribe --mca btl_tcp_if_include lo "${words[@]::${#words[@]}-1}" \
    >"$folder/$2.log" 2>&1
}
for case in aabb,fixed:qsgd:0.125:hier-sra aaab,fixed:topk:0.01:hitopk; do
  machines=${case%%,*} policy=${case#*,}
  on "$machines" sockets tcp "$policy" || fail "TCP on $machines, $policy"
  on "$machines" both auto "$policy" || fail "shm+mpi on $machines, $policy"
  [[ $(digest "$folder/both") == "$(digest "$folder/sockets")" ]] || fail "shm+mpi on $case: other weights"
  grep -q '^network shm+mpi,' "$folder/both.log" || fail "shm+mpi on $machines: $(grep '^network' "$folder/both.log")"
done
grep -q 'the 3 ranks of this machine share memory; to the 1 others over mpi' "$folder/both.log" || fail "no word of the memory"
# NCCL inside of machines, for which a library stands.
if has_mock; then
  link_mock "$folder/lib"
  on aabb near nccl+mpi fixed:qsgd:0.125:hier-sra -x "LD_LIBRARY_PATH=$folder/lib" || fail "nccl+mpi"
  on aabb sockets tcp fixed:qsgd:0.125:hier-sra || fail "TCP beside nccl+mpi"
  [[ $(digest "$folder/near") == "$(digest "$folder/sockets")" ]] || fail "nccl+mpi: other weights"
  grep -q '^network nccl+mpi,' "$folder/near.log" || fail "nccl+mpi: $(grep '^network' "$folder/near.log")"
fi
on abcd apart auto fixed:none:1:dense-ring || fail "a rank a machine"
grep -q '^network mpi,' "$folder/apart.log" || fail "a rank a machine: $(grep '^network' "$folder/apart.log")"
echo "ok: machines"
on a alone auto fixed:none:1:dense-ring || fail "one rank"
grep -q '^network inproc,' "$folder/alone.log" || fail "one rank: $(grep '^network' "$folder/alone.log")"
echo "ok: one rank"

# The adaptive policy measures over MPI and decides; all ranks end alike.
on aabb adaptive auto weir || fail "policy weir"
digest "$folder/adaptive" >/dev/null
[[ -s $folder/adaptive/decisions.jsonl ]] || fail "policy weir has decided nothing"
for file in summary.json steps.csv decisions.jsonl report.html; do
  [[ -s $folder/adaptive/$file ]] || fail "no $file"
done
echo "ok: policy weir"

# Bad input is refused by every rank, before MPI is begun.
if timeout 450 mpirun --oversubscribe -n 2 "$weir" train "$folder/none.ini" --out "$folder/bad" \
  >"$folder/bad.log" 2>&1; then fail "a scenario that is not there was accepted"; fi
grep -q 'none.ini' "$folder/bad.log" || fail "the missing scenario is not named"
echo "ok: bad input"
