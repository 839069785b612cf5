# What the test scripts share, sourced with their arguments, the built `weir` and this tree: a folder of
# theirs, which is removed when they end, and words for how they end.
weir=$1
# shellcheck disable=SC2034
source=$2
work=$(mktemp -d) || exit 1
# shellcheck source=tests/images.sh
. "$source/tests/images.sh"
export G_DEBUG=fatal-criticals # which GLib would say, and go on
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "SKIPPED: $*"; exit 77; }
needs_images() { [ -d /usr/share/datasets/fashion-mnist ] || skip "dataset-fashion-mnist is not installed"; }
sanitized() { grep -Eq "__(asan|tsan)_init" "$weir"; }
no_sanitizer_in_uml() {
  ! sanitized || skip "User-Mode Linux has 39 bits of address space, and a sanitizer's shadow memory needs 47"
}
# value JSON KEY: the number of a key.
value() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" <<<"$1"; }
# close GOT WANT: within 1e-9 of each other, relatively.
close() { awk -v g="$1" -v w="$2" 'BEGIN { d = g - w; if (d < 0) d = -d; exit !(g != "" && d <= 1e-9 * w) }'; }
# expect CODE PATTERN COMMAND...: it ends with the code and says the pattern.
expect() {
  local code=$1 pattern=$2 got=0
  shift 2
  "$@" >"$work/out" 2>&1 || got=$?
  [ $got -eq "$code" ] || fail "$*: exit $got, not $code: $(cat "$work/out")"
  grep -q -- "$pattern" "$work/out" || fail "$*: no '$pattern': $(cat "$work/out")"
}
