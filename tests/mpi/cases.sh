# What the tests of programs that mpirun starts share: a case is run by well, or by ended where a rank does not end as
# it should; failed says whether one has failed.
program=$(dirname "$(dirname "$1")")/tests/mpi_ranks
command -v mpirun >/dev/null || { echo "skipped: no mpirun here"; exit 77; }
[[ -x $program ]] || { echo "skipped: this build has no MPI"; exit 77; }
case ${WEIR_CFLAGS:-} in *fsanitize=thread*) echo "skipped: Open MPI is not built for ThreadSanitizer"; exit 77 ;; esac
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# What Open MPI itself does not give back.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
limit=450 ending=100 # seconds; of cases that end badly

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

# Rank 1 or all of them end without MPI_Finalize, about which mpirun complains; RANKS say that it went well.
# Open MPI 4.1.4's mpirun itself then crashes now and then, or waits for ever: it is not waited for.
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
