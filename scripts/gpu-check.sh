#!/usr/bin/env bash
# All that needs a CUDA device, in one go of at most 8 minutes: the parity tests, the benchmark, beside
# torch.topk where torch sees the device, and the parity tests again under compute-sanitizer where that
# is found.  A check that has no time left is a failure that says so.
#   scripts/gpu-check.sh [OUT [BUILD]]
# OUT takes the logs and bench_cuda.json (default: out/gpu).  BUILD is a tree that is built already;
# without it the release preset is built here first, which is not in the 8 minutes.
# WEIR_GPU_CHECK_SECONDS gives it another time, WEIR_GPU_CHECK_EACH (default: 150) a single check,
# WEIR_GPU_CHECK_JOBS (default: half of the processors) how many sanitized tests run at a time,
# WEIR_COMPUTE_SANITIZER the program where it is not found, or "none".
# scripts/gpu-pack.sh makes a BUILD for a machine that cannot make one.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

out=${1:-out/gpu}
build=${2:-}
jobs=${WEIR_GPU_CHECK_JOBS:-$((($(nproc) + 1) / 2))}
mkdir -p "$out" || exit 1
if [[ -z $build ]]; then
  build=build-release
  scripts/setup.sh && cmake --preset release && cmake --build --preset release || exit 1
fi
# What a pack brought; for its own programs alone.
ours=()
if [[ -d $build/gpu-libraries ]]; then
  ours=(env "LD_LIBRARY_PATH=$(readlink -f "$build/gpu-libraries")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
fi
if [[ ! -x $build/bench/bench_cuda ]]; then
  echo "gpu-check: $build was built without CUDA" >&2
  exit 1
fi
each=${WEIR_GPU_CHECK_EACH:-150}
end=$((SECONDS + ${WEIR_GPU_CHECK_SECONDS:-450}))
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null |
  tee "$out/device.txt"

failed=()
# failure NAME CODE: what exit codes mean here
failure() {
  case $2 in
  124) failed+=("$1: out of time") ;;
  77) failed+=("$1: skipped, so there is no device") ;;
  *) failed+=("$1: exit code $2") ;;
  esac
}

# check NAME COMMAND...: output to OUT/NAME.log, exit code to OUT/NAME.code
check() {
  local name=$1 left=$((end - SECONDS)) code=124
  shift
  : >"$out/$name.log"
  if ((left > 0)); then
    timeout "$((left < each ? left : each))" "$@" >"$out/$name.log" 2>&1
    code=$?
  fi
  echo "$code" >"$out/$name.code"
}

# settle NAME: show a check's end and keep account of it
settle() {
  local name=$1 code
  code=$(<"$out/$name.code")
  if ((code == 0)); then
    echo "== $name: passed"
  else
    echo "== $name: FAILED"
    tail -n 40 "$out/$name.log"
    failure "$name" "$code"
  fi
}

for test in "$build"/tests/parity/test_*_device; do
  name=$(basename "$test")
  check "$name" "${ours[@]}" "$test" --quiet -j1
  settle "$name"
done

echo "== bench_cuda"
check bench_cuda "${ours[@]}" "$build/bench/bench_cuda"
cp "$out/bench_cuda.log" "$out/bench_cuda.json"
cat "$out/bench_cuda.json"
settle bench_cuda
if [[ $(<"$out/bench_cuda.code") == 0 ]]; then
  check torch_topk python3 bench/torch_topk.py "$out/bench_cuda.json"
  cp "$out/torch_topk.log" "$out/torch_topk.json"
  cat "$out/torch_topk.json"
  [[ $(<"$out/torch_topk.code") == 77 ]] || settle torch_topk # it is beside a peer, which may not be installed
fi

echo "== bench_device"
WEIR_CUDA_LIBRARY=$(realpath "$build/kernels/cuda/libweir_cuda.so") check bench_device "${ours[@]}" "$build/bench/bench_device"
cp "$out/bench_device.log" "$out/bench_device.json"
cat "$out/bench_device.json"
settle bench_device

