#!/bin/bash
# `weir emulate`: ranks as machines of their own, their output and exit codes, rates and delays of programs
# that are no trainers, launchers, and that nothing is left however it ends.  Links without delay, which
# need no netem, on this kernel; delays where there is netem, else inside User-Mode Linux.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
cd "$work" || exit 1
export TMPDIR=$work/tmp
mkdir "$TMPDIR" || exit 1

cat >flat.ini <<'INI'
[scenario]
workers = 3
[phase fast]
seconds = 4
latency_ms = 0
bandwidth_gbps = 0.1
[phase slow]
seconds = 4
latency_ms = 0
bandwidth_gbps = 0.02
INI
unset WEIR_SECRET WEIR_SECRET_FILE
links() { ip -o link show 2>/dev/null | awk -F': ' '{print $2}' | sort; }
links_before=$(links)
mounts_before=$(wc -l </proc/self/mounts)
left() { # of ours: commands, the runner, files for them, links, mounts
  pgrep -f "[s]leep 47110815"
  pgrep -f "weir.* emulate $work"
  ls -A "$TMPDIR"
  [ "$(links)" = "$links_before" ] || echo "links: $(links)"
  [ "$(wc -l </proc/self/mounts)" = "$mounts_before" ] || echo "mounts"
}
nothing_left() {
  for _ in $(seq 100); do [ -z "$(left)" ] && return; sleep 0.1; done
  fail "$1: left: $(left)"
}
emulate() { "$weir" emulate "$work/$1" --network tc "${@:2}" 2>errors; }

# What is in the host's /dev/shm no machine sees.
if shared=$(mktemp /dev/shm/weir-test-XXXXXX 2>/dev/null); then
  for word in "$shared" "--data=$shared"; do
    emulate flat.ini -- cat "$word" >said
    [ $? = 2 ] && grep -q "weir-test-.*: each machine has a /dev/shm of its own" errors || fail "/dev/shm: $(cat errors)"
  done
  rm "$shared"
fi

# Who they are, and that they are apart.
emulate flat.ini --out out -- sh -c 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT" "$(hostname)" \
  "$GLOO_SOCKET_IFNAME" ${#WEIR_SECRET} "$(ls -A /dev/shm | wc -l)" $WEIR_OUT; touch /dev/shm/$RANK; sleep 47110815 & exit 0' >said
code=$?
if grep -q "network tc is not available" errors; then
  echo "SKIPPED: $(cat errors)"
  exit 77
fi
[ $code = 0 ] || fail "exit $code: $(cat errors)"
for rank in 0 1 2; do
  expected="$rank 3 0 10.77.0.1 29500 w$rank eth0 32 0 $work/out"
  [ "$(cat out/rank-$rank.log)" = "$expected" ] || fail "rank $rank says '$(cat out/rank-$rank.log)', not '$expected'"
  grep -qxF "[$rank] $expected" said || fail "rank $rank is not printed: $(cat said)"
done
nothing_left "a command that leaves a process"
[ "$(ls out | tr '\n' ' ')" = "emulate.json rank-0.log rank-1.log rank-2.log report.html " ] || fail "files: $(ls out)"
cp out/report.html first.html
rm out/report.html
[ "$("$weir" report out)" = out/report.html ] || fail "weir report"
cmp -s first.html out/report.html || fail "the report that is drawn again is another"

# Exit codes.
ends() { # CODE COMMAND...
  emulate flat.ini --out out "${@:2}" >said
  code=$?
  [ $code = "$1" ] || fail "${*:2}: exit $code, expected $1: $(cat errors said)"
  nothing_left "${*:2}"
}
ends 5 -- sh -c '[ $RANK = 1 ] && exit 5; exit $RANK'
grep -q "s: rank 1 ended with exit code 5" errors && ! grep -q "rank 0" errors || fail "who failed is not told: $(cat errors)"
ends 137 -- sh -c '[ $RANK = 1 ] && kill -9 $$; exit 3'
grep -q "s: rank 1 was ended by signal 9$" errors || fail "a rank that is killed is not told: $(cat errors)"
ends 255 -- sh -c '[ $RANK = 1 ] || exit 0; exit 255'
grep -q "s: rank 1 ended with exit code 255$" errors || fail "an exit code is taken for a signal: $(cat errors)"
ends 127 -- no-such-program-anywhere
grep -q "no-such-program-anywhere: No such file" said || fail "a missing program is not named: $(cat said)"
ends 4 --grace-s 0.3 -- sh -c '[ $RANK = 1 ] && exit 4; exec sleep 47110815'
grep -q '"put_down" : true' out/emulate.json || fail "who was ended by the runner is not told"
ends 4 --grace-s 0.3 -- sh -c '[ $RANK = 1 ] && exit 4; trap "" TERM INT; sleep 47110815; sleep 47110815'
ends 124 --timeout-s 0.5 -- sleep 47110815
grep -q '"outcome" : "timed out"' out/emulate.json || fail "the time-out is not told"
grep -q '^[0-9.]* s: the time of --timeout-s is up; 3 of 3 ranks had not ended' errors ||
  fail "the time-out is not said: $(cat errors)"
