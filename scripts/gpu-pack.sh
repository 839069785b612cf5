#!/usr/bin/env bash
# Packs what scripts/gpu-check.sh runs, for a machine that has a device and not what building takes:
# the tests and benchmarks for a device, stripped, and the shared libraries that they need beside
# those of the compiler.
#   scripts/gpu-pack.sh [PACK [BUILD]]
# PACK (default: out/gpu-pack.tar.gz) is to be unpacked at / there, since tests know files by where they
# were built; the command is printed.  BUILD: a tree that is built (default: build-release).
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

pack=${1:-out/gpu-pack.tar.gz}
build=$(readlink -f "${2:-build-release}")
if [[ ! -x $build/bench/bench_cuda ]]; then
  echo "gpu-pack: $build was built without CUDA" >&2
  exit 1
fi
mkdir -p "$(dirname "$pack")"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
to=$fresh$build
mkdir -p "$to"
(
  cd "$build"
  cp -a --parents tests/parity/test_*_device tests/parity/*.so \
    tests/emulate/libweir_{cuda_other,mock_driver}.so bench/bench_cuda bench/bench_device \
    examples/trainer_cuda kernels/cuda/libweir_cuda.so* "$to"
)
find "$to" -type f -exec strip --strip-unneeded {} +
mkdir "$to/gpu-libraries"
find "$build" -maxdepth 3 -type f \( -name 'test_*_device' -o -name bench_cuda -o -name bench_device \
  -o -name trainer_cuda \) -exec ldd {} + |
  awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so' |
  xargs cp -L -t "$to/gpu-libraries"
tar -C "$fresh" -czf "$pack" "${build#/}"
echo "gpu-pack: $pack, $(($(stat -c %s "$pack") >> 20)) MiB; there, in a copy of this tree:"
echo "  tar -xzf $pack -C / && scripts/gpu-check.sh OUT $build"
