#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `switchyard metrics`: the questions of doc/metrics.md have answers, several runs are compared, runs of versions 2 to 6
# are read as they are and go on in the tables of this version; what the loss is made of, and how texts were decoded.
. "$(dirname "$0")/_common.sh"
good_run
# shellcheck disable=SC2086
exits 0 tiny other $good --set metrics.routing_every=3 --set train.seed=8 --set task.words.valid="$here/valid.tsv" \
    --set train.evaluate_every=2 --set decode.max_length=4
other=$(hash_in out)

# ---- every question of the manual, and what rows a run has ----
sed -n '/^Twenty-two questions/,/^## /p' "$top/doc/metrics.md" | sed -n '/^```sql/,/^```$/p' | grep -v '^```' >questions
[ "$(wc -l <questions)" -eq 22 ] || fail "the manual has $(wc -l <questions) questions"
while read -r question; do
    exits 0 "$program" metrics other --tsv "$question"
    [ "$(wc -l <out)" -ge 1 ] || fail "no answer to $question"
done <questions
[ "$(query other 'SELECT group_concat(DISTINCT step) FROM routing')" = '3,4' ] || fail "metrics.routing_every: $(query other 'SELECT * FROM routing')"
[ "$(query other "SELECT group_concat(DISTINCT step) FROM metric WHERE name = 'loss'")" = '1,2,3,4' ] || fail "metrics.every"
[ "$(query other 'SELECT kind || step FROM stop_reason')" = done4 ] || fail "stop_reason: $(query other 'SELECT * FROM stop_reason')"
[ "$(query other 'SELECT count(*) FROM best_checkpoint WHERE saved')" -ge 1 ] || fail "best_checkpoint: $(query other 'SELECT * FROM best_checkpoint')"
[ "$(query other "SELECT count(*) FROM metric WHERE time IS NULL OR task <> 'train'")" = 0 ] || fail "rows without time or task"

# ---- several runs ----
exits 0 "$program" metrics good other --tsv 'SELECT run, count(*), max(step) FROM all_loss GROUP BY run ORDER BY run'
[ "$(sed 1d out)" = "good	4	4
other	4	4" ] || fail "all_loss: $(cat out)"
exits 0 "$program" metrics good other
says out '^good  *1  *4 '
says out '^words/valid  *wer  *other  *4 '
cp -r other late
"$abs_top_builddir/tests/cli/database" change late/metrics.db "UPDATE event SET time = '2020-01-01T00:00:00.000Z' WHERE kind = 'done'"
exits 0 "$program" metrics good late # whose clock was set back while it ran
says out '^late  *1  *4 .*  done *$'
grep -q '[0-9]\.[0-9]\{9\}' out && fail "a summary has more digits than people read: $(cat out)"
exits 0 "$program" metrics good other --tsv
says out '[0-9]\.[0-9]\{9\}'
exits 0 "$program" metrics good/ ./other --tsv 'SELECT DISTINCT run FROM all_eval'
[ "$(tail -n 1 out)" = other ] || fail "all_eval: $(cat out)"
ln -s other newest
exits 1 "$program" metrics good other newest # as of a pattern: its numbers would be counted twice
says err 'other/metrics.db and newest/metrics.db are one and the same run'
exits 1 "$program" metrics good none
one_line_error
says err 'there is no none/metrics.db'
exits 1 "$program" metrics good 'SELECT absent'
says err 'no such column'
exits 1 "$program" metrics good other 'DELETE FROM run_2.metric'
says err 'only read'
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    cp -r good "good$i"
    set -- "$@" "good$i"
done
many=$("$program" metrics "$@" --tsv 'SELECT count(*) FROM all_run' 2>&1 | tail -n 1)
case $many in
12 | *'can compare'*) ;;
*) fail "12 runs: $many" ;;
esac

# ---- what the loss is made of ----
# shellcheck disable=SC2086
exits 0 tiny smooth $good --set loss.label_smoothing=0.1
for run in good smooth; do
    [ "$(query $run 'SELECT count(*) FROM loss_parts WHERE abs(loss - cross_entropy - label_smoothing - z_loss - auxiliary_loss - router_z_loss) < 1e-9 * loss')" = 4 ] ||
        fail "$run: the parts of the loss are not its sum: $(query $run 'SELECT * FROM loss_parts')"
done
[ "$(query good 'SELECT count(*) FROM loss_parts WHERE label_smoothing = 0 AND cross_entropy > 1 AND z_loss > 0')" = 4 ] || fail "without label smoothing"
# The weights of step 1 are those of both, and so is what their predictions are worth.
[ "$(query good 'SELECT round(cross_entropy, 5) FROM loss_parts WHERE step = 1')" = "$(query smooth 'SELECT round(cross_entropy, 5) FROM loss_parts WHERE step = 1')" ] ||
    fail "label smoothing changes the cross entropy: $(query smooth 'SELECT * FROM loss_parts')"
[ "$(query smooth 'SELECT count(*) FROM loss_parts WHERE abs(label_smoothing) > 0.01')" = 4 ] || fail "label smoothing is no part"

# ---- evaluations of one step, decoded in several ways ----
for how in '' '--beams 4' '--beams 4 --set decode.alpha=1 --set decode.length_penalty=power' '--temperature 0.5 --set decode.topk=3' ''; do
    # shellcheck disable=SC2086
    exits 0 "$program" eval good --file valid.tsv $how
