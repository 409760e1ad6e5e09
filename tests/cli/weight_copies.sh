#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# model.dtype = bfloat16: programs of gradients read copies of the weights that the update leaves. Whatever writes weights in
# between (a checkpoint, averages that are evaluated, nothing at all where weights are frozen), the weights have the bits of
# a run that casts them anew in every program, which one with memory.budget does.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 300 1
data valid.tsv 20 2
sed 's/^\[train\]$/[task.words]\ntrain = "train.tsv"\nvalid = "valid.tsv"\n&/' "$top/bench/tiny.run" >plain.run
# Of the weights that attention packs, those of the value stand still.
cat plain.run - >frozen.run <<'END'
[optimizer.moving]
match = ["*/query/*", "*/key/*", "*/mlp/*", "token_embedder/*", "*/out/*"]
END

# hash NAME RUNFILE ARGUMENTS...: trains 8 steps and prints the hash of the weights.
hash() {
    name=$1 file=$2
    shift 2
    rm -rf "$name"
    "$program" train "$file" --run-dir "$name" --quiet --threads 1 --set model.dtype=bfloat16 --set train.steps=8 "$@" \
        >"$name.out" 2>"$name.err" </dev/null || fail "$name: $(cat "$name.err")"
    sed -n 's/^weights sha256 //p' "$name.out"
}
casts='--set memory.budget=4000000000'

# same NAME RUNFILE ARGUMENTS...: with copies and without.
same() {
    what=$1 of=$2
    shift 2
    want=$(hash casts "$of" $casts "$@")
    got=$(hash "$what" "$of" "$@")
    echo "$what $got"
    [ -n "$got" ] && [ "$got" = "$want" ] || fail "$what: weights are others than with casts"
}

explain() { "$program" explain plain.run --set model.dtype=bfloat16 "$@"; }
[ "$(explain --program update | grep -c ' map .* bf16/\|(bf16/')" -ge 10 ] || fail "the update leaves no copies"
[ "$(explain --program grad_first --after record | grep -c ' q0 .*(bf16/.*<-')" -eq 0 ] || fail "a program of gradients makes copies"
explain --program grad_first --after record | grep -q '<-.*(bf16/' || fail "a program of gradients reads no copies"
explain --program update $casts | grep -q 'bf16/' && fail "copies under memory.budget"

same plain plain.run
same microbatches plain.run --set train.microbatches=4
same evaluated plain.run --set train.evaluate_every=3
same metrics plain.run --set metrics.weights_every=1
same averages plain.run --set optimizer.name=schedule_free --set train.evaluate_every=3
same muon plain.run --set optimizer.name=muon
same frozen frozen.run
unbroken=$(hash casts plain.run $casts)
[ "$(hash frozen frozen.run)" != "$unbroken" ] || fail "frozen weights moved: this proves nothing"

# Ranks and ZeRO; with stage 3 a rank has pieces of weights and casts them.
for zero in 0 1 3; do
    got=$(hash ranks plain.run --comm thread --ranks 2 --set mesh.data=2 --set mesh.zero=$zero)
    [ "$got" = "$unbroken" ] || fail "mesh.zero = $zero: weights are others"
done
got=$(hash ranks plain.run --comm thread --ranks 4 --set mesh.expert=2 --set mesh.model=2)
[ "$got" = "$unbroken" ] || fail "mesh.expert = 2, mesh.model = 2: weights are others"

# A checkpoint has the weights alone.
hash parts plain.run --set train.steps=4 >/dev/null
exits 0 "$program" train --resume parts --quiet --set train.steps=8
[ "$(hash_in out)" = "$unbroken" ] || fail "resumed: weights are others"
finish
