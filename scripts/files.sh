#!/usr/bin/env bash
# Writes docs/internals/files.md: every source file and what it is for, by the first sentence of the comment it
# begins with.  With --check it only says whether that is up to date.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

case "${1:-}" in
  "" | --check) ;;
  *)
    echo "usage: scripts/files.sh [--check]" >&2
    exit 2
    ;;
esac

# The first sentence of the comment that FILE begins with; nothing if there is none.
sentence() {
  awk -v script="$([[ $1 == *.@(sh|cmake|ini) ]] && echo 1)" '
    NR == 1 && /^#!/ { next }
    !begun && /^\/\*/ { begun = block = 1; sub(/^\/\* ?/, "") }
    !begun && /^"""/ { begun = block = 1; sub(/^"""/, "") }
    !begun && script && /^[#;]/ { begun = 1 }
    !begun { exit }
    block { sub(/^ \* ?/, "") } !block && !/^[#;]/ { exit } !block { sub(/^[#;]+ ?/, "") }
    { last = sub(/ ?(\*\/|""").*/, ""); text = text (text == "" ? "" : " ") $0 }
    last && block { exit }
    text != "" && $0 == "" { exit }
    END {
      gsub(/ +/, " ", text)
      sub(/:? *$/, "", text)
      gsub(/et al\./, "et al\001", text)
      if (match(text, /[^A-Z.][.;?]( |$)/)) text = substr(text, 1, RSTART)
      if (length(text) > 140 && (colon = index(text, ": ")) > 20) text = substr(text, 1, colon - 1)
      gsub(/\001/, ".", text)
      gsub(/\|/, "\\|", text)
      print text
    }' "$1"
}

# A .c or .cu and its header are one entry; the header says what they are for, if it says anything.
entries() {
  local folder=$1 file stem name what
  declare -A seen=()
  while read -r file; do
    name=${file##*/} stem=${file%.*}
    [[ $name == *.[ch] && -e $stem.c && -e $stem.h ]] && name=${stem##*/}.[ch]
    [[ -z ${seen[$name]:-} ]] || continue
    seen[$name]=1
    what=
    [[ $name == *'.[ch]' ]] && what=$(sentence "$stem.h")
    [[ -n $what ]] || what=$(sentence "$file")
    [[ -n $what ]] || echo "files: $file does not begin with a comment that says what it is for" >&2
    printf '| `%s` | %s |\n' "$name" "$what"
  done < <(find "$folder" -maxdepth 1 -type f -regex '.*\.\(c\|h\|cc\|cpp\|cu\|cuh\|py\|sh\|cmake\|ini\)' | LC_ALL=C sort)
}

write() {
  printf '# Every file\n\nMade by `scripts/files.sh` out of the comments that the files begin with; a test holds it to them.\n'
  printf 'What the folders are to each other is in [architecture.md](architecture.md).\n'
  while read -r folder; do
    local rows
    rows=$(entries "$folder")
    [[ -z $rows ]] || printf '\n## %s\n\n| file | what it is for |\n|---|---|\n%s\n' "${folder#./}" "$rows"
  done < <(find . \( -name 'build*' -o -name out -o -name '.?*' \) -prune -o -type d -print | LC_ALL=C sort)
}

made=$(write)
if [[ ${1:-} != --check ]]; then
  printf '%s\n' "$made" >docs/internals/files.md
elif ! diff <(printf '%s\n' "$made") docs/internals/files.md; then
  echo "files: docs/internals/files.md is not up to date; scripts/files.sh mends it" >&2
  exit 1
fi
