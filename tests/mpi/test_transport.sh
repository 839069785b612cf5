#!/usr/bin/env bash
# The MPI transport between processes that mpirun starts: every case of mpi_ranks.c, over Open MPI's own shared
# memory and, where messages count, over its TCP too; alone, and with memory that ranks of a machine share.
set -u
# shellcheck source=tests/mpi/cases.sh
. "$2/tests/mpi/cases.sh"
# How ranks end: on machines of their own, two of two, and, where processes start fast, one of three.  Where they do
# not, eight of them, and what Open MPI carries some other way, tell nothing more either.
machines=('' :2 :3) slow=
[[ ${WEIR_CFLAGS:-} == *fsanitize* ]] && machines=('' :2) slow=1

for case in messages groups allreduce; do well 4 "$case"; done
[[ $slow ]] || for case in messages allreduce messages:2; do well 4 --mca btl tcp,self "$case"; done
well 3 allreduce
for case in other_job other_rank; do well 4 "$case"; done
# Machines of so many ranks: two of two, one of three and one of one, two of four, one of all.
for case in messages:2 messages:3 messages:4 groups:2 allreduce:2 apart lacking:0; do well 4 "$case"; done
for case in rows:2 rows:3 drawn_rows:2 drawn_rows:3; do well 4 "$case"; done
[[ $slow ]] || for case in messages:4 rows:4 drawn_rows:4; do well 8 "$case"; done
other=${program%ranks}plans
for case in 2:1000 3:1000 2:30011; do well 4 "$case"; done
[[ $slow ]] || well 8 4:1000
other=${program%ranks}cache
well 2 addresses
unset other

limit=$ending
for case in leaving other_step too_long silent_rank frozen first_look; do
  for these in "${machines[@]}"; do ended 4 "$case$these"; done
done
for case in native_other_step silent_rank_native one_missing; do ended 4 "$case"; done
for these in "${machines[@]}"; do ended 3 --enable-recovery "killed_alone$these"; done
# A session whose rank has left.
other=${program%ranks}session
for case in mpi shm+mpi; do ended 4 "$case"; done
unset other
(launch 2 no_init)
grep -q '^rank 0: ok$' "$log" && echo "ok: no_init" || { echo "FAILED: no_init"; cat "$log"; failed=1; }
# A rank that dies ends the job, before the others have waited for it: mpirun sees to it, and says which.
for case in killed killed:2; do
  if ! (launch 4 "$case") && ! grep -q ': ok$' "$log" && grep -q 'signal 9' "$log"; then
    echo "ok: $case"
  else
    echo "FAILED: $case"
    cat "$log"
    failed=1
  fi
done
if env -u OMPI_COMM_WORLD_SIZE -u PMIX_RANK -u PMI_RANK -u PMI_FD "$program" unlaunched >"$log" 2>&1; then
  echo "ok: unlaunched"
else
  echo "FAILED: unlaunched"
  cat "$log"
  failed=1
fi
exit $failed
