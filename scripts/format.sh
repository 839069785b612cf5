#!/usr/bin/env bash
# Gives every C, CUDA and Python source its style; with --check only says which differ.  Python's needs ruff,
# which scripts/setup-pytorch.sh fetches; without it that part is left out, with a line, but not where CI is set.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

case "${1:-}" in
  "") clang=(-i) lint=(--fix) format=() ;;
  --check) clang=(--dry-run -Werror --ferror-limit=1) lint=() format=(--check --quiet) ;;
  *)
    echo "usage: scripts/format.sh [--check]" >&2
    exit 2
    ;;
esac
missing() {
  echo "format: $1 is missing; $2 installs it" >&2
}
good=1
sources() {
  find . \( -name 'build*' -o -name '.?*' -o -path ./out \) -prune -o -type f \
    -regex '.*\.\(c\|h\|cc\|cpp\|cu\|cuh\)' -print0
}
if command -v clang-format >/dev/null; then
  sources | xargs -0 clang-format "${clang[@]}" || good=0
else
  missing clang-format scripts/setup.sh
  good=0
fi
# Comments are not clang-format's to fill.
sources | LC_ALL=C xargs -0 awk 'length > 100 { print FILENAME ":" FNR ": over 100 columns"; bad = 1 } END { exit bad }' || good=0
ruff=${WEIR_PYTORCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/pytorch}/bin/ruff
if [[ -x $ruff ]]; then
  python=(--no-cache --config python/pyproject.toml python examples bench tests)
  "$ruff" check --quiet "${lint[@]}" "${python[@]}" || good=0
  "$ruff" format "${format[@]}" "${python[@]}" || good=0
else
  missing "$ruff" scripts/setup-pytorch.sh
  [[ -z ${CI:-} ]] || good=0
fi
((good)) || {
  echo "format: scripts/format.sh mends most of it" >&2
  exit 1
}
