#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A step done again has the stored loss to the last bit, from a checkpoint and from the seed, whatever the ranks of the run
# were; its tensors can be seen; a run with a step that is not finite is told where it went wrong; the run stays as it was.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 200 1
same='--quiet --set train.checkpoint_every=4 --set metrics.every=1 --set model.dropout_rate=0.1 --set data.batch_size=8'

# shellcheck disable=SC2086
exits 0 tiny run $same --set train.steps=10 --comm thread --ranks 2 --set mesh.expert=2
files=$(find run -type f | sort | xargs cksum)
for step in 1 4 5 10; do
    exits 0 "$program" replay run --step $step
    says out '^loss [0-9.]*, as stored$'
    says out '^all [0-9]* tensors that the step writes are finite$'
done
says out '^step 10, from the checkpoint of step 8$'

# ---- tensors ----
exits 0 "$program" replay run --step 5 --dump 'grad/*router*' --dump 'encoder/layers_1/mlp:softmax' --write tensors
says out '^grad_first\[0\] .*  grad/encoder/layers_1/mlp/router/router_weights/w/kernel  f32\[32,4\]  least -'
says out '^grad_next\[1\] .*  encoder/layers_1/mlp:softmax  f32\['
says tensors '"grad_next.1/[0-9]*/grad/encoder/layers_1/mlp/router/router_weights/w/kernel":{"dtype":"F32","shape":\[32,4\]'
exits 1 "$program" replay run --step 5 --dump no/such/tensor
says err 'no tensor is called no/such/tensor'
exits 1 "$program" replay run --step 5 --dump 'grad/*router*' --write run/run.conf
one_line_error
says err 'run/run.conf is there already'
[ "$(find run -type f | sort | xargs cksum)" = "$files" ] || fail "a replay changes the run directory"

# ---- another loss than the stored one ----
cp -r run other
"$abs_top_builddir/tests/cli/database" change other/metrics.db "UPDATE metric SET value = value * 1.0000001 WHERE name = 'loss'" ||
    fail "the stored loss was not changed"
exits 1 "$program" replay other --step 6
says out '^loss [0-9.]*, but [0-9.]* is stored$'

# ---- a step that is not finite ----
# shellcheck disable=SC2086
exits 1 tiny wild $same --set train.learning_rate=1000 --set train.clip_norm=0 --set train.warmup_steps=0 \
    --set train.schedule=constant
bad=$(sed -n 's/.*the gradients of step \([0-9]*\) are not finite.*/\1/p' err)
[ -n "$bad" ] || fail "no bad step: $(cat err)"
exits 0 "$program" replay wild --step "$bad"
says out '^[0-9]* of [0-9]* tensors that the step writes are not finite; the first:$'
says out '^  grad_first, microbatch 0, [a-z].*, element [0-9]*: \(-*inf\|nan\)$'
# The run itself named the same tensor when it happened.
named=$(query wild "SELECT text FROM event WHERE kind = 'first_not_finite'")
tensor=$(echo "$named" | sed -n "s/^the first tensor of step $bad that is not finite: \([^,]*\), of layer .*(grad_first, microbatch 0, .*)$/\1/p")
[ -n "$tensor" ] || fail "the event of the bad step: $named"
says out "^  grad_first, microbatch 0, $tensor, element"
exits 0 "$program" replay wild --step $((bad - 1))

# ---- the learning rate that an action reduced, between the checkpoint and the step, and at the checkpoint ----
# shellcheck disable=SC2086
exits 0 tiny plateau $same --set train.steps=7 --set train.checkpoint_every=6 --set train.learning_rate=0.003 \
    --set train.warmup_steps=0 --set train.schedule=constant --set task.words.valid=train.tsv --set train.evaluate_every=1 \
    --set train.decode_every=7 --set decode.max_length=2 --set task.words.eval_examples=8 --set action.p.kind=reduce_lr_on_plateau \
    --set action.p.patience=1 --set action.p.mode=max --set action.p.factor=0.5 --set action.p.min_lr=0.0001 \
    --set action.t.kind=reduce_lr_on_plateau --set action.t.patience=3 --set action.t.task=train --set action.t.mode=max
for step in 3 5 7; do
    exits 0 "$program" replay plateau --step $step
    [ "$(grep -c ', as stored$' out)" = 3 ] || fail "a plateau: $(cat out)"
    ! grep -q '^learning rate 0.003,' out || fail "step $step: the learning rate was not reduced"
done
"$abs_top_builddir/tests/cli/database" change plateau/metrics.db "UPDATE metric SET value = value * 1.5 WHERE name = 'learning_rate'" ||
    fail "the stored rate was not changed"
