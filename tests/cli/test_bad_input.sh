#!/bin/bash
# Bad input to `weir run` and `weir compare`: exit 2, where it is and what was expected, and nothing
# touched: no output folder, no file.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
cd "$work" || exit 1
failures=0

good() {
  cat <<'INI'
[scenario]
workers = 2
bandwidth_scale = 0.1
[training]
batch = 8
learning_rate = 0.1
epochs = 4
steps_per_epoch = 2
[phase one]
epochs = 1-2
latency_ms = 1
bandwidth_gbps = 10
[phase two]
epochs = 3-4
latency_ms = 5
bandwidth_gbps = 1
INI
}

# refused NAME REGEX ARGUMENTS...: `weir ARGUMENTS` must end with 2, say REGEX, and leave no "out".
refused() {
  local name=$1 regex=$2 code
  shift 2
  timeout 450 "$weir" "$@" >stdout 2>stderr
  code=$?
  if [ $code -ne 2 ] || ! grep -Eq "$regex" stderr || ! grep -q "expected" stderr || [ -e out ]; then
    echo "FAILED: $name: exit $code, expected 2 and '$regex'; stderr: $(cat stderr)"
    [ -e out ] && { echo "  the output folder was made"; rm -rf out; }
    failures=$((failures + 1))
  fi
}

# edited NAME LINE REGEX SED: the good scenario, changed by SED, is refused at its LINE.
edited() {
  good | sed -E "$4" >bad.ini
  cmp -s bad.ini <(good) && { echo "FAILED: $1: the edit changes nothing"; failures=$((failures + 1)); }
  refused "$1" "bad\.ini:$2: .*$3" run bad.ini --network sim --out out
}

edited "unknown key" 2 "wrokers" 's/^workers/wrokers/'
edited "unknown section" 4 "traning" 's/^\[training\]/[traning]/'
edited "missing phase" 7 "no phase for epoch 3" '/phase two/,$d'
edited "gap" 13 "no phase for epoch 2" 's/^epochs = 1-2/epochs = 1/'
edited "overlapping epochs" 13 "overlap in epoch 3" 's/^epochs = 1-2/epochs = 1-3/'
edited "negative bandwidth" 12 "bandwidth_gbps = -10" 's/= 10$/= -10/'
edited "zero bandwidth" 12 "bandwidth_gbps = 0" 's/= 10$/= 0/'
edited "NaN" 12 "bandwidth_gbps = nan" 's/= 10$/= nan/'
edited "NaN latency" 11 "latency_ms = NaN" 's/latency_ms = 1$/latency_ms = NaN/'
edited "no workers" 2 "workers = 0" 's/^workers = 2/workers = 0/'
good | sed '$a [fault]\nkind = kill\nrank = 1\nstep = 8' >late.ini # steps are 0 to 7
refused "a fault that never strikes" "late.ini:19: .*the fault's step 8 is none of the run's" run late.ini --network tc --out out
edited "text for a number" 5 "batch = many" 's/^batch = 8/batch = many/'
edited "no data set there" 5 "/nowhere" 's/^(batch = 8)/data_dir = \/nowhere\n\1/'
edited "unknown policy in the file" 3 "policy warp is unknown" 's/^(bandwidth_scale.*)/policy = warp/'
edited "unknown risk in the file" 3 "risk is \"none\"; expected safe, measured or bold" 's/^(bandwidth_scale.*)/risk = none/'
edited "CR above 1 in the file" 3 "fixed:lwtopk:2:ag" 's/^bandwidth_scale.*/policy = fixed:lwtopk:2:ag/'

