#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `switchyard metrics`: the questions of doc/metrics.md have answers, several runs are compared, a run of version 2 is read
# as it is and goes on in the tables of this version.
. "$(dirname "$0")/_common.sh"
good_run
# shellcheck disable=SC2086
exits 0 tiny other $good --set metrics.routing_every=3 --set train.seed=8 --set task.words.valid="$here/valid.tsv" \
    --set train.evaluate_every=2 --set decode.max_length=4
other=$(hash_in out)

# ---- every question of the manual, and what rows a run has ----
sed -n '/^Twenty questions/,/^## /p' "$top/doc/metrics.md" | sed -n '/^```sql/,/^```$/p' | grep -v '^```' >questions
[ "$(wc -l <questions)" -eq 20 ] || fail "the manual has $(wc -l <questions) questions"
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
exits 0 "$program" metrics good/ ./other --tsv 'SELECT DISTINCT run FROM all_eval'
[ "$(tail -n 1 out)" = other ] || fail "all_eval: $(cat out)"
exits 1 "$program" metrics good none
one_line_error
says err 'there is no none/metrics.db'
exits 1 "$program" metrics good 'SELECT absent'
says err 'no such column'
exits 1 "$program" metrics good other 'DELETE FROM run_2.metric'
says err 'only read'
for i in 1 2 3 4 5 6; do set -- "$@" good other; done
many=$("$program" metrics "$@" --tsv 'SELECT count(*) FROM all_run' 2>&1 | tail -n 1)
case $many in
12 | *'can compare'*) ;;
*) fail "12 runs: $many" ;;
esac

# ---- a run of version 2 ----
mkdir old
cp "$top/tests/golden/metrics/version-2.db" old/metrics.db
cp old/metrics.db before
exits 0 "$program" metrics old
says out '^expert load, last step'
exits 0 "$program" metrics old good --tsv "SELECT run, max(step), count(time) FROM all_metric GROUP BY run ORDER BY run DESC"
says out '^old	8	0$'
cmp -s before old/metrics.db || fail "reading changed a database of version 2"
cp good/metrics.db present
cp old/metrics.db good/metrics.db
# shellcheck disable=SC2086
exits 0 tiny good --resume $good --set train.steps=6
says err 'metrics: the tables of .*/good/metrics.db were of version 2 and are of version 3 now$'
[ "$(query good 'SELECT count(*), max(step), (SELECT max(attempt) FROM run) FROM loss_curve')" = '6	6	3' ] ||
    fail "migrated: $(query good 'SELECT * FROM loss_curve')"
sqlite_version=$(query good 'PRAGMA user_version')
[ "$sqlite_version" = 3 ] || fail "the version is $sqlite_version"
[ "${#hash}" -eq 64 ] && [ "$hash" != "$other" ] || fail "two seeds have one hash"
finish
