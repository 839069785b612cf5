#!/bin/bash
# What `weir plan` finds is what runs: planned from a run's own profile, written with --out, executed by
# policy groups:TABLE, bucket for bucket.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
needs_images
cd "$work" || exit 1

few_images few || exit 1
sed 's/^batch/data_dir = few\nbatch/; s/^epochs = 6/epochs = 2/; s/^epochs = 1-3/epochs = 1/; s/^epochs = 4-6/epochs = 2/' \
  "$source/tests/lab/quick.ini" >quick.ini
run() { # POLICY OUT
  "$weir" run quick.ini --network sim --policy "$1" --profile --out "$2" >log 2>&1 || fail "$1: $(cat log)"
}
run none:1:dense-ring profiled
profile=profiled/profile.csv

# executed TABLE LARGEST: every bucket of TABLE was in force with its plan and place, LARGEST is the plan of its
# largest; the first steps have no buckets yet.
executed() {
  run "groups:$PWD/$1" out
  cmp <(cut -d, -f1-3 out/groups.csv) "$1" || fail "$1 is not what was executed"
  local buckets=$(($(wc -l <"$1") - 1))
  awk -F, -v want="$2/$buckets" 'NR > 1 && $4 == want {n++} NR > 1 && $4 !~ /\// {if (n) exit 1; early++}
    END {exit !(n >= 15 && n + early == NR - 1)}' out/steps.csv ||
    fail "$1: $(awk -F, 'NR > 1 {print $4}' out/steps.csv | uniq -c | xargs)"
}

# A second a message, whatever its length: one bucket.  Nothing but 3 s a megabyte: the links are busy from the first
# tensor on, and how the others are divided makes no difference.
"$weir" plan fusion $profile --compress-ms 0,0 --comm-ms 1000,0 --plan topk:0.1:ag-ring --out one.csv >/dev/null ||
  fail "plan fusion"
[ "$(cat one.csv)" = "$(printf 'last,plan,place\nfc1.bias,topk:0.1:ag-ring,caller')" ] || fail "$(cat one.csv)"
executed one.csv topk:0.1:ag-ring
"$weir" plan fusion $profile --compress-ms 0,0 --comm-ms 0,3000 --plan star:0.1:art-tree:auto-bf16 --out two.csv >/dev/null ||
  fail "plan fusion"
[ "$(sed -n 2p two.csv)" = fc3.weight,star:0.1:art-tree:auto-bf16,caller ] || fail "$(cat two.csv)"
executed two.csv star:0.1:art-tree:auto-bf16

# Three machines of one worker, whose rings take as many rounds as trees and fewer bytes; what is compressed is so on
# the CPU, as the GPU is slow: beside the backward pass.
"$weir" plan strategy $profile --machines 3 --per-machine 1 --inter 1,0.05 --codec topk:0.1,0.2 --gpu-ms 90,0 \
  --cpu-ms 0.01,0 --forbid 'all-reduce,all-to-all*,gather*' --no-hierarchical --plain fc3,bias --out strategy.csv >/dev/null || fail "plan strategy"
sed -i 's/:ag,/:ag-doubling,/' strategy.csv # or a session would name the cheapest
cat >due.csv <<'END'
last,plan,place
fc3.weight,none:1:dense-ring,caller
fc3.bias,none:1:dense-ring,caller
fc2.weight,topk:0.1:ag-doubling,thread
fc2.bias,none:1:dense-ring,caller
fc1.weight,topk:0.1:ag-doubling,thread
fc1.bias,none:1:dense-ring,caller
END
cmp strategy.csv due.csv || fail "$(cat strategy.csv)"
executed strategy.csv topk:0.1:ag-doubling

# Paths, whether the three workers are taken for one machine or for three: what has no collective of its own.
"$weir" plan strategy $profile --machines 1 --per-machine 3 --intra 1000,0.05 --codec qsgd:0.125,0.126 --gpu-ms 90,0 \
  --cpu-ms 0.01,0 --no-flat --out inside.csv >/dev/null || fail "plan strategy inside of a machine"
"$weir" plan strategy $profile --machines 3 --per-machine 1 --inter 1,0.05 --codec topk:0.1,0.2 --gpu-ms 90,0 \
  --cpu-ms 0.01,0 --no-hierarchical --compressed --forbid all-gather* --out rooted.csv >/dev/null || fail "plan strategy to a root"
grep -q '^fc1.weight,qsgd:0.125:path=c\.a2a\.' inside.csv || fail "$(cat inside.csv)"
grep -q '^fc1.weight,topk:0.1:path=c\.g\.d\.' rooted.csv || fail "$(cat rooted.csv)"
for table in inside rooted; do
  executed $table.csv "$(grep fc1.weight $table.csv | cut -d, -f2)"
done

