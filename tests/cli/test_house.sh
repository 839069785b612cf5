#!/usr/bin/env bash
# The house's order: docs/internals/files.md names every file, and no document names a file or a test that is not there.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
cd "$source" || exit 1

scripts/files.sh --check || fail "docs/internals/files.md"
python3 bench/tables.py | diff - docs/reference/measured.md ||
  fail "docs/reference/measured.md: bench/tables.py makes it anew"

# What documents put into backticks and that begins with a folder of ours, less what is made (out/,
# build-release/) and patterns of names; what they link to; and the documents that sources name.
folders=$(find . -mindepth 1 -maxdepth 1 -type d ! -name 'build*' ! -name '.*' ! -name out -printf '%f|')
for document in *.md docs/*/*.md; do
  while read -r path; do
    compgen -G "$path" >/dev/null || compgen -G "$path.*" >/dev/null || fail "$document: there is no $path"
  done < <(grep -oE "\`(${folders%|})/[A-Za-z0-9_./*-]+\`" "$document" | tr -d '`' | grep -v NAME | sort -u)
  while read -r path; do
    [[ -e $(dirname "$document")/$path ]] || fail "$document: there is no $path"
  done < <(grep -oE '\]\([^)#: ]+[)#]' "$document" | sed -E 's/^..//; s/.$//' | sort -u)
done
while read -r path; do
  [[ -e $path ]] || fail "sources name $path, which is not there"
done < <(grep -rhoE '\bdocs/[a-z/]+\.md' --include='*.[ch]' --include='*.sh' --include='*.ini' --include='*.txt' \
  "--exclude-dir=build*" . | sort -u)

# Tests that documents name as CTest does, and behind a slash one within the program.
# shellcheck disable=SC2016 # Markdown has backticks
while IFS=/ read -r test within; do
  file=$(find tests -name "${test#*.}.c" -o -name "${test#*.}.sh" | head -n 1)
  [[ -n $file ]] || fail "documents name $test, which is not there"
  [[ -z $within ]] || grep -qw "$within" "$file" || fail "documents name $within of $test, which is not there"
done < <(grep -ohE '`(unit|multi|lab|cli|mpi)\.test_[a-z0-9_]+`(/`[a-z0-9_]+`)?' README.md docs/*/*.md | tr -d '`' | sort -u)

# The walk of one gradient: at most 15 files, each with the functions that are named beside it.
walk=docs/internals/walk.md
steps=0
while IFS=$'\t' read -r path functions; do
  steps=$((steps + 1))
  [[ -f $path && -n $functions ]] || fail "$walk: no file $path, or no function named beside it"
  for function in $functions; do
    grep -qE "(^|[^[:alnum:]_])$function\(" "$path" || fail "$walk: $path has no $function"
  done
done < <(awk '
  function out() { if (path != "") print path "\t" names; path = names = "" }
  /^[0-9]+\. `/ { out(); split($0, part, "`"); path = part[2] }
  path != "" {
    rest = $0
    while (match(rest, /`[a-z0-9_]+\(\)`/)) {
      names = names " " substr(rest, RSTART + 1, RLENGTH - 4)
      rest = substr(rest, RSTART + RLENGTH)
    }
  }
  END { out() }' "$walk")
((steps >= 10 && steps <= 15)) || fail "$walk: $steps files, not 10 to 15"
