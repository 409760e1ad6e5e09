#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Exchanges of more than 2^31 bytes a rank over the MPI backend: 2 GiB sent and 4 GiB received by each of 2 ranks.
. "$(dirname "$0")/../mpi/_common.sh"
need=18 # GiB: 12 for the buffers of both, and what the MPI holds on its way
memory=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null)
if [ "${memory:-0}" -lt $need ]; then
    echo "skipped: exchanges of more than 2^31 bytes need $need GiB of free memory, here are ${memory:-none known}"
    exit 77
fi
if [ ! -x "$abs_top_builddir/tests/mpi/collectives" ]; then
    echo "skipped: tests/mpi/collectives was not built (make check builds it)"
    exit 77
fi
ranks 2 "$abs_top_builddir/tests/mpi/collectives" large >"$here/out" 2>&1 || fail "exit $?: $(cat "$here/out")"
says out '^2 ranks ok'
finish
