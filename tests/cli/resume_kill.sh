#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that is killed again and again, at any moment and in the middle of a checkpoint, and resumed until it is done,
# has the weights of a run that nobody killed. So has one that goes on with another number of ranks.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
cd "$here" || exit 99
steps=30
same="--set train.steps=$steps --set train.checkpoint_every=1 --set train.keep_checkpoints=2 --set metrics.every=1"
exits 0 tiny whole $same
hash=$(hash_in out)
[ "${#hash}" -eq 64 ] || fail "no hash of the run that nobody killed"

# done_after_kills NAME: resumes the run to its end and compares.
done_after_kills() {
    exits 0 tiny "$1" --resume $same
    [ "$(hash_in out)" = "$hash" ] || fail "$1: the weights differ from those of the run that nobody killed"
    [ "$(cat "$1/status")" = "done" ] || fail "$1: status $(cat "$1/status")"
    [ "$(ls "$1/checkpoints" | sort -n | tr '\n' ' ')" = "$((steps - 1)) $steps " ] ||
        fail "$1: checkpoints $(ls "$1/checkpoints" | tr '\n' ' ')"
    [ "$(query "$1" 'SELECT count(*), min(step), max(step) FROM loss_curve')" = "$steps	1	$steps" ] ||
        fail "$1: loss_curve has $(query "$1" 'SELECT count(*), min(step), max(step) FROM loss_curve')"
    [ "$(query "$1" 'PRAGMA integrity_check')" = ok ] || fail "$1: the database is damaged"
}

# ---- at moments of the clock, from before the first line on ----
for delay in 0 0.01 0.02 0.03 0.05 0.08 0.15 0.3; do
    start clock --resume $same
    sleep $delay
    kill -KILL "$owner" 2>/dev/null
    ended 2>/dev/null
    echo "killed after $delay s: newest checkpoint '$(newest clock)'"
done
done_after_kills clock

# ---- no checkpoint but those of the clock, which is rank 0's ----
timed="$same --set train.checkpoint_every=0 --set train.log_every=1 --set train.schedule=constant"
start timed $timed --set train.checkpoint_seconds=1 --set train.steps=1000000 --comm thread --ranks 2
eventually grep -q '^checkpoint of step ' timed.out
eventually grep -q "^step $(($(newest timed) + 2))/" timed.out
kill -KILL "$owner" 2>/dev/null
ended 2>/dev/null
at=$(newest timed)
echo "killed after the checkpoint of step $at, which the clock asked for"
exits 0 tiny timed --resume $timed --set train.steps=$((at + 3))
says out "going on from the checkpoint of step $at"
timed_hash=$(hash_in out)
exits 0 tiny timed-whole $timed --set train.checkpoint_seconds=0 --set train.steps=$((at + 3))
[ "$(hash_in out)" = "$timed_hash" ] || fail "timed: the weights differ from those of the run that nobody killed"
[ "$(grep -c '^checkpoint of step' out)" -eq 1 ] || fail "checkpoints by the clock, which is off"

# ---- in the middle of a checkpoint ----
# Watches for the unfinished folder of a step and kills at once; the folder that is left shows that it was in time.
inside=0
for step in 1 4 7 10 13 16 19 22 25 28; do
    start middle --resume $same
    while kill -0 "$owner" 2>/dev/null; do
        [ -d middle/checkpoints/$step.tmp ] && break
        [ -d middle/checkpoints/$((step + 1)) ] && break
    done
    kill -KILL "$owner" 2>/dev/null
    ended 2>/dev/null
    for left in middle/checkpoints/*.tmp; do
        [ -d "$left" ] && inside=$((inside + 1))
    done
done
echo "killed inside a checkpoint: $inside of 10"
[ "$inside" -gt 0 ] || fail "no kill hit a checkpoint while it was written"
done_after_kills middle

# ---- the best evaluation's weights, whenever the run is killed ----
# A learning rate far too high for most of the run: the best is none of the newest.
data valid.tsv 8 2
best="$same --set task.words.valid=valid.tsv --set train.evaluate_every=1 --set train.keep_checkpoints=1 --set train.clip_norm=0
    --set train.learning_rate=1 --set train.warmup_steps=20 --set decode.max_length=2"
exits 0 tiny whole-best $best
says out '^checkpoint of step 1 saved'
best_hash=$(hash_in out)
for delay in 0.05 0.08 0.1 0.13 0.16 0.2 0.25 0.3; do
    start best --resume $best
    sleep $delay
    kill -KILL "$owner" 2>/dev/null
    ended 2>/dev/null
    [ -n "$(newest best)" ] || continue
    exits 0 "$program" predict best --checkpoint best
done
exits 0 tiny best --resume $best
[ "$(hash_in out)" = "$best_hash" ] || fail "best: the weights differ from those of the run that nobody killed"
at=$(query best "SELECT step FROM valid_eval WHERE name = 'loss' ORDER BY value, step LIMIT 1")
echo "best evaluation at step $at"
[ "$at" -lt $((steps - 1)) ] || fail "the best evaluation is one of the last: this tests nothing"
for run in best whole-best; do
    [ "$(ls $run/checkpoints | sort -n | tr '\n' ' ')" = "$at $steps " ] ||
        fail "$run: checkpoints $(ls $run/checkpoints) instead of $at and $steps"
done
cmp best/checkpoints/$at/params.safetensors whole-best/checkpoints/$at/params.safetensors ||
    fail "the best weights differ from those of the run that nobody killed"
exits 0 "$program" eval best --checkpoint best --file valid.tsv
says out "checkpoint of step $at;"

# ---- going on with another number of ranks ----
ranks=0
for shape in '--comm thread --ranks 2 --set mesh.data=2' '--threads 1' '--comm thread --ranks 2 --set mesh.expert=2' \
    '--comm thread --ranks 4 --set mesh.data=2 --set mesh.model=2'; do
    ranks=$((ranks + 1))
    start shapes --resume $same $shape
    while kill -0 "$owner" 2>/dev/null; do
        [ -d shapes/checkpoints/$((ranks * 6)) ] && break
    done
    kill -KILL "$owner" 2>/dev/null
    ended 2>/dev/null
    [ -n "$(newest shapes)" ] && [ "$(newest shapes)" -lt $steps ] || fail "$shape: newest checkpoint '$(newest shapes)'"
done
done_after_kills shapes
finish