# The largest layer errs most: it keeps 4 bits, and 2 for fc2 change next to nothing; what the filter names keeps all.
cat >stats.csv <<'END'
layer,numel,norm,bits,bucket,bytes,error
fc3.weight,2560,1,4,128,1440,0.1
fc3.bias,10,1,4,128,13,9
fc2.weight,262144,1,2,128,81920,0.2
fc2.weight,262144,1,4,128,147456,0.1
fc2.bias,256,1,4,128,144,9
fc1.weight,802816,1,4,128,451584,5
fc1.weight,802816,1,8,128,852992,0.5
fc1.bias,1024,1,4,128,576,9
END
"$weir" plan bits stats.csv --keep bias,fc3 --alpha 1.01 --out bits.csv >/dev/null || fail "plan bits"
cat >due.csv <<'END'
last,plan,place
fc3.bias,none:1:dense,caller
fc2.weight,qsgd:0.0625:sra,caller
fc2.bias,none:1:dense,caller
fc1.weight,qsgd:0.125:sra,caller
fc1.bias,none:1:dense,caller
END
cmp bits.csv due.csv || fail "$(cat bits.csv)"
sed -i 's/dense,/dense-halving,/' bits.csv
executed bits.csv qsgd:0.125:sra

# What policy bits has measured in a run, planned from and executed: as foretold a rank sends 2 (N - 1) / N, 4 thirds, of
# the bytes of all tensors (those of the full ones, 4 an element, go by one all-reduce), and the headers' telemetry besides.
run bits:knapsack:2 measured
"$weir" replay measured --bits measured.csv >/dev/null || fail "weir replay --bits"
"$weir" plan bits measured.csv --out assigned.csv --json >assigned.json || fail "plan bits of a run"
[ "$(grep -c '^fc[123].bias,full,caller' assigned.csv)" = 3 ] && tail -n 1 assigned.csv | grep -q '^fc1.weight,qsgd:' || fail "$(cat assigned.csv)"
run "groups:$PWD/assigned.csv" out
python3 - <<'END' || fail "other bytes than weir plan bits has foretold"
import csv, json
foretold = json.load(open('assigned.json'))['bytes'] * 4 / 3
sent = [float(r['wire_bytes']) for r in csv.DictReader(open('out/steps.csv')) if '/' in r['plan']]
print(f'{len(sent)} steps, {sent[0]:.0f} bytes, {foretold:.0f} foretold')
assert len(sent) >= 15 and all(abs(s / foretold - 1) < 0.005 for s in sent)
END
"$weir" replay profiled --bits none.csv >log 2>&1 && fail "statistics of a run without any"
grep -q 'expected a run under policy bits' log && [ ! -e none.csv ] || fail "$(cat log)"
"$weir" replay measured --bits /nowhere/measured.csv >log 2>&1 && fail "statistics written to nowhere"
grep -q '/nowhere/measured.csv' log || fail "$(cat log)"

# Tensors of a given shape: 6 of them 2 ms apart, of which the small ones are faster as they are and the large ones
# compressed: at 50 Mbit/s, 1 ms.
printf 'tensor,numel,gap_us\na,300000,2000\nb,10,2000\nc,10,2000\nd,200000,2000\ne,10,2000\nf,10,2000\n' >shape.csv
cat >shaped.ini <<'END'
[scenario]
workers = 3
bandwidth_scale = 0.05
[training]
model = shaped
shape = shape.csv
batch = 1
learning_rate = 0.1
epochs = 1
steps_per_epoch = 200
[phase one]
epochs = 1
latency_ms = 1
bandwidth_gbps = 1
END
"$weir" profile shaped.ini --network sim --turn 3 --plan none:1:dense-direct --plan qsgd:0.0625:sra --within 10 --out shaped \
  >log 2>&1 || fail "a profile of a shape: $(tail -3 log)"
cmp <(cut -d, -f1,2 shaped/profile.csv) <(cut -d, -f1,2 shape.csv) || fail "another shape: $(cat shaped/profile.csv)"
awk -F, 'NR > 1 && ($3 < 1950 || $3 > 2600) {exit 1}' shaped/profile.csv || fail "other gaps: $(cat shaped/profile.csv)"
[ "$(sed 's/none:1:dense-direct/plain/; s/qsgd:0.0625:sra/coded/' shaped/myopic.csv | xargs)" = \
  "last,plan,place a,coded,caller b,plain,caller c,plain,caller d,coded,caller e,plain,caller f,plain,caller" ] || fail "$(cat shaped/myopic.csv)"
for wrong in 's/^shape = .*//' 's/^model = shaped/model = mlp/' 's/shape.csv/nowhere.csv/' 's/^batch/slice = 8\nbatch/'; do
  sed "$wrong" shaped.ini >wrong.ini
  "$weir" run wrong.ini --network sim --out refused >log 2>&1
  code=$?
  [ $code = 2 ] || fail "$wrong: exit $code"
  grep -q 'wrong.ini:[0-9]*: ' log || fail "$wrong: $(cat log)"
done

# Of another model: refused before anything runs, with the line.
sed 's/fc2.bias/fc7.bias/' bits.csv >other.csv
"$weir" run quick.ini --network sim --policy "groups:$PWD/other.csv" --out refused >log 2>&1
code=$?
[ $code = 2 ] || fail "another model's table: exit $code"
grep -q "other.csv:4: last 'fc7.bias': expected" log || fail "$(cat log)"
[ ! -e refused/steps.csv ] || fail "a refused table was run"
echo "plans are executed as they were found"
