#!/usr/bin/env bash
# Makes a virtual environment with what scripts/python-packages.txt names for PyTorch, unless it is there, and
# prints its folder.  Exit code 1 where that cannot be done, with one line that says why.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

home=${WEIR_PYTORCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/pytorch}
need_mb=7000
packages=$(grep -E '^(torch|numpy|pytest|ruff|mypy)==' scripts/python-packages.txt)
wanted="$packages
$(python3 --version)"

fail() {
  echo "setup: PyTorch left out: $1" >&2
  exit 1
}
if [[ -f $home/installed && $(<"$home/installed") == "$wanted" ]]; then
  echo "$home"
  exit
fi
mkdir -p "$home" || fail "no folder $home"
exec 9>"$home.lock"
flock 9
if [[ ! -f $home/installed || $(<"$home/installed") != "$wanted" ]]; then
  # What it has of the list stays, as torch is large; one of another Python is of no use.
  if [[ ! -f $home/installed || $(tail -n 1 "$home/installed") != "$(python3 --version)" ]]; then
    free_mb=$(df -Pm "$home" | awk 'NR == 2 { print $4 }')
    ((free_mb >= need_mb)) || fail "$home has $free_mb MB free; $need_mb are needed"
    echo "setup: fetching PyTorch into $home (some minutes, once)" >&2
    rm -rf "$home"
    python3 -m venv "$home" >&2 || fail "python3 -m venv failed; Debian has it in python3-venv"
  fi
  # shellcheck disable=SC2086 # one word a package
  log=$("$home/bin/pip" --disable-pip-version-check install --quiet --no-cache-dir \
    --only-binary=:all: $packages 2>&1) || fail "fetching it failed: ${log##*$'\n'}"
  printf '%s\n' "$wanted" >"$home/installed"
fi
echo "$home"
