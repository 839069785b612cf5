#!/bin/bash
# weir profile: a job's own timings, a plan made of them, and the plan run; virtual time.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
needs_images
few_images "$work/few" || exit 1
cat > "$work/s.ini" <<INI
[scenario]
name = profile
workers = 2
bandwidth_scale = 1
[training]
dataset = fashion-mnist
data_dir = $work/few
model = mlp
batch = 16
learning_rate = 0.05
epochs = 1
steps_per_epoch = 84
[phase one]
epochs = 1-1
latency_ms = 1
bandwidth_gbps = 1
INI
# Nothing is touched before all that can be known is found good: a network, the number of steps, what it reads.
mkdir -p "$work/old/learnt" "$work/old/checked"
echo old | tee "$work/old/planned.csv" "$work/old/profile.csv" "$work/old/comm-8.csv" >"$work/old/checked/summary.json"
before=$(find "$work/old" -type f | sort | xargs cksum)
sed 's/^steps_per_epoch.*/steps_per_epoch = 58/' "$work/s.ini" >"$work/few.ini"
expect 2 "few.ini: 58 steps; 5 divisions in turns of 4 take 59 at the least" \
  "$weir" profile "$work/few.ini" -o "$work/old" -n sim -p topk:0.05:ag
expect 2 "over network sim" "$weir" profile "$work/s.ini" -o "$work/old" -n sim -p none:1:native
cp "$work/s.ini" "$work/old/report.html"
expect 2 "the scenario, .*expected another folder" "$weir" profile "$work/old/report.html" -o "$work/old" -n sim
rm "$work/old/report.html"
[ "$(find "$work/old" -type f | sort | xargs cksum)" = "$before" ] || fail "what was there is touched"
expect 2 "over network sim" "$weir" profile "$work/s.ini" -o "$work/none" -n sim -p none:1:native
[ ! -e "$work/none" ] || fail "a folder is made"
rm "$work/out" && mv "$work/old" "$work/out" || exit 1
"$weir" profile "$work/s.ini" -o "$work/out" -n sim -p topk:0.05:ag --turn 4 --json \
  > "$work/json" 2> "$work/log" ||
  fail "profile: $(tail -1 "$work/log")"
[ ! -e "$work/out/comm-8.csv" ] || fail "an old profile's file is left"
python3 - "$work" <<'PY' || fail "what profile tells"
import csv, json, sys
d = sys.argv[1]
told = json.load(open(d + '/json'))
runs = told['runs']
assert [r['division'] for r in runs] == ['one', 'even-4', 'layers', 'bucket-2MB', 'planned'], runs
assert [r['groups'] for r in runs][:4] == [1, 4, 6, 2], runs
assert all(r['steps'] >= 2 for r in runs), runs
# An exchange of 2 ranks takes a round, 1 ms: six take 6 ms at least, one takes 1.
assert runs[2]['measured_ms'] > 6 and runs[2]['predicted_ms'] > 6, runs
assert all(r['measured_ms'] > 1 for r in runs), runs
# The bound is a bound: of what is predicted, nothing is below it.
assert all(r['predicted_ms'] >= told['least_ms'] * (1 - 1e-9) for r in runs), told
assert runs[4]['groups'] >= 1, runs
assert told['over_one'] > 0 and told['bound_over_layers'] >= 1, told
assert told['order_right'] <= told['order_pairs'], told
off = max(abs(r['predicted_ms'] / r['measured_ms'] - 1) for r in runs)
assert abs(told['off_percent'] - 100 * off) < 1e-6, (off, told)
pairs = [(a, b) for a in runs for b in runs if a['predicted_ms'] < 0.95 * b['predicted_ms']]
assert told['order_pairs'] == len(pairs), told
assert told['order_right'] == sum(a['measured_ms'] < b['measured_ms'] for a, b in pairs), told
assert abs(told['over_layers'] - runs[2]['measured_ms'] / runs[4]['measured_ms']) < 1e-9, told
assert json.load(open(d + '/out/profile.json')) == told
# Every bar of the page's charts is one of these.
page = open(d + '/out/report.html').read()
charts = json.loads(page.split('id="charts">')[1].split('</script>')[0])
assert [c['caption'].split(':')[0] for c in charts] == [
    'One bucket, predicted', 'One bucket, measured', 'Planned, predicted', 'Planned, measured'], charts
bars = [bar['text'] for chart in charts for bar in chart['bars']]
assert sum('exchange of bucket 1, up to fc1.bias' in b for b in bars) >= 3, bars
assert all(b.split()[0] in ('backward', 'compress', 'taken', 'exchange', 'decode') for b in bars), bars
assert page.count('<tr><td>') == 5 and '%s</' % runs[4]['plan'] in page, page
profile = list(csv.DictReader(open(d + '/out/profile.csv')))
assert [(r['tensor'], int(r['numel'])) for r in profile] == [
    ('fc3.weight', 2560), ('fc3.bias', 10), ('fc2.weight', 262144), ('fc2.bias', 256),
    ('fc1.weight', 802816), ('fc1.bias', 1024)], profile
