#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Matrix products of shapes drawn at random, thousands instead of the few of `make check`: every kernel that this CPU has gives the
# bits of the reference or of the model of tiles, or in bfloat16 by vectors the tolerance. SEEDS: "1 2 3", others give other shapes.
. "$(dirname "$0")/../cli/_common.sh"
cd "$here" || exit 99
tests=${abs_top_builddir:?set abs_top_builddir to the build tree}/tests/unit-tests
for seed in ${SEEDS:-1 2 3}; do
    SY_TEST_SEED=$seed SY_TEST_DRAWN=30 "$tests" --filter 'gemm*/shapes_drawn_at_random' >out 2>&1 || fail "seed $seed: $(tail -n 5 out)"
    grep -q 'Tested: [1-9]' out || fail "seed $seed: no test: $(cat out)"
    echo "seed $seed: $(tail -n 1 out)"
done
finish
