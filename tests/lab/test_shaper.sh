#!/bin/bash
# The shaper on real htb and netem: what is set is read back, and what a link then does is what was
# set.  Where this kernel has no netem, inside User-Mode Linux.
set -u
tools=$(cd "$(dirname "$1")/../tests" && pwd)
failed=0

check() { # WHAT EXPECTED GOT
  [ "$2" = "$3" ] || { echo "FAILED: $1: expected '$2', got '$3'"; failed=1; }
}
within() { # WHAT VALUE LOW HIGH
  awk -v v="$2" -v l="$3" -v h="$4" 'BEGIN { exit !(v != "" && v >= l && v <= h) }' ||
    { echo "FAILED: $1: '$2' is not in $3 .. $4"; failed=1; }
}

if [ "${WEIR_INSIDE:-}" != 1 ]; then
  if ldd "$tools/link_tool" | grep -q -e libasan -e libtsan; then
    echo "skipped: programs built with a sanitizer cannot run inside User-Mode Linux"
    exit 77
  fi
  out=$("$tools/uml_exec" -t 200 env WEIR_INSIDE=1 bash "$(realpath "$0")" "$(realpath "$1")" "$2")
  code=$?
  echo "$out"
  [ $code = 77 ] && echo "skipped: User-Mode Linux is not to be had here"
  exit $code
fi

a() { ip netns exec a "$@"; }
b() { ip netns exec b "$@"; }
median() { a "$tools/link_tool" burst 10.1.0.2 7000 "$1" "$2" | sed -n 's/^median //p'; }

ip netns add a && ip netns add b || exit 1
ip -n a link add va type veth peer name vb netns b
ip -n a addr add 10.1.0.1/24 dev va
ip -n b addr add 10.1.0.2/24 dev vb
for n in a b; do
  ip -n $n link set lo up
  ip -n $n link set v$n up
  for f in tcp_rmem tcp_wmem; do
    ip netns exec $n sh -c "echo 4096 1048576 67108864 >/proc/sys/net/ipv4/$f"
  done
done
b "$tools/link_tool" serve 7000 &
server=$!

set_both() { # MBIT_S DELAY_MS
  a "$tools/link_tool" apply va "$1" "$2"; check "apply $1 $2" 0 $?
  b "$tools/link_tool" apply vb "$1" "$2"; check "apply $1 $2" 0 $?
  check "read back $1 $2" "$(printf '%.3f %.3f' "$1" "$2")" "$(a "$tools/link_tool" read va)"
}

a "$tools/link_tool" probe; check "probe" 0 $?
check "nothing is set at first" 1 "$(a "$tools/link_tool" read va >/dev/null 2>&1; echo $?)"

# Mbit/s, ms, bytes of the bursts; rate and delay are within 10 % of what was set.  Payload is
# 1448/1514 of what htb counts; the round trip is twice the delay, and the tool's own four system
# calls of some 60 us each.
inside() { awk -v v="$1" -v l="$2" -v h="$3" 'BEGIN { exit !(v != "" && v >= l && v <= h) }'; }
while read -r rate delay bytes; do
  set_both "$rate" "$delay"
  median "$bytes" 5 >/dev/null # the window grows
  low=$(awk "BEGIN { print $rate * 1448 / 1514 * 0.9 }")
  high=$(awk "BEGIN { print $rate * 1448 / 1514 * 1.1 }")
  longest=$(awk "BEGIN { print 2.2 * $delay + 0.2 }")
  for try in 1 2 3 4 5; do # a machine that is busy with other things spoils one, not five
    got=$(median "$bytes" 7)
    rtt=$(a "$tools/link_tool" echo 10.1.0.2 7000 15 | cut -d' ' -f1)
    inside "$got" "$low" "$high" && inside "$rtt" "$(awk "BEGIN { print 2 * $delay }")" "$longest" &&
      break
  done
  within "rate at $rate Mbit/s, $delay ms" "$got" "$low" "$high"
  within "round trip at $rate Mbit/s, $delay ms" "$rtt" "$(awk "BEGIN { print 2 * $delay }")" \
    "$longest"
  echo "set $rate Mbit/s $delay ms: $got Mbit/s of payload, round trip $rtt ms, try $try"
done <<END
500 1 4000000
50 50 1000000
50 1 262144
1250 1 4000000
END

# A live change, in the middle of a transfer: nothing queued is dropped.
set_both 50 10
median 3000000 2 >/dev/null &
transfer=$!
sleep 0.3
set_both 200 2
wait $transfer; check "the transfer lives through the change" 0 $?
check "drops" 0 "$(ip netns exec a tc -s qdisc show dev va | sed -n 's/.*dropped \([0-9]*\).*/\1/p' |
  sort -n | tail -1)"

a "$tools/link_tool" clear va; check "clear" 0 $?
a "$tools/link_tool" clear va; check "clear again" 0 $?
check "no qdisc is left" 0 "$(ip netns exec a tc qdisc show dev va | grep -c -e htb -e netem)"
a "$tools/link_tool" apply nosuch0 10 1 2>/dev/null; check "no such interface" 1 $?
kill $server

# ASan does not fit into User-Mode Linux; memcheck does.
if command -v valgrind >/dev/null; then
  for command in "apply va 10 1" "read va" "clear va"; do
    a valgrind -q --error-exitcode=99 --leak-check=full "$tools/link_tool" $command >"${TMPDIR:-/tmp}/memcheck.log" 2>&1
    check "memcheck: $command: $(cat "${TMPDIR:-/tmp}/memcheck.log")" 0 $?
  done
else
  echo "FAILED: valgrind is not installed"
  failed=1
fi
exit $failed