# A line that is as long as what is kept of one is one.
ends 0 --workers 1 -- sh -c 'head -c 4096 /dev/zero | tr "\0" x; echo; echo next'
[ "$(wc -l <said)" = 2 ] && [ "$(tail -n 1 said)" = next ] || fail "a long line: $(cut -c1-20 said)"

# A limit of descriptors is raised where it may be; where not, what is wrong is said.
(ulimit -S -n 40 && exec timeout -s KILL 60 "$weir" emulate "$work/flat.ini" --network tc --workers 14 -- true) 2>errors ||
  fail "14 workers under a soft limit of 40 descriptors: $(cat errors)"
(ulimit -n 40 && exec timeout -s KILL 60 "$weir" emulate "$work/flat.ini" --network tc --workers 14 -- true) 2>errors &&
  fail "14 workers have 40 descriptors"
grep -q "Too many open files" errors || fail "40 descriptors: $(cat errors)"
nothing_left "a limit of descriptors"

# Ranks that print without end, faster than it can be read, do not keep the time-out from coming.
timeout -s KILL 60 "$weir" emulate "$work/flat.ini" --network tc --timeout-s 1 -- yes >/dev/null 2>errors
[ $? = 124 ] || fail "ranks that print without end: $(cat errors)"
nothing_left yes
ends 0 --quiet --workers 1 -- echo said
[ -z "$(cat said)" ] && [ "$(cat out/rank-0.log)" = said ] || fail "--quiet: $(cat said)"

ends 3 --json --workers 1 -- sh -c "echo said; exit 3"
cmp -s said out/emulate.json || fail "--json: $(cat said)"

# Ctrl-C: the ranks get it, too; what there was is told.
: >said # of this run alone, however late the shell begins it
"$weir" emulate "$work/flat.ini" --network tc --out out -- sh -c 'trap "echo asked; exit 1" INT; echo on; while :; do sleep 0.1; done' >said 2>errors &
pid=$!
until [ "$(grep -c on said)" = 3 ]; do kill -0 $pid || fail "it ended by itself: $(cat errors)"; sleep 0.1; done
kill -INT $pid
wait $pid
[ $? = 1 ] || fail "an interrupted run does not exit with 1: $(cat errors)"
grep -q "interrupted" errors && grep -q '"outcome" : "interrupted"' out/emulate.json || fail "the interruption is not told: $(cat errors)"
grep -q '^  "exit_code" : 1,' out/emulate.json || fail "another exit code than the command's: $(grep exit_code out/emulate.json)"
[ "$(cat out/rank-2.log)" = "on
asked" ] || fail "rank 2 was not asked to end: $(cat out/rank-2.log)"
nothing_left "Ctrl-C"

# The runner, and each process of it, is killed.
for victim in 1 2 3; do
  : >said
  "$weir" emulate "$work/flat.ini" --network tc --out out -- sh -c 'echo on; sleep 47110815; true' >said 2>errors &
  pid=$!
  until [ "$(grep -c on said)" = 3 ]; do kill -0 $pid || fail "it ended by itself: $(cat errors)"; sleep 0.1; done
  [ $victim = 1 ] && kill -9 $pid
  [ $victim = 2 ] && kill -9 "$(pgrep -P $pid)"
  [ $victim = 3 ] && kill -9 "$(pgrep -P "$(pgrep -P $pid)")"
  wait $pid 2>/dev/null
  [ $? = 0 ] && fail "a killed run ends with 0"
  nothing_left "SIGKILL of process $victim"
  [ -e out/report.html ] && fail "a killed run has a report"
done

# Launchers: what torchrun would be told, and Open MPI's mpirun where it is installed.
mkdir bin
printf '#!/bin/sh\necho "$@"\n' >bin/torchrun
chmod +x bin/torchrun
PATH=$work/bin:$PATH ends 0 --launcher torchrun -- train.py --lr 0.1
[ "$(cat out/rank-1.log)" = "--nnodes=3 --nproc-per-node=1 --node-rank=1 --master-addr=10.77.0.1 --master-port=29500 train.py --lr 0.1" ] ||
  fail "torchrun is told $(cat out/rank-1.log)"
if mpirun --version 2>/dev/null | grep -q "Open MPI"; then
  ends 0 --launcher mpirun --timeout-s 120 -- sh -c 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)"'
  for rank in 0 1 2; do
    grep -q "rank $rank of 3 on w$rank\$" out/mpirun.log || fail "mpirun: $(cat out/mpirun.log)"
  done
  # Started by an mpirun itself: none of that one's variables come through but what the user may do.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  for launcher in none mpirun; do
    timeout 200 mpirun -n 1 "$weir" emulate "$work/flat.ini" --network tc --launcher $launcher --timeout-s 120 -- sh -c \
      'echo "rank ${OMPI_COMM_WORLD_RANK:-none} of ${OMPI_COMM_WORLD_SIZE:-none} $PMIX_NAMESPACE, $OMPI_ALLOW_RUN_AS_ROOT"' \
      >said 2>errors || fail "within an mpirun, $launcher: $(cat said errors)"
    [ $launcher = none ] && due='rank none of none , 1' || due='rank 2 of 3 .*, 1'
    grep -q "$due\$" said || fail "within an mpirun, $launcher: $(cat said errors)"
  done
  unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
