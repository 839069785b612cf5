#!/usr/bin/env bash
# NCCL inside of machines and MPI between them (transport nccl+mpi), between processes that mpirun starts; a library
# stands for NCCL.  Messages, every row and plan against MPI alone, and ranks that are silent or leave.
set -u
source=$2
# shellcheck source=tests/nccl/library.sh
. "$source/tests/nccl/library.sh"
has_mock || { echo "skipped: this build has no NCCL"; exit 77; }
# shellcheck source=tests/mpi/cases.sh
. "$source/tests/mpi/cases.sh"
unset NCCL_ALGO NCCL_TUNER_PLUGIN
libraries=$(mktemp -d)
trap 'rm -rf "$log" "$libraries"' EXIT
link_mock "$libraries/lib"
find="LD_LIBRARY_PATH=$libraries/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# Machines of so many ranks: two of two, one of three and one of one, one of all.
for case in messages:2 messages:4 rows:2 drawn_rows:3; do well 4 -x "$find" "$case:nccl"; done
other=${program%ranks}plans
well 4 -x "$find" 2:1000:nccl

limit=$ending
other=${program%ranks}nccl
for case in silent chain leaves ended late; do ended 4 -x "$find" "$case"; done
# A session whose rank has left.
other=${program%ranks}session
ended 4 -x "$find" nccl+mpi
exit $failed
