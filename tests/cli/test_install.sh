#!/usr/bin/env bash
# Installs into an empty folder, builds the example against what was installed (pkg-config, shared
# and static, and the CMake package), and trains with two ranks over TCP: both must end with the same
# weights, and the weights must have learnt the rule.
set -eu
weir=$1 source=$2
build=$(dirname "$(dirname "$weir")")
flags=${WEIR_CFLAGS:-}
# shellcheck source=tests/ports.sh
. "$source/tests/ports.sh"
folder=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}

cmake --install "$build" --prefix "$folder/prefix" >"$folder/install.log" ||
  { cat "$folder/install.log"; fail "install"; }
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$folder/prefix" -name weir.pc)")
library=$(dirname "$PKG_CONFIG_PATH")
[[ $("$folder/prefix/bin/weir" --version) == "weir $(pkg-config --modversion weir)" ]] ||
  fail "the command and weir.pc disagree about the version"
[[ -s $folder/prefix/share/man/man1/weir.1 ]] || fail "no manual page"
for scenario in "$source"/scenarios/*.ini; do
  cmp "$scenario" "$folder/prefix/share/weir/scenarios/${scenario##*/}" || fail "no $scenario"
done
[[ -n $(find "$folder/prefix" -name scenarios.md) ]] || fail "no documents"

# Where libraries go may be said as an absolute path, too, and installing may go into a folder that is packed.
for lib in lib "$folder/other/lib"; do
  cmake -S "$source" -B "$folder/plain" -DWEIR_CUDA=OFF -DWEIR_LAB=OFF -DWEIR_TESTS=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    -DCMAKE_INSTALL_PREFIX="$folder/other" -DCMAKE_INSTALL_LIBDIR="$lib" >"$folder/cmake.log" 2>&1 ||
    { cat "$folder/cmake.log"; fail "libraries in $lib"; }
  grep -oE 'WEIR_LIB(EXEC)?_FROM_[A-Z]*=[^ ]*' "$folder/plain/compile_commands.json" | sort -u |
    cat "$folder/plain/weir.pc" - >"$folder/told"
  [[ -s $folder/ways ]] || mv "$folder/told" "$folder/ways"
done
cmp "$folder/told" "$folder/ways" || fail "libraries in $lib: $(cat "$folder/told")"
DESTDIR=$folder/packed cmake --install "$build" --prefix /usr >"$folder/install.log" || fail "install to be packed"
[[ -f $folder/packed/usr/include/weir/weir.h && -n $(find "$folder/packed/usr" -name libweir.a) ]] ||
  fail "nothing was installed to be packed"
rm -r "$folder/packed"

# `weir bench` runs programs installed beside the command; without them it says so.
for name in cache collectives grid kernels moo pto; do
  "$folder/prefix/bin/weir" bench $name --help | grep -q "^  weir bench $name " || fail "weir bench $name"
done
"$folder/prefix/bin/weir" bench moo --json | grep -q '"zdt1":{"hypervolume":12' || fail "weir bench moo"
cp "$folder/prefix/bin/weir" "$folder/weir"
code=0
"$folder/weir" bench moo 2>"$folder/errors" || code=$?
[[ $code == 1 ]] && grep -q "^weir bench moo: weir-bench-moo is not installed" "$folder/errors" ||
  fail "a command alone: exit $code, $(cat "$folder/errors")"

# Only the public API leaves the shared library, under a symbol version.
nm -D --defined-only "$library/libweir.so" | awk '$2 != "A" {print $3}' | sort >"$folder/versioned"
other=$(grep -v '@@WEIR_0$' "$folder/versioned" || true)
[[ -z $other ]] || fail "exported without the symbol version: $other"
sed 's/@@WEIR_0$//' "$folder/versioned" >"$folder/exported"
grep -hoE '\bweir_[a-z0-9_]+\(' "$folder"/prefix/include/weir/*.h | tr -d '(' | sort -u \
  >"$folder/declared"
extra=$(comm -23 "$folder/exported" "$folder/declared")
[[ -z $extra ]] || fail "exported, not public: $extra"
# All of it, less what the headers define themselves and what is the tuner's, a library of its own.
sed -n 's/^static inline .*\(weir_[a-z0-9_]*\)(.*/\1/p' "$folder"/prefix/include/weir/*.h |
  cat - <(grep -oE '\bweir_nccl_tuner_[a-z0-9_]+' "$folder/declared") | sort -u >"$folder/elsewhere"
missing=$(comm -23 "$folder/declared" "$folder/exported" | comm -23 - "$folder/elsewhere")
[[ -z $missing ]] || fail "public, not exported: $missing"
[[ -s $folder/exported ]] || fail "nothing is exported"

# It needs libc, libm and OpenSSL; modules and the helper program lie where it looks for them.
needed=$(objdump -p "$library/libweir.so" | awk '$1 == "NEEDED" {print $2}' |
  grep -vE '^(libc\.so\.6|libm\.so\.6|libcrypto\.so\.3|libssl\.so\.3|ld-linux-.*|lib[a-z]*san\.so\..*)$' || true)
[[ -z $needed ]] || fail "libweir.so needs $needed"
[[ ! -e $build/libexec/weir/weir-netprobe || -x $folder/prefix/libexec/weir/weir-netprobe ]] ||
  fail "no helper program"

