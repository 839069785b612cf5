#!/usr/bin/env bash
# The sources' format and every test: all of them in the release build, fuzzers for 10 s each, then again under
# ASan+UBSan; those of the lab that skip themselves there, as ASan does not fit into User-Mode Linux,
# under UBSan alone; then those with threads under TSan.  All run even if one fails.
#   scripts/test.sh [--fast]     --fast: the format, the unit tests and some of the others, in one build
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

case "${1:-}" in
  "")
    scripts/setup.sh || exit 1
    scripts/setup-pytorch.sh >/dev/null # without it the Python package's tests skip themselves
    presets=(release asan ubsan tsan)
    ;;
  --fast) presets=(fast) ;;
  *)
    echo "usage: scripts/test.sh [--fast]" >&2
    exit 2
    ;;
esac
# Builds a preset beside the tests of the one before, of whose time it takes what they leave; what it
# says is kept until its turn.
builder=
start_build() {
  set -m # a process group of its own, for the trap
  nice -n 19 bash -c 'cmake --preset "$0" && exec cmake --build --preset "$0"' "$1" >"build-$1.log" 2>&1 &
  builder=$!
  set +m
}
end_build() {
  [[ -n $builder ]] || return
  built=0
  wait "$builder" || built=$?
  builder=
}
trap '[[ -z $builder ]] || kill -- "-$builder"' EXIT

# All tests of a preset; a few that fail beside others are run again alone, where nobody takes the
# processor from ranks that must answer within a second.  What fails alone, too, has failed.
run_tests() {
  local preset=$1 failures
  rm -f "build-$preset/Testing/Temporary/LastTestsFailed.log"
  ctest --preset "$preset" -j$slots && return
  failures=$(wc -l <"build-$preset/Testing/Temporary/LastTestsFailed.log") || return 1
  ((failures <= 5)) || return 1
  end_build
  echo "== $preset: $failures failed beside others; again, alone"
  ctest --preset "$preset" --rerun-failed -j1
}

SECONDS=0
slots=$((4 * $(nproc))) # of which a test takes as many as tests/CMakeLists.txt says
failed=()
scripts/format.sh --check || failed+=(format)
for ((i = 0; i < ${#presets[@]}; i++)); do
  preset=${presets[i]}
  echo "== $preset"
  if ((i == 0)); then
    cmake --preset "$preset" && cmake --build --preset "$preset"
    built=$?
  else
    end_build
    cat "build-$preset.log"
  fi
  good=$built
  ((i + 1 == ${#presets[@]})) || start_build "${presets[i + 1]}"
  ((good == 0)) && run_tests "$preset" || failed+=("$preset")
done
if ((${#failed[@]})); then
  echo "test: FAILED: ${failed[*]} ($SECONDS s)"
  exit 1
fi
echo "test: passed: format, ${presets[*]} ($SECONDS s)"
