#!/usr/bin/env bash
# The Python package's tests, with the library of this build.
set -uo pipefail
library=$1 source=$2
home=${WEIR_PYTORCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/pytorch}
if [[ ! -f $home/installed ]]; then
  echo "skipped: no PyTorch in $home; scripts/setup-pytorch.sh fetches it"
  exit 77
fi
export PYTHONPATH=$source/python WEIR_LIBRARY=$library PYTHONDONTWRITEBYTECODE=1
exec "$home/bin/python" -m pytest -q -p no:cacheprovider --durations=5 "$source/python/tests"