exits 1 "$program" replay plateau --step 3
says out '^learning rate [0-9.e-]*, but [0-9.e-]* is stored$'
"$abs_top_builddir/tests/cli/database" change plateau/metrics.db "DELETE FROM eval WHERE step = 2" ||
    fail "the stored evaluation was not removed"
exits 1 "$program" replay plateau --step 5
says err 'the evaluation after step 2 is not in the run.s database'

# ---- the same, watched by the mean of the steps of a row, of which some are before the checkpoint ----
# shellcheck disable=SC2086
exits 0 tiny means $same --set metrics.every=2 --set train.steps=12 --set train.checkpoint_every=5 --set train.schedule=constant \
    --set train.learning_rate=0.003 --set train.warmup_steps=0 --set action.t.kind=reduce_lr_on_plateau \
    --set action.t.patience=1 --set action.t.task=train --set action.t.mode=max --set action.t.metric=mean/loss
[ "$(query means "SELECT value < 0.003 FROM metric WHERE name = 'learning_rate' AND step = 8")" = 1 ] ||
    fail "the learning rate was not reduced by mean/loss"
for step in 8 12; do
    exits 0 "$program" replay means --step $step
    [ "$(grep -c ', as stored$' out)" = 3 ] || fail "a plateau of means: $(cat out)"
done

# ---- steps after a way back take the batches that the run took, whichever checkpoint is before ----
# shellcheck disable=SC2086
exits 0 tiny back $same --set train.schedule=constant --set train.warmup_steps=0 --set train.clip_norm=0 \
    --set train.learning_rate=70 --set action.n.kind=terminate_on_nan --set action.n.policy=rollback --set train.steps=16
from=$(query back 'SELECT max(start_step) FROM run')
[ "$from" -ge 0 ] || fail "there was no way back"
[ "$(query back "SELECT count(*) FROM event WHERE kind = 'first_not_finite' AND text LIKE '%, of layer  (%'")" = 0 ] ||
    fail "the first tensor has no layer: $(query back "SELECT text FROM event WHERE kind = 'first_not_finite'")"
for step in $((from + 1)) $((from + 2)) 16; do
    exits 0 "$program" replay back --step "$step"
    [ "$(grep -c ', as stored$' out)" = 3 ] || fail "step $step after a way back: $(cat out)"
done

# Nor where the training was killed before it saved a checkpoint that knows of the way back: the database does.
cp -r back killed
for step in $(ls killed/checkpoints); do
    [ "$step" -le "$from" ] || rm -r "killed/checkpoints/$step"
done
for step in $((from + 1)) 16; do
    exits 0 "$program" replay killed --step "$step"
    [ "$(grep -c ', as stored$' out)" = 3 ] || fail "step $step after a way back that no checkpoint knows: $(cat out)"
done
"$abs_top_builddir/tests/cli/database" change killed/metrics.db "UPDATE event SET text = 'back' WHERE kind = 'rollback'" ||
    fail "the events were not changed"
exits 1 "$program" replay killed --step 16
says err 'the event rollback of attempt [0-9]* does not say which batches were left out'

# ---- each step has the settings of its attempt ----
# shellcheck disable=SC2086
exits 0 tiny settings $same --set train.steps=6 --set train.checkpoint_every=2
# shellcheck disable=SC2086
exits 0 tiny settings --resume $same --set train.steps=9 --set train.learning_rate=0.001
for step in 2 5 6 7 9; do
    exits 0 "$program" replay settings --step $step
    [ "$(grep -c ', as stored$' out)" = 3 ] || fail "settings of another attempt: $(cat out)"
done
rm -rf settings/checkpoints/[46]
exits 0 "$program" replay settings --step 6
exits 1 "$program" replay settings --step 8
one_line_error
says err 'was .* until step 6 and .* after it, and the checkpoint of step 6 is gone'

# ---- bad input ----
for step in 0 -1 x latest ''; do
    exits 2 "$program" replay run --step "$step"
    [ "$(wc -l <err)" -eq 1 ] || fail "step $step: $(cat err)"
done
exits 1 "$program" replay run --step 11
says err 'step 11 is not in 1..10'
exits 0 tiny none --quiet --set train.steps=0
exits 1 "$program" replay none --step 1
says err 'none has no steps yet (train.steps = 0): train it'
exits 2 "$program" replay run
says err 'give the step with --step N'
exits 2 "$program" replay run --step 5 --write tensors
says err 'needs tensors'
data train.tsv 201 1
exits 1 "$program" replay run --step 6
says err 'train.tsv has changed since the run was trained'
finish
