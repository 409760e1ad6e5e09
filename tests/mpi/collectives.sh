#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every collective of the MPI backend gives the bytes that comm thread gives, on 1 to 5 ranks.
. "$(dirname "$0")/_common.sh"
for n in 1 2 3 4 5; do
    ranks $n "$abs_top_builddir/tests/mpi/collectives" >"$here/out" 2>&1 || fail "$n ranks: exit $?: $(cat "$here/out")"
    says out "^$n ranks ok"
done

# ---- a rank that does not come to a group ----
SWITCHYARD_COMM_TIMEOUT=1 ranks 3 "$abs_top_builddir/tests/mpi/collectives" absent >"$here/out" 2>&1 && fail "absent: exit 0"
says out 'rank [02] of 3 waited 1 s for a group of ranks to come together and not all ranks came'
finish