assert all(float(r['gap_us']) >= 0 for r in profile) and sum(float(r['gap_us']) for r in profile) > 0
for name in ('compress-1.csv', 'comm-1.csv'):
    points = [(float(r['bytes']), float(r['ms'])) for r in csv.DictReader(open(d + '/out/' + name))]
    assert points == sorted(points) and len(points) >= 6, points
    assert all(a[1] <= b[1] for a, b in zip(points, points[1:])), points
comm = list(csv.DictReader(open(d + '/out/comm-1.csv')))
assert all(float(r['ms']) >= 1 for r in comm), comm
# No bucket is charged less than its bytes at the rate of the longest (a millionth is rounding).
sent = [(float(r['bytes']), float(r['ms'])) for r in comm]
rate = (sent[-1][1] - sent[0][1]) / (sent[-1][0] - sent[0][0])
assert all(ms >= 0.999 * rate * count - 1e-5 for count, ms in sent), sent
planned = list(csv.DictReader(open(d + '/out/planned.csv')))
kept = min(runs, key=lambda r: r['measured_ms'])
assert told['kept'] == kept['division'], told
assert planned[-1]['last'] == 'fc1.bias' and len(planned) == kept['groups'], planned
# The ranks' timings: every step has its gradients and its buckets, in order.
for rank in (0, 1):
    steps = {}
    for r in csv.DictReader(open(d + '/out/learnt/timings-%d.csv' % rank)):
        steps.setdefault(int(r['step']), []).append(r)
    assert len(steps) > 20, len(steps)
    for rows in steps.values():
        groups = int(rows[0]['index'])
        assert rows[0]['kind'] == 'step' and groups in (1, 4, 6), rows[0]
        assert [r['kind'] for r in rows].count('backward') == 6, rows
        exchanges = [r for r in rows if r['kind'] == 'exchange']
        assert len(exchanges) == groups and all(float(r['us']) >= 1000 for r in exchanges), rows
        ends = [float(r['at_us']) + float(r['us']) for r in exchanges]
        assert all(b >= a + 1000 for a, b in zip(ends, ends[1:])), ends
trace = json.load(open(d + '/out/trace.json'))['traceEvents']
names = {e['pid']: e['args']['name'] for e in trace if e['name'] == 'process_name'}
assert names == {1: 'predicted', 2: 'measured'}, names
for pid, ranks in ((1, 1), (2, 2)):
    spans = [e for e in trace if e['ph'] == 'X' and e['pid'] == pid]
    assert sum(e['cat'] == 'backward' for e in spans) == 6 * ranks, spans
    assert sum(e['cat'] == 'exchange' for e in spans) == runs[4]['groups'] * ranks, spans
PY
# Slices of whole rows: 8 of fc1's 1024, 3 of fc2's 256 (98 hold at most 100352 elements); a worker of 1
# GFLOP/s.  Backward of 16 images: 2 * 16 * (784 * 1024 + 1024 * 256 + 256 * 10) operations for the weights,
# and 2 * 16 * (1024 * 256 + 256 * 10) for what is below: 42.63 ms, which virtual time counts.  A dense sum
# has error feedback's pass before it and averaging behind it: 32 bits of each of 1068810 elements at 2 Gbit/s,
# 17.1 ms each.
sed 's/^batch = 16/batch = 16\nslice = 100352\ngflops = 1\ncodec_gbps = 2/' "$work/s.ini" > "$work/slices.ini"
"$weir" profile "$work/slices.ini" -o "$work/slices" -n sim -p bf16:1:dense-ring -t 3 --json \
  > "$work/json" 2> "$work/log" || fail "profile of slices: $(tail -1 "$work/log")"
python3 - "$work" <<'PY' || fail "what profile tells of slices"
import csv, json, sys
d = sys.argv[1]
runs = json.load(open(d + '/json'))['runs']
assert [r['division'] for r in runs] == ['one', 'even-4', 'slices', 'layers', 'bucket-2MB', 'planned'], runs
assert [r['groups'] for r in runs][:4] == [1, 4, 15, 6], runs
profile = list(csv.DictReader(open(d + '/slices/profile.csv')))
names = (['fc3.weight', 'fc3.bias'] + ['fc2.weight/%d' % i for i in range(3)] + ['fc2.bias'] +
         ['fc1.weight/%d' % i for i in range(8)] + ['fc1.bias'])
assert [r['tensor'] for r in profile] == names, profile
assert [int(r['numel']) for r in profile if 'fc1.weight' in r['tensor']] == [128 * 784] * 8, profile
backward_ms = sum(float(r['gap_us']) for r in profile) / 1e3
assert 42.6 < backward_ms < 80, backward_ms
compress, comm = ({int(r['bytes']): float(r['ms']) for r in csv.DictReader(open(d + '/slices/' + name))}
                  for name in ('compress-1.csv', 'comm-1.csv'))
