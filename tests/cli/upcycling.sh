#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Experts from a dense MLP: the loss at first is the dense one's, to the bit where the router's weights are 1; and a dense
# MLP from experts. Both only where they are asked for.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/valid.tsv" 20 2
cd "$here" || exit 99
set -- --quiet --set task.words.valid=valid.tsv --set task.words.metrics=[]
exits 0 tiny dense "$@" --set train.steps=8 --set moe.num_experts=0
exits 0 tiny sparse "$@" --set train.steps=8

# loss RUN STEP: of the evaluation, with all digits.
loss() {
    query "$1" "SELECT value FROM eval WHERE name = 'loss' AND step = $2"
}

# refused STATUS TEXT ARGUMENTS...
refused() {
    status=$1
    text=$2
    shift 2
    exits "$status" tiny bad "$@"
    one_line_error
    says err "$text"
    [ ! -e bad ] || fail "a run directory was made for: $*"
}

# near A B: they differ by less than a millionth.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < 1e-6 * a && -d < 1e-6 * a) }'
}

# ---- dense to sparse ----
set -- "$@" --set train.steps=0
up='--set train.init_from=dense --set train.init_upcycle=true --set moe.normalize_top_k=true'
refused 1 'train.init_upcycle = true makes copies of its dense MLP the experts' "$@" --set train.init_from=dense
refused 1 'train.init_upcycle: no layer of this model' "$@" --set train.init_from=sparse --set train.init_upcycle=true
# shellcheck disable=SC2086
{
    exits 0 tiny up "$@" $up --set moe.num_selected_experts=1
    hash=$(hash_in out)
    exits 0 tiny up2 "$@" $up --set moe.num_selected_experts=1 --comm thread --ranks 2 --set mesh.expert=2
    [ "$(hash_in out)" = "$hash" ] || fail "other weights on two ranks"
    exits 0 tiny two "$@" $up
    exits 0 tiny scaled "$@" $up --set moe.normalize_top_k=false
    exits 0 tiny further "$@" $up --set train.steps=2
}
[ -n "$(loss dense 8)" ] || fail "no loss of the dense run"
[ "$(loss up 0)" = "$(loss dense 8)" ] || fail "one expert: loss $(loss up 0), not $(loss dense 8)"
near "$(loss two 0)" "$(loss dense 8)" || fail "two experts: loss $(loss two 0), not $(loss dense 8)"
near "$(loss scaled 0)" "$(loss dense 8)" && fail "weights that are no 1 do not change the loss"
says scaled/log 'moe.normalize_top_k is false'
tab=$(printf '\t')
says up/init.txt "^copies${tab}encoder/layers_1/mlp/expert/wi_0/kernel${tab}\\[4,32,64\\]${tab}encoder/layers_1/mlp/wi_0/kernel${tab}"
says up/init.txt "^fresh${tab}encoder/layers_1/mlp/router/router_weights/w/kernel"
grep -q '^left' up/init.txt && fail "something was left: $(grep '^left' up/init.txt)"
[ "$(loss further 2)" != "$(loss dense 8)" ] || fail "training changes nothing"

# ---- sparse to dense ----
set -- "$@" --set train.init_from=sparse --set moe.num_experts=0
refused 1 'train.init_expert takes one of its experts, or their mean' "$@"
refused 1 'decoder/layers_1/mlp/expert/wi_0/kernel has 4 experts, from 0 on' "$@" --set train.init_expert=4
refused 2 'train.init_expert = "first": expected the number' "$@" --set train.init_expert=first
for expert in 0 3 mean; do
    exits 0 tiny "dense-$expert" "$@" --set train.init_expert=$expert
    echo "$(hash_in out)" >>hashes
    exits 0 tiny "again-$expert" "$@" --set train.init_expert=$expert --comm thread --ranks 2 --set mesh.zero=3
    [ "$(hash_in out)" = "$(tail -n 1 hashes)" ] || fail "$expert: other weights on two ranks"
done
[ "$(sort -u hashes | wc -l)" -eq 3 ] || fail "experts and their mean give the same: $(cat hashes)"
says dense-mean/init.txt "^mean${tab}encoder/layers_1/mlp/wo/kernel${tab}\\[64,32\\]${tab}encoder/layers_1/mlp/expert/wo/kernel${tab}\\[4,64,32\\]"
says dense-3/init.txt "^left${tab}${tab}${tab}encoder/layers_1/mlp/router/router_weights/w/kernel"
finish