else
  echo "not tested: mpirun is not installed"
fi

# What flows is what was set: each second's bytes within 5 % of the rate, above always (a millisecond's
# burst aside) and below at least once, as a busy machine can only be slower.
if command -v iperf3 >/dev/null; then
  ends 0 --workers 2 -- sh -c '[ $RANK = 1 ] && exec iperf3 -s -1 -I iperf3.pid # which it removes when it ends
    until iperf3 -c w1 -t 8; do sleep 0.2; done'
  /usr/bin/python3 - <<'CHECK' || fail "iperf3's rate"
import json
told = json.load(open("out/emulate.json"))
phases = {s["phase"]: s for s in told["settings"]}
assert list(phases) == ["fast", "slow"] and told["network"] == "tc", told["settings"]
assert abs(phases["slow"]["begin_s"] - 4) < 2, phases
for name, mbit_s in ("fast", 100), ("slow", 20):
    phase = phases[name]
    assert phase["bandwidth_mbit_s"] == mbit_s and phase["latency_ms"] == 0, phase
    rates = [s["sent_bytes"][0] * 8e-6 / (s["end_s"] - s["begin_s"]) for s in told["samples"]
             if phase["begin_s"] <= s["begin_s"] and s["end_s"] <= phase["end_s"]]
    print(name, [round(r, 2) for r in rates])
    assert 0.95 * mbit_s <= max(rates) <= 1.05 * mbit_s, (name, rates)
sent, received = told["workers"][0]["sent_bytes"], told["workers"][1]["received_bytes"]
assert sent > 20e6 and abs(sent - received) < 0.05 * sent, told["workers"]
assert abs(sum(s["sent_bytes"][0] for s in told["samples"]) - sent) < 1, told["workers"]
CHECK
else
  echo "not tested: iperf3 is not installed"
fi

# --await-traffic: a program that takes a second and a half to load, and then sends for four, meets the whole
# of the first phase; one that sends nothing never leaves it.
sed 's/seconds = 4/seconds = 2/' flat.ini >short.ini
cat >late.py <<'PROGRAM'
import os, socket, time
port = 5000
if os.environ["RANK"] == "0":
    time.sleep(1.5)
    end = time.monotonic() + 4
    with socket.create_connection(("w1", port)) as link:
        while time.monotonic() < end:
            link.sendall(bytes(65536))
else:
    with socket.create_server(("", port)) as server, server.accept()[0] as link:
        while link.recv(65536):
            pass
PROGRAM
emulate short.ini --workers 2 --await-traffic --timeout-s 60 --out out -- /usr/bin/python3 "$work/late.py" >said ||
  fail "a program that loads: $(cat errors said)"
