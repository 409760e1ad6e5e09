#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes that write less than they were asked to, all of them: every file and every answer is whole all the same.
. "${abs_top_srcdir:?}/tests/faults/_faults.sh"
shorten=${abs_top_builddir:?}/tests/faults/short-writes
[ -x "$shorten" ] || fail "there is no $shorten"
"$shorten" "$here/count" true
[ $? -ne 77 ] || { echo "SKIP: processes cannot be traced here"; exit 77; }

# short WHAT LEAST: at least so many calls of the last command were shortened.
short() {
    [ "$(cat "$here/count")" -ge "$2" ] || fail "$1: $(cat "$here/count") writes were shortened, not $2"
    injected=$((injected + $(cat "$here/count")))
    rm "$here/count"
}

# answers RIGHT LEAST COMMAND...: the command, its writes shortened, prints what is in the file RIGHT.
answers() {
    right=$1 least=$2
    shift 2
    "$shorten" "$here/count" "$@" >"$here/out" 2>"$here/err" <"$here/words" || fail "$*: $(cat "$here/err")"
    cmp "$here/out" "$right" || fail "$*: another answer"
    short "$*" "$least"
}

# ---- a run: checkpoints, run.conf, status, database, log ----
inject="$shorten $here/count"
tiny_run "$here/short" || fail "training with short writes: $(cat "$here/err")"
inject=
[ "$(hash_in out)" = "$want" ] || fail "short writes change the weights"
short train 20
for file in run.conf status checkpoints/2/params.safetensors checkpoints/2/state.safetensors \
    checkpoints/4/params.safetensors checkpoints/4/state.safetensors checkpoints/4/meta.json; do
    cmp "$here/short/$file" "$here/whole/$file" || fail "$file differs"
done
[ "$(wc -l <"$here/short/log")" -eq "$(wc -l <"$here/whole/log")" ] || fail "lines of the log are missing"
"$program" metrics "$here/whole" --tsv 'SELECT step, loss, learning_rate, grad_norm FROM loss_curve' >"$here/curve"
[ "$(wc -l <"$here/curve")" -ge 2 ] || fail "the run has no loss curve"
"$program" metrics "$here/short" --tsv 'SELECT step, loss, learning_rate, grad_norm FROM loss_curve' >"$here/out"
cmp "$here/out" "$here/curve" || fail "rows of the database are missing"
[ "$("$program" metrics "$here/short" --tsv 'PRAGMA integrity_check' | tail -n 1)" = ok ] || fail "the database is damaged"
tiny_run "$here/short" --set train.steps=6 || fail "a run of short writes cannot be resumed: $(cat "$here/err")"

# ---- answers ----
answers "$here/answers" 1 "$program" predict "$here/whole"
answers "$here/rates" 1 "$program" eval "$here/whole" --file "$here/valid.tsv" --threads 1
"$program" config "$top/bench/tiny.run" >"$here/config"
answers "$here/config" 2 "$program" config "$top/bench/tiny.run"
answers "$here/curve" 1 "$program" metrics "$here/whole" --tsv 'SELECT step, loss, learning_rate, grad_norm FROM loss_curve'
"$program" explain "$top/bench/tiny.run" >"$here/explain"
answers "$here/explain" 2 "$program" explain "$top/bench/tiny.run"
echo "$injected writes were short"
finish
