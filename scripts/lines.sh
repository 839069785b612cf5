#!/usr/bin/env bash
# Counts lines of source by folder and kind, tests apart from the rest: what `wc -l` says of what git
# tracks.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

[[ $# -eq 0 ]] || {
  echo "usage: scripts/lines.sh" >&2
  exit 2
}
git ls-files -z |
  while IFS= read -r -d '' file; do
    case $file in
      *.c | *.cc | *.cpp) kind=C ;;
      *.h | *.cuh) kind=H ;;
      *.cu) kind=CU ;;
      *.sh) kind=SH ;;
      *.py) kind=PY ;;
      *CMakeLists.txt | *.cmake) kind=CMake ;;
      *) continue ;;
    esac
    folder=$(dirname "$file")
    [[ $folder == . ]] && folder=top
    printf '%s %s %s\n' "$folder" "$kind" "$(wc -l <"$file")"
  done |
  awk '
    BEGIN { kinds = split("C H CU SH PY CMake", kind) }
    function add(name) { seen[name] = 1; count[name, $2] += $3; sum[name] += $3 }
    { add($1); add($1 ~ /^tests(\/|$)/ ? "~tests" : "~source"); add("~~all") }
    END {
      order = "LC_ALL=C sort | sed s/^~*//"
      printf "%-28s", "folder"
      for (k = 1; k <= kinds; k++) printf "%8s", kind[k]
      printf "%8s\n", "lines"
      fflush()
      for (name in seen) {
        line = sprintf("%-28s", name)
        for (k = 1; k <= kinds; k++) line = line sprintf("%8d", count[name, kind[k]])
        print line sprintf("%8d", sum[name]) | order
      }
    }'
