#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sources.am, from which the build is made, names every file of the folders and no other, and a build without training has no
# file of cli that includes what only one with training has; what only prefetches is always inlined; SQL is as old as the oldest SQLite
# that configure takes.
set -u
sh "${abs_top_srcdir:?set abs_top_srcdir to the source tree}/scripts/make-source-lists.sh" --check || {
    echo "FAIL: sources.am is out of date: sh scripts/make-source-lists.sh && autoreconf -fi" >&2
    exit 1
}
cd "$abs_top_srcdir" || exit 99
found=$(awk '/^cli = / { on = 1; next } /^$/ { on = 0 } on { print $1 }' sources.am | grep '\.[ch]$' |
    xargs grep -nE '^ *# *include "(metrics|verify|import|text_metrics|train/(compare|init|replay|trainer))/')
[ -z "$found" ] || {
    echo "FAIL: a build without training has this and not what it includes: cli_training of scripts/make-source-lists.sh lists it: $found" >&2
    exit 1
}
found=$(grep -nE '^static (inline )?void (pre)?fetch' backends/cpu/*.[ch])
[ -z "$found" ] || {
    echo "FAIL: gcc takes a call of a function that only prefetches for dead, so these are ALWAYS_INLINE: $found" >&2
    exit 1
}
found=$(grep -nE 'ON CONFLICT DO UPDATE|RETURNING|FILTER \(|NULLS (FIRST|LAST)|iif\(' metrics/*.[ch] metrics/*.sql cli/*/*.c)
[ -z "$found" ] || {
    echo "FAIL: SQLite 3.25, the oldest that configure takes, does not know this: $found" >&2
    exit 1
}
echo "ok: sources.sh"
