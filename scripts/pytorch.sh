#!/usr/bin/env bash
# From Debian's base and Python to a training under PyTorch and Weir: a compiler, a virtual environment with
# PyTorch, `pip install ./python`, and examples/train_ddp.py on 4 workers.
#   scripts/pytorch.sh [ARGUMENTS OF THE EXAMPLE]
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
packages=(gcc libc6-dev make libssl-dev python3-venv)

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ $state == "install ok installed" ]] || missing+=("$package")
done
if ((${#missing[@]})); then
  ((EUID == 0)) || { echo "pytorch: as root, run: apt-get install ${missing[*]}" >&2; exit 1; }
  apt() { env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" >/dev/null; }
  apt update && apt install -y --no-install-recommends "${missing[@]}"
fi
home=$(scripts/setup-pytorch.sh)
"$home/bin/pip" --disable-pip-version-check install --quiet ./python
training=(OMP_NUM_THREADS=1 "$home/bin/torchrun" --nproc-per-node 4 examples/train_ddp.py "$@")
echo "pytorch: ${training[*]}"
exec env "${training[@]}"
