#!/usr/bin/env bash
# What every sub-command says of itself: --help ends with 0, in lines of at most 100 columns, and
# tells the exit codes; `weir help NAME` is the same; wrong options end with 2 and point to it; what
# cannot be printed is not called done; the manual page has all of it and is sound.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"

mapfile -t commands < <("$weir" --help | sed -n 's/^  \([a-z]\{2,\}\) .*/\1/p')
for name in run train emulate compare cost plan profile probe top report explain replay bench; do
  [[ " ${commands[*]} " == *" $name "* ]] || fail "$name is not in weir --help"
done
leaves=()
for name in "${commands[@]}"; do
  case $name in
    plan) leaves+=("plan fusion" "plan strategy" "plan bits") ;;
    bench) leaves+=("bench cache" "bench collectives" "bench grid" "bench kernels" "bench moo" "bench pto") ;;
    *) leaves+=("$name") ;;
  esac
done

for leaf in "${leaves[@]}"; do
  read -ra words <<<"$leaf"
  "$weir" "${words[@]}" --help >"$work/help" 2>"$work/errors" || fail "$leaf --help: exit $?"
  [[ -s $work/errors ]] && fail "$leaf --help writes to stderr"
  long=$(awk 'length($0) > 100' "$work/help")
  [[ -z $long ]] || fail "$leaf --help has a line of more than 100 columns: $long"
  grep -q "^  weir $leaf \[OPTIONS\]" "$work/help" || fail "$leaf --help does not say its usage"
  grep -q '^Exit codes: 0' "$work/help" || fail "$leaf --help does not tell the exit codes"
  grep -q -- '--json' "$work/help" || [[ $leaf == report ]] ||
    fail "$leaf has no --json"
  "$weir" help "${words[@]}" | cmp -s - "$work/help" || fail "weir help $leaf says something else"
  "$weir" "${words[@]}" -h | cmp -s - "$work/help" || fail "$leaf -h says something else"
  "$weir" "${words[@]}" --no-such-option >"$work/out" 2>"$work/errors"
  [[ $? -eq 2 && ! -s $work/out ]] || fail "$leaf --no-such-option: not 2, or a result"
  grep -q "^weir $leaf: .*--no-such-option.*weir $leaf --help" "$work/errors" ||
    fail "$leaf --no-such-option: $(cat "$work/errors")"
done

# What is none of them, and no word at all: 2, and where the list is or the list.
for menu in "" plan bench; do
  name="weir${menu:+ $menu}"
  # shellcheck disable=SC2086
  "$weir" $menu frobnicate >"$work/out" 2>"$work/errors"
  [[ $? -eq 2 && ! -s $work/out ]] || fail "$name frobnicate: not 2, or a result"
  grep -q "^$name: unknown .*'frobnicate'; \`$name --help\` lists them$" "$work/errors" ||
    fail "$name frobnicate: $(cat "$work/errors")"
  # shellcheck disable=SC2086
  "$weir" $menu >"$work/out" 2>"$work/errors"
  [[ $? -eq 2 && ! -s $work/out ]] || fail "$name alone: not 2, or a result"
  # shellcheck disable=SC2086
  "$weir" $menu --help | cmp -s - "$work/errors" || fail "$name alone does not list what there is"
done
"$weir" help | cmp -s - <("$weir" --help) || fail "weir help is not weir --help"

"$weir" --version | grep -Eq '^weir [0-9]+\.[0-9]+\.[0-9]+$' || fail "weir --version"
"$weir" --help | grep -q 'weir --version$' || fail "weir --help does not tell of --version"

# A codec's line names the schemes that it goes with.
"$weir" run --help >"$work/help"
for line in 'none bf16: dense   (CR: 1)' 'star var randomk: art$' 'mstopk topk sidco: ag hitopk path$'; do
  grep -q "^ *$line" "$work/help" || fail "weir run --help lacks '$line'"
done

# A full disk.
cost=(cost --workers 8 --latency-ms 1 --bandwidth-gbps 10 --bytes 46800000 --cr 0.1)
for arguments in "--help" "--version" "run --help" "${cost[*]}" "${cost[*]} --json"; do
  read -ra words <<<"$arguments"
  "$weir" "${words[@]}" >/dev/full 2>"$work/errors"
  [[ $? -eq 1 ]] && grep -q "standard output cannot be written" "$work/errors" ||
    fail "weir $arguments > /dev/full: $(cat "$work/errors")"
done

# What is no file is written to, not replaced (links, so that nothing is lost if it were).
printf 'tensor,numel,gap_us\na,1000,10\nb,1000,10\n' >"$work/profile.csv"
fusion=(plan fusion "$work/profile.csv" --compress-ms 1,1 --comm-ms 1,1 --json)
ln -s /dev/full "$work/full" && ln -s /dev/stdout "$work/out-link"
"$weir" "${fusion[@]}" --trace "$work/full" >"$work/out" 2>"$work/errors"
[[ $? -eq 2 && -c $work/full ]] && grep -q "full: cannot be written" "$work/errors" ||
  fail "a trace to a full device: $(cat "$work/errors")"
"$weir" "${fusion[@]}" --trace "$work/out-link" | grep -q traceEvents || fail "a trace to a pipe"
[[ -L $work/out-link ]] || fail "a trace replaced a link to a pipe"

bash "$source/cmake/man.sh" "$weir" >"$work/weir.1" || fail "cmake/man.sh"
for leaf in "${leaves[@]}"; do
  grep -qx ".SS weir $leaf" "$work/weir.1" || fail "the manual page lacks weir $leaf"
done
if command -v groff >/dev/null; then
  complaints=$(groff -man -ww -z -Tutf8 "$work/weir.1" 2>&1)
  [[ -z $complaints ]] || fail "the manual page: $complaints"
fi
