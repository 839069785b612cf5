#!/usr/bin/env bash
# The sources' format and every test: all of them in the release build, fuzzers for 5 s each, then again under
# ASan+UBSan; those of the lab that skip themselves there, as ASan does not fit into User-Mode Linux,
# under UBSan alone, where there is one; then those with threads under TSan.  All run even if one fails.
#   scripts/test.sh [--fast]     --fast: the format, the unit tests and some of the others, in one build
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

fetching=
case "${1:-}" in
  "")
    scripts/setup.sh || exit 1
    scripts/setup-pytorch.sh >/dev/null & # beside the first build; without it the Python package's tests skip themselves
    fetching=$!
    presets=(release asan ubsan tsan)
    ;;
  --fast) presets=(fast) ;;
  *)
    echo "usage: scripts/test.sh [--fast]" >&2
    exit 2
    ;;
esac
# Where no device runs the kernels, machine code for one generation of them shows as well that they compile.  Not in
# a build that somebody has made for use before.
generations=
[[ -e /dev/nvidiactl || -e build-release/CMakeCache.txt ]] || generations=-DCMAKE_CUDA_ARCHITECTURES=90-real
export generations TIMEFORMAT='build: processor %U s and the kernel %S s, in %R s'
build() {
  time { cmake --preset "$1" ${generations:+"$generations"} && cmake --build --preset "$1"; }
}
export -f build

# Builds presets one after the other beside the tests of those before, of whose time it takes what they leave.
# What it says of each is kept until its turn, and so is its exit code.
builder=
start_builds() {
  rm -f "${@/%/.built}"
  set -m # a process group of its own, for the trap and for pauses
  nice -n 19 bash -c 'for preset; do
      build "${preset#build-}" >"$preset.log" 2>&1
      echo $? >"$preset.built"
    done' builds "$@" &
  builder=$!
  set +m
}
# The exit code of a preset's build.
await_build() {
  while [[ ! -s build-$1.built ]] && kill -0 "$builder" 2>/dev/null; do sleep 1; done
  return "$(cat "build-$1.built" || echo 1)"
}
trap '[[ -z $builder ]] || kill -- "-$builder" 2>/dev/null; [[ -z $fetching ]] || kill "$fetching" 2>/dev/null' EXIT

# All tests of a preset; a few that fail beside others are run again alone, where nobody takes the
# processor from ranks that must answer within a second.  What fails alone, too, has failed.
run_tests() {
  local preset=$1 failures code
  rm -f "build-$preset/Testing/Temporary/LastTestsFailed.log"
  ctest --preset "$preset" -j$slots && return
  failures=$(wc -l <"build-$preset/Testing/Temporary/LastTestsFailed.log") || return 1
  ((failures <= 5)) || return 1
  echo "== $preset: $failures failed beside others; again, alone"
  kill -STOP -- "-$builder" 2>/dev/null
  ctest --preset "$preset" --rerun-failed -j1
  code=$?
  kill -CONT -- "-$builder" 2>/dev/null
  return $code
}

SECONDS=0
slots=$((4 * $(nproc))) # of which a test takes as many as tests/CMakeLists.txt says
failed=()
echo "== ${presets[0]}"
build "${presets[0]}"
good=$?
[[ -z $fetching ]] || wait "$fetching"
fetching=
scripts/format.sh --check || failed+=(format) # of Python by what was fetched
# `uml_exec` exits with 77 where it cannot run anything.
if [[ ${presets[*]} == *ubsan* && $good == 0 ]]; then
  code=0
  build-release/tests/uml_exec true >/dev/null 2>&1 || code=$?
  if ((code == 77)); then
    echo "== ubsan: left out, as there is no User-Mode Linux here, in which it runs"
    presets=(release asan tsan)
  fi
fi
others=("${presets[@]:1}")
((${#others[@]} == 0)) || start_builds "${others[@]/#/build-}"
for preset in "${presets[@]}"; do
  [[ $preset == "${presets[0]}" ]] || {
    echo "== $preset"
    await_build "$preset"
    good=$?
    cat "build-$preset.log"
  }
  ((good == 0)) && run_tests "$preset" || failed+=("$preset")
done
if ((${#failed[@]})); then
  echo "test: FAILED: ${failed[*]} ($SECONDS s)"
  exit 1
fi
echo "test: passed: format, ${presets[*]} ($SECONDS s)"
