#!/bin/bash
# `weir probe`: two and three processes on the loopback find each other and print the same links; bad
# usage is exit 2; nobody there, or a stranger, is exit 1 within the time-out.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
# shellcheck source=tests/ports.sh
. "$2/tests/ports.sh"
refused() {
  out=$(timeout 450 "$weir" probe "$@" 2>&1)
  [ $? -eq 2 ] && grep -q "expected\|unexpected\|Cannot parse\|Unknown\|not an IPv4" <<<"$out" ||
    fail "not refused: $* : $out"
}
refused
refused --serve 7700 --connect a:1
refused --serve 0
refused --serve x
refused --connect localhost
refused --connect localhost:99999
refused --rendezvous 127.0.0.1:7700
refused --rendezvous 127.0.0.1:7700 --rank 2 --ranks 2
refused --rendezvous 127.0.0.1:7700 --rank 0 --ranks 65
refused --serve 7700 --rank 0
refused --serve 7700 --timeout-s 0
refused --serve 7700 more
"$weir" probe --help | grep -q -- --connect || fail "no help"

port=$(free_port) || exit 1
"$weir" probe --serve 127.0.0.1:$port --json >"$work/a" 2>"$work/a.err" &
one=$!
"$weir" probe --connect 127.0.0.1:$port --json >"$work/b" 2>"$work/b.err" ||
  fail "connect: $(cat "$work/b.err"); serve: $(cat "$work/a.err")"
wait $one || fail "serve: $(cat "$work/a.err")"
cmp -s "$work/a" "$work/b" || fail "the two differ: $(cat "$work/a" "$work/b")"
grep -q '"ranks":2.*"hosts":1.*"links":\[{"from":0.*"to":1.*"from":1.*"to":0' "$work/a" || fail "$(cat "$work/a")"
grep -Eq '"mbit_is_bound":(true|false)' "$work/a" || fail "$(cat "$work/a")"
grep -q '"calibration":{"alpha_ms":[0-9]' "$work/a" || fail "$(cat "$work/a")"
grep -q '"latency_ms":0\(\.0*\)\?,' "$work/a" && fail "no latency: $(cat "$work/a")"

port=$(free_port) || exit 1
for rank in 1 2; do
  WEIR_HOST=host$rank "$weir" probe --rendezvous 127.0.0.1:$port --rank $rank --ranks 3 >"$work/$rank" 2>&1 &
done
WEIR_HOST=host0 "$weir" probe --rendezvous 127.0.0.1:$port --rank 0 --ranks 3 >"$work/0" 2>&1 || fail "$(cat "$work/0")"
wait
grep -q '3 ranks on 3 hosts' "$work/0" && grep -q '2 -> 0' "$work/0" || fail "$(cat "$work/0")"

# The loopback is faster than a train can tell; where one link's bound is named, it is explained.
grep -q 'or more  ' "$work/0" && { grep -q '^or more: the link is faster' "$work/0" || fail "$(cat "$work/0")"; }

port=$(free_port) || exit 1
timeout 450 "$weir" probe --connect 127.0.0.1:$port --timeout-s 1 >"$work/out" 2>&1
[ $? -eq 1 ] && grep -q 'rank 0 could not be reached' "$work/out" || fail "nobody: $(cat "$work/out")"
"$weir" probe --serve 127.0.0.1:$port --timeout-s 4 --job mine >"$work/a" 2>&1 &
one=$!
timeout 450 "$weir" probe --connect 127.0.0.1:$port --timeout-s 4 --job other >"$work/b" 2>&1
[ $? -eq 1 ] && grep -q 'another job' "$work/b" || fail "stranger: $(cat "$work/b")"
wait $one
[ $? -eq 1 ] || fail "the one that served: $(cat "$work/a")"
echo ok
