#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory errors and leaks of whole commands, and of the unit tests, under valgrind.
. "$(dirname "$0")/../cli/_common.sh"
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 77; }
data "$here/train.tsv" 200 1
data "$here/valid.tsv" 20 2

# Threads take turns: without --fair-sched one that waits in a loop may keep the turn for ever.
checks="-q --fair-sched=yes --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --error-exitcode=99
    --suppressions=$top/tests/big/valgrind.supp"
# clean COMMAND...: runs under valgrind; errors and definite leaks fail.
clean() {
    # shellcheck disable=SC2086
    if ! valgrind $checks "$@" \
        >"$here/out" 2>"$here/err" <"$here/in"; then
        fail "$*: $(head -n 30 "$here/err")"
    fi
}

: >"$here/in"
clean "$program" train "$top/bench/tiny.run" --run-dir "$here/run" --threads 2 --set train.steps=3 \
    --set task.words.train="$here/train.tsv" --set task.words.valid="$here/valid.tsv"
clean "$program" train "$top/bench/tiny.run" --run-dir "$here/ranks" --comm thread --ranks 2 --set train.steps=2 \
    --set task.words.train="$here/train.tsv"
clean "$program" train "$top/bench/tiny.run" --run-dir "$here/run" --resume --set train.steps=4 \
    --set task.words.train="$here/train.tsv"
printf 'abc\nhgf\n' >"$here/in"
clean "$program" predict "$here/run"
clean "$program" score "$here/run" --file "$here/valid.tsv"
: >"$here/in"
clean "$program" eval "$here/run" --file "$here/valid.tsv"
clean "$program" plan "$top/bench/tiny.run" --set task.words.train="$here/train.tsv"
clean "$program" config
clean "$program" backends

# All unit tests but those of valgrind_left_out. Each runs in a process of its own, for 3 minutes at most.
if [ -x "${abs_top_builddir:?}/tests/unit-tests" ]; then
    left_out=$(sed '/^ *#/d; /^ *$/d' "$top/tests/big/valgrind_left_out")
    "$abs_top_builddir/tests/unit-tests" --list >"$here/list"
    for test in $left_out; do
        grep -q " ${test#*/}\$" "$here/list" || fail "valgrind_left_out names $test, which there is not"
    done
    begin=$(date +%s)
    # shellcheck disable=SC2086
    "$abs_top_builddir/libtool" --mode=execute valgrind --trace-children=yes --trace-children-skip="/bin/*,/usr/bin/*" $checks \
        "$abs_top_builddir/tests/unit-tests" --jobs "${JOBS:-2}" \
        --timeout 180 --filter "!($(echo $left_out | tr ' ' '|'))" >"$here/out" 2>&1 || fail "unit tests: $(tail -n 60 "$here/out")"
    # Criterion counts a test as passed whose process valgrind ends with another status.
    grep -q '^==[0-9]*== ' "$here/out" && fail "unit tests: $(grep -m 40 '^==[0-9]*== ' "$here/out")"
    grep -q 'Tested: [1-9][0-9][0-9]' "$here/out" || fail "hardly a unit test ran: $(tail -n 3 "$here/out")"
    grep Synthesis "$here/out"
    echo "unit tests under valgrind: $(($(date +%s) - begin)) s; left out: $(echo $left_out)"
fi
finish
