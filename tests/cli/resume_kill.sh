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

newest() { # RUN: step of its newest checkpoint
    ls "$1/checkpoints" 2>/dev/null | grep -v '[^0-9]' | sort -n | tail -n 1
}

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

# ---- in the middle of a checkpoint ----
# Watches for the unfinished folder of a step and kills at once; the folder that is left behind tells that it was in time.
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
