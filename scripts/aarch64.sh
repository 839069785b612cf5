#!/usr/bin/env bash
# Builds the library for aarch64 and runs its unit tests under qemu-user.  It needs what
# scripts/packages-aarch64.txt names, and Criterion's headers.
#   scripts/aarch64.sh [ctest's arguments...]
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

for program in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v "$program" >/dev/null || {
    echo "aarch64: no $program; as root: dpkg --add-architecture arm64, apt-get update, and apt-get install" \
      "$(grep -v '^#' scripts/packages-aarch64.txt | tr '\n' ' ')" >&2
    exit 1
  }
done
cmake --preset aarch64
cmake --build --preset aarch64
ctest --preset aarch64 -j"$(nproc)" "$@"
