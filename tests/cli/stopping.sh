#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How training ends before its last step: signals, the time limit, early stopping and numbers that are not finite. What
# was stopped and resumed has the weights of a run that was not.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/valid.tsv" 20 2
cd "$here" || exit 99

# ---- signals ----
# Long enough that a signal comes before the end on any machine; --resume with fewer steps then says how far it goes.
same='--set train.log_every=1 --set train.schedule=constant'
# silent FILE: of standard error, empty but for what a machine that does other work may be told.
silent() {
    grep -v 'of their time for batches (timing/data_wait_seconds)' "$1" >said && fail "writes on stderr: $(cat said)"
}
for signal in TERM INT USR1 USR2; do
    start $signal $same --set train.steps=1000000
    eventually grep -q '^step 3/' $signal.out
    kill -$signal "$owner"
    begin=$(date +%s)
    ended
    ends $signal stopped 3 $?
    [ $(($(date +%s) - begin)) -le 10 ] || fail "$signal: checkpoint and end took $(($(date +%s) - begin)) s"
    silent $signal.err
    says $signal.out '^stopped by a signal after step [0-9]*; --resume goes on'
    says $signal.out '^median step '
    at=$(sed -n 's/^checkpoint of step \([0-9]*\) saved/\1/p' $signal.out)
    [ -f "$signal/checkpoints/$at/meta.json" ] || fail "$signal: no checkpoint of step $at"
    [ ! -f $signal/lock ] || fail "$signal: the lock stays"
    [ "$(query $signal "SELECT text LIKE 'stopped by a signal%' FROM event ORDER BY rowid DESC LIMIT 1")" = 1 ] ||
        fail "$signal: the stop is not in the database"
    steps=$((at + 5))
    exits 0 tiny $signal --resume $same --set train.steps=$steps
    says out "going on from the checkpoint of step $at"
    resumed=$(hash_in out)
    exits 0 tiny $signal-whole $same --set train.steps=$steps
    [ "$(hash_in out)" = "$resumed" ] || fail "$signal: weights differ from those of a run that was not stopped"
    [ "$(cat $signal/status)" = "done" ] || fail "$signal: status $(cat $signal/status) after the end"
done

# The other signals that ask for an end, which are sent repeatedly: no second one may cost the checkpoint.
hangup=HUP # unless this script was started with it ignored, as by nohup: then so are its programs
case $(sed -n 's/^SigIgn:.*\(.\)$/\1/p' /proc/self/status 2>/dev/null) in
[13579bdf])
    echo "skipped: SIGHUP (it is ignored here)"
    hangup=
    ;;
esac
for signal in $hangup USR2 XCPU USR1; do
    start many-$signal $same --set train.steps=1000000
    eventually grep -q '^step 3/' many-$signal.out
    for i in 1 2 3 4 5 6 7 8 9 10; do
        kill -$signal "$owner" 2>/dev/null
        sleep 0.01
    done
    ended
    ends many-$signal stopped 3 $?
    [ "$(ls many-$signal/checkpoints | wc -l)" -eq 1 ] || fail "$signal many times: nothing is saved"
done

