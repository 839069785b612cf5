#!/usr/bin/env bash
# Builds a User-Mode Linux kernel that can run on a clock of its own, from Debian's kernel source:
#   scripts/uml-kernel.sh [DIR]
# DIR (default: out/uml-kernel) takes the source and the kernel, DIR/linux; about 1.5 GiB and a few
# minutes.  Debian's own linux.uml lacks that option.  scripts/uml-kernel.config has the configuration,
# scripts/packages-uml-kernel.txt the packages it takes.  Use it with: export WEIR_UML_KERNEL=DIR/linux
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

if (($# > 1)) || [[ ${1:-} == -* ]]; then
  sed -n '2,6s/^# \{0,1\}//p' scripts/uml-kernel.sh
  [[ ${1:-} == -h || ${1:-} == --help ]] && exit 0
  exit 2
fi

missing=()
while read -r package; do
  [[ -z $package || $package == \#* ]] && continue
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ $state == "install ok installed" ]] || missing+=("$package")
done < <(cat scripts/packages-uml-kernel.txt && echo build-essential)
if ((${#missing[@]})); then
  echo "uml-kernel: packages are missing; as root, run:" >&2
  echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

dir=${1:-out/uml-kernel}
source=/usr/src/linux-source-6.1.tar.xz
config=$PWD/scripts/uml-kernel.config
mkdir -p "$dir"
dir=$(readlink -f "$dir")
log=$dir/build.log

tree=$dir/linux-source-6.1
if [[ ! -e $tree/.unpacked || $source -nt $tree/.unpacked ]]; then
  echo "uml-kernel: unpacking $source"
  rm -rf "$tree"
  tar -C "$dir" -xf "$source"
  touch "$tree/.unpacked"
fi

make=(make -C "$tree" ARCH=um SUBARCH=x86_64)
# Before 6.13 a process's registers have 2696 bytes, which those of AMX exceed: room for more, and, as
# they also lie on the kernel's stacks, larger stacks (CONFIG_KERNEL_STACK_ORDER).  The kernel's name ends
# in -weir-xstate then, by which `weir` knows it.
offsets=$tree/arch/x86/um/user-offsets.c
sed -i 's/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, 16384)/' "$offsets"
grep -q 'HOST_FP_SIZE, 16384' "$offsets" ||
  { echo "uml-kernel: $offsets does not say how many bytes registers have" >&2; exit 1; }

"${make[@]}" KCONFIG_ALLCONFIG="$config" allnoconfig >"$log" 2>&1 ||
  { tail -n 20 "$log" >&2; exit 1; }
# An option that another kernel source names otherwise would be left out without a word.
while read -r line; do
  [[ $line == CONFIG_* ]] || continue
  grep -qxF -- "$line" "$tree/.config" ||
    { echo "uml-kernel: this source does not take $line" >&2; exit 1; }
done <"$config"

echo "uml-kernel: building, see $log"
"${make[@]}" -j "$(nproc)" linux >>"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
strip -o "$dir/linux.new" "$tree/linux"
mv "$dir/linux.new" "$dir/linux"
echo "uml-kernel: $dir/linux"
echo "use it with: export WEIR_UML_KERNEL=$dir/linux"
