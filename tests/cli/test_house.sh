#!/usr/bin/env bash
# The house's order: docs/files.md names every file, no document names one that is not there, and no
# file is longer than 400 lines.
set -u
source=$2
cd "$source" || exit 1
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

scripts/files.sh --check || fail "docs/files.md"

# What documents put into backticks or link to and that begins with a folder of ours, less what is
# made (out/, build-release/) and patterns of names.
folders=$(find . -mindepth 1 -maxdepth 1 -type d ! -name 'build*' ! -name '.*' ! -name out -printf '%f|')
for document in README.md docs/*.md; do
  while read -r path; do
    compgen -G "$path" >/dev/null || compgen -G "$path.*" >/dev/null || fail "$document: there is no $path"
  done < <(grep -oE "[\`(](\.\./)?(${folders%|})/[A-Za-z0-9_./*-]+[\`)#]" "$document" |
    sed -E 's/^[`(](\.\.\/)?//; s/[`)#]$//' | grep -v NAME | sort -u)
  while read -r path; do
    [[ -e docs/$path ]] || fail "$document: there is no docs/$path"
  done < <([[ $document == docs/* ]] && grep -oE '\]\([a-z]+\.md' "$document" | cut -c3- | sort -u)
done

while read -r lines path; do
  [[ $path == total || $lines -le 400 ]] || fail "$path has $lines lines"
done < <(find . \( -name 'build*' -o -name out -o -name '.?*' \) -prune -o -type f \
  -regex '.*\.\(c\|h\|cpp\|cu\|cuh\|sh\|cmake\)' -exec wc -l {} +)
[[ $failures -eq 0 ]]
