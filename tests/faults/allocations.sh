#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory that runs out: the n-th allocation of a command fails, for every n (in `make check` for a sample). Needs the
# preloaded library of this folder, so glibc and no sanitizer.
. "${abs_top_srcdir:?}/tests/faults/_faults.sh"

library=${abs_top_builddir:?}/tests/faults/.libs/allocations.so
[ -e "$library" ] || { echo "SKIP: this build has no shared libraries"; exit 77; }
env LD_PRELOAD="$library" SY_FAIL_ALLOCATION=1000000000 SY_FAILED="$here/failed" "$program" --version >/dev/null 2>&1 ||
    { echo "SKIP: allocations cannot be replaced in this build"; exit 77; }

hit_allocation() {
    [ -e "$here/failed" ]
}
hit=hit_allocation

arm() {
    rm -f "$here/failed"
    fault="allocation $1"
    inject="env LD_PRELOAD=$library SY_FAIL_ALLOCATION=$1 SY_FAILED=$here/failed"
}

# The line about free memory changes from moment to moment.
plan() {
    "$@" >"$here/planned"
    status=$?
    sed '/^  free /d' "$here/planned"
    return $status
}
plans() { inject="plan $inject" answers_fail "$1" "$here/plan" "$program" plan "$top/bench/tiny.run"; }
configures() { answers_fail "$1" "$here/config" "$program" config "$top/bench/tiny.run"; }
plan "$program" plan "$top/bench/tiny.run" >"$here/plan"
"$program" config "$top/bench/tiny.run" >"$here/config"

each train training
each predicts predict
each evaluates eval
each plans plan
each configures config
[ "$injected" -ge 40 ] || fail "only $injected allocations were made to fail"
echo "$injected allocations failed, $survived commands ended well all the same"
finish
