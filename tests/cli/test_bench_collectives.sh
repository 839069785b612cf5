#!/usr/bin/env bash
# weir bench collectives: every algorithm over both transports gives right sums and the bytes worked out
# by hand; bad usage is refused.
set -euo pipefail
weir=$1

# 4 ranks, 4096 bytes.  Frames: 52 bytes over TCP, 40 over shared memory.  Bytes the busiest sends:
#   ring, torus    6 messages of 1024, 4 of 2048 + 2048 + ... : 6144 = 2 * 3/4 * 4096 both
#   halving        2048 + 1024 + 1024 + 2048, 4 messages
#   tree           rank 0 sends 4096 to two children; rank 2 up and down as much: 2 messages
#   double-tree    an inner rank: up, and down to two, of one half; up of the other: 4 * 2048
#   star           rank 0 sends 3 * 4096
#   direct         everything to 3 others, as the star's rank 0
#   doubling       everything twice: over TCP as many as the tree's 2 * 4096 + 2 * 52
#   native         shm only: what is written for others, 4096, and a record of 32
json=$("$weir" bench collectives --ranks 4 --sizes 4K --repeats 3 --json)
for expected in \
  '"tcp","algorithm":"ring","size":4096' '"shm","algorithm":"star","size":4096' \
  '"wire_bytes":6456' '"wire_bytes":6384' '"wire_bytes":8296' '"wire_bytes":8272' \
  '"wire_bytes":6352' '"wire_bytes":6304' '"wire_bytes":8400' '"wire_bytes":8352' \
  '"wire_bytes":12444' '"wire_bytes":12408' '"wire_bytes":4128' \
  '"tcp","algorithm":"doubling"' '"tcp","algorithm":"direct"' '"shm","algorithm":"native"'; do
  grep -qF -- "$expected" <<<"$json" || { echo "missing $expected in $json"; exit 1; }
