#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The weights after 20 steps of bench/tiny.run have one SHA-256, whatever the threads, the instruction set and the mesh.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 500 1

# hash NAME ARGUMENTS...: trains and prints the hash of the weights.
hash() {
    name=$1
    shift
    "$program" train "$top/bench/tiny.run" --run-dir "$here/$name" --quiet --set task.words.train="$here/train.tsv" "$@" \
        >"$here/$name.out" 2>"$here/$name.err" </dev/null || fail "$name: $(cat "$here/$name.err")"
    sed -n 's/^weights sha256 //p' "$here/$name.out"
}

want=$(hash reference --threads 1 --set cpu.variant=portable)
[ "${#want}" -eq 64 ] || fail "no hash of the reference run: $(cat "$here/reference.out")"
echo "reference  $want"

# same NAME ARGUMENTS...: the hash must be that of the reference.
same() {
    got=$(hash "$@")
    echo "$1  $got"
    [ "$got" = "$want" ] || fail "$1: weights differ"
}

same threads-1 --threads 1
same threads-2 --threads 2
same threads-3 --threads 3
variants=0
for variant in avx2 avx512 neon; do
    if "$program" train "$top/bench/tiny.run" --run-dir "$here/probe-$variant" --quiet --set cpu.variant=$variant \
        --set train.steps=0 --set task.words.train="$here/train.tsv" >/dev/null 2>"$here/err"; then
        same $variant --threads 2 --set cpu.variant=$variant
        variants=$((variants + 1))
    else
        grep -q 'this CPU and build have' "$here/err" || fail "$variant refused without saying what there is: $(cat "$here/err")"
    fi
done
echo "fast variants on this CPU: $variants"
same data-2 --comm thread --ranks 2 --set mesh.data=2
same data-4 --comm thread --ranks 4 --set mesh.data=4
same expert-2 --comm thread --ranks 2 --set mesh.expert=2
same data-2-expert-2 --comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2
same model-2 --comm thread --ranks 2 --set mesh.model=2
same data-2-model-2 --comm thread --ranks 4 --set mesh.data=2 --set mesh.model=2
same data-2-threads-2 --comm thread --ranks 2 --threads 2 --set mesh.data=2

# A second optimizer with the options of the first changes nothing, on one rank and on several; one of its own does.
twin="--set optimizer.name=adamw --set optimizer.twin.match=[*embedding*,*layer_norm*]"
same twin $twin
same twin-data-2 --comm thread --ranks 2 --set mesh.data=2 --set mesh.zero=1 $twin
[ "$want" != "$(hash other $twin --set optimizer.twin.b1=0.5)" ] || fail "the second optimizer's options change nothing"

# So many experts that their weights are not joined.
want=$(hash many-portable --threads 1 --set moe.num_experts=16 --set cpu.variant=portable)
echo "16 experts  $want"
same many-threads-2 --threads 2 --set moe.num_experts=16
same many-data-2-expert-2 --comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2 --set moe.num_experts=16
same many-model-2 --comm thread --ranks 2 --set mesh.model=2 --set moe.num_experts=16

# bfloat16: one hash on the instruction sets that widen it, and on any threads and meshes of one that multiplies it.
want=$(hash half-portable --threads 1 --set model.dtype=bfloat16 --set cpu.variant=portable)
echo "bfloat16  $want"
[ "$want" != "$(hash again --threads 2)" ] || fail "bfloat16 changes nothing"
for variant in avx2 avx512 neon; do
    [ -d "$here/$variant" ] && same half-$variant --threads 2 --set model.dtype=bfloat16 --set cpu.variant=$variant
done
want=$(hash half-auto --threads 1 --set model.dtype=bfloat16)
same half-threads-2 --threads 2 --set model.dtype=bfloat16
same half-data-2 --comm thread --ranks 2 --set mesh.data=2 --set model.dtype=bfloat16
same half-expert-2 --comm thread --ranks 2 --set mesh.expert=2 --set model.dtype=bfloat16
same half-model-2 --comm thread --ranks 2 --set mesh.model=2 --set model.dtype=bfloat16
want=$(hash reference-again --threads 1)
other=$(hash other-seed --threads 2 --set train.seed=8)
[ "$other" != "$want" ] || fail "another seed gives the same weights: the hash says nothing"
finish
