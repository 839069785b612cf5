#!/usr/bin/env bash
# The MPI transport between processes that mpirun starts: every case of mpi_ranks.c, over shared
# memory and, where messages count, over Open MPI's TCP too.
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

launch() { # RANKS [mpirun's options...] CASE
  timeout -k 5 450 mpirun --oversubscribe -n "$1" --mca btl_tcp_if_include lo "${@:2:$#-2}" \
    "$program" "${@: -1}" >"$log" 2>&1
}

# All ranks say that it went well.
well() {
  local code=0 ok
  launch "$@" || code=$?
  ok=$(grep -c '^rank [0-9]*: ok$' "$log")
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
# A group that has ended ends without MPI_Finalize, about which mpirun complains.
for case in leaving other_step too_long native_other_step silent_rank silent_rank_native frozen \
  one_missing; do
  launch 4 "$case"
  if [[ $(grep -c '^rank [0-9]*: ok$' "$log") == 4 ]] && ! grep -q 'mpi_ranks.c:' "$log"; then
    echo "ok: $case"
  else
    echo "FAILED: $case"
    cat "$log"
    failed=1
  fi
done
# A session whose rank has left.
timeout -k 5 450 mpirun --oversubscribe -n 4 --mca btl_tcp_if_include lo "${program%ranks}session" \
  >"$log" 2>&1
if [[ $(grep -c '^rank [0-9]*: ok$' "$log") == 4 ]] && ! grep -q 'mpi_session.c:' "$log"; then
  echo "ok: session"
else
  echo "FAILED: session"
  cat "$log"
  failed=1
fi
launch 2 no_init
grep -q '^rank 0: ok$' "$log" && echo "ok: no_init" || { echo "FAILED: no_init"; cat "$log"; failed=1; }
# A rank that dies ends the job, before the others have waited for it: mpirun sees to it, and says which.
if ! launch 4 killed && ! grep -q ': ok$' "$log" && grep -q 'signal 9' "$log"; then
  echo "ok: killed"
else
  echo "FAILED: killed"
  cat "$log"
  failed=1
fi
if env -u OMPI_COMM_WORLD_SIZE -u PMIX_RANK -u PMI_RANK -u PMI_FD "$program" unlaunched >"$log" 2>&1; then
  echo "ok: unlaunched"
else
  echo "FAILED: unlaunched"
  cat "$log"
  failed=1
fi
exit $failed
