#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What it costs to be several ranks: one process of N threads and N ranks of one thread, in turn, same global batch.
#
#   sh bench/ranks.sh N RUNFILE [OPTIONS OF switchyard bench...]
#
# --set mesh.expert=N among the options splits experts in place of rows. Environment: PAIRS (default 5), SWITCHYARD (the
# program, default switchyard), MPIEXEC (default mpirun), MPIEXEC_FLAGS (default --bind-to core). Prints each pair and
# the ratio of medians with the range of the pairs' ratios: tokens/s of the ranks over those of the single process.
set -u
LC_ALL=C # numbers of awk have no comma
export LC_ALL
[ $# -ge 2 ] || {
    sed -n '3,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
n=$1 run=$2
shift 2
program=${SWITCHYARD:-switchyard}
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT

# tokens COMMAND...: tokens/s that the command prints.
tokens() {
    "$@" >"$here/out" || {
        echo "ranks.sh: $* failed" >&2
        exit 1
    }
    sed -n 's/.*"tokens_per_second":\([0-9.e+-]*\).*/\1/p' "$here/out"
}

i=0
while [ $i -lt "${PAIRS:-5}" ]; do
    one=$(tokens "$program" bench "$run" "$@" --set mesh.data=1 --set mesh.expert=1 --set mesh.model=1 --threads "$n" --json) || exit 1
    # shellcheck disable=SC2086 # options of the launcher
    all=$(tokens ${MPIEXEC:-mpirun} ${MPIEXEC_FLAGS---bind-to core} -n "$n" "$program" bench "$run" "$@" --threads 1 --json) || exit 1
    echo "$one $all" >>"$here/pairs"
    echo "$one $all" | awk '{ printf "one process %.0f tokens/s, ranks %.0f, ratio %.3f\n", $1, $2, $2 / $1 }'
    i=$((i + 1))
done

# median COLUMN
median() {
    awk -v c="$1" '{ print $c }' "$here/pairs" | sort -g |
        awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}
awk -v a="$(median 1)" -v b="$(median 2)" '
    { r = $2 / $1; if (NR == 1 || r < low) low = r; if (r > high) high = r }
    END { printf "median: one process %.0f tokens/s, ranks %.0f, ratio %.3f (%.3f to %.3f)\n", a, b, b / a, low, high }' "$here/pairs"
