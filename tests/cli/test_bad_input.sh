#!/bin/bash
# Bad input to `weir run` and `weir compare`: exit 2, where it is and what was expected, and nothing
# touched: no output folder, no file.
weir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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
  timeout 60 "$weir" "$@" >stdout 2>stderr
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
edited "text for a number" 5 "batch = many" 's/^batch = 8/batch = many/'
edited "no data set there" 5 "/nowhere" 's/^(batch = 8)/data_dir = \/nowhere\n\1/'
edited "unknown policy in the file" 3 "policy warp is unknown" 's/^(bandwidth_scale.*)/policy = warp/'
edited "CR above 1 in the file" 3 "fixed:lwtopk:2:ag" 's/^bandwidth_scale.*/policy = fixed:lwtopk:2:ag/'

good >good.ini
refused "no such scenario" "nowhere\.ini" run nowhere.ini --out out
refused "no output folder named" "\-\-out" run good.ini
refused "unknown policy" "policy warp is unknown" run good.ini --policy warp --out out
for cr in 0 -0.1 1.5 nan inf x; do
  refused "CR $cr" "fixed:lwtopk:$cr:ag" run good.ini --policy fixed:lwtopk:$cr:ag --out out
done
refused "codec and collective apart" "fixed:star:0.1:ag" run good.ini --policy fixed:star:0.1:ag --out out
refused "unknown network" "network carrier-pigeon" run good.ini --network carrier-pigeon --out out
refused "N = 0" "workers 0" run good.ini --workers 0 --out out
refused "N no number" "workers x" run good.ini --workers x --out out
refused "N beyond every machine" "workers 1000000" run good.ini --workers 1000000 --out out
refused "seed no number" "seed -1" run good.ini --seed -1 --out out
refused "a bad policy of many" "policy warp" compare good.ini --policies weir,warp --network sim --out out
refused "bad seeds" "seeds 1,x" compare good.ini --seeds 1,x --out out
refused "bad target" "target 101" compare good.ini --target 101 --out out

# 4096 workers of about 110 MB each: refused wherever less than 420 GiB are available.
if [ "$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)" -lt 400 ]; then
  refused "N beyond memory" "GiB" run good.ini --workers 4096 --out out
fi

touch file
refused "output under a file" "file/out" run good.ini --network sim --out file/out
refused "output where nothing can be made" "/proc/weir" run good.ini --network sim --out /proc/weir/out

data=/usr/share/datasets/fashion-mnist
if [ -d $data ]; then
  cp -rL $data truncated
  head -c 100000 $data/train-images-idx3-ubyte.gz >truncated/train-images-idx3-ubyte.gz
  sed "s#^batch#data_dir = $work/truncated\nbatch#" good.ini >truncated.ini
  refused "truncated gz" "truncated\.ini:5: .*train-images-idx3-ubyte\.gz" run truncated.ini --network sim --out out
  cp good.ini truncated/train-images-idx3-ubyte.gz
  refused "no gz at all" "train-images-idx3-ubyte\.gz" run truncated.ini --network sim --out out
fi

printf '5\n4\n' >trace
good | sed '/phase one/,$d' >traced.ini
printf '[trace]\nfile = trace\nlatency_ms = 1\n' >>traced.ini
refused "trace going back" "trace:2: " run traced.ini --network sim --out out

[ $failures -eq 0 ] && echo "all refused as they should be"
exit $((failures > 0))
