#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What actions do beside ending a run: batches that are skipped or gone back before, checkpoints that are kept, a learning
# rate that is reduced, programs that are run. Resumed runs and runs on two ranks come to the same weights.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/valid.tsv" 20 2
cd "$here" || exit 99
same='--set train.schedule=constant --set metrics.every=1 --set data.warm_examples=0'
ranks='--comm thread --ranks 2 --set mesh.data=2'

meta() {
    sed -n "s/.*\"$2\":\(\[[^]]*\]\|[^,]*\).*/\1/p" "$1"
}
# ---- batches that are not finite: those of one example, where a backend makes it so ----
if [ -n "${SY_TEST_PLUGINS:-}" ]; then
    mkdir plugins
    cp "${SWITCHYARD_BACKEND_PATH%%:*}"/switchyard-*.so plugins
    cp "$SY_TEST_PLUGINS/faulty.so" plugins/switchyard-faulty.so
    export SWITCHYARD_BACKEND_PATH="$here/plugins" SY_FAULT_CPU="$here/plugins/switchyard-cpu.so" SY_FAULT='poison 125'
    printf 'zz\tA\n' >>train.tsv
    bad="$same --backend faulty --set train.steps=16 --set action.nan.kind=terminate_on_nan"

    exits 1 tiny stops $bad
    says err 'terminate_on_nan of \[action.nan\]: the gradients of step [0-9]* are not finite'
    at=$(newest stops)
    [ "$at" -gt 0 ] && [ "$at" -lt 10 ] || fail "the bad batch is of step $at: it proves little"

    # skip: the same weights as where nobody looks, since the update is left out in any case.
    exits 0 tiny skips $bad --set action.nan.policy=skip
    hash=$(hash_in out)
    says out '^terminate_on_nan: .*its update is left out and training goes on, skip 1 of 10 in a row'
    [ "$(query skips "SELECT text LIKE '%that is not finite: encoder:embed, of layer encoder (grad_first, microbatch _, NaN)'
        FROM event WHERE kind = 'first_not_finite' LIMIT 1")" = 1 ] || fail "the first tensor is not named"
    skipped=$(query skips "SELECT count(*) FROM event WHERE kind = 'terminate_on_nan'")
    [ "$skipped" -ge 1 ] || fail "a skip is no event"
    [ "$(query skips "SELECT min(step) FROM event WHERE kind = 'first_not_finite'"):$(query skips \
        "SELECT min(step) FROM event WHERE kind = 'terminate_on_nan'")" = $((at + 1)):$((at + 1)) ] || fail "events of another step"
    t5x='--set run.compat=t5x --set train.nan_check=before' # where nobody looks as long as another action is written
    exits 0 tiny skips-t5x $bad $t5x --set action.nan.policy=skip
    skipping=$(hash_in out)
    exits 0 tiny ignores $same $t5x --backend faulty --set train.steps=16 --set action.other.patience=0
    [ "$(hash_in out)" = "$skipping" ] || fail "skip: not the weights without the bad updates"
    exits 0 tiny skips-halfway $bad --set action.nan.policy=skip --set train.steps=$((at + 1))
    exits 0 tiny skips-halfway --resume $bad --set action.nan.policy=skip
    [ "$(hash_in out)" = "$hash" ] || fail "skip: resumed, it has other weights"
    exits 0 tiny skips-ranks $bad --set action.nan.policy=skip $ranks
    [ "$(hash_in out)" = "$hash" ] || fail "skip: two ranks have other weights"

    # rollback: to the checkpoint before, and on with other batches; the bad one is never seen again.
    back="$bad --set action.nan.policy=rollback --set train.checkpoint_every=2"
    exits 0 tiny back $back
    whole=$(hash_in out)
    says out '^terminate_on_nan: the gradients of step'
    from=$((at / 2 * 2))
    says out "^back to the checkpoint of step $from; the batches of $((at + 1 - from)) steps are left out"
    [ "$(query back "SELECT count(*) FROM event WHERE kind = 'rollback'")" -ge 1 ] || fail "a way back is no event"
    [ "$whole" != "$hash" ] || fail "rollback: the same weights as with skip"
    exits 0 "$program" replay back --backend faulty --step 16 # a replay takes the batches that are left
    says out '^loss [0-9.]*, as stored'
    case $(meta back/checkpoints/16/meta.json holes) in
    "[{\"step\":$from,\"batches\":$((at + 1 - from))}"*) ;;
    *) fail "holes: $(meta back/checkpoints/16/meta.json holes)" ;;
    esac
    [ "$(meta back/checkpoints/16/meta.json examples)" -gt $((16 * 32)) ] || fail "examples do not count holes"
    [ "$(query back "SELECT count(*) FROM loss_curve")" = 16 ] || fail "the loss curve has gaps or more"
    # What was evaluated before the way back does not count, even where the run ends before it has come there again.
    exits 0 tiny back-evaluated $back --set task.words.valid=valid.tsv --set train.evaluate_every=1 --set decode.max_length=2 \
        --set train.checkpoint_every=$at --set train.steps=$((at * 2))
    again=$(query back-evaluated "SELECT min(step) FROM event WHERE kind = 'rollback'")
    [ "$(query back-evaluated 'SELECT start_step FROM run WHERE attempt = 2')" = "$again" ] || fail "rollback: no attempt of its own"
    [ "$(query back-evaluated "SELECT kind FROM stop_reason WHERE attempt = 1")" = rollback ] || fail "rollback: is no reason"
    [ "$(query back-evaluated "SELECT count(*) - count(DISTINCT step) FROM evaluation_history WHERE name = 'loss'")" = 0 ] ||
        fail "rollback: evaluations count twice"
    # Rows of several steps are of those that count, of no step that was undone.
    exits 0 tiny back-rows $back --set metrics.every=4
    [ "$("$program" metrics back back-rows --tsv "SELECT count(*), max(abs(m.value - e.value)) < 1e-12 FROM
        (SELECT (step + 3) / 4 AS row, avg(value) AS value FROM all_metric WHERE run = 'back' AND name = 'loss' GROUP BY 1) e
        JOIN (SELECT (step + 3) / 4 AS row, value FROM all_metric WHERE run = 'back-rows' AND name = 'mean/loss') m USING (row)" |
        tail -n 1)" = "4	1" ] || fail "rollback: means of other steps"
    exits 0 tiny back-halfway $back --set train.steps=$((from + 2))
    exits 0 tiny back-halfway --resume $back
    [ "$(hash_in out)" = "$whole" ] || fail "rollback: resumed, it has other weights"
    exits 0 tiny back-ranks $back $ranks
    [ "$(hash_in out)" = "$whole" ] || fail "rollback: two ranks have other weights"
    # Where the update is made first, what it spoiled is gone as well.
    exits 0 tiny back-after $back --set train.nan_check=after
    [ "$(hash_in out)" = "$whole" ] || fail "rollback: the update of a bad step stays"
    # Nothing was saved before: the beginning is.
    exits 0 tiny back-begin $back --set train.checkpoint_every=0
    says out '^back to the checkpoint of step 0'
    unset SY_FAULT
