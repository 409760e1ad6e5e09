#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory errors and leaks of whole commands, and of the unit tests that handle the most pointers, under valgrind.
. "$(dirname "$0")/../cli/_common.sh"
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 77; }
data "$here/train.tsv" 200 1
data "$here/valid.tsv" 20 2

# clean COMMAND...: runs under valgrind; errors and definite leaks fail.
clean() {
    if ! valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite "$@" \
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
: >"$here/in"
clean "$program" eval "$here/run" --file "$here/valid.tsv"
clean "$program" plan "$top/bench/tiny.run" --set task.words.train="$here/train.tsv"
clean "$program" config
clean "$program" backends

if [ -x "${abs_top_builddir:?}/tests/unit-tests" ]; then
    "$abs_top_builddir/libtool" --mode=execute valgrind -q --trace-children=yes --leak-check=full \
        --errors-for-leak-kinds=definite --error-exitcode=99 "$abs_top_builddir/tests/unit-tests" --jobs 2 \
        --filter '@(json|run_config|program_fuse|partition|plan|lower)/*' >"$here/out" 2>&1 || fail "unit tests: $(tail -n 40 "$here/out")"
    grep -q 'Tested: [1-9]' "$here/out" || fail "no unit test ran: $(tail -n 3 "$here/out")"
    grep Synthesis "$here/out"
fi
finish
