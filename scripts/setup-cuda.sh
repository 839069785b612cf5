#!/usr/bin/env bash
# Fetches what scripts/python-packages.txt names and this machine has not: the CUDA compiler, unless there
# is one of version 12 or later, and NCCL's header.  Both are optional: what goes wrong here is a line of
# output, not a failure.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

list=scripts/python-packages.txt
home=${WEIR_CUDA_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/cuda}

# fetch WHAT FOLDER WHEELS AFTER: the wheels into the folder, unless just these are there.  AFTER is run in
# a folder of this run's own, which is then renamed: two runs at once do no harm.
fetch() {
  local what=$1 folder=$2 wheels=$3 after=$4 fresh log
  if [[ -f $folder/installed && $(<"$folder/installed") == "$wheels" ]]; then
    echo "setup: $what: in $folder"
    return
  fi
  if [[ $(uname -m) != x86_64 ]]; then
    echo "setup: $what left out: the wheels are for x86_64"
    return
  fi
  if ! mkdir -p "${folder%/*}" || ! fresh=$(mktemp -d "$folder.XXXXXX"); then
    echo "setup: $what left out: no folder beside $folder"
    return
  fi
  # shellcheck disable=SC2086 # one word a wheel
  if ! log=$(python3 -m pip --disable-pip-version-check install --quiet --no-deps \
    --only-binary=:all: --target "$fresh" $wheels 2>&1); then
    echo "setup: $what left out: fetching it failed: ${log##*$'\n'}"
  elif ! (cd "$fresh" && $after); then
    echo "setup: $what left out: the wheels do not hold what they should"
  else
    printf '%s\n' "$wheels" >"$fresh/installed"
    rm -rf "$folder"
    if mv -T "$fresh" "$folder" 2>/dev/null; then
      echo "setup: $what: fetched into $folder"
    elif [[ -f $folder/installed && $(<"$folder/installed") == "$wheels" ]]; then
      echo "setup: $what: in $folder, put there by another run"
    else
      echo "setup: $what left out: $folder could not be put in place"
    fi
  fi
  rm -rf "$fresh"
}

wheels() { grep -v '^#' "$list" | grep "$@" | tr '\n' ' '; }
where_nvcc_looks() { ln -sfn lib nvidia/cu13/lib64; }
# Only the header is used here, and the library is large.
header_only() { [[ -f nvidia/nccl/include/nccl.h ]] && rm -rf nvidia/nccl/lib; }

compiler=
for nvcc in "${CUDACXX:-nvcc}" /usr/local/cuda/bin/nvcc; do
  version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  if [[ -z $compiler && -n $version ]] && ((version >= 12)); then compiler=$(command -v "$nvcc"); fi
done
if [[ -n $compiler ]]; then
  echo "setup: CUDA compiler: $compiler"
else
  fetch "CUDA compiler" "$home" "$(wheels -e ^nvidia-cuda -e ^nvidia-nvvm)" where_nvcc_looks
fi

header=
for folder in /usr/include /usr/local/include /usr/local/cuda/include; do
  if [[ -z $header && -f $folder/nccl.h ]]; then header=$folder/nccl.h; fi
done
if [[ -n $header ]]; then
  echo "setup: NCCL header: $header"
else
  fetch "NCCL header" "${home%/*}/nccl" "$(wheels ^nvidia-nccl)" header_only
fi
