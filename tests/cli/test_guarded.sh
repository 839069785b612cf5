#!/bin/bash
# The tests' own runner: a failure counts at once, unless the machine stood still meanwhile; then the test is
# run again, five times at most.
guarded=$(dirname "$1")/../tests/guarded
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
runs() { # CODE RUNS COMMAND...: what the runner returns, and how often it has run the command
  local code=0
  : >"$work/runs"
  "$guarded" bash -c "echo run >>'$work/runs'; $3" >"$work/out" || code=$?
  [ $code = "$1" ] || fail "$3: $code, not $1"
  [ "$(wc -l <"$work/runs")" = "$2" ] || fail "$3: $(wc -l <"$work/runs") runs, not $2: $(cat "$work/out")"
}
# Others than this test's own may make the machine stand still: then a single run is tried again.
once() { for _ in $(seq 20); do (runs "$@") >"$work/why" && return; grep -q still "$work/why" || break; done; fail "$(cat "$work/why")"; }
standstill='kill -STOP $PPID; sleep 0.5; kill -CONT $PPID'
once 0 1 'exit 0'
once 77 1 'exit 77'
once 3 1 'exit 3'
once 137 1 'kill -9 $$'
runs 0 1 "$standstill; exit 0"
runs 0 2 "$standstill; [ \$(wc -l <'$work/runs') = 2 ]"
runs 4 5 "$standstill; exit 4"
# A single processor that gives no time: a debugger holds up the thread that looks there.
: >"$work/runs"
/usr/bin/python3 - "$guarded" "$work/runs" "$work/held" >"$work/out" 2>&1 <<'HOLD' ||
import ctypes, os, subprocess, sys, time
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
runs, held = sys.argv[2:]
kernel = ctypes.CDLL(None, use_errno=True)
def ask(what, thread):
    return kernel.ptrace(ctypes.c_long(what), ctypes.c_long(thread), ctypes.c_void_p(), ctypes.c_void_p())
runner = subprocess.Popen([sys.argv[1], 'bash', '-c', f"""
    echo run >>{runs}
    until [ -e {held} ]; do sleep 0.01; done
    [ $(wc -l <{runs}) = 2 ]"""])
try:
    while not os.path.exists(runs) or os.path.getsize(runs) == 0:
        time.sleep(0.01)
    threads = [int(t) for t in os.listdir(f'/proc/{runner.pid}/task') if int(t) != runner.pid]
    assert threads, 'nobody looks at single processors'
    if ask(SEIZE, threads[-1]) != 0:
        print('not told: no thread can be held up here:', os.strerror(ctypes.get_errno()))
        sys.exit(0)
    assert ask(INTERRUPT, threads[-1]) == 0 and os.waitpid(threads[-1], WALL)[0] == threads[-1]
    time.sleep(0.5)
    assert ask(DETACH, threads[-1]) == 0
    open(held, 'w').close()
    code = runner.wait()
    assert code == 0 and open(runs).read() == 'run\nrun\n', (code, open(runs).read())
finally:
    runner.kill()
HOLD
  fail "a processor that stands still: $(cat "$work/out")"
once 127 1 'exec /nothing/such'
"$guarded" /nothing/such 2>"$work/out"
[ $? -eq 127 ] && grep -q 'No such file' "$work/out" || fail "a command that is not there"
echo ok