fi

# Weights that are wild stay so: there is an end to skipping, and to going back.
wild="$same --set train.warmup_steps=0 --set train.clip_norm=0 --set train.learning_rate=1000
    --set action.nan.kind=terminate_on_nan --set action.nan.max_skips=2"
exits 1 tiny wild $wild --set action.nan.policy=skip
one_line_error
says err 'are not finite .*like max_skips steps before; try a lower'
exits 1 tiny wild-back $wild --set action.nan.policy=rollback
one_line_error
says err 'as after each way back to that checkpoint (max_skips)'
[ "$(query wild-back "SELECT count(*) FROM event WHERE kind = 'rollback'")" = 2 ] || fail "ways back: not two"
[ "$(query wild "SELECT count(*) FROM event WHERE kind = 'first_not_finite'")" = 1 ] || fail "bad steps in a row: each is looked into"

# ---- the best checkpoints, and the learning rate on a plateau, through a resume ----
slow="$same --set train.steps=12 --set train.checkpoint_every=4 --set train.keep_checkpoints=1 --set train.learning_rate=0.003 --set train.warmup_steps=0
    --set task.words.valid=valid.tsv --set train.evaluate_every=1 --set decode.max_length=2
    --set action.best.kind=keep_best --set action.best.n=2 --set action.best.mode=max
    --set action.slow.kind=reduce_lr_on_plateau --set action.slow.patience=2 --set action.slow.mode=max
    --set action.slow.factor=0.5"
