#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The metrics database fails or is locked while a run trains: weights are saved all the same, the failure is reported,
# and what goes on afterwards has the weights of a run that nobody disturbed.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
cd "$here" || exit 99
database=${abs_top_builddir:?set abs_top_builddir to the build tree}/tests/cli/database
same='--set train.log_every=1 --set train.schedule=constant --set metrics.every=1'
endless="$same --set train.steps=1000000"

# warned RUN N TEXT: N lines on its stderr, the first a warning with TEXT, which the log has, too. On a slow
# machine the writer says before that it waits: once, and first.
warned() {
    waits=$(grep -c 'its rows wait in memory$' "$1.err")
    [ "$waits" -le 1 ] && [ "$(wc -l <"$1.err")" -eq $(($2 + waits)) ] || fail "$1: not $2 lines on stderr: $(cat "$1.err")"
    [ "$waits" -eq 0 ] || head -n 1 "$1.err" | grep -q 'its rows wait in memory$' || fail "$1: waits late: $(cat "$1.err")"
    sed -n "$((1 + waits))p" "$1.err" | grep -q "^switchyard: warning: metrics: .*$3" ||
        fail "$1: stderr lacks '$3': $(cat "$1.err")"
    grep -q "$3" "$1/log" || fail "$1: the log lacks '$3'"
}

# as_undisturbed RUN: it goes on for three steps, with the weights of a run of as many steps that nobody disturbed.
as_undisturbed() {
    at=$(newest "$1")
    exits 0 tiny "$1" --resume $same --set train.steps=$((at + 3))
    says out "going on from the checkpoint of step $at"
    hash=$(hash_in out)
    exits 0 tiny "$1-whole" $same --set train.steps=$((at + 3))
    [ "${#hash}" -eq 64 ] && [ "$(hash_in out)" = "$hash" ] || fail "$1: the weights differ from an undisturbed run's"
}

# ---- a reader that never ends ----
start locked $endless
eventually grep -q '^step 2/' locked.out
hold locked
passed=$(grep -c '^step ' locked.out)
eventually grep -q "^step $((passed + 10))/" locked.out
kill -TERM "$owner"
begin=$(date +%s)
eventually grep -q '^checkpoint of step [0-9]* saved' locked.out
[ $(($(date +%s) - begin)) -le 12 ] || fail "a checkpoint took $(($(date +%s) - begin)) s with the database locked"
ended
ends locked stopped 3 $?
[ $(($(date +%s) - begin)) -le 20 ] || fail "the end took $(($(date +%s) - begin)) s with the database locked"
letgo
warned locked 1 'another program keeps it locked; [0-9]* rows are not in it'
as_undisturbed locked

# ---- the same until the queue is full: told when rows are lost first, and at the end how many ----
start overfull $endless --set metrics.queue_bytes=65536 --set metrics.routing_every=1
eventually grep -q '^step 2/' overfull.out
hold overfull
eventually [ -s overfull.err ]
sleep 12 # the writer would say so after 10 s
kill -TERM "$owner"
ended
ends overfull stopped 3 $?
letgo
[ "$(grep -v '; its rows wait in memory$\|queue of .* was full' overfull.err | wc -l)" -eq 2 ] || fail "overfull: not two lines: $(cat overfull.err)"
[ "$(grep -c '^switchyard: warning: metrics: .*; training goes on, rows are lost' overfull.err)" = 1 ] ||
    fail "overfull: that rows are lost is not said: $(cat overfull.err)"
tail -n 1 overfull.err | grep -q 'another program keeps it locked; [1-9][0-9]* rows are not in it$' ||
    fail "overfull: ends with $(tail -n 1 overfull.err)"
as_undisturbed overfull

# ---- killed between the files of a checkpoint and its name: it does not count, and the curve has no gap ----
# cut_off RUN: trains 5 steps, goes on and is killed there; the path of what it left is in written. Fails if it ended first.
cut_off() {
    exits 0 tiny "$1" $same --set train.steps=5
    start "$1" $endless --resume
    eventually grep -q '^step 7/' "$1.out"
    hold "$1"
    # Before that rows may have been written of all steps so far; the next but one ends after it.
    passed=$(grep -c '^step ' "$1.out")
    eventually grep -q "^step $((5 + passed + 2))/" "$1.out"
    kill -TERM "$owner"
    # The weights are there at once; their name waits for the rows, for 2 s.
    while kill -0 "$owner" 2>/dev/null && ! ls "$1"/checkpoints/*.tmp/meta.json >written 2>/dev/null; do :; done
    kill -KILL "$owner" 2>/dev/null
    ended 2>/dev/null
    letgo
    [ -s written ] && [ "$(newest "$1")" = 5 ]
}
# A machine may give this script no time for 2 s, but hardly three times.
between=between
cut_off $between || { between=between2 && cut_off $between; } || { between=between3 && cut_off $between; } ||
    fail "never killed between the files of a checkpoint and its name: $(ls between*/checkpoints)"
at=$(sed 's,.*/\([0-9]*\)\.tmp/.*,\1,' written)
[ "${at:-0}" -ge 7 ] || fail "$between: killed with $(ls $between/checkpoints), $(cat written)"
exits 0 tiny $between --resume $same --set train.steps=$((at + 2))
says out 'going on from the checkpoint of step 5$'
hash=$(hash_in out)
[ "$(query $between 'SELECT count(*), min(step), max(step) FROM loss_curve')" = "$((at + 2))	1	$((at + 2))" ] ||
    fail "$between: loss_curve has $(query $between 'SELECT count(*), min(step), max(step) FROM loss_curve') of $((at + 2))"