edited "a warm-up of what decides by itself" 8 "warmup_epochs = 2: .*policy weir" 's/^(steps_per.*)/warmup_epochs = 2\n\1/'
edited "momentum correction by half" 5 "momentum_correction = 0.5" 's/^(batch = 8)/momentum_correction = 0.5\n\1/'
edited "half of a loss reported" 5 "report_loss = 2" 's/^(batch = 8)/report_loss = 2\n\1/'
edited "a negative norm" 5 "clip_norm = -1" 's/^(batch = 8)/clip_norm = -1\n\1/'
edited "infinite bandwidth" 12 "bandwidth_gbps = inf" 's/= 10$/= inf/'
edited "bandwidth beyond a double" 12 "bandwidth_gbps = 1e400" 's/= 10$/= 1e400/'
edited "negative latency" 11 "latency_ms = -1" 's/latency_ms = 1$/latency_ms = -1/'
edited "latency of hours" 11 "latency_ms = 1e9" 's/latency_ms = 1$/latency_ms = 1e9/'
edited "scale of zero" 3 "bandwidth_scale = 0" 's/scale = 0.1/scale = 0/'
edited "workers beyond 64 bits" 2 "workers = 99999999999999999999" 's/^workers = 2/workers = 99999999999999999999/'
edited "a key twice" 3 "workers appears twice" 's/^(workers = 2)/\1\n\1/'
edited "a section twice" 13 "\[training\] appears twice" 's/^(\[phase two\])/[training]\nbatch = 3\n\1/'
edited "no equals sign" 5 "'batch 8'" 's/^batch = 8/batch 8/'
edited "no value" 5 "batch is empty" 's/^batch = 8/batch =/'
edited "something after the number" 5 "batch = 8x" 's/^batch = 8/batch = 8x/'
edited "epochs backwards" 10 "epochs = 2-1" 's/1-2/2-1/'
edited "epochs in words" 10 "epochs = one" 's/1-2/one/'
edited "no network" 8 "the file ends without a network" '/phase one/,$d'
edited "an empty file" 1 "the file ends without \[scenario\]" 'd'
edited "CR of zero in the file" 3 "fixed:lwtopk:0:ag" 's/^bandwidth_scale.*/policy = fixed:lwtopk:0:ag/'

good >good.ini
refused "a folder for a scenario" "$work: cannot be opened \(it is no regular file\)" run "$work" --out out
{ printf '\001' && head -c 65536 /dev/urandom; } >noise
refused "no text" "noise:[0-9]+: the line is no text" run noise --out out
head -c 900 /dev/zero | tr '\0' x >long
refused "a long line before any section" "long:1: 'x{80}' stands before" run long --out out
for key in bandwidth_scale epochs $(head -c 900 long); do
  { good | head -2; echo "$key = $(head -c 100 long)"; } >long.ini
  refused "a long value" "long\.ini:3: " run long.ini --network sim --out out
done
refused "no such scenario" "nowhere\.ini" run nowhere.ini --out out
refused "no output folder named" "\-\-out" run good.ini
refused "unknown risk" 'risk is "none"' run good.ini --risk none --out out
refused "unknown policy" "policy warp is unknown" run good.ini --policy warp --out out
for cr in 0 -0.1 1.5 nan inf x; do
  refused "CR $cr" "fixed:lwtopk:$cr:ag" run good.ini --policy fixed:lwtopk:$cr:ag --out out
done
for bits in bits: bits:foo bits:knapsack:0.5 bits:kmeans:2:0 bits:linear:x; do
  refused "policy $bits" "expected bits\[:METHOD\[:ALPHA\[:STEPS\]\]\]" run good.ini --policy $bits --out out
done
LC_ALL=C refused "a table of another alphabet" "tâble\.csv: No such file" run good.ini --policy groups:tâble.csv --out out
refused "codec and collective apart" "fixed:star:0.1:ag" run good.ini --policy fixed:star:0.1:ag --out out
# A table of buckets is one of this model's, or nothing begins.
groups() { # NAME REGEX LINES
  printf 'last,plan,place\n%b' "$3" >groups.csv
  refused "$1" "groups\.csv$2" run good.ini --network sim --policy groups:groups.csv --out out
}
groups "buckets without a line" ":2: no rows" ""
groups "a bucket that goes back" ":3: last 'fc3.bias': expected a tensor behind" "fc2.bias,bf16:1:dense-ring,caller\nfc3.bias,bf16:1:dense-ring,caller\n"
groups "a bucket's last tensor" ":2: last 'fc9.bias': expected the name of a tensor of this model, such as 'fc1.bias'" "fc9.bias,bf16:1:dense-ring,caller\n"
groups "a bucket's place" ":3: place 'moon'" "fc2.bias,bf16:1:dense-ring,caller\nfc1.bias,bf16:1:dense-ring,moon\n"
groups "buckets that end too soon" ": the buckets end at tensor 2 of 6" "fc3.bias,bf16:1:dense-ring,caller\n"
groups "a filter behind a bucket" ":3: last '.bias'" "fc3.bias,bf16:1:dense-ring,caller\n*bias,full,caller\n"
groups "a filter of no size" ":2: '<0'" "<0,full,caller\nfc1.bias,bf16:1:dense-ring,caller\n"
groups "a bucket of what is left out" ":3: last 'fc1.bias'" "*bias,full,caller\nfc1.bias,bf16:1:dense-ring,caller\n"
sed 's/^workers.*/&\nfull_precision = *bias,,x/' good.ini >filter.ini
refused "an empty filter" "filter\.ini:[0-9]*: '' of full_precision" run filter.ini --network sim --out out
sed 's/^workers.*/&\nerror_feedback = 0/' good.ini >forgets.ini
refused "no error feedback under policy weir" "forgets\.ini:[0-9]*: policy weir needs error_feedback" run forgets.ini --network sim --policy weir --out out
refused "no error feedback under top-k" "forgets\.ini:[0-9]*: codec topk needs error_feedback" run forgets.ini --network sim --policy fixed:topk:0.01:ag --out out
sed 's/^workers.*/&\nfull_precision = *bias/' good.ini >filter.ini
refused "a filter beside weir profile" "filter\.ini:[0-9]*: full_precision" profile filter.ini --network sim --plan bf16:1:dense --out out
printf 'last,plan,place\nfc1.bias,bf16:1:dense-ring,moon\n' >groups.csv
refused "a bad table among turns" "groups\.csv:2: place" \
  run good.ini --network sim --policy "groups:turns=2:layers:bf16:1:dense-ring;$PWD/groups.csv" --out out