exits 0 tiny slow $slow
hash=$(hash_in out)
says out '^reduce_lr_on_plateau: loss has not improved in 2 evaluations: the learning rate goes from 0.003 to 0.0015'
[ "$(query slow "SELECT count(DISTINCT value) FROM metric WHERE name = 'learning_rate'")" -ge 3 ] ||
    fail "the learning rate was not reduced twice"
best=$(query slow "SELECT group_concat(step, ' ') FROM (SELECT step FROM valid_eval WHERE name = 'loss'
    ORDER BY value DESC LIMIT 2)")
kept=$(for step in $best 12; do echo "$step"; done | sort -nu | tr '\n' ' ')
[ "$(ls slow/checkpoints | sort -n | tr '\n' ' ')" = "$kept" ] ||
    fail "kept $(ls slow/checkpoints | tr '\n' ' ') instead of the two best and the newest, $kept"
exits 0 "$program" eval slow --checkpoint best --file valid.tsv --set decode.max_length=2
says out "step ${best%% *};"
exits 0 tiny slow-halfway $slow --set train.steps=7
exits 0 tiny slow-halfway --resume $slow
[ "$(hash_in out)" = "$hash" ] || fail "resumed, the reduced rate gives other weights"
[ "$(ls slow-halfway/checkpoints | sort -n | tr '\n' ' ')" = "$kept" ] || fail "resumed, it kept $(ls slow-halfway/checkpoints | tr '\n' ' ')"
exits 0 tiny slow-ranks $slow $ranks
[ "$(hash_in out)" = "$hash" ] || fail "two ranks have other weights"
exits 0 tiny fast $slow --set action.slow.min_lr=0.003
[ "$(hash_in out)" != "$hash" ] || fail "reducing the rate changed nothing"

# An optimizer with a rate of its own is reduced as well.
own="$slow --set optimizer.name=adamw --set optimizer.own.match=[\"*embedding*\"] --set optimizer.own.lr_factors=constant(value=0.003)"
exits 0 tiny own $own
[ "$(hash_in out)" = "$hash" ] || fail "the rate of an optimizer of its own is not reduced"

# ---- the metrics of training: their rows are looked at, here of every other step; mean/loss is of both steps ----
watched="$same --set train.steps=20 --set action.stop.task=train --set action.stop.mode=max --set action.stop.atol=1000
    --set action.stop.patience=2 --set metrics.every=2"
exits 0 tiny watched $watched
says out '^early_stopping of \[action.stop\]: loss has not improved in 2 rows of metrics; best [0-9.]* at step 2$'
hash=$(hash_in out)
[ "$(newest watched)" = 6 ] || fail "stopped at step $(newest watched) instead of 6"
exits 0 tiny watched-halfway $watched --set train.steps=4
exits 0 tiny watched-halfway --resume $watched $ranks
[ "$(hash_in out)" = "$hash" ] && [ "$(newest watched-halfway)" = 6 ] || fail "resumed, it stopped at step $(newest watched-halfway)"

exits 0 tiny mean $watched --set action.stop.metric=mean/loss
best=$(sed -n 's/.*rows of metrics; best \([0-9.]*\) at step 2$/\1/p' out)
[ "$(query mean "SELECT abs(value - ${best:-0}) < 1e-4 FROM metric WHERE name = 'mean/loss' AND step = 2")" = 1 ] ||
    fail "mean/loss is not what is watched: $(cat out)"

# ---- what is not there ----
exits 0 tiny missing $slow --set train.steps=3 --set action.best.metric=chrf --set action.slow.task=nobody/valid
[ "$(wc -l <err)" = 2 ] || fail "not one warning each: $(cat err)"
says err 'keep_best of \[action.best\]: there is no value of an evaluation called "chrf"'
says err 'reduce_lr_on_plateau of \[action.slow\]: there is no evaluation called "nobody/valid"'
exits 1 "$program" eval missing --checkpoint best --file valid.tsv
says err 'missing has no best checkpoint: its training evaluated nothing, or nothing that has the metric that says which is best'

# Of a step every metric that all ranks have, the learning rate too.
exits 0 tiny watches $same --set train.steps=3 --set action.rate.metric=learning_rate --set action.rate.task=train --set action.rate.patience=9 \
    --set action.nan.kind=terminate_on_nan --set action.nan.metric=timing/seconds
[ "$(wc -l <err)" = 1 ] || fail "not one warning: $(cat err)"
says err 'terminate_on_nan of \[action.nan\]: there is no value of a step called "timing/seconds": it looks at gradients alone'

