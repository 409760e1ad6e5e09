#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every named optimizer, and chains of what holds others: the weights have one hash on one rank and on several, whatever they
# split (rows, experts, sums, state), and after a resume in the middle; another optimizer has other weights, and does not go on from its state.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
set -f # keys have patterns
data train.tsv 100 1
steps='--quiet --threads 1 --set train.steps=20 --set train.checkpoint_every=10 --set data.batch_size=8 --set data.length_buckets=[24]'

# Ranks and mesh, a line each. What clips every example has one row a microbatch, which no mesh splits.
cat >meshes <<'END'
2 --set mesh.data=2 --set mesh.zero=1
2 --set mesh.expert=2
4 --set mesh.data=2 --set mesh.model=2 --set mesh.zero=3
4 --set mesh.expert=2 --set mesh.model=2 --set mesh.zero=1
END
cat >meshes_of_one_row <<'END'
2 --set mesh.model=2 --set mesh.zero=3
4 --set mesh.model=4
END
one_row='--set train.microbatches=8 --set train.microbatch_normalizer=microbatch --set train.clip_norm=0
    --set moe.scale_expert_gradients=false'

# run DIR OPTIMIZER ARGUMENTS...: trains and prints the hash of the weights.
run() {
    dir=$1
    optimizer=$2
    shift 2
    # shellcheck disable=SC2086
    tiny "$dir" $steps --set optimizer.name="$optimizer" "$@" >"$dir.out" 2>"$dir.err" </dev/null ||
        fail "$optimizer, $dir $*: $(cat "$dir.err")"
    hash_in "$dir.out"
}

# same WANT OPTIMIZER RANKS ARGUMENTS...
same() {
    want=$1
    optimizer=$2
    ranks=$3
    shift 3
    got=$(run ranks "$optimizer" --comm thread --ranks "$ranks" "$@")
    rm -rf ranks
    [ "$got" = "$want" ] || fail "$optimizer: other weights on $ranks ranks with $*"
}

# check OPTIMIZER [KEYS]
check() {
    rm -rf one
    meshes=meshes
    keys=${2:-}
    if [ "$1" = dpsgd ]; then
        meshes=meshes_of_one_row
        keys=$one_row
    fi
    # shellcheck disable=SC2086
    hash=$(run one "$1" $keys)
    [ "${#hash}" -eq 64 ] || { fail "$1: no hash: $(cat one.err)"; return; }
    echo "$1 ${2:-} $hash"
    echo "$hash" >>hashes
    while read -r ranks mesh; do
        # shellcheck disable=SC2086
        same "$hash" "$1" "$ranks" $keys $mesh
    done <$meshes
    rm -rf one/checkpoints/20
    other=sgd
    [ "$1" != sgd ] || other=lion
    if [ "$1" != chain ]; then
        # shellcheck disable=SC2086
        exits 2 tiny one $steps $keys --resume --set optimizer.name=$other
        one_line_error
        says err "optimizer.name"
    fi
    # shellcheck disable=SC2086
    got=$(run one "$1" $keys --resume --comm thread --ranks 2 --set mesh.model=2 --set mesh.zero=3)
    [ "$got" = "$hash" ] || fail "$1: other weights after a resume"
}

exits 0 "$program" config --optimizers
names=$(sed -n 's/^\([a-z0-9_]*\): .*/\1/p' out)
[ "$(echo "$names" | wc -l)" -ge 10 ] || fail "few optimizers: $names"
for name in $names; do
    check "$name"
done
# Counts and flags as state, steps left out, noise and norms inside and before others.
cat >chains <<'END'
"masked(apply_every(k=3),scale_by_adam,mask=['*kernel'])","scale_by_learning_rate"
"multi_steps(scale_by_radam,scale_by_learning_rate,every_k=3)"
"apply_if_finite(add_noise(eta=0.001),trace(decay=0.9))","scale_by_learning_rate"
"clip_by_global_norm(0.5)","schedule_free(scale_by_adam(b1=0.0),scale_by_learning_rate)"
END
while read -r chain; do
    check chain "--set optimizer.chain=[$chain]"
done <chains
# Averages of no parameter: there is nothing that changes places.
none='--set optimizer.name=sgd --set optimizer.b.name=schedule_free --set optimizer.b.match=["nothing*"]'
# shellcheck disable=SC2086
hash=$(run averages sgd $none --set train.steps=2)
[ "${#hash}" -eq 64 ] || fail "averages of no parameter: no hash"
says averages.err 'optimizer.b.match: "nothing\*" matches no parameter'
# shellcheck disable=SC2086
exits 0 "$program" plan "$top/bench/tiny.run" $none
# shellcheck disable=SC2086
exits 1 "$program" explain "$top/bench/tiny.run" $none --program exchange
says err 'no optimizer keeps averages'
[ -z "$(sort hashes | uniq -d)" ] || fail "two optimizers have the same weights: $(sort hashes | uniq -d)"
finish
