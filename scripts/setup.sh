#!/usr/bin/env bash
# Installs what scripts/packages.txt names and this Debian machine lacks, and fetches the CUDA
# compiler (setup-cuda.sh).  Does nothing when nothing is missing.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

missing=()
while read -r package; do
  [[ -z $package || $package == \#* ]] && continue
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ $state == "install ok installed" ]] || missing+=("$package")
done <scripts/packages.txt

if ((${#missing[@]} == 0)); then
  echo "setup: every package is installed"
  exec scripts/setup-cuda.sh
fi
echo "setup: installing ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: not root, and there is no sudo; as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}
apt update
apt install -y --no-install-recommends "${missing[@]}"
scripts/setup-cuda.sh