refused "a bad table of many" "groups\.csv:2: place" \
  compare good.ini --network sim --policies weir,groups:groups.csv --out out
refused "unknown clock" "clock sundial.*skip-idle" run good.ini --clock sundial --out out
refused "a clock without its machine, again" "clock free-cpu.*expected --network uml" run good.ini --clock free-cpu --network sim --out out
refused "a clock without its machine" "clock skip-idle.*expected --network uml" run good.ini --clock skip-idle --network sim --out out
refused "the same of many" "clock skip-idle.*expected --network uml" compare good.ini --clock skip-idle --network tc --out out
WEIR_UML_KERNEL='' refused "a clock without a kernel" "clock skip-idle.*scripts/uml-kernel.sh" run good.ini --clock skip-idle --out out
WEIR_UML_KERNEL=/dev/null refused "a kernel that is none" "WEIR_UML_KERNEL is /dev/null" run good.ini --clock skip-idle --out out
# Kernels of two versions, and an old one with room for more registers: where the processor has AMX the old one
# without is refused, and elsewhere none is.
for version in 6.1.176 6.1.176-weir-xstate 6.13.1; do
  printf '\177ELF User Mode Linux time-travel=inf-cpu Linux version %s (x)' $version >kernel
  chmod +x kernel
  WEIR_UML_KERNEL=$PWD/kernel "$weir" run good.ini --network uml --clock skip-idle --out "kernel-$version" >log 2>&1 &&
    fail "a kernel of $version that is none was run"
  due=0
  [ $version = 6.1.176 ] && grep -qw amx_tile /proc/cpuinfo && due=1
  [ "$(grep -c "more registers (AMX)" log)" = $due ] || fail "kernel $version: $(cat log)"
done
refused "unknown network" "network carrier-pigeon" run good.ini --network carrier-pigeon --out out
refused "N = 0" "workers 0" run good.ini --workers 0 --out out
refused "N no number" "workers x" run good.ini --workers x --out out
refused "N beyond every machine" "workers 1000000" run good.ini --workers 1000000 --out out
refused "seed no number" "seed -1" run good.ini --seed -1 --out out
# JSON's whole numbers end there, and with them what results say of the seed.
seed=9223372036854775808
refused "a seed beyond JSON" "seed $seed" run good.ini --network sim --seed $seed --out out
refused "one of several" "seeds 1,$seed" compare good.ini --network sim --seeds 1,$seed --out out
edited "one in the file" 3 "seed = $seed" "s/^bandwidth_scale.*/seed = $seed/"
refused "a bad policy of many" "policy warp" compare good.ini --policies weir,warp --network sim --out out
refused "a policy twice" "weir would be run twice" compare good.ini --policies weir,paper,weir --network sim --out out
refused "no policies" "policies ''" compare good.ini --policies "" --network sim --out out
for list in , weir,,paper "weir, "; do
  refused "no policy between commas" "policies $list" compare good.ini --policies "$list" --network sim --out out
done
refused "no seeds" "seeds '' is not allowed" compare good.ini --seeds "" --out out
refused "bad seeds" "seeds 1,x" compare good.ini --seeds 1,x --out out
refused "bad target" "target 101" compare good.ini --target 101 --out out

