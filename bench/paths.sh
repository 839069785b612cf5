#!/usr/bin/env bash
# What a bucket takes by several plans, in turns, where ranks share machines: each an emulated one (`weir emulate
# --network uml`) with processes that share memory, and TCP between them over links of that latency and rate.
#
#   bench/paths.sh MACHINES EACH LATENCY_MS MBIT_S ELEMENTS PLAN...
#
# PYTHON (python3) has numpy and the package weir; ROUNDS (7) of turns; WEIR (build-release/cli/weir).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
[[ $# -ge 6 ]] || {
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '[scenario]\nworkers = %s\n[phase all]\nseconds = 1\nlatency_ms = %s\nbandwidth_gbps = %s\n' \
  "$1" "$3" "$(awk -v r="$4" 'BEGIN { print r / 1000 }')" >"$scratch/links.ini"
"${WEIR:-$here/../build-release/cli/weir}" emulate "$scratch/links.ini" --network uml --quiet --out "$scratch/out" \
  --timeout-s 280 -- "${PYTHON:-python3}" "$here/paths.py" "$2" "${ROUNDS:-7}" "${@:5}" 2>"$scratch/errors" || {
  tail -n 5 "$scratch/errors" "$scratch/out"/rank-*.log >&2
  exit 1
}
grep '^{' "$scratch/out/rank-0.log"