grep -q "s: the schedule begins" errors || fail "the schedule's begin is not told: $(cat errors)"
/usr/bin/python3 - <<'CHECK' || fail "--await-traffic"
import json
told = json.load(open("out/emulate.json"))
begin, slow = told["schedule_begin_s"], told["settings"][1]
assert 1.5 <= begin < 5, begin
assert slow["phase"] == "slow" and 2 <= slow["begin_s"] - begin < 3.5, (begin, slow)
CHECK
emulate short.ini --workers 1 --await-traffic --out out -- sleep 3 || fail "one that is silent: $(cat errors)"
/usr/bin/python3 - <<'CHECK' || fail "--await-traffic without any"
import json
told = json.load(open("out/emulate.json"))
assert told["schedule_begin_s"] is None and [s["phase"] for s in told["settings"]] == ["fast"], told
CHECK

# A trace: its rates, in turn.
cat >trace.ini <<'INI'
[scenario]
workers = 1
[trace]
file = slots
latency_ms = 0
interval_s = 0.5
window_s = 0.5
INI
{ seq 0 2 498; seq 500 5 995; } >slots # 250 and 100 slots of 1500 bytes in half a second: 6 and 2.4 Mbit/s
emulate trace.ini --out out -- sleep 1.7 || fail "the trace: $(cat errors)"
/usr/bin/python3 - <<'CHECK' || fail "the trace's rates"
import json
rates = [round(s["bandwidth_mbit_s"], 3) for s in json.load(open("out/emulate.json"))["settings"]]
assert rates[:3] == [6, 2.4, 6], rates
CHECK

# Delays: the shortest of some round trips is twice the delay and at most 5 % more.
ping=ping
command -v ping >/dev/null || ping="busybox ping"
cat >far.ini <<'INI'
[scenario]
workers = 2
[phase far]
seconds = 60
latency_ms = 20
bandwidth_gbps = 0.03
INI
if ! "$weir" emulate far.ini --network tc -- true >said 2>errors && ! grep -q "no netem" errors; then
  fail "a delay without netem: $(cat errors)"
fi
if grep -Eq "__(asan|tsan)_init" "$weir"; then
  echo "not tested: delays (a sanitizer's program does not fit into User-Mode Linux)"
  exit 0
fi
"$weir" emulate far.ini --out out -- sh -c '[ $RANK = 1 ] && exec sleep 6; '"$ping"' -c 12 w1; exit 0' >said 2>errors
code=$?
if grep -q "network uml is not available" errors; then
  echo "not tested: delays: $(cat errors)"
  exit 0
fi
[ $code = 0 ] || fail "ping: exit $code: $(cat errors said)"
shortest=$(sed -nE 's/.*(min.avg.max[^=]*)= ([0-9.]+).*/\2/p' out/rank-0.log)
echo "round trip of 2 x 20 ms: $shortest ms"
awk -v ms="$shortest" 'BEGIN { exit !(ms != "" && ms >= 40 && ms <= 42) }' || fail "ping: $(cat out/rank-0.log)"
"$weir" emulate far.ini -- sh -c 'exit $((RANK + 6))' >said 2>errors
[ $? = 7 ] || fail "the exit code: $(cat errors)"
# Who is killed for want of memory is told of which, by the kernel's log (in words of Linux 6.1).
for log in "" "UML ran out of memory on the host side! This can happen due to a memory limitation"; do
  # shellcheck disable=SC2016
  "$weir" emulate far.ini --workers 1 -- sh -c 'cd "$TMPDIR" && busybox mknod log c 1 11 && echo "$1" >log; kill -9 $$' sh "$log" >said 2>errors
  [ $? = 137 ] && grep -q "the command was ended by signal 9, as .*$([ -n "$log" ] && echo vm.max_map_count || echo --memory-mib)" errors ||
    fail "killed, and the log '$log': $(cat errors)"
done
# The host's /run and /dev/shm are elsewhere inside; a scenario may lie there all the same.
for hidden in /run /dev/shm; do
  run=$(mktemp -d $hidden/weir-test-XXXXXX 2>/dev/null) || continue
  cp far.ini "$run/far.ini"
  echo 'exit $RANK' >"$run/command"
  [ $hidden = /run ] && command=$run/command || command=$work/command
  cp "$run/command" command
  "$weir" emulate "$run/far.ini" -- sh "$command" >said 2>errors
  code=$?
  rm -r "$run"
  [ $code = 1 ] && ! grep -q "cannot be opened" errors || fail "a scenario in $hidden: exit $code: $(cat errors)"
done
nothing_left "delays"
echo "programs run over the networks that are set, and leave nothing"
