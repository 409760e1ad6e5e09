#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model with every key in which families of T5 differ: training gives the same weights on any mesh, its outputs are
# the same on any ranks and in any batch by the rules of either beam search, and explain shows what the keys record.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 400 1
data all.tsv 40 2
cut -f 1 all.tsv >words
family='--quiet --set model.scale_decoder_outputs=true --set model.relpos_per_layer=true
    --set model.decoder_start_token_id=2 --set model.num_encoder_layers=2 --set model.num_decoder_layers=2
    --set moe.num_experts=4 --set moe.num_decoder_sparse_layers=0 --set moe.expert_capacity=2
    --set moe.encoder_sparse_layers=[0]
    --set moe.decoder_sparse_layers=[1] --set reproducible.min_leaf=8'

# ---- training ----
# shellcheck disable=SC2086
exits 0 tiny one $family --set train.steps=20 --set train.learning_rate=1e-2
trained=$(hash_in out)
for mesh in data expert model; do
    # shellcheck disable=SC2086
    exits 0 tiny other $family --set train.steps=20 --set train.learning_rate=1e-2 --comm thread --ranks 2 --set mesh.$mesh=2
    [ "$(hash_in out)" = "$trained" ] || fail "the weights differ with mesh.$mesh=2"
    rm -rf other
done
# shellcheck disable=SC2086
for key in model.scale_decoder_outputs=auto model.relpos_per_layer=false model.decoder_start_token_id=0 moe.expert_capacity=0; do
    exits 0 tiny other $family --set train.steps=2 --set $key
    hash_in out
    rm -rf other
done >others
# shellcheck disable=SC2086
exits 0 tiny other $family --set train.steps=2
hash_in out >>others
[ "$(sort -u others | wc -l)" -eq 5 ] || fail "a key changes no weight: $(cat others)"

# ---- decoding ----
rules='--set decode.length_penalty=power --set decode.alpha=1 --set decode.finished_beams=huggingface'
for stopping in never false true; do
    for way in '--set decode.batch_size=40' '--comm thread --ranks 2 --set mesh.data=2 --set decode.batch_size=8' \
        '--comm thread --ranks 2 --set mesh.expert=2'; do
        # shellcheck disable=SC2086
        "$program" predict one --beams 3 --decodes 3 --scores $rules --set decode.early_stopping=$stopping $way \
            <words >got 2>err || fail "predict, $stopping $way: $(cat err)"
        [ -s "want-$stopping" ] || cp got "want-$stopping"
        [ "$(wc -l <got)" -eq 120 ] || fail "not three outputs a line: $(wc -l <got)"
        cmp -s "want-$stopping" got || fail "outputs differ, $stopping $way"
    done
done
"$program" predict one --beams 3 --decodes 3 --scores <words >got 2>err || fail "predict: $(cat err)"
cmp -s want-never got && fail 'the rules change nothing'

# ---- explain ----
# shellcheck disable=SC2086
exits 0 "$program" explain $(echo "$family" | sed 's/--quiet//') "$top/bench/tiny.run"
says out 'encoder/layers_1/relpos_bias/rel_embedding'
says out 'decoder/layers_1/mlp/router'
says out 'capacity=2'
grep -q 'encoder/layers_1/mlp/router\|encoder/relpos_bias' out && fail 'a layer that is not listed, or a shared bias'
finish
