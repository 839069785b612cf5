#!/usr/bin/env bash
# Builds and installs the library alone, with a C compiler, CMake and OpenSSL, and says how long that took
# and what the library needs.
#   scripts/minimal.sh [PREFIX]     default: a folder that is removed at the end
# In a fresh Debian 12: scripts/fresh-tree.sh FOLDER scripts/minimal.sh
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
packages=(gcc libc6-dev make cmake libssl-dev)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=${1:-$folder/prefix}
if ! dpkg -s "${packages[@]}" >/dev/null 2>&1; then
  ((EUID == 0)) || { echo "minimal: as root, run: apt-get install ${packages[*]}" >&2; exit 1; }
  apt() { env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" >"$folder/apt.log"; }
  apt update && apt install -y --no-install-recommends "${packages[@]}"
fi

TIMEFORMAT='minimal: %R s, of which %U s of processor time, '"$(nproc) processors"
time {
  cmake -S . -B "$folder/build" -DCMAKE_INSTALL_PREFIX="$prefix" -DWEIR_CUDA=OFF -DWEIR_LAB=OFF -DWEIR_TESTS=OFF \
    >"$folder/log" &&
    cmake --build "$folder/build" -j"$(nproc)" >>"$folder/log" &&
    cmake --install "$folder/build" >>"$folder/log" || { cat "$folder/log"; exit 1; }
}
library=$(find "$prefix" -name libweir.so)
ldd "$library"

# What was installed trains: one rank, statically and dynamically linked.
for how in "-L${library%/*} -lweir -Wl,-rpath,${library%/*}" "${library%.so}.a -lssl -lcrypto -ldl -pthread"; do
  # shellcheck disable=SC2086 # several arguments
  cc -std=c11 "-I$prefix/include" examples/trainer.c -o "$folder/trainer" $how -lm
  "$folder/trainer" 0 1 127.0.0.1:0 >"$folder/weights"
  [[ $(wc -w <"$folder/weights") == 32 ]] || { echo "minimal: the example did not train" >&2; exit 1; }
done
echo "minimal: built, installed, and trained with"