exits 0 tiny $between-whole $same --set train.steps=$((at + 2))
[ "$(hash_in out)" = "$hash" ] || fail "$between: the weights differ from an undisturbed run's"

# ---- the database is removed: training goes on, or ends with its weights ----
start removed $same --set train.steps=20
eventually grep -q '^step 5/' removed.out
rm removed/metrics.db
ended
ends removed done 0 $?
head -n 1 removed.err | grep -q 'training goes on, rows are lost (metrics.on_failure = continue)' ||
    fail "removed: says nothing of what follows: $(cat removed.err)"
warned removed 2 'removed/metrics.db was removed or replaced'
as_undisturbed removed
[ "$(query removed 'SELECT count(*), min(start_step) FROM run')" = "1	20" ] || fail "removed: no new database on resume"

for ranks in 1 2; do
    run=strict$ranks
    start $run $endless --set train.time_limit=60 --set metrics.on_failure=stop --comm thread --ranks $ranks
    eventually grep -q '^step 5/' $run.out
    mv $run/metrics.db elsewhere
    ended
    ends $run failed 1 $?
    warned $run 3 'training stops (metrics.on_failure = stop)'
    says $run.err '^switchyard: train: stopped after step [0-9]*, for the metrics database failed'
    [ -n "$(newest $run)" ] || fail "$run: no checkpoint"
done
as_undisturbed strict2

# ---- no more room: the file may not grow, files as large as a checkpoint's may be written ----
exits 0 tiny full $same --set train.steps=1
"$database" fill full/metrics.db 1000000 || fail "the database does not grow"
size=$(wc -c <full/metrics.db)
# Shells count the limit of a file's size in blocks of 512 bytes or of 1,024.
block=512
if (
    trap '' XFSZ
    ulimit -f 100
    head -c 60000 /dev/zero >probe
) 2>/dev/null; then block=1024; fi
(
    trap '' XFSZ
    ulimit -f $(((size + 16384) / block))
    tiny full --resume $same --set train.steps=20 >full.out 2>full.err </dev/null
)
ends full done 0 $?
grep -v 'resume: train.steps changes from 1 to 20$' full.err >lines && mv lines full.err
warned full 1 'rows are not in it'
exits 0 tiny full-whole $same --set train.steps=20
[ "$(hash_in out)" = "$(hash_in full.out)" ] || fail "full: the weights differ from an undisturbed run's"

# ---- read-only ----
whole=$program
if bound_by_permissions; then
    # Where a run begins or goes on: an error, and nothing is touched.
    exits 0 tiny kept $same --set train.steps=2
    chmod a-w kept/metrics.db
    exits 1 tiny kept --resume $same --set train.steps=5
    grep -v 'resume: train.steps changes' err >lines && mv lines err
    one_line_error
    says err 'cannot write .*metrics.db: attempt to write a readonly database; is the run directory writable?'
    [ "$(newest kept)" = 2 ] || fail "kept: checkpoints are $(ls kept/checkpoints)"
    chmod u+w kept/metrics.db
    as_undisturbed kept
    # The folder of metrics.dir, while a run trains.
    for failure in continue:stopped:3 stop:failed:1; do
        run=readonly-${failure%%:*}
        start $run $endless --set metrics.dir="$here/$run-rows" --set metrics.on_failure=${failure%%:*}
        eventually grep -q '^step 5/' $run.out
        chmod a-w $run-rows
        passed=$(grep -c '^step ' $run.out)
        eventually grep -q "^step $((passed + 10))/" $run.out
        kill -TERM "$owner"
        ended
        got=$?
        chmod u+w $run-rows
        failure=${failure#*:}
        ends $run ${failure%:*} ${failure#*:} $got
        head -n 1 $run.err | grep -q 'is the run directory writable?' || fail "$run: says $(cat $run.err)"
        grep -q '; [0-9]* rows are not in it' $run.err || fail "$run: says nothing of rows: $(cat $run.err)"
        as_undisturbed $run
    done
else
    echo "skipped: a read-only database (this user may write everywhere: $(cat unbound))"
fi
program=$whole

# ---- a damaged database is kept under another name ----
echo 'this is no database, but long enough to look like one at first sight' >removed/metrics.db
cp removed/metrics.db damaged
exits 0 tiny removed --resume $same --set train.steps=23
one_line_error
says err 'removed/metrics.db.corrupt-1 and a new one begins'
cmp -s damaged removed/metrics.db.corrupt-1 || fail "the damaged database is not kept"
[ "$(query removed 'SELECT count(*) FROM run')" = 1 ] || fail "no new database beside the damaged one"

# ---- a run killed before it had tables ----
: >removed/metrics.db
exits 1 "$program" metrics removed
one_line_error
says err 'removed/metrics.db is empty: the run ended before it made its tables'
# ---- a database that is damaged, and one of another program ----
mkdir other
cp damaged other/metrics.db
exits 1 "$program" metrics other
one_line_error
says err 'other/metrics.db is damaged (file is not a database): .* --resume sets it aside'
: >other/metrics.db
"$database" fill other/metrics.db 10000 || fail "no database is made"
exits 1 "$program" metrics other
one_line_error
says err 'other/metrics.db is a database, but of no run'
finish