# 4096 workers of about 110 MB each: refused wherever less than 420 GiB are available.
if [ "$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)" -lt 400 ]; then
  refused "N beyond memory" "GiB" run good.ini --workers 4096 --out out
  # A worker of some 400 GiB: asked for, and not touched, before it is known that there is not so much.  Not under a
  # sanitizer, which takes a minute and a half to keep account of so much.
  [ -d /usr/share/games/fortunes ] && ! sanitized && edited "a worker beyond memory" 4 "expected a smaller batch or model" \
    's/^batch.*/model = gpt\nlayers = 8\nchannels = 256\ncontext = 256\nbatch = 8192/'
fi

touch file
refused "output under a file" "file/out" run good.ini --network sim --out file/out
refused "output where nothing can be made" "/proc/weir" run good.ini --network sim --out /proc/weir/out
refused "output that is a file" "good.ini: it is, or lies under, a file" run good.ini --network sim --out good.ini

# A folder that may not be written; root may write everywhere, so nobody has to try.
chmod 755 "$work"
mkdir -m 555 locked
nobody=()
if [ "$(id -u)" -eq 0 ]; then
  nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  cp "$weir" mine && weir=./mine
fi
locked() { # OUT: refused, and nothing made in it
  timeout 450 "${nobody[@]}" "$weir" run good.ini --network sim --out "$1" >stdout 2>stderr
  code=$?
  if [ $code -ne 2 ] || ! grep -Eq "locked.*expected a folder that can be written" stderr || [ -n "$(ls -A locked)" ]; then
    echo "FAILED: output in $1, which may not be written: exit $code; stderr: $(cat stderr)"
    failures=$((failures + 1))
  fi
}
locked locked
locked locked/deeper/out
if [ "$(id -u)" -eq 0 ] && unshare -m mount -t tmpfs -o ro none locked 2>/dev/null; then
  # Read-only, for root too.
  nobody=(unshare -m sh -c 'mount -t tmpfs -o ro none locked && exec "$@"' sh)
  locked locked
  locked locked/deeper/out
fi
weir=$1

