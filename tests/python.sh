#!/usr/bin/env bash
# The Python package's types and tests, with the library of this build ("package"); or those tests that run
# on an emulated device ("device").  Where CI is set nothing that is missing is skipped.
set -uo pipefail
part=$1 library=$2 source=$3 command=$4 emulated=$5
home=${WEIR_PYTORCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/pytorch}
if [[ ! -f $home/installed ]]; then
  echo "skipped: no PyTorch in $home; scripts/setup-pytorch.sh fetches it"
  [[ -z ${CI:-} ]] || exit 1
  exit 77
fi
export PYTHONPATH=$source/python WEIR_LIBRARY=$library WEIR_COMMAND=$command PYTHONDONTWRITEBYTECODE=1
export WEIR_TEST_CUDA=$emulated
tests=("$home/bin/python" -m pytest -q -p no:cacheprovider --durations=5 "$source/python/tests")
[[ $part != device ]] || exec "${tests[@]}" -k device
[[ -x $home/bin/mypy ]] || {
  echo "python: $home has no mypy; scripts/setup-pytorch.sh fetches it" >&2
  exit 1
}
"$home/bin/mypy" --strict --cache-dir "$home/mypy" --python-executable "$home/bin/python" \
  "$source/python/weir" || exit 1
exec "${tests[@]}" -k "not device"
