#!/usr/bin/env bash
# Gives every C and CUDA source the style of .clang-format; with --check only says which differ.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

case "${1:-}" in
  "") how=(-i) ;;
  --check) how=(--dry-run -Werror --ferror-limit=1) ;;
  *)
    echo "usage: scripts/format.sh [--check]" >&2
    exit 2
    ;;
esac
command -v clang-format >/dev/null || {
  echo "format: clang-format is missing; scripts/setup.sh installs it" >&2
  exit 1
}
find . \( -name 'build*' -o -name '.?*' -o -path ./out \) -prune -o -type f -regex '.*\.\(c\|h\|cpp\|cu\|cuh\)' -print0 |
  xargs -0 clang-format "${how[@]}" || {
  echo "format: scripts/format.sh mends it" >&2
  exit 1
}