assert 17.1 < compress[4275240] < 60, compress
# Its ring over 1 Gbit/s: 2 rounds of 1 ms and 2 * 1/2 of 2137620 bytes, 17.1 ms too.
assert 2 + 17.1 + 17.1 < comm[4275240] < 90, comm
whole = [r['last'] for r in csv.DictReader(open(d + '/slices/layers.csv'))]
assert whole == ['fc3.weight', 'fc3.bias', 'fc2.weight/2', 'fc2.bias', 'fc1.weight/7', 'fc1.bias'], whole
PY
# What it writes is what `weir plan` reads, and what --policy groups:FILE runs.
"$weir" plan fusion "$work/out/profile.csv" --compress-table "$work/out/compress-1.csv" \
  --comm-table "$work/out/comm-1.csv" --json | grep -q '"groups"' || fail "plan fusion refuses the profile"
"$weir" run "$work/s.ini" -o "$work/run" -n sim -p "groups:$work/out/planned.csv" > /dev/null 2>&1 ||
  fail "run refuses the plan"
[ -e "$work/run/timings-0.csv" ] && fail "timings without --profile"
[ -e "$work/run/profile.csv" ] && fail "profile.csv without --profile"

# Held to a millionth of a percent, predictions fail: the files are there, and the exit code says so.
"$weir" profile "$work/s.ini" -o "$work/held" -n sim -p topk:0.05:ag -t 4 --within 1e-6 > "$work/table" 2> "$work/log"
[ $? -eq 1 ] && grep -q 'off, and .* of .* pairs are in the order predicted; expected within 1e-06 %' "$work/log" ||
  fail "--within 1e-6: $(tail -1 "$work/log")"
grep -q '^predicted within [0-9.]* % (.*); order: [0-9]* of [0-9]* pairs as predicted$' "$work/table" &&
  [ -s "$work/held/report.html" ] || fail "the table: $(cat "$work/table")"

refused() {
  "$weir" "$@" > /dev/null 2> "$work/log"
  local code=$?
  [ $code -eq 2 ] || fail "$*: exit $code, expected 2"
  [ -s "$work/log" ] || fail "$*: no word"
}
refused profile
refused profile "$work/s.ini"
refused profile "$work/none.ini" -o "$work/x"
refused profile "$work/s.ini" -o "$work/x" -p topk:2:ag
grep -q "expected one phase" "$work/log" && fail "one phase is taken for several"
{ sed 's/^epochs = 1$/epochs = 2/' "$work/s.ini" && printf '[phase two]\nepochs = 2\nlatency_ms = 1\nbandwidth_gbps = 2\n'; } >"$work/two.ini"
refused profile "$work/two.ini" -o "$work/x" -p topk:2:ag
grep -q "two.ini: the network changes while it measures" "$work/log" || fail "two phases: $(cat "$work/log")"
refused profile "$work/s.ini" -o "$work/x" --turn 2
refused profile "$work/s.ini" -o "$work/x" --turn many
refused profile "$work/s.ini" -o "$work/x" --within 0
refused profile "$work/s.ini" -o "$work/x" --within 101
refused profile "$work/s.ini" -o "$work/x" --within much
refused profile "$work/s.ini" "$work/s.ini" -o "$work/x"
refused profile "$work/s.ini" -o "$work/a;b"
# shellcheck disable=SC2046
refused profile "$work/s.ini" -o "$work/x" $(yes -- '-p bf16:1:dense-ring' | head -9)
sed 's/steps_per_epoch = 84/steps_per_epoch = 3/' "$work/s.ini" > "$work/short.ini"
refused profile "$work/short.ini" -o "$work/x" -n sim
refused profile "$work/s.ini" -o "$work/x" -n moon
refused profile "$work/s.ini" -o "$work/s.ini/x"
refused run "$work/s.ini" -o "$work/x" -p groups:
refused run "$work/s.ini" -o "$work/x" -p groups:layers:topk:2:ag
refused run "$work/s.ini" -o "$work/x" -p "groups:$work/none.csv"
refused run "$work/s.ini" -o "$work/x" -p "groups:turns=3:layers:none:1:dense-ring;none.csv"
printf 'last,plan,place\nfc9.bias,none:1:dense-ring,caller\n' > "$work/bad.csv"
"$weir" run "$work/s.ini" -o "$work/x" -n sim -p "groups:$work/bad.csv" > /dev/null 2> "$work/log"
[ $? -eq 2 ] && grep -q 'bad.csv:2:' "$work/log" || fail "a table of other tensors: $(cat "$work/log")"
sed 's/model = mlp/model = vit/' "$work/s.ini" > "$work/vit.ini"
refused run "$work/vit.ini" -o "$work/x"
echo ok