done
"$program" metrics good --tsv "SELECT settings, count(*) FROM valid_eval WHERE name = 'wer' GROUP BY settings ORDER BY settings" >out
[ "$(sed 1d out)" = '4 beams, alpha 0.6, 24 tokens	1
4 beams, alpha 1, length_penalty "power", 24 tokens	1
greedy, 24 tokens	2
temperature 0.5, topk 3, seed 7, 24 tokens	1' ] || fail "settings: $(cat out)"
[ "$(query good "SELECT count(*) FROM eval_latest WHERE name = 'wer'")" = 4 ] || fail "newest: $(query good 'SELECT * FROM eval_latest')"
[ "$(query good "SELECT count(*) || max(settings) FROM eval_latest WHERE name = 'loss'")" = 1 ] || fail "the loss is not decoded"
exits 0 "$program" metrics good
says out '^valid.tsv  *4  *per .*  4 beams, alpha 0.6, 24 tokens$'
# the newest is what was evaluated last, of older weights too, beside other runs as by itself
exits 0 "$program" eval good --file valid.tsv --checkpoint 2
exits 0 "$program" metrics good
says out '^valid.tsv  *2  *loss '
exits 0 "$program" metrics good other
says out '^valid.tsv  *loss  *good  *2 '

# ---- two folders of one name ----
mkdir x y
cp -r good x/run
cp -r other y/run
exits 0 "$program" metrics x/run y/run --tsv 'SELECT DISTINCT run FROM all_loss ORDER BY run'
[ "$(cat out)" = "run
x/run
y/run" ] || fail "two folders of one name: $(cat out)"

# ---- runs of versions 2 to 6 ----
# goes_on VERSION STEPS PARTS: its rows are there, read as they are, and training goes on in them.
goes_on() {
    rm -rf old
    mkdir old
    cp "$top/tests/golden/metrics/version-$1.db" old/metrics.db
    cp old/metrics.db before
    exits 0 "$program" metrics old
    says out '^expert load, last step'
    says out '^events, last ten'
    evaluated=$(query old "SELECT count(*), count(settings) FROM all_eval_latest")
    [ "${evaluated%	*}" -ge 1 ] || fail "version $1: no evaluation"
    exits 0 "$program" metrics old other --tsv "SELECT run, max(step) FROM all_metric GROUP BY run ORDER BY run DESC"
    says out '^old	[48]$'
    cmp -s before old/metrics.db || fail "reading changed a database of version $1"
    cp before good/metrics.db
    # shellcheck disable=SC2086
    exits 0 tiny good --resume $good --set train.steps=$2
    says err "metrics: the tables of .*/good/metrics.db were of version $1 and are of version 7 now\$"
    [ "$(query good 'PRAGMA user_version')" = 7 ] || fail "the version is $(query good 'PRAGMA user_version')"
    [ "$(query good 'SELECT count(*), count(settings) FROM eval_latest')" = "$evaluated" ] || fail "version $1: evaluations are gone"
    [ "$(query good "SELECT count(cross_entropy) FROM loss_parts")" = "$3" ] || fail "version $1: $(query good 'SELECT * FROM loss_parts')"
}
goes_on 2 6 2
[ "$(query good 'SELECT count(*), max(step), (SELECT max(attempt) FROM run) FROM loss_curve')" = '6	6	3' ] ||
    fail "migrated: $(query good 'SELECT * FROM loss_curve')"
rm -r good/checkpoints/6 # back to step 4
goes_on 3 6 2
[ "$(query good 'SELECT count(*), max(step) FROM loss_curve')" = '6	6' ] || fail "migrated: $(query good 'SELECT * FROM loss_curve')"
rm -r good/checkpoints/6
goes_on 4 6 6
[ "$(query good 'SELECT count(*), max(step) FROM loss_curve')" = '6	6' ] || fail "migrated: $(query good 'SELECT * FROM loss_curve')"
rm -r good/checkpoints/6
goes_on 5 6 6
[ "$(query good 'SELECT count(*), max(step) FROM loss_curve')" = '6	6' ] || fail "migrated: $(query good 'SELECT * FROM loss_curve')"
rm -r good/checkpoints/6
goes_on 6 6 6
[ "$(query good 'SELECT count(*), max(step) FROM loss_curve')" = '6	6' ] || fail "migrated: $(query good 'SELECT * FROM loss_curve')"
[ "${#hash}" -eq 64 ] && [ "$hash" != "$other" ] || fail "two seeds have one hash"

# ---- a standard output that takes nothing ----
# unwritten ARGUMENTS...: of `metrics good`, whether lines come at once or when a buffer is full.
unwritten() {
    "$program" metrics good "$@" >/dev/full 2>err
    [ $? -eq 1 ] && [ "$(cat err)" = 'switchyard: standard output: cannot be written' ] || fail "a full disk: $*: $(cat err)"
    "$program" metrics good "$@" >&- 2>err
    [ $? -eq 1 ] && [ "$(cat err)" = 'switchyard: standard output: cannot be written' ] || fail "no standard output: $*: $(cat err)"
}
if [ -w /dev/full ]; then
    long="SELECT printf('%6000d', step) FROM loss_curve"
    for format in aligned tsv csv json; do
        unwritten "$long" --format $format
        unwritten --list --format $format
    done
    unwritten
fi
finish