# Every public header stands alone, in C and in C++.
for header in "$folder"/prefix/include/weir/*.h; do
  cc -std=c11 -pedantic-errors -Wall -Wextra -Werror "-I$folder/prefix/include" \
    -fsyntax-only -x c "$header"
  if command -v c++ >/dev/null; then
    c++ -std=c++11 -pedantic-errors -Wall -Wextra -Werror "-I$folder/prefix/include" \
      -fsyntax-only -x c++ "$header"
  fi
done

# shellcheck disable=SC2046,SC2086 # lists of arguments
{
  cc -std=c11 -Wall -Wextra -Werror $flags "$source/examples/trainer.c" -o "$folder/trainer" \
    $(pkg-config --cflags --libs weir) -lm
  cc -std=c11 $flags "$source/examples/trainer.c" -o "$folder/prefix/bin/trainer-static" \
    $(pkg-config --static --cflags --libs weir | sed "s|-lweir|$library/libweir.a|")
}
# With the archive in it a program finds the helper from where programs are installed.
ln -s prefix/bin/trainer-static "$folder"
cat >"$folder/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(Weir 0.1 REQUIRED)
add_executable(trainer-cmake ${TRAINER})
target_link_libraries(trainer-cmake Weir::weir m)
END
{
  cmake -S "$folder" -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/prefix" \
    -DTRAINER="$source/examples/trainer.c" -DCMAKE_C_FLAGS="$flags" &&
    cmake --build "$folder/build"
} >"$folder/cmake.log" 2>&1 || { cat "$folder/cmake.log"; fail "the CMake package"; }
cp "$folder/build/trainer-cmake" "$folder"
# How many of the steps that it ends count, by the last step's own word.
cat >"$folder/count.c" <<'END'
#include <stdio.h>
#include <weir/weir.h>
weir_status __real_weir_step_end(weir_session *session, weir_step_info *info);
weir_status __wrap_weir_step_end(weir_session *session, weir_step_info *info);
weir_status __wrap_weir_step_end(weir_session *session, weir_step_info *info) {
  static unsigned long long counted;
  const weir_status status = __real_weir_step_end(session, info);
  counted += status == WEIR_OK && !info->trial;
  if (counted >= 299) fprintf(stderr, "counted %llu\n", counted);
  return status;
}
END
cc -std=c11 $flags "$source/examples/trainer.c" "$folder/count.c" -Wl,--wrap=weir_step_end -o "$folder/trainer-counted" \
  $(pkg-config --cflags --libs weir) -lm
export LD_LIBRARY_PATH=$library

# Two ranks of a trainer; false when one of them failed.
pair() {
  local port rank pid code=0
  port=$(free_port) || return
  pids=()
  for rank in 0 1; do
    timeout 450 "$folder/$1" $rank 2 127.0.0.1:$port \
      >"$folder/weights.$rank" 2>"$folder/log.$rank" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || code=$?
  done
  pids=()
  return $code
}

for trainer in trainer-counted trainer trainer-static trainer-cmake; do
  for attempt in 1 2 3; do # the port may be somebody's
    code=0
    pair $trainer || code=$?
    [[ $code != 0 && $attempt -lt 3 ]] && grep -q 'already in use' "$folder/log.0" || break
  done
  [[ $code == 0 ]] || { cat "$folder"/log.*; fail "$trainer exited with $code"; }
  cat "$folder/log.0"
  [[ ! -x $folder/prefix/libexec/weir/weir-netprobe ]] || ! grep -q weir-netprobe "$folder"/log.? ||
    fail "$trainer does not find the helper program"
  [[ $(wc -w <"$folder/weights.0") == 32 ]] || fail "$trainer printed no weights"
  cmp "$folder/weights.0" "$folder/weights.1" || fail "$trainer: the ranks' weights differ"
  [[ $trainer != trainer-counted || $(tail -2 "$folder/log.0" | head -1) == "counted 300" ]] ||
    fail "$trainer does not take 300 steps: $(tail -3 "$folder/log.0")"
  # The rule: even features count for the label, odd ones against it.
  awk '{ for (i = 1; i <= NF; i++) if ((i % 2 == 1) != ($i !~ /^-/)) exit 1 }' \
    "$folder/weights.0" || fail "$trainer has not learnt the rule: $(cat "$folder/weights.0")"
done

# What steps on a device need is looked for beside libweir, or beside the programs that hold it, and only then where the
# system is told to look.
cat >"$folder/device.c" <<'END'
#include <stdio.h>
#include <weir/weir.h>
int main(void) {
  weir_session *session = NULL;
  weir_options options;
  weir_options_init(&options);
  options.device = 0;
  weir_status status = weir_session_create(&session, &options);
  if (status == WEIR_OK) status = weir_register_tensor(session, "w", 10, NULL);
  if (status == WEIR_OK) status = weir_session_start(session);
  printf("%s: %s\n", weir_status_name(status), weir_last_error());
  return 0;
}
END
# shellcheck disable=SC2046,SC2086
{
  cc -std=c11 $flags "$folder/device.c" -o "$folder/device-shared" $(pkg-config --cflags --libs weir) -lm
  cc -std=c11 $flags "$folder/device.c" -o "$folder/prefix/bin/device-static" \
    $(pkg-config --static --cflags --libs weir | sed "s|-lweir|$library/libweir.a|")
}
mkdir "$folder/another"
ln -s "$library"/libweir.so* "$folder/another"
rm -f "$library"/libweir_cuda.so*
for place in "$library" "$folder/another"; do echo "no library" >"$place/libweir_cuda.so.0"; done
for program in "$folder/device-shared" "$folder/prefix/bin/device-static"; do
  LD_LIBRARY_PATH=$folder/another "$program" >"$folder/told"
  grep -q "steps on a device need $folder/prefix/.*/libweir_cuda.so.0, which cannot be loaded" "$folder/told" ||
    fail "$program: $(cat "$folder/told")"
done
echo "installed, built three ways, and trained"
