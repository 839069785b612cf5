#!/bin/bash
# weir profile: a job's own timings, a plan made of them, and the plan run; virtual time.
weir=$1
root=$2
fail() { echo "FAIL: $*" >&2; exit 1; }
[ -d /usr/share/datasets/fashion-mnist ] || { echo "SKIP: no Fashion-MNIST"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/s.ini" <<'INI'
[scenario]
name = profile
workers = 2
bandwidth_scale = 1
[training]
dataset = fashion-mnist
model = mlp
batch = 16
learning_rate = 0.05
epochs = 1
steps_per_epoch = 8
train_limit = 1000
[phase one]
epochs = 1-1
latency_ms = 1
bandwidth_gbps = 1
INI
"$weir" profile "$dir/s.ini" -o "$dir/out" -n sim -p topk:0.05:ag --json > "$dir/json" 2> "$dir/log" ||
  fail "profile: $(tail -1 "$dir/log")"
python3 - "$dir" <<'PY' || fail "what profile tells"
import csv, json, sys
d = sys.argv[1]
runs = json.load(open(d + '/json'))['runs']
assert [r['division'] for r in runs] == ['one', 'even-4', 'layers', 'planned'], runs
assert [r['groups'] for r in runs][:3] == [1, 4, 6], runs
# An exchange of 2 ranks takes a round, 1 ms: six cannot be over sooner than in 6 ms.
assert runs[2]['measured_ms'] > 6 and all(r['predicted_ms'] > 0 for r in runs), runs
profile = list(csv.DictReader(open(d + '/out/profile.csv')))
assert [(r['tensor'], int(r['numel'])) for r in profile] == [
    ('fc3.weight', 2560), ('fc3.bias', 10), ('fc2.weight', 262144), ('fc2.bias', 256),
    ('fc1.weight', 802816), ('fc1.bias', 1024)], profile
assert all(float(r['gap_us']) >= 0 for r in profile) and sum(float(r['gap_us']) for r in profile) > 0
for name in ('compress-1.csv', 'comm-1.csv'):
    points = [(float(r['bytes']), float(r['ms'])) for r in csv.DictReader(open(d + '/out/' + name))]
    assert points == sorted(points) and len(points) >= 6, points
    assert all(a[1] <= b[1] for a, b in zip(points, points[1:])), points
planned = list(csv.DictReader(open(d + '/out/planned.csv')))
assert planned[-1]['last'] == 'fc1.bias' and len(planned) == runs[3]['groups'], planned
groups = list(csv.DictReader(open(d + '/out/layers-1/groups.csv')))
assert [int(g['bytes']) for g in groups] == [4 * int(r['numel']) for r in profile], groups
PY
# What it writes is what `weir plan` reads, and what --policy groups:FILE runs.
"$weir" plan fusion "$dir/out/profile.csv" --compress-table "$dir/out/compress-1.csv" \
  --comm-table "$dir/out/comm-1.csv" --json | grep -q '"groups"' || fail "plan fusion refuses the profile"
"$weir" run "$dir/s.ini" -o "$dir/run" -n sim -p "groups:$dir/out/planned.csv" > /dev/null 2>&1 ||
  fail "run refuses the plan"
[ -e "$dir/run/profile.csv" ] && fail "profile.csv without --profile"

refused() {
  "$weir" "$@" > /dev/null 2> "$dir/log"
  local code=$?
  [ $code -eq 2 ] || fail "$*: exit $code, expected 2"
  [ -s "$dir/log" ] || fail "$*: no word"
}
refused profile
refused profile "$dir/s.ini"
refused profile "$dir/none.ini" -o "$dir/x"
refused profile "$dir/s.ini" -o "$dir/x" -p topk:2:ag
refused profile "$dir/s.ini" -o "$dir/x" -n moon
refused profile "$dir/s.ini" -o "$dir/s.ini/x"
refused run "$dir/s.ini" -o "$dir/x" -p groups:
refused run "$dir/s.ini" -o "$dir/x" -p groups:layers:topk:2:ag
refused run "$dir/s.ini" -o "$dir/x" -p "groups:$dir/none.csv"
printf 'last,plan,place\nfc9.bias,none:1:dense-ring,caller\n' > "$dir/bad.csv"
"$weir" run "$dir/s.ini" -o "$dir/x" -n sim -p "groups:$dir/bad.csv" > /dev/null 2> "$dir/log"
[ $? -eq 1 ] && grep -q 'bad.csv:2:' "$dir/log" || fail "a table of other tensors: $(cat "$dir/log")"
sed 's/model = mlp/model = cnn/' "$dir/s.ini" > "$dir/cnn.ini"
refused run "$dir/cnn.ini" -o "$dir/x"
echo ok
