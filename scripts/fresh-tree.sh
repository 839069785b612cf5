#!/usr/bin/env bash
# Runs a script of this repository in a fresh Debian 12: debootstrap into a folder (reused when it is
# there already), a clean clone of HEAD, a chroot.  As root.
#   scripts/fresh-tree.sh FOLDER [COMMAND...]     default command: scripts/quickstart.sh; the library
#   alone: scripts/minimal.sh
# The clone stays in FOLDER/root/weir, with what the command left behind.
set -euo pipefail
if (($# < 1)); then
  echo "usage: $0 FOLDER [COMMAND...]" >&2
  exit 2
fi
if ((EUID != 0)); then
  echo "fresh-tree: needs root (debootstrap, mount, chroot)" >&2
  exit 1
fi
source=$(readlink -f "$(dirname "$(readlink -f "$0")")/..")
mkdir -p "$1"
tree=$(readlink -f "$1")
shift
(($#)) || set -- scripts/quickstart.sh
if ! command -v debootstrap >/dev/null; then
  echo "fresh-tree: needs debootstrap: apt-get install debootstrap" >&2
  exit 1
fi

mounted=()
finish() {
  local code=$? i
  trap - EXIT INT TERM
  for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do
    umount "${mounted[i]}" 2>/dev/null || umount -l "${mounted[i]}"
  done
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

if [[ ! -e $tree/etc/debian_version ]]; then
  debootstrap --variant=minbase --include=ca-certificates bookworm "$tree" \
    http://deb.debian.org/debian
fi
# The host's way to the archive: name service, proxy, certificates.
cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
for file in /etc/apt/apt.conf.d/*; do
  if grep -qiE 'proxy|acquire::https?::' "$file"; then cp "$file" "$tree/etc/apt/apt.conf.d/"; fi
done
if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
  cp /usr/local/share/ca-certificates/*.crt "$tree/usr/local/share/ca-certificates/"
  chroot "$tree" update-ca-certificates >/dev/null
fi

rm -rf "$tree/root/weir"
git clone --quiet --no-hardlinks "$source" "$tree/root/weir"
for folder in proc sys dev dev/pts dev/shm; do
  mkdir -p "$tree/$folder"
  mount --bind "/$folder" "$tree/$folder"
  mounted+=("$tree/$folder")
done
mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp"
mounted+=("$tree/tmp")

environment=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  LANG=C.UTF-8 "TERM=${TERM:-dumb}")
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [[ -n ${!name:-} ]] && environment+=("$name=${!name}")
done
echo "fresh-tree: running $* in $tree"
SECONDS=0
code=0
chroot "$tree" env -i "${environment[@]}" /bin/bash -c 'cd /root/weir && exec "$@"' _ "$@" ||
  code=$?
echo "fresh-tree: $* ended with $code after $SECONDS s"
exit "$code"
