#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test program of a sanitizer build and fails when any process of it left a sanitizer report. Criterion runs
# each test in a process of its own and does not see what LeakSanitizer finds when that process ends. Exit statuses
# are the programs' own (exitcode=0: a leak does not replace them): reports are judged here.
#   make check LOG_COMPILER="sh tests/leak.sh"
# No frames on the heap: gcc keeps vectors of AVX-512 there without their alignment (doc/recipes.md).
d=$(mktemp -d) || exit 99
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_stack_use_after_return=0:exitcode=0:log_path=$d/report" \
    UBSAN_OPTIONS="${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1:log_path=$d/report" "$@"
rc=$?
for report in "$d"/report*; do
    [ -e "$report" ] || continue
    # A leak whose frames are all Criterion's, or those of an MPI library and of what it had loaded, is none of ours: every one of
    # ours has a frame of the program or a test.
    if grep -q 'ERROR: LeakSanitizer' "$report"; then
        grep '^ *#[0-9]' "$report" >"$d/frames"
        grep -qv 'libsanitizer\|libasan\|libcriterion' "$d/frames" || continue
        if grep -q '/libmpi\|/libopen-' "$d/frames" && ! grep -Eq '(core|cli|backends|metrics|verify|tests)/[^ ]*:[0-9]' "$d/frames"; then
            continue
        fi
    fi
    # The emulation of CUDA's threads has fibers, of which AddressSanitizer only says that it does not know them well.
    grep -qv 'WARNING: ASan doesn.t fully support makecontext/swapcontext' "$report" || continue
    cat "$report"
    rc=1
done
rm -rf "$d"
exit $rc
