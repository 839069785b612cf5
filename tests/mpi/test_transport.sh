#!/usr/bin/env bash
# The MPI transport between processes that mpirun starts: every case of mpi_ranks.c, over Open MPI's own shared
# memory and, where messages count, over its TCP too; alone, and with memory that ranks of a machine share.
set -u
weir=$1
program=$(dirname "$(dirname "$weir")")/tests/mpi_ranks
command -v mpirun >/dev/null || { echo "skipped: no mpirun here"; exit 77; }
[[ -x $program ]] || { echo "skipped: this build has no MPI"; exit 77; }
case ${WEIR_CFLAGS:-} in *fsanitize=thread*) echo "skipped: Open MPI is not built for ThreadSanitizer"; exit 77 ;; esac
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# What Open MPI itself does not give back.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
limit=450 # seconds
# How ranks end: on machines of their own, two of two, and, where processes start fast, one of three.
machines=('' :2 :3)
[[ ${WEIR_CFLAGS:-} == *fsanitize* ]] && machines=('' :2)

# RANKS [mpirun's options...] CASE[:ARGUMENT...] of mpi_ranks, or of another program; as this shell's child, for `&`.
launch() {
  local words
  IFS=: read -r -a words <<<"${@: -1}"
  exec timeout -k 5 "$limit" mpirun --oversubscribe -n "$1" --mca btl_tcp_if_include lo "${@:2:$#-2}" \
    "${other:-$program}" "${words[@]}" >"$log" 2>&1
}

good() { grep -c '^rank [0-9]*: ok$' "$log"; } # ranks

# All ranks say that it went well.
well() {
  local code=0 ok
  (launch "$@") || code=$?
  ok=$(good)
  if [[ $code == 0 && $ok == "$1" ]]; then
    echo "ok: $*"
  else
    echo "FAILED: $* (exit code $code, $ok ranks well)"
    cat "$log"
    failed=1
  fi
}

for case in messages groups allreduce; do well 4 "$case"; done
for case in messages allreduce; do well 4 --mca btl tcp,self "$case"; done
well 3 allreduce
for case in other_job other_rank; do well 4 "$case"; done
# Machines of so many ranks: two of two, one of three and one of one, two of four, one of all.
for case in messages:2 messages:3 messages:4 groups:2 allreduce:2 apart lacking:0; do well 4 "$case"; done
for case in rows:2 rows:3 drawn_rows:2 drawn_rows:3; do well 4 "$case"; done
well 4 --mca btl tcp,self messages:2
for case in messages:4 rows:4 drawn_rows:4; do well 8 "$case"; done
other=${program%ranks}plans
for case in 2:1000 3:1000 2:100003; do well 4 "$case"; done
well 8 4:1000
unset other

# Rank 1 or all of them end without MPI_Finalize, about which mpirun complains; RANKS say that it went well.
# Open MPI 4.1.4's mpirun itself then crashes now and then, or waits for ever: it is not waited for.
limit=100
ended() { # RANKS [mpirun's options...] CASE
  : >"$log"
  launch 4 "${@:2}" &
  while kill -0 $! 2>/dev/null && (($(good) < $1)); do sleep 0.1; done
  kill $! 2>/dev/null
  wait $!
  if [[ $(good) == "$1" ]] && ! grep -qE 'mpi_[a-z]*\.[ch]:' "$log"; then
    echo "ok: ${*:2}"
  else
    echo "FAILED: ${*:2}"
    cat "$log"
    failed=1
  fi
}
for case in leaving other_step too_long silent_rank frozen; do
  for these in "${machines[@]}"; do ended 4 "$case$these"; done
done
for case in native_other_step silent_rank_native one_missing; do ended 4 "$case"; done
for these in "${machines[@]}"; do ended 3 --enable-recovery "killed_alone$these"; done
# A session whose rank has left.
other=${program%ranks}session
for case in mpi shm+mpi; do ended 4 "$case"; done
unset other
(launch 2 no_init)
grep -q '^rank 0: ok$' "$log" && echo "ok: no_init" || { echo "FAILED: no_init"; cat "$log"; failed=1; }
# A rank that dies ends the job, before the others have waited for it: mpirun sees to it, and says which.
for case in killed killed:2; do
  if ! (launch 4 "$case") && ! grep -q ': ok$' "$log" && grep -q 'signal 9' "$log"; then
    echo "ok: $case"
  else
    echo "FAILED: $case"
    cat "$log"
    failed=1
  fi
done
if env -u OMPI_COMM_WORLD_SIZE -u PMIX_RANK -u PMI_RANK -u PMI_FD "$program" unlaunched >"$log" 2>&1; then
  echo "ok: unlaunched"
else
  echo "FAILED: unlaunched"
  cat "$log"
  failed=1
fi
exit $failed