# What an earlier run has left stays when the next is refused.
mkdir earlier
for file in summary.json steps.csv decisions.jsonl report.html; do echo "$file" >earlier/$file; done
sum() { cat earlier/* | cksum; ls -A earlier; }
before=$(sum)
refused "a bad policy over earlier results" "policy warp" run good.ini --policy warp --out earlier
sed 's/= 10$/= nan/' good.ini >bad.ini
refused "NaN over earlier results" "bad\.ini:12: " run bad.ini --network sim --out earlier
# What the network has not got is known before, too; and nothing is written over what it is made from.
for plan in none:1:native none:1:native-ring topk:0.01:hitopk "schedule:none:1:dense-ring;epoch=2:none:1:native"; do
  refused "$plan over sim" "policy (fixed:)?$plan: collective .* over network sim" \
    run good.ini --network sim --policy "$plan" --out earlier
done
for key in source_ms source_mb_s cache_mb; do
  sed "s/^batch/$key = 1\nbatch/" good.ini >source.ini
  refused "$key over sim" "source\.ini:4: source_ms" run source.ini --network sim --out earlier
done
WEIR_UML_KERNEL=/dev/null refused "no kernel over earlier results" "expected a kernel" run good.ini --network uml --out earlier
WEIR_UML_KERNEL=/dev/null refused "no kernel to emulate" "expected a kernel" emulate good.ini --network uml --out earlier -- true
[ "$(sum)" = "$before" ] || { echo "FAILED: earlier results were touched"; failures=$((failures + 1)); }
printf 'last,plan,place\nfc1.bias,bf16:1:dense-ring,caller\n' | tee earlier/groups.csv >groups.csv
cp good.ini earlier/job
good | sed '/phase one/,$d' >earlier/report.html
printf '[trace]\nfile = steps.csv\nlatency_ms = 1\n' >>earlier/report.html
seq 5 >earlier/steps.csv
ln -s ../good.ini earlier/profile.csv
ln -s earlier/groups.csv elsewhere.csv
before=$(sum)
for table in earlier/groups.csv "$PWD/earlier/../earlier/groups.csv" elsewhere.csv \
  "turns=2:layers:bf16:1:dense-ring;$PWD/earlier/groups.csv"; do
  refused "$table in its folder" "earlier: the policy's table, " \
    run good.ini --network sim --policy "groups:$table" --out earlier
done
refused "a comparison's table" "earlier: the policy's table, " \
  compare good.ini --network sim --policies weir,groups:earlier/groups.csv --out earlier
refused "a scenario in its folder" "earlier: the scenario, " run earlier/job --network sim --out earlier
refused "a link to it there" "earlier: the scenario, " run earlier/profile.csv --network sim --out earlier
mv earlier/report.html traced.ini && sed -i "s#steps.csv#earlier/steps.csv#" traced.ini
refused "a trace in its folder" "earlier: the trace, " run traced.ini --network sim --out earlier
refused "a trace to emulate" "earlier: the trace, " emulate traced.ini --out earlier -- true
mv traced.ini earlier/report.html && sed -i "s#earlier/steps.csv#steps.csv#" earlier/report.html
[ "$(sum)" = "$before" ] || { echo "FAILED: what a run reads was touched"; failures=$((failures + 1)); }
# A folder in which no run has left anything: what is there is a user's.
if [ -d /usr/share/datasets/fashion-mnist ]; then
  mkdir mine-too && echo mine | tee mine-too/groups.csv >mine-too/rank-0.log
  "$weir" run good.ini --network sim --policy fixed:none:1:dense-ring --out mine-too >/dev/null 2>&1
  [ "$(cat mine-too/groups.csv mine-too/rank-0.log 2>&1)" = "$(printf 'mine\nmine')" ] && [ -s mine-too/summary.json ] ||
    { echo "FAILED: a user's files: $(ls mine-too)"; failures=$((failures + 1)); }
fi

data=/usr/share/datasets/fashion-mnist
if [ -d $data ]; then
  sed "s#^batch#data_dir = $work/damaged\nbatch#" good.ini >damaged.ini
  # damaged NAME FILE COMMAND...: the data set whose FILE is what the COMMAND prints, or is not there.
  damaged() {
    local name=$1 file=$2
    shift 2
    rm -rf damaged && mkdir damaged && ln -s $data/* damaged && rm "damaged/$file"
    "$@" >"damaged/$file" || rm -rf "damaged/$file"
    refused "$name" "damaged\.ini:5: .*$file" run damaged.ini --network sim --out out
  }
  for file in train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz; do
    damaged "truncated gz" $file head -c 4000 $data/$file
    damaged "gz without its end" $file head -c -8 $data/$file
    damaged "no gz at all" $file cat good.ini
    damaged "an empty file" $file true
    damaged "no file" $file false
  done
  damaged "images for labels" train-labels-idx1-ubyte.gz cat $data/t10k-images-idx3-ubyte.gz
  damaged "fewer labels than images" train-labels-idx1-ubyte.gz cat $data/t10k-labels-idx1-ubyte.gz
  rm damaged/train-labels-idx1-ubyte.gz && mkdir damaged/train-labels-idx1-ubyte.gz
  refused "a folder for a data set's file" "train-labels" run damaged.ini --network sim --out out
fi

printf '5\n4\n' >trace
good | sed '/phase one/,$d' >traced.ini
printf '[trace]\nfile = trace\nlatency_ms = 1\n' >>traced.ini
refused "trace going back" "traced.ini:10: .*trace:2: " run traced.ini --network sim --out out
rm trace
refused "no trace" "traced.ini:10: .*trace: .*No such file" run traced.ini --network sim --out out
refused "no trace to emulate" "traced.ini:10: .*trace: .*No such file" emulate traced.ini --out out -- true
mkdir trace
refused "a folder for a trace" "traced.ini:10: .*trace: .*it is no regular file" run traced.ini --network sim --out out

refused "a transport that is none" 'transport is "pigeon"; expected "tcp"' train good.ini --transport pigeon --out out

# Too little memory ends it in words, wherever it runs out: never by a signal.
# narrow KIB REGEX ARGUMENTS...: with so much address space, `weir ARGUMENTS` says REGEX if it fails.
narrow() {
  local kib=$1 regex=$2 code
  shift 2
  (ulimit -c 0 && ulimit -v "$kib" && exec timeout 100 "$weir" "$@") >stdout 2>stderr
  code=$?
  [ $code -eq 127 ] || [ $code -eq 0 ] && return # 127: not even loaded
  if [ $code -gt 2 ] || ! grep -Eq "$regex" stderr; then
    echo "FAILED: $1 with $kib KiB: exit $code; stderr: $(cat stderr)"
    failures=$((failures + 1))
  fi
}
if [[ ${WEIR_CFLAGS:-} != *sanitize* ]]; then
  yes 'a line' | head -3000000 >large.jsonl
  for kib in 100000 120000 150000 200000 250000; do narrow $kib "^weir" replay large.jsonl; done
  rm large.jsonl
  for kib in 140000 180000 200000 220000 240000; do
    narrow $kib "^weir run: .*(memory|thread|ulimit -v)" run good.ini --network sim --out narrow.$kib
  done
fi

[ $failures -eq 0 ] && echo "all refused as they should be"
exit $((failures > 0))
