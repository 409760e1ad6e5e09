#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test program of a sanitizer build and fails when any process of it left a sanitizer report. Criterion runs
# each test in a process of its own and does not see what LeakSanitizer finds when that process ends.
#   make check LOG_COMPILER="sh tests/leak.sh"
d=$(mktemp -d) || exit 99
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$d/report" \
    UBSAN_OPTIONS="${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1:log_path=$d/report" "$@"
rc=$?
# A leak whose frames are all Criterion's is none of ours: every one of ours has a frame of the program or a test.
ours=0
theirs=0
for report in "$d"/report*; do
    [ -e "$report" ] || continue
    if grep -q 'ERROR: LeakSanitizer' "$report" && ! grep '^ *#[0-9]' "$report" | grep -qv 'libsanitizer\|libasan\|libcriterion'; then
        theirs=1
        continue
    fi
    cat "$report"
    ours=1
done
[ $ours -eq 0 ] || rc=1
[ $ours -eq 1 ] || [ $theirs -eq 0 ] || [ $rc -ne 23 ] || rc=0 # 23: what LeakSanitizer ends a program with
rm -rf "$d"
exit $rc
