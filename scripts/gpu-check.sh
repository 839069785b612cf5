#!/usr/bin/env bash
# All that needs a CUDA device, in one go: the parity tests, the same under compute-sanitizer where
# that is found, and the benchmark, beside torch.topk where torch sees the device.
#   scripts/gpu-check.sh [OUT [BUILD]]
# OUT takes the logs and bench_cuda.json (default: out/gpu).  BUILD is a tree that is built already;
# without it the release preset is built here.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

out=${1:-out/gpu}
build=${2:-}
mkdir -p "$out" || exit 1
if [[ -z $build ]]; then
  build=build-release
  scripts/setup.sh && cmake --preset release && cmake --build --preset release || exit 1
fi
if [[ ! -x $build/bench/bench_cuda ]]; then
  echo "gpu-check: $build was built without CUDA" >&2
  exit 1
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null |
  tee "$out/device.txt"

failed=()
# check NAME COMMAND...: its output goes to OUT/NAME.log, too
check() {
  local name=$1 code
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$out/$name.log"
  code=${PIPESTATUS[0]}
  ((code == 0)) || failed+=("$name (exit code $code)")
}

for test in "$build"/tests/parity/test_*_device; do
  check "$(basename "$test")" "$test" --quiet -j1
done

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [[ -n $sanitizer ]]; then
  for tool in memcheck racecheck synccheck initcheck; do
    for test in "$build"/tests/parity/test_*_device; do
      name=$tool.$(basename "$test")
      # Criterion runs each test in a child.
      check "$name" timeout 900 "$sanitizer" --tool "$tool" --target-processes all \
        --error-exitcode 9 "$test" --quiet -j1
    done
  done
else
  echo "== compute-sanitizer: skipped: not found"
fi

echo "== bench_cuda"
if "$build/bench/bench_cuda" >"$out/bench_cuda.json"; then
  cat "$out/bench_cuda.json"
  python3 bench/torch_topk.py "$out/bench_cuda.json" | tee "$out/torch_topk.json"
else
  failed+=("bench_cuda: $(head -c 200 "$out/bench_cuda.json")")
fi

if ((${#failed[@]})); then
  printf 'gpu-check: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "gpu-check: passed"
