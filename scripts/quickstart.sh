#!/usr/bin/env bash
# From a fresh Debian 12 to a finished adaptive training run: packages, build, demo, report.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

scripts/setup.sh
cmake --preset release
cmake --build --preset release
build-release/cli/weir run scenarios/demo.ini --out out/demo "$@"
echo "report: $PWD/out/demo/report.html"