done
rows=${json%%\"best\"*}
# Eight algorithms over both, and shm's own.
[ "$(grep -oF '"wrong":0}' <<<"$rows" | wc -l)" = 17 ] || { echo "wrong sums: $json"; exit 1; }
if grep -qF '"tcp","algorithm":"native"' <<<"$json"; then echo "native over tcp: $json"; exit 1; fi

# bf16 sends half the bytes: ring, shm: 3072 + 6 * 40
json=$("$weir" bench collectives --transport shm --algorithm ring --sizes 4096 --format bf16 \
  --repeats 1 --json)
grep -qF '"wire_bytes":3312,"wrong":0' <<<"$json" || { echo "bf16: $json"; exit 1; }

table=$("$weir" bench collectives --transport shm --algorithm ring,torus --ranks 3 --sizes 4,1K --repeats 1)
[ "$(grep -c '^shm ' <<<"$table")" = 4 ] || { echo "$table"; exit 1; }

# The fastest alone; peers, measured or named as missing.
json=$("$weir" bench collectives --transport shm --sizes 4K --repeats 1 --best 1 --peers gloo,openmpi \
  --json)
rows=${json%%\"best\"*}
[ "$(grep -oF '"shm"' <<<"$rows" | wc -l)" = 1 ] || { echo "not the best alone: $json"; exit 1; }
for peer in gloo openmpi-shm openmpi-tcp; do
  grep -qE "\"(transport|peer)\":\"$peer\"" <<<"$json" || { echo "no word of $peer: $json"; exit 1; }
done
if grep -qE '"wrong":[1-9]' <<<"$json"; then echo "wrong sums: $json"; exit 1; fi

# The other collectives: 4 ranks, blocks of 1024 bytes, 40 bytes a frame.  Rows, and what the busiest
# sends over shared memory:
#   broadcast       binomial: the root to 2 children; chain: the length in a frame, and one chunk; direct: to 3
#   all-gather      3 blocks whatever the way (doubling: 1, then 2)
#   reduce-scatter  3 chunks;  reduce: everything once
#   gather          one block
while read -r collective rows wire; do
  json=$("$weir" bench collectives --collective "$collective" --sizes 4K --repeats 1 --json)
  [ "$(grep -oF '"wrong":0}' <<<"${json%%\"best\"*}" | wc -l)" = $((2 * rows)) ] || { echo "$json"; exit 1; }
  for bytes in ${wire//,/ }; do
    grep -qF "\"wire_bytes\":$bytes," <<<"$json" || { echo "no $bytes: $json"; exit 1; }
  done
done <<'LIST'
broadcast 3 8272,4184,12408
all-gather 4 3192
reduce-scatter 2 3192
reduce 1 4136
gather 1 1064
LIST

# Compressed all-reduces, 4 bits: a chunk of 4096 elements is a message of 16 bytes, 32 buckets of 8, and 2048 of codes.
# SRA and the ring send 6 of them.  Values are even in [-1, 1): a bucket of 128 spans 1.97, one of a sum of two, three,
# four about 3.6, 4.7, 5.6; rounding at random errs by a grid's step squared over 6.  SRA encodes three ranks' values and
# the sum, 3 x 0.0029 + 0.023, the ring the sums of one to four, 0.0029 + 0.0096 + 0.0163 + 0.023; the sum of four
# has 4/3: errors of 0.154 and 0.197 of it.
json=$("$weir" bench collectives --collective compressed --transport shm --sizes 64K --repeats 1 --json)
for expected in '"algorithm":"sra"' '"algorithm":"tree"' '"algorithm":"hier-sra"' '"bits":4'; do
  grep -qF -- "$expected" <<<"$json" || { echo "missing $expected in $json"; exit 1; }
done
[ "$(grep -oF '"wire_bytes":14160' <<<"${json%%\"best\"*}" | wc -l)" = 3 ] || { echo "compressed: $json"; exit 1; }
grep -qE '"algorithm":"sra",[^}]*"error":0\.15[0-9]*,"wrong":0' <<<"$json" || { echo "sra errs otherwise: $json"; exit 1; }
grep -qE '"algorithm":"ring",[^}]*"error":0\.(19|20)[0-9]*,"wrong":0' <<<"$json" || { echo "ring errs otherwise: $json"; exit 1; }

refused() {
  local code=0
  "$weir" bench collectives "$@" >/dev/null 2>refused.txt || code=$?
  [ $code = 2 ] && grep -q expected refused.txt || { echo "not refused ($code): $*"; exit 1; }
}
cd "$(mktemp -d)"

# Links of 4 Mbit/s: what a rank of the ring sends of 256 KiB, 6 messages of 64 KiB, takes 0.79 s, less what a burst
# lets pass.
if json=$("$weir" bench collectives --transport tcp,tls --algorithm ring --mbit-s 4 --sizes 256K --repeats 1 --json 2>links.txt); then
  [ "$(grep -o '"wrong":0' <<<"$json" | wc -l)" = 4 ] || { echo "over links: $json"; exit 1; }
  for us in $(grep -o '"time_us":[0-9]*' <<<"$json" | cut -d: -f2); do
    [ "$us" -gt 400000 ] || { echo "256 KiB over 4 Mbit/s in $us us: $json"; exit 1; }
  done
else
  grep -q namespace links.txt || { cat links.txt; exit 1; }
  echo "links were not tried: $(cat links.txt)"
fi

# Two machines of two ranks on links of 20 Mbit/s: the torus sends 256 KiB over each, 0.1 s less what a burst lets
# pass, whatever carries it inside; the rows say so, too.
if json=$("$weir" bench collectives --per-machine 2 --transport tcp,mixed --algorithm torus --mbit-s 20 --sizes 256K \
  --repeats 1 --json 2>links.txt); then
  [ "$(grep -o '"wrong":0' <<<"$json" | wc -l)" = 4 ] || { echo "on machines: $json"; exit 1; }
  [ "$(grep -o '"predicted_us":[0-9]' <<<"$json" | wc -l)" = 4 ] || { echo "no rows: $json"; exit 1; }
  for us in $(grep -oE '"(time|predicted)_us":[0-9]*' <<<"$json" | cut -d: -f2); do
    [ "$us" -gt 40000 ] || { echo "256 KiB over 20 Mbit/s in $us us: $json"; exit 1; }
  done
else
  grep -q namespace links.txt || { cat links.txt; exit 1; }
fi

# Ranks that mpirun starts, with memory inside of two machines and without.  Open MPI is not built for
# ThreadSanitizer.
if [[ ${WEIR_CFLAGS:-} != *fsanitize=thread* ]] && command -v mpirun >/dev/null && [ -x "$(dirname "$(dirname "$weir")")/tests/mpi_ranks" ]; then
  json=$("$weir" bench collectives --per-machine 2 --transport mpi,shm+mpi --algorithm ring,native --sizes 4K,256K \
    --repeats 1 --json) || { echo "over MPI: $json"; exit 1; }
  for name in mpi shm+mpi; do
    [ "$(grep -oF "\"transport\":\"$name\"" <<<"$json" | wc -l)" = 6 ] || { echo "rows of $name: $json"; exit 1; }
  done
  [ "$(grep -o '"wrong":0' <<<"$json" | wc -l)" = 12 ] || { echo "sums over MPI: $json"; exit 1; }
fi

refused --transport pigeon
refused --transport mixed
refused --transport shm+mpi
refused --transport mpi --mbit-s 10
refused --per-machine 0
refused --per-machine 5
refused --transport ''
refused --algorithm fastest
refused --collective shout
refused --collective reduce --algorithm ring
refused --collective gather --sizes 8
refused --sizes 6
refused --sizes 0
refused --sizes 1KB
refused --sizes -4
refused --sizes 4K,
refused --sizes 2000000000
refused --format fp8
refused --bits 1
refused --bits 9
refused --mbit-s 100
refused --mbit-s -1 --transport tcp
refused --latency-ms 1 --transport tcp
refused --latency-ms -1 --mbit-s 100 --transport tcp
refused --mbit-s 100 --transport tcp --peers gloo
refused --ranks 1
refused --ranks 17
refused --repeats 0
refused --best -1
refused --peers nobody
refused --peers gloo,gloo
refused --collective reduce --peers gloo
rm -r "$PWD"
