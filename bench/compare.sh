#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Another program and switchyard in turn on the same shapes: seconds a step and peak memory, as ratios.
#
#   sh bench/compare.sh RUNFILE 'PEER COMMAND' [OPTIONS OF switchyard bench...]
#
# The peer prints `step=SECONDS` (its median) on a line; what follows the number does not matter. Environment:
# PAIRS (default 5), SWITCHYARD (the program, default switchyard; may be a command of several words). Prints each
# pair, then the ratio of medians with the range of the pairs' ratios: over 1 means that switchyard is faster.
set -u
LC_ALL=C # numbers of awk have no comma
export LC_ALL
[ $# -ge 2 ] || {
    sed -n '3,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
run=$1 peer=$2
shift 2
program=${SWITCHYARD:-switchyard}
pairs=${PAIRS:-5}
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT

die() {
    echo "compare.sh: $*" >&2
    exit 1
}

# largest PID: the most memory in KiB that the process or a child of it had, as far as Linux shows it.
largest() {
    for pid in "$1" $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null
    done
}

# watch COMMAND...: runs it with output in $here/out; its peak of memory goes to $here/peak.
watch() {
    : >"$here/peaks"
    "$@" >"$here/out" 2>"$here/err" &
    watched=$!
    while kill -0 $watched 2>/dev/null; do
        largest $watched >>"$here/peaks"
        sleep 0.1
    done
    wait $watched || die "$* failed: $(tail -n 2 "$here/err")"
    sort -n "$here/peaks" | tail -n 1 >"$here/peak"
}

# pair NUMBER: appends `peer seconds, ours, peer KiB, ours` to $here/pairs.
pair() {
    watch sh -c "exec $peer"
    peer_seconds=$(sed -n 's/.*step=\([0-9.]*\).*/\1/p' "$here/out" | head -n 1)
    [ -n "$peer_seconds" ] || die "no step=SECONDS from the peer: $(tail -n 2 "$here/out")"
    peer_memory=$(cat "$here/peak")
    $program bench "$run" --json "$@" >"$here/out" || die "switchyard bench failed"
    seconds=$(sed -n 's/.*"median_seconds":\([0-9.e+-]*\).*/\1/p' "$here/out")
    memory=$(sed -n 's/.*"peak_process_bytes":\([0-9.e+-]*\).*/\1/p' "$here/out")
    [ -n "$seconds" ] || die "no median_seconds from switchyard"
    echo "$peer_seconds $seconds ${peer_memory:-0} $memory" >>"$here/pairs"
    echo "$peer_seconds $seconds ${peer_memory:-0} $memory" |
        awk '{ printf "peer %.4f s, switchyard %.4f s, ratio %.3f\n", $1, $2, $1 / $2 }'
}

i=0
while [ $i -lt "$pairs" ]; do
    pair "$@"
    i=$((i + 1))
done

# median COLUMN
median() {
    awk -v c="$1" '{ print $c }' "$here/pairs" | sort -g |
        awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}
awk -v a="$(median 1)" -v b="$(median 2)" -v p="$(median 3)" -v m="$(median 4)" '
    { r = $1 / $2; if (NR == 1 || r < low) low = r; if (r > high) high = r }
    END {
        printf "median: peer %.4f s, switchyard %.4f s, ratio %.2f (%.2f to %.2f)\n", a, b, a / b, low, high
        if (p > 0) printf "peak memory: peer %.0f MiB, switchyard %.0f MiB, %.0f %%\n", p / 1024, m / 1048576, 100 * m / 1024 / p
    }' "$here/pairs"
