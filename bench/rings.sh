#!/usr/bin/env bash
# Weir's dense ring and halving against Gloo's all-reduce over links of this kernel (htb, no delay): 4 ranks,
# the demo's 4.3 MB.
#
#   bench/rings.sh OUT.jsonl [RATE...]     Mbit/s; default: 30 100 750
#
# PYTHON (python3) has torch and the package weir; ROUNDS (7) of turns; WEIR (build-release/cli/weir).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
[[ $# -ge 1 ]] || {
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$scratch/all"
for rate in "${@:-30 100 750}"; do
  for one in $rate; do
    printf '[scenario]\nworkers = 4\n[phase all]\nseconds = 1\nlatency_ms = 0\nbandwidth_gbps = %s\n' \
      "$(awk -v r="$one" 'BEGIN { print r / 1000 }')" >"$scratch/rate.ini"
    "${WEIR:-$here/../build-release/cli/weir}" emulate "$scratch/rate.ini" --network tc --quiet --out "$scratch/out" \
      --timeout-s 900 -- "${PYTHON:-python3}" "$here/rings.py" "$one" "${ROUNDS:-7}" 2>"$scratch/errors" || {
      tail -n 5 "$scratch/errors" "$scratch/out"/rank-*.log >&2
      exit 1
    }
    grep '^{' "$scratch/out/rank-0.log" | tee -a "$scratch/all"
  done
done
mv "$scratch/all" "$out"
