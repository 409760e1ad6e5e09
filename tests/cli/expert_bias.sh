#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Balancing by an expert bias: the same weights and biases on any mesh and after stopping and going on; evaluation and
# prediction take the bias from the checkpoint; refused where experts choose.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
cd "$here" || exit 99
set -- --quiet --set moe.expert_bias=true --set moe.expert_bias_update_rate=0.02 --set moe.aux_loss_factor=0 \
    --set task.words.test="$here/train.tsv"

exits 0 tiny whole --threads 1 "$@"
hash=$(hash_in out)
[ "${#hash}" -eq 64 ] || fail "no hash of the reference run"
grep -q 'encoder/layers_1/mlp/router/expert_bias' whole/checkpoints/20/params.safetensors ||
    fail "the checkpoint has no expert bias"
for way in '--threads 2' '--comm thread --ranks 2 --set mesh.data=2' '--comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2' \
    '--comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2 --set mesh.zero=3' \
    '--comm thread --ranks 2 --set mesh.model=2'; do
    rm -rf other
    exits 0 tiny other $way "$@"
    [ "$(hash_in out)" = "$hash" ] || fail "$way: the weights differ"
done

# ---- stopping and going on, with other ranks ----
exits 0 tiny halves "$@" --set train.schedule=constant --set train.steps=9
exits 0 tiny halves "$@" --set train.schedule=constant --resume --comm thread --ranks 2 --set mesh.expert=2
resumed=$(hash_in out)
exits 0 tiny straight "$@" --set train.schedule=constant
[ "$(hash_in out)" = "$resumed" ] || fail "a run that went on has other weights"

# ---- evaluation and prediction ----
exits 0 "$program" eval whole
loss=$(sed -n 's/.*loss \([0-9.]*\),.*/\1/p' out)
for way in '--set decode.batch_size=3' '--comm thread --ranks 2 --set mesh.expert=2'; do
    exits 0 "$program" eval whole $way
    [ "$(sed -n 's/.*loss \([0-9.]*\),.*/\1/p' out)" = "$loss" ] || fail "eval $way: $(cat out) instead of $loss"
done
cut -f 1 train.tsv | head -n 20 >words
"$program" predict whole <words >answers 2>err || fail "predict: $(cat err)"
"$program" predict whole --set decode.batch_size=7 <words 2>err | cmp -s - answers || fail "predict: the batch matters"

# A section may be of biases alone.
exits 0 "$program" plan "$top/bench/tiny.run" --set moe.expert_bias=true --set optimizer.still.name=none \
    --set 'optimizer.still.match=["*expert_bias"]'
[ ! -s err ] || fail "a warning of a pattern that a bias has: $(cat err)"

exits 2 tiny refused "$@" --set moe.router_type=experts_choose_masked --set moe.decoder_router_type=tokens_choose_masked
one_line_error
says err 'moe.expert_bias: where experts choose'
finish
