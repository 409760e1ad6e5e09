#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One SHA-256 of the weights after 20 steps, whatever the processes and the mesh; a checkpoint goes on with another
# number of them; eval and predict give the same numbers and lines.
. "$(dirname "$0")/_common.sh"

# same NAME N ARGUMENTS...: trains with N ranks; the weights must be those of one process without MPI.
same() {
    name=$1
    mpi "$@" || fail "$name: exit $?: $(cat "$here/$name.err")"
    got=$(hash_in "$name.out")
    echo "$name  $got"
    [ "$got" = "$want" ] || fail "$name: weights differ"
    [ "$(grep -c '^done' "$here/$name.out")" -eq 1 ] || fail "$name: printed more than once: $(cat "$here/$name.out")"
}

tiny self --quiet --comm self >"$here/self.out" 2>&1 || fail "self: $(cat "$here/self.out")"
want=$(hash_in self.out)
[ "${#want}" -eq 64 ] || fail "no hash of the reference run: $(cat "$here/self.out")"
same one 1 --comm mpi
same data-2 2
same expert-2 2 --set mesh.expert=2
same model-2 2 --set mesh.model=2
same data-4 4
same data-2-expert-2 4 --set mesh.data=2 --set mesh.expert=2
same data-2-model-2 4 --set mesh.data=2 --set mesh.model=2
same expert-2-model-2 4 --set mesh.expert=2 --set mesh.model=2

# ---- eight leaves for eight ranks, 1, 2 and 4 microbatches, a table shared by embedding and logits: hashes of their own ----
plain=$want
for kind in tied-1 untied-2 tied-2 tied-4; do
    sets="--set train.steps=6 --set train.microbatches=${kind#*tied-} --set reproducible.blocks=8 --set reproducible.min_leaf=1"
    [ "${kind%-*}" = untied ] || sets="$sets --set model.logits_via_embedding=true"
    # shellcheck disable=SC2086 # options
    tiny "$kind" --quiet --comm self $sets >"$here/$kind.out" 2>&1 || fail "$kind: $(cat "$here/$kind.out")"
    want=$(hash_in "$kind.out")
    [ "${#want}" -eq 64 ] && [ "$want" != "$plain" ] || fail "$kind: no hash of its own: $(cat "$here/$kind.out")"
    for n in 1 2 4 8; do
        # shellcheck disable=SC2086
        same "$kind-ranks-$n" $n --comm mpi $sets
    done
    # shellcheck disable=SC2086
    same "$kind-data-2-expert-2-model-2" 8 --set mesh.data=2 --set mesh.expert=2 --set mesh.model=2 $sets
done
want=$plain

# ---- saved by 2 ranks, resumed by 1 and by 4 ----
mpi half 2 --set train.time_limit=0 --set train.checkpoint_every=10 --set train.keep_checkpoints=5 --set mesh.expert=2 ||
    fail "half: $(cat "$here/half.err")"
rm -rf "$here/half/checkpoints/"*20
for n in 1 4; do
    cp -R "$here/half" "$here/resumed-$n"
    same "resumed-$n" "$n" --resume --set mesh.expert=1
    grep -q 'going on from the checkpoint of step 10' "$here/resumed-$n/log" || fail "resumed-$n did not go on"
done

# ---- eval and predict ----
cut -f 1 "$here/train.tsv" | head -n 40 >"$here/words"
"$program" eval "$here/data-2" --quiet --file "$here/train.tsv" >"$here/eval-self" || fail "eval: exit $?"
"$program" predict "$here/data-2" <"$here/words" >"$here/predict-self" || fail "predict: exit $?"
for n in 2 4; do
    ranks $n "$program" eval "$here/data-2" --quiet --file "$here/train.tsv" >"$here/eval-$n" || fail "eval $n: exit $?"
    cmp "$here/eval-self" "$here/eval-$n" || fail "eval with $n ranks differs"
    ranks $n "$program" predict "$here/data-2" <"$here/words" >"$here/predict-$n" || fail "predict $n: exit $?"
    cmp "$here/predict-self" "$here/predict-$n" || fail "predict with $n ranks differs"
done
finish
