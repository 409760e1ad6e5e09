#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How far evaluations and predictions are: one line of a terminal that fits its width and goes away at the end, no carriage
# return elsewhere, nothing with --quiet; results are printed all the same.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/test.tsv" 2000 2 # a second of work: progress is shown after the first 0.2
cd "$here" || exit 99
slow='--threads 1 --set decode.batch_size=1 --beams 4'
exits 0 tiny run --threads 1 --quiet --set train.steps=2 --set task.words.test="$here/test.tsv"
says out '^weights sha256 '
[ "$(wc -l <out)" -le 5 ] || fail "train --quiet prints more than results: $(cat out)"

# ---- no terminal ----
# shellcheck disable=SC2086
exits 0 "$program" eval run $slow
tr '\r' '#' <out | grep -q '#' && fail "a carriage return in a file"
[ ! -s err ] || fail "eval writes on stderr: $(cat err)"
result=$(grep '^words/test: ' out) || fail "no result: $(cat out)"

if ! command -v python3 >/dev/null; then
    echo "not tested: a terminal; there is no python3"
    finish
fi
# terminal COLUMNS FEED OUTPUT COMMAND...: what the terminal got into ./shown.
terminal() {
    python3 "$top/tests/cli/progress_terminal.py" "$@" >shown || fail "exit $? in a terminal: $* ($(cat shown))"
}

# joined: what the terminal got, with lines that were broken as one line again.
joined() {
    sed -e ':a' -e 'N' -e '$!ba' -e 's/\n  */ /g' shown
}

# fits COLUMNS: no line is wider, but for a word that has no room (a path).
fits() {
    grep -v '<CR>$' shown | awk -v most="$1" 'length($0) > most && $1 != substr($0, match($0, /[^ ]/))' >wide
    [ ! -s wide ] || fail "wider than $1 columns: $(cat wide)"
}

# ---- lines that are long, in a terminal and in a file ----
exits 0 "$program" plan "$top/bench/tiny.run" --threads 1
grep -x '1 rank x .* model=1' out >line || fail "plan breaks lines in a file: $(cat out)"
grep -x '  optimizer of .* elements: .*scale_by_adam.*' out >>line || fail "plan breaks lines in a file: $(cat out)"
terminal 80 0 - "$program" plan "$top/bench/tiny.run" --threads 1
fits 79
tr -s '\n ' '  ' <shown >whole
while read -r wanted; do grep -qF "$wanted" whole || fail "plan in a terminal lacks: $wanted ($(cat shown))"; done <line
terminal 80 0 - "$program" backends
fits 79
says shown '^cpu '
exits 0 "$program" metrics run
awk 'length($0) > 79' out | grep -q . || fail "no long line, so this tests nothing: $(cat out)"
tr -s '\n ' '  ' <out >line
terminal 80 0 - "$program" metrics run
fits 79
tr -s '\n ' '  ' <shown | cmp - line || fail "metrics in a terminal says something else: $(cat shown)"

# ---- eval, in a terminal ----
# shellcheck disable=SC2086
terminal 50 0 - "$program" eval run $slow # no room for the time left
grep -q '^words/test decoded: [0-9]* of 1705 items, [0-9]* % *<CR>$' shown || fail "no progress: $(cat shown)"
[ -z "$(grep '<CR>$' shown | awk 'length($0) > 49 + 4')" ] || fail "progress is wider than the terminal: $(cat shown)"
fits 49
joined | grep -qx "$result" || fail "the result is not on a line of its own: $(cat shown)"
# shellcheck disable=SC2086
terminal 30 0 - "$program" eval run $slow
[ -z "$(grep '<CR>$' shown | awk 'length($0) > 29 + 4')" ] || fail "progress is wider than 30 columns: $(cat shown)"
# shellcheck disable=SC2086
terminal 50 0 - "$program" eval run $slow --quiet
grep -q '<CR>' shown && fail "eval --quiet shows progress: $(cat shown)"
joined | grep -qx "$result" || fail "eval --quiet has no result: $(cat shown)"

# ---- evaluations of a training ----
# shellcheck disable=SC2086
terminal 80 0 - "$program" train "$top/bench/tiny.run" --run-dir trained --threads 1 --set decode.batch_size=1 --set decode.beams=4 --set train.steps=1 \
    --set task.words.train=train.tsv --set task.words.valid=test.tsv
grep -q '^words/valid decoded: [0-9]* of 1705 items, [0-9]* %, [0-9]* s left<CR>$' shown || fail "no progress of valid: $(cat shown)"

# ---- predict: standard error is the terminal ----
terminal 60 4 answers "$program" predict run --threads 1
grep -q '^predict: [234] lines *<CR>$' shown || fail "no progress of predict: $(cat shown)"
[ "$(wc -l <answers)" -eq 4 ] || fail "4 lines have $(wc -l <answers) answers"
terminal 60 4 answers "$program" predict run --threads 1 --quiet
[ ! -s shown ] || fail "predict --quiet shows: $(cat shown)"
finish
