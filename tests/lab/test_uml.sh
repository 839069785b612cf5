#!/bin/bash
# User-Mode Linux: output, exit code, folders, time-out, signals, and nothing left behind.
set -u
tools=$(dirname "$1")/../tests
work=$(mktemp -d)
export TMPDIR=$work/tmp
mkdir "$TMPDIR" "$work/out"
trap 'rm -rf "$work"' EXIT
failed=0

check() { # WHAT EXPECTED GOT
  if [ "$2" != "$3" ]; then
    echo "FAILED: $1: expected '$2', got '$3'"
    failed=1
  fi
}
uml() { "$tools/uml_exec" "$@"; }
left() { ls -A "$TMPDIR"; pgrep -f "init=$TMPDIR/"; }

uml true
code=$?
if [ $code = 77 ]; then echo "skipped: User-Mode Linux is not to be had here"; exit 77; fi
check "a command that succeeds" 0 $code

got=$(uml -l sh -c 'echo to out; echo to err >&2; printf "no newline"; exit 7' | sort)
check "lines of both streams" "err: to err
out: no newline
out: to out" "$got"
uml sh -c 'exit 7'; check "exit code" 7 $?
uml sh -c 'kill -9 $$' 2>/dev/null; check "ended by a signal" 137 $?
check "much output, slow reader" "$(seq 100000 | md5sum)" "$(uml seq 100000 | { sleep 1; md5sum; })"
check "arguments as they are" "a b'c \$d \"e" "$(uml printf %s "a b'c \$d \"e")"

uml -o "$work/out" sh -c 'id -u >/run/out/uid; echo x >"'"$work"'/tmp/forbidden"' 2>/dev/null
check "the host cannot be written" 2 $?
check "the out folder can" 0 "$(cat "$work/out/uid")"
check "HOME and TMPDIR" "ok" "$(uml sh -c 'touch "$HOME/a" "$TMPDIR/b" && echo ok')"
check "a qdisc of netem" "netem" "$(uml sh -c 'tc qdisc add dev lo root netem delay 5ms &&
  tc qdisc show dev lo | grep -o netem')"
check "veth, bridge and namespaces" "ok" "$(uml sh -c 'ip netns add a && ip link add br0 type bridge &&
  ip link add v0 type veth peer name v1 netns a && ip link set v0 master br0 && echo ok')"

# What lies in the host's /run and /dev/shm is seen where it is, when it is named.
for hidden in /run /dev/shm; do
  named=$(mktemp -d $hidden/weir-test-XXXXXX 2>/dev/null) || continue
  echo "in $hidden" >"$named/file"
  check "a file of the host's in $hidden" "in $hidden
in $hidden" "$(uml -p sh -c 'cat "$1" "${2#*=}"' sh "$named/file" "--file=$named/file")"
  check "one that is not named" 1 "$(uml cat "$named/file" >/dev/null 2>&1; echo $?)"
  rm -r "$named"
done

uml -t 4 sleep 60 2>/dev/null; check "the time-out" 124 $?
uml sh -c 'sleep 60 & exit 3'; check "a process that holds the output" 3 $?
check "output just after the end of a silent command" late "$(uml sh -c 'sleep 5; (sleep 1; echo late) & exit 3')"
uml nosuchprogram 2>/dev/null; check "no such program" 77 $?

for signal in INT TERM; do
  "$tools/uml_exec" sleep 60 2>/dev/null &
  pid=$!
  sleep 3
  kill -$signal $pid
  wait $pid
  code=$?
  check "SIG$signal" $((128 + $(kill -l $signal))) $code
done
check "nothing left" "" "$(left)"

"$tools/uml_exec" sleep 60 &
pid=$!
sleep 3
kill -KILL $pid
wait $pid 2>/dev/null
for _ in $(seq 100); do [ -z "$(left)" ] && break; sleep 0.2; done
check "nothing left after SIGKILL" "" "$(left)"

mkdir "$TMPDIR/weir-uml-crashd" && touch "$TMPDIR/weir-uml-crashd/lock" "$TMPDIR/weir-uml-crashd/init"
uml true
check "what a crash left is removed" "" "$(left)"
exit $failed