# same FILE...: each ends with a line "...: WEIGHTS", all alike.
same() {
  local file
  for file; do grep -q '^[^:]*:.' "$file" || return 1; done
  [[ $(cut -d: -f2 "$@" | sort -u | wc -l) == 1 ]]
}
# Two ranks on one device: the same weights on both.
trainers() {
  local rank port=29471 code=0
  local pids=()
  export WEIR_SECRET=gpu-check
  for rank in 0 1; do
    timeout 60 "${ours[@]}" "$build/examples/trainer_cuda" $rank 2 127.0.0.1:$port 0 >"$out/trainer.$rank" &
    pids+=($!)
  done
  for rank in 0 1; do wait "${pids[rank]}" || code=1; done
  cat "$out"/trainer.[01]
  [[ $code == 0 ]] && same "$out"/trainer.[01]
}
# The same two, which read each other's memory on the device, and over the host: the same bits.
rooms() {
  local rank port=29472 code=0 policy way
  local pids=()
  for policy in fixed:topk:0.25:ag fixed:qsgd:0.125:ag fixed:fp16:0.5:sra; do
    for way in auto off; do
      pids=()
      for rank in 0 1; do
        WEIR_SECRET=gpu-check WEIR_LOG=info WEIR_DEVICE_IPC=$way timeout 60 "${ours[@]}" "$build/examples/trainer_cuda" $rank 2 \
          127.0.0.1:$port 0 $policy >"$out/rooms.$way.$rank" 2>"$out/rooms.$way.$rank.log" &
        pids+=($!)
      done
      for rank in 0 1; do wait "${pids[rank]}" || code=1; done
      port=$((port + 1))
      cat "$out"/rooms.$way.[01] "$out"/rooms.$way.[01].log
    done
    same "$out"/rooms.{auto,off}.[01] || code=2
    [[ $(grep -l 'messages stay on the devices' "$out"/rooms.{auto,off}.[01].log | wc -l) == 2 ]] || code=3
  done
  return $code
}
echo "== trainer_cuda"
WEIR_CUDA_LIBRARY=$(realpath "$build/kernels/cuda/libweir_cuda.so") trainers >"$out/trainer_cuda.log" 2>&1
echo $? >"$out/trainer_cuda.code"
settle trainer_cuda

echo "== rooms"
WEIR_CUDA_LIBRARY=$(realpath "$build/kernels/cuda/libweir_cuda.so") rooms >"$out/rooms.log" 2>&1
echo $? >"$out/rooms.code"
settle rooms
grep -h 'weights' "$out/rooms.log" || true
WEIR_CUDA_LIBRARY=$(realpath "$build/kernels/cuda/libweir_cuda.so") check bench_rooms "${ours[@]}" "$build/bench/bench_device" --pair
cp "$out/bench_rooms.log" "$out/bench_rooms.json"
cat "$out/bench_rooms.json"
settle bench_rooms

sanitizer=${WEIR_COMPUTE_SANITIZER:-$(command -v compute-sanitizer ||
  ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)}
if [[ $sanitizer == none ]]; then
  echo "== compute-sanitizer: left out"
elif [[ -n $sanitizer ]]; then
  names=()
  for test in "$build"/tests/parity/test_*_device; do
    suite=
    while read -r mark case; do
      if [[ $mark == *: ]]; then
        suite=${mark%:}
        continue
      fi
      for tool in memcheck racecheck synccheck initcheck; do
        name=$tool.$suite.$case
        # What another process's device has written, initcheck takes for written by nobody.
        [[ $tool == initcheck && $test == */test_session_rooms_device ]] && continue
        names+=("$name")
        while (($(jobs -rp | wc -l) >= jobs)); do
          wait -n
        done
        # Criterion runs each test in a child.  Tests ask for what is refused, so that a call's error is none.
        check "$name" "${ours[@]}" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 \
          --report-api-errors no "$test" --quiet -j1 --filter "$suite/$case" &
      done
    done < <("${ours[@]}" "$test" --list)
  done
  wait
  if ((${#names[@]} == 0)); then failed+=("compute-sanitizer: no test was found"); fi
  for name in "${names[@]}"; do
    settle "$name"
  done
else
  echo "== compute-sanitizer: skipped: not found"
fi

if ((${#failed[@]})); then
  printf 'gpu-check: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "gpu-check: passed"
