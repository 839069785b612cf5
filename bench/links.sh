#!/usr/bin/env bash
# What encryption costs an all-reduce: 64 MiB and 4 KiB among 4 ranks, TLS and plain TCP by turns, on the
# loopback and over links of 1 Gbit/s (htb in network namespaces).
#
#   bench/links.sh OUT.json [MBIT_S]     default: 1000
#
# REPEATS (7) of turns; WEIR (build-release/cli/weir).  bench/tables.py makes a table of it.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
[[ $# -ge 1 ]] || {
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
run() {
  "${WEIR:-$here/../build-release/cli/weir}" bench collectives --transport tcp,tls --algorithm ring,halving \
    --sizes 4K,64M --repeats "${REPEATS:-7}" --json "$@"
}
loopback=$(run)
links=$(run --mbit-s "${2:-1000}")
printf '[%s,\n%s]\n' "$loopback" "$links" >"$1.part"
mv "$1.part" "$1"
