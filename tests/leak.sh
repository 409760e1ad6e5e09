#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test program of a sanitizer build and fails when any process of it left a sanitizer report. Criterion runs
# each test in a process of its own and does not see what LeakSanitizer finds when that process ends.
#   make check LOG_COMPILER="sh tests/leak.sh"
d=$(mktemp -d) || exit 99
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$d/report" \
    UBSAN_OPTIONS="${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1:log_path=$d/report" "$@"
rc=$?
cat "$d"/report* 2>/dev/null && rc=1
rm -rf "$d"
exit $rc