# A second SIGINT or SIGTERM ends the program at once, where its end takes long: here 7 s, for a database that another
# program reads. What was saved before is there.
for pair in 'TERM TERM 143' 'INT TERM 143' 'USR1 INT INT 130'; do
    # shellcheck disable=SC2086
    set -- $pair
    run=pair-$1
    start "$run" $same --set train.steps=1000000 --set train.checkpoint_every=2
    eventually grep -q "^checkpoint of step [0-9]* saved" "$run.out"
    hold "$run"
    while [ $# -gt 2 ]; do
        kill -"$1" "$owner"
        sleep 0.2
        shift
    done
    kill -"$1" "$owner"
    begin=$(date +%s)
    ended 2>/dev/null
    got=$?
    [ "$got" -eq "$2" ] || fail "$pair: exit $got instead of $2: $(cat "$run.err")"
    [ $(($(date +%s) - begin)) -le 2 ] || fail "$pair: the end took $(($(date +%s) - begin)) s"
    letgo
    at=$(newest "$run")
    exits 0 tiny "$run" --resume $same --set train.steps=$((at + 2))
    says out "going on from the checkpoint of step $at"
    hash=$(hash_in out)
    exits 0 tiny "$run-whole" $same --set train.steps=$((at + 2))
    [ "$(hash_in out)" = "$hash" ] || fail "$pair: weights differ from those of a run that was not stopped"
done

# Two of them that come as one, as `timeout` and launchers send them, save: the first asks, the second is the same request.
for try in 1 2 3 4 5; do
    start as-one-$try $same --set train.steps=1000000
    eventually grep -q '^step 3/' as-one-$try.out
    hold as-one-$try
    begin=$(date +%s%3N)
    kill -TERM "$owner"
    sleep 0.02
    kill -TERM "$owner"
    took=$(($(date +%s%3N) - begin))
    ended
    got=$?
    letgo
    [ "$took" -ge 90 ] || break # else the machine was too busy to send them together
done
if [ "$took" -lt 90 ]; then ends as-one-$try stopped 3 $got; else echo "skipped: two signals as one (sent in $took ms)"; fi

# As nohup starts it: SIGHUP changes nothing.
trap '' HUP
start nohup $same --set train.steps=1000000
trap - HUP
eventually grep -q '^step 3/' nohup.out
kill -HUP "$owner"
at=$(grep -c '^step ' nohup.out)
eventually grep -q "^step $((at + 3))/" nohup.out
kill -TERM "$owner"
ended
ends nohup stopped 3 $?

# Where whoever starts the training has blocked signals.
if env --block-signal=TERM true 2>/dev/null; then
    env --block-signal=TERM "$program" train "$top/bench/tiny.run" --run-dir blocked --set task.words.train=train.tsv $same \
        --set train.steps=1000000 >blocked.out 2>blocked.err </dev/null &
    owner=$!
    eventually grep -q '^step 3/' blocked.out
    kill -TERM "$owner"
    eventually grep -q stopped blocked/status || kill -KILL "$owner"
    ended
    ends blocked stopped 3 $?
else
    echo "skipped: signals that are blocked (env cannot do so)"
fi

# In the middle of an evaluation whose one batch takes long; without its end there is no checkpoint but that of the stop.
for ranks in '' '--comm thread --ranks 2 --set mesh.data=2 --threads 1' '--set decode.beams=2'; do
    run=decoding$(echo "$ranks" | tr -dc 'a-z')
    start "$run" $same --set train.steps=1000000 --set task.words.valid=valid.tsv --set train.evaluate_every=1 \
        --set decode.max_length=100000 $ranks
    eventually grep -q '^step 1/' "$run.out"
    kill -TERM "$owner"
    begin=$(date +%s)
    eventually grep -q stopped "$run/status" || kill -KILL "$owner"
    ended
    ends "$run" stopped 3 $?
    # A second for the signal; the rest is for a machine with other work.
    [ $(($(date +%s) - begin)) -le 10 ] || fail "$run: a stop took $(($(date +%s) - begin)) s"
    [ "$(ls "$run/checkpoints")" = 1 ] || fail "$run: checkpoints $(ls "$run/checkpoints") instead of 1"
done

# While the next program of an action waits for the one before, which goes on until a line comes from here.
mkfifo go
exec 3<>go
for ranks in '' '--comm thread --ranks 2 --set mesh.data=2 --threads 1'; do
    run=program$(echo "$ranks" | tr -dc 'a-z')
    # shellcheck disable=SC2086
    start "$run" $same --set train.steps=1000000 --set task.words.valid=valid.tsv --set train.evaluate_every=1 \
        --set decode.max_length=2 --set action.slow.kind=command --set "action.slow.command=read line <$here/go" $ranks
    eventually grep -q '^step 2  words/valid' "$run.out"
    kill -TERM "$owner"
    eventually [ -e "$run/checkpoints/2" ]
    [ "$(cat "$run/status")" = running ] || fail "$run: the end does not wait for the program"
    echo >&3
    ended
    ends "$run" stopped 3 $?
    says "$run.err" 'command of \[action.slow\]: not run: the one before still runs, and the run is asked to stop'
    [ "$(newest "$run")" = 2 ] || fail "$run: the newest checkpoint is of step $(newest "$run") instead of 2"
done
exec 3>&-

# A limit of file sizes is an error of writing, and the run goes on without it.
(
    ulimit -f 240 # more than the database needs, less than a checkpoint
    exits 1 tiny small $same --set train.steps=2
    exit "$failures"
) || failures=$((failures + 1))
one_line_error
says err 'File too large'
[ "$(cat small/status)" = failed ] || fail "status $(cat small/status) after a limit of file sizes"
exits 0 tiny small --resume $same --set train.steps=2

# Ranks stop together.
start ranks $same --set train.steps=1000000 --comm thread --ranks 2 --set mesh.data=2
eventually grep -q '^step 3/' ranks.out
kill -TERM "$owner"
ended
ends ranks stopped 3 $?
steps=$(sed -n 's/^checkpoint of step \([0-9]*\) saved/\1/p' ranks.out)
exits 0 tiny ranks-whole $same --set train.steps="$steps"
[ "$(hash_in out)" = "$(hash_in ranks.out)" ] || fail "ranks: weights differ at step $steps"

# Control-C ends the reader of a pipe too.
mkfifo pipe
"$program" train "$top/bench/tiny.run" --run-dir piped $same --set task.words.train=train.tsv --set train.steps=1000000 \
    >pipe 2>piped.err </dev/null &
owner=$!
head -n 8 pipe >/dev/null
kill -INT "$owner"
ended
ends piped stopped 3 $?
[ "$(ls piped/checkpoints | wc -l)" -eq 1 ] || fail "a run without a reader saves nothing"

# ---- time limit ----
exits 3 tiny limit $same --set train.steps=1000000 --set train.time_limit=1
[ "$(cat limit/status)" = stopped ] || fail "status $(cat limit/status) after the time limit"
says out '^train.time_limit of 1 s reached after step [0-9]*; --resume goes on'
silent err
exits 3 tiny limit --resume $same --set train.steps=1000000 --set 'train.time_limit="0m1s"'
says out 'going on from the checkpoint of step'
for wrong in 1x m 5m1h 1h1 '"1h' -1; do
    exits 2 tiny wrong $same --set "train.time_limit=$wrong"
    says err 'train.time_limit.*3h50m'
done

# ---- the end of a Slurm job, which its clock says in seconds since 1970 ----
export SLURM_JOB_END_TIME=$(($(date +%s) + 8))
exits 3 tiny job $same --set train.steps=1000000 --set train.job_margin=1000
says out '^the batch job ends soon (train.job_margin) after step [0-9]*; --resume goes on'
[ "$(date +%s)" -lt "$SLURM_JOB_END_TIME" ] || fail "stopped after the end of the job"
SLURM_JOB_END_TIME=$(($(date +%s) + 2))
exits 0 tiny margin $same --set train.steps=2 --set train.job_margin=0
SLURM_JOB_END_TIME=soon
exits 0 tiny when $same --set train.steps=2
says err 'SLURM_JOB_END_TIME=soon is not a time'
unset SLURM_JOB_END_TIME

# ---- early stopping: without a learning rate nothing gets better ----
early='--set train.learning_rate=0 --set task.words.valid=valid.tsv --set train.evaluate_every=2
    --set action.early.patience=2 --set train.steps=50'
exits 0 tiny early $early
says out '^early_stopping of \[action.early\]: loss has not improved in 2 evaluations; best [0-9.]* at step 2'
[ "$(cat early/status)" = "done" ] || fail "status $(cat early/status) after early stopping"
[ "$(ls early/checkpoints | tr '\n' ' ')" = "2 6 " ] ||
    fail "early stopping left checkpoints $(ls early/checkpoints) instead of the best, 2, and the last, 6"
hash=$(hash_in out)
exits 0 tiny early --resume $early
says out '^early_stopping of '
[ "$(hash_in out)" = "$hash" ] || fail "--resume after early stopping changed the weights"
[ "$(ls early/checkpoints | tr '\n' ' ')" = "2 6 " ] || fail "--resume after early stopping went on"

# T5X's rule counts values: the third in a row that is no better stops at patience 3, after a resume too.
previous="$early --set action.early.compare=previous --set action.early.patience=3"
exits 0 tiny previous $previous
says out '^early_stopping of \[action.early\]: loss is no better than in the evaluation before, 3 evaluations in a row; last .* at step 2$'
[ "$(ls previous/checkpoints | tr '\n' ' ')" = "2 6 " ] || fail "the previous value: $(ls previous/checkpoints)"
exits 0 tiny halfway $previous --set train.steps=4
says out '^done after 4 steps'
exits 0 tiny halfway --resume $previous
says out '^early_stopping of '
[ "$(query halfway "SELECT count(*) FROM valid_eval WHERE name = 'loss'")" = 3 ] ||
    fail "stopped after $(query halfway "SELECT count(*) FROM valid_eval WHERE name = 'loss'") evaluations instead of 3"
exits 0 tiny previous --resume $early --set action.early.patience=9 --set train.steps=8
says out '^done after 8 steps'

# ---- numbers that are not finite ----
wild='--set train.schedule=constant --set train.warmup_steps=0 --set train.clip_norm=0 --set train.learning_rate=1000'
exits 1 tiny wild $wild
one_line_error
says err 'terminate_on_nan: the gradients of step [0-9]* are not finite .*try a lower train.learning_rate'
[ "$(cat wild/status)" = failed ] || fail "status $(cat wild/status) after numbers that are not finite"
at=$(ls wild/checkpoints)
hash=$(hash_in out)
exits 0 tiny tame $wild --set train.steps="$at"
[ "$(hash_in out)" = "$hash" ] || fail "the weights kept are not those before the bad step"
exits 1 tiny wild --resume $wild
says err 'are not finite'
exits 1 tiny wild --resume $wild --set action.other.patience=0
says err 'terminate_on_nan: the gradients of step [0-9]* are not finite' # other actions do not look at them
exits 1 tiny wild --resume $wild --set action.nan.kind=terminate_on_nan --set action.nan.task=words/valid --set task.words.valid=valid.tsv
says err 'terminate_on_nan: the gradients of step [0-9]* are not finite'
# As in T5X, whose run has no other actions than those that are written.
exits 0 tiny wild --resume --set train.steps=$((at + 1)) --set run.compat=t5x --set train.nan_check=before --set action.other.patience=0 $wild
says out '^not_finite: .* are not finite .*training goes on'
[ "$(query wild "SELECT count(*) FROM event WHERE kind = 'not_finite'")" = 1 ] || fail "a bad step is no event"
[ "$(hash_in out)" = "$hash" ] || fail "the update of a bad step was not left out"

# An evaluation of nothing has no loss, whatever the learning rate is.
printf '%0100d\tA\n' 1 >toolong.tsv
exits 1 tiny nothing --set train.steps=1 --set task.words.valid=toolong.tsv --set decode.max_length=2 \
    --set action.nan.kind=terminate_on_nan --set action.nan.task=words/valid
says err 'for no item fits: raise data.max_input_length'
printf 'a\t%0100d\n' 1 >toolong.tsv # what is decoded fits, what the loss is of does not
exits 1 tiny nothing-fits --set train.steps=1 --set task.words.valid=toolong.tsv --set decode.max_length=2 \
    --set action.nan.kind=terminate_on_nan --set action.nan.task=words/valid
says err 'for no item fits: raise data.max_input_length or data.max_target_length'

# Looked for after the update: what the bad step made is never saved, neither at once nor later.
after="$wild --set train.nan_check=after --set train.checkpoint_every=1 --set task.words.valid=valid.tsv
    --set train.evaluate_every=1 --set action.words.metric=wer --set decode.max_length=2"
stop='--set action.nan.kind=terminate_on_nan'
for more in "$stop" "$stop --resume" '' "$stop --comm thread --ranks 2 --set mesh.data=2"; do
    run=after
    [ -z "${more#"$stop"}" ] || [ "$more" = "$stop --resume" ] || run="after-ranks"
    [ -n "$more" ] || run="after-goes-on"
    exits 1 tiny "$run" $after $more
    one_line_error
    [ "$(cat "$run/status")" = failed ] || fail "$run: status $(cat "$run/status")"
    [ "$(newest "$run")" = "$at" ] || fail "$run: the newest checkpoint is of step $(newest "$run") instead of $at"
    grep -q "\"params_sha256\": *\"$hash\"" "$run/checkpoints/$at/meta.json" ||
        fail "$run: the newest checkpoint is not that before the bad step"
done
exits 1 tiny unsaved $wild --set train.nan_check=after
[ -z "$(ls unsaved/checkpoints 2>/dev/null)" ] || fail "the end saves what the bad step made"
exits 1 tiny after $after $stop --resume
says err 'are not finite .*; what its update made is not saved, try a lower train.learning_rate'
exits 1 tiny after $after --resume --set run.compat=t5x
says err 'after 20 steps the weights hold numbers that are not finite: they are not saved'
finish
