#!/usr/bin/env bash
# Fetches the CUDA compiler that scripts/python-packages.txt names, unless this machine has one of
# version 12 or later.  CUDA is optional: what goes wrong here is a line of output, not a failure.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

list=scripts/python-packages.txt
home=${WEIR_CUDA_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/cuda}

for nvcc in "${CUDACXX:-nvcc}" /usr/local/cuda/bin/nvcc; do
  version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  if [[ -n $version ]] && ((version >= 12)); then
    echo "setup: CUDA compiler: $(command -v "$nvcc")"
    exit 0
  fi
done
if cmp -s "$list" "$home/installed"; then
  echo "setup: CUDA compiler: in $home"
  exit 0
fi
if [[ $(uname -m) != x86_64 ]]; then
  echo "setup: CUDA left out: the wheels are for x86_64"
  exit 0
fi

left_out() {
  echo "setup: CUDA left out: $1"
  exit 0
}
mkdir -p "${home%/*}" || left_out "${home%/*} cannot be made"
# A folder of this run's own, renamed when complete: two runs at once do no harm.
fresh=$(mktemp -d "$home.XXXXXX") || left_out "no folder beside $home"
trap 'rm -rf "$fresh"' EXIT
if ! log=$(python3 -m pip --disable-pip-version-check install --quiet --no-deps \
  --only-binary=:all: --target "$fresh" --requirement "$list" 2>&1); then
  left_out "fetching its compiler failed: ${log##*$'\n'}"
fi
ln -sfn lib "$fresh/nvidia/cu13/lib64" # where nvcc looks
cp "$list" "$fresh/installed"
rm -rf "$home"
if mv -T "$fresh" "$home" 2>/dev/null; then
  echo "setup: CUDA compiler: fetched into $home"
elif cmp -s "$list" "$home/installed"; then
  echo "setup: CUDA compiler: in $home, put there by another run"
else
  left_out "$home could not be put in place"
fi
