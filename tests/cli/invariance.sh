#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For every router that may answer: predict gives a line the same answer in any order and any batch, greedily and with
# beams; eval's numbers do not depend on the batch; training with jitter has the same weights on any mesh.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 400 1
data all.tsv 300 2
head -n 65 all.tsv >test.tsv
cut -f 1 test.tsv >words
sort -r words >reversed

# answers FILE ARGUMENTS...: of the run `learned` to the lines of a file, beside them and in their order.
answers() {
    from=$1
    shift
    "$program" predict learned "$@" <"$from" >answered 2>err || fail "predict $*: $(cat err)"
    paste "$from" answered | sort -u
}

# router NAME ARGUMENTS...: trains a little with it and asks in several ways.
router() {
    router=$1
    shift
    rm -rf learned
    exits 0 tiny learned --set train.steps=60 --set train.learning_rate=1e-2 --set model.head_dim=16 \
        --set task.words.test="$here/test.tsv" "$@"
    for search in '' '--beams 3'; do
        answers words $search --set decode.batch_size=64 >want
        [ "$(cut -f 2 want | sort -u | wc -l)" -ge 8 ] || fail "$router: hardly two answers differ: this proves nothing"
        for size in 1 3 64; do
            answers reversed $search --set decode.batch_size=$size >got
            cmp -s want got || fail "$router $search: answers in batches of $size differ: $(diff want got | head -n 3)"
        done
    done
    exits 0 "$program" eval learned --set decode.batch_size=64
    result=$(sed -n 's#^words/test: ##p' out)
    for size in 1 3; do
        exits 0 "$program" eval learned --set decode.batch_size=$size
        [ "$(sed -n 's#^words/test: ##p' out)" = "$result" ] || fail "$router: eval in batches of $size: $(cat out), not $result"
    done
    echo "$router: $result"
}
router masked --set moe.encoder_batch_prioritized_routing=true --set moe.decoder_batch_prioritized_routing=true
router scatter --set moe.router_type=tokens_choose_scatter --set moe.normalize_top_k=true
router experts-choose --set moe.router_type=experts_choose_masked --set moe.decoder_router_type=tokens_choose_masked
router expert-bias --set moe.expert_bias=true --set moe.num_shared_experts=1 --set moe.jitter_noise=0.1

# ---- jitter ----
exits 0 tiny one --quiet --threads 1 --set moe.jitter_noise=0.2
jittered=$(hash_in out)
for way in '--threads 3' '--comm thread --ranks 2 --set mesh.data=2' '--comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2' \
    '--comm thread --ranks 2 --set mesh.model=2'; do
    rm -rf other
    exits 0 tiny other --quiet $way --set moe.jitter_noise=0.2
    [ "$(hash_in out)" = "$jittered" ] || fail "jitter, $way: the weights differ"
done
exits 0 tiny plain --quiet --threads 1
[ "$(hash_in out)" != "$jittered" ] || fail "jitter changes nothing"
# Longer padding changes no bit of training, with full experts and dropout, in either dtype (bfloat16: by multiples of 32).
padded() {
    tiny "$@" --quiet --set train.steps=4 --set 'data.length_buckets=[]' --set moe.train_capacity_factor=1.0 \
        --set model.head_dim=32 --set reproducible.min_leaf=8 >"$here/out" 2>&1 || fail "$1: $(cat "$here/out")"
    hash_in out
}
for dtype in float32 bfloat16; do
    want=$(padded short-$dtype --set model.dtype=$dtype --set data.max_input_length=32 --set data.max_target_length=64)
    got=$(padded long-$dtype --set model.dtype=$dtype --set data.max_input_length=96 --set data.max_target_length=128)
    [ "${#want}" -eq 64 ] && [ "$got" = "$want" ] || fail "$dtype: weights change with padding: '$want', '$got'"
done
finish