exits 0 tiny misspelled $same --set train.steps=1 --set action.rate.metric=learning_rte --set action.rate.task=train --set action.rate.patience=9
says err 'there is no value of a step called "learning_rte" (did you mean learning_rate?): it does nothing'

# Of all weights together, in the steps that have these.
heavy="$same --set train.steps=20 --set action.stop.task=train --set action.stop.metric=weight_max --set action.stop.atol=1000
    --set action.stop.patience=2"
# shellcheck disable=SC2086
exits 0 tiny weights $heavy --set metrics.weights_every=3
[ "$(newest weights)" = 9 ] && [ ! -s err ] || fail "weight_max: stopped at step $(newest weights): $(cat out err)"
hash=$(hash_in out)
# shellcheck disable=SC2086
exits 0 tiny weights-ranks $heavy --set metrics.weights_every=3 --comm thread --ranks 2 --set mesh.expert=2
[ "$(hash_in out)" = "$hash" ] || fail "weight_max: two ranks stop elsewhere"
# shellcheck disable=SC2086
exits 0 tiny weightless $heavy --set metrics.weights_every=0 --set train.steps=3
says err 'there is no value of a step called "weight_max": it does nothing'

# ---- programs ----
# shellcheck disable=SC2016
exits 0 tiny told $same --set train.steps=4 --set task.words.valid=valid.tsv --set train.evaluate_every=2 \
    --set decode.max_length=2 --set action.say.kind=command \
    --set 'action.say.command=echo $SWITCHYARD_EVENT $SWITCHYARD_STEP $SWITCHYARD_TASK $SWITCHYARD_VALUE_WER; ls -l /proc/self/fd' \
    --set action.end.kind=command --set action.end.on=end --set 'action.end.command=echo "$SWITCHYARD_TEXT" >"$SWITCHYARD_RUN_DIR/said"' \
    --set action.save.kind=command --set action.save.on=checkpoint --set 'action.save.command=exit 7' \
    --set action.start.kind=command --set action.start.on=start --set 'action.start.command=kill -9 $$'
[ "$(grep -c evaluation told/action-say.log)" = 2 ] || fail "not told of two evaluations: $(cat told/action-say.log)"
grep -Eq '^evaluation 2 words/valid [0-9.]+$' told/action-say.log || fail "told $(cat told/action-say.log)"
! [ -d /proc/self/fd ] || ! grep -q "metrics\|told/l\|checkpoints" told/action-say.log || fail "files of the run are open in it: $(cat told/action-say.log)"
[ "$(cat told/said)" = "done after 4 steps" ] || fail "at the end: $(cat told/said)"
says err 'command of \[action.save\]: exit status 7; see .*/action-save.log'
says err 'command of \[action.start\]: ended by signal 9'
says out '^done after 4 steps'
# Also where whoever started the training ignores the ends of programs.
if env --ignore-signal=CHLD true 2>/dev/null; then
    exits 0 env --ignore-signal=CHLD "$program" train "$top/bench/tiny.run" --run-dir ignored --set task.words.train=train.tsv $same \
        --set train.steps=1 --set action.save.kind=command --set action.save.on=checkpoint --set 'action.save.command=exit 7'
    says err 'command of \[action.save\]: exit status 7'
else
    echo "skipped: SIGCHLD that is ignored (env cannot do so)"
fi
# It is not waited for but at the end, and no longer than its time.
begin=$(date +%s)
exits 0 tiny long $same --set train.steps=3 --set action.long.kind=command --set action.long.on=start \
    --set 'action.long.command=sleep 100 & sleep 100' --set action.long.time_limit=1
says err 'command of \[action.long\]: ended after time_limit = 1 s'
[ $(($(date +%s) - begin)) -le 20 ] || fail "a program that takes long held the run up"
# Time in which the run is suspended is none of it.
start suspended $same --set train.steps=1 --set action.wait.kind=command --set action.wait.on=start \
    --set 'action.wait.command=until [ -e go ]; do sleep 0.05; done' --set action.wait.time_limit=3
eventually grep -q '^checkpoint of step 1 saved' suspended.out
kill -STOP "$owner"
sleep 3.5
kill -CONT "$owner"
sleep 0.5
touch go
ended || fail "a suspended run: $(cat suspended.err)"
! grep -q time_limit suspended.err || fail "a suspended run: $(cat suspended.err)"
finish
