#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One SHA-256 of the weights after 50 steps, whatever the processes and the mesh; a checkpoint goes on with another
# number of them; eval and predict give the same numbers and lines.
. "$(dirname "$0")/_common.sh"

# same NAME N ARGUMENTS...: trains with N ranks; the weights must be those of one process without MPI.
same() {
    name=$1
    # shellcheck disable=SC2086 # options
    mpi "$@" $sets || fail "$name: exit $?: $(cat "$here/$name.err")"
    got=$(hash_in "$name.out")
    echo "$name  $got"
    [ "$got" = "$want" ] || fail "$name: weights differ"
    [ "$(grep -c '^done' "$here/$name.out")" -eq 1 ] || fail "$name: printed more than once: $(cat "$here/$name.out")"
}

# reference NAME ARGUMENTS...: the weights of one process, into $want.
reference() {
    name=$1
    # shellcheck disable=SC2086
    tiny "$@" --quiet --comm self $sets >"$here/$name.out" 2>&1 || fail "$name: $(cat "$here/$name.out")"
    want=$(hash_in "$name.out")
    [ "${#want}" -eq 64 ] || fail "no hash of the reference run: $(cat "$here/$name.out")"
}

# norms NAME: the norm of all gradients at every step, bit for bit.
norms() {
    "$program" metrics "$here/$1" --tsv "SELECT step, printf('%.17g', value) FROM metric WHERE name = 'weight_gradient_norm'"
}

# ---- every split of 1, 2, 4 and 8 ranks, over eight leaves ----
leaves='--set reproducible.blocks=8 --set reproducible.min_leaf=1'
sets="$leaves --set train.steps=50 --set metrics.every=1"
reference self
norms self >"$here/norms"
[ "$(wc -l <"$here/norms")" -ge 50 ] || fail "no norms: $(cat "$here/norms")"
# sized DATA EXPERT MODEL: a mesh.
sized() {
    name=data-$1-expert-$2-model-$3
    same "$name" $(($1 * $2 * $3)) --comm mpi --set mesh.data="$1" --set mesh.expert="$2" --set mesh.model="$3"
    norms "$name" | cmp -s - "$here/norms" || fail "$name: norms differ: $(norms "$name" | diff - "$here/norms" | head -n 4)"
}
for mesh in '1 1 1' '2 1 1' '1 2 1' '1 1 2' '4 1 1' '1 4 1' '1 1 4' '2 2 1' '2 1 2' '1 2 2' '8 1 1' '2 2 2'; do
    # shellcheck disable=SC2086 # three numbers
    sized $mesh
done
same threads-3 2 --threads 3

# ---- ranks with other numbers of threads, within a budget: what is computed again is the same on all of them ----
before=$sets plain=$want
sets="$leaves --set train.steps=2 --set model.head_dim=64 --set model.num_encoder_layers=4 --set train.microbatches=1"
reference roomy
sets="$sets --set checkpoint.background=false --set memory.budget=13000000"
one="$program train $top/bench/tiny.run --run-dir $here/uneven --quiet --set task.words.train=$here/train.tsv $sets"
# shellcheck disable=SC2086 # commands and their options
timeout -k 5 300 $launcher -n 1 $one --threads 1 : -n 1 $one --threads 2 >"$here/uneven.out" 2>"$here/uneven.err" </dev/null ||
    fail "uneven threads: exit $?: $(cat "$here/uneven.err")"
[ "$(hash_in uneven.out)" = "$want" ] || fail 'uneven threads: weights differ'
sets=$before want=$plain

# ---- 1, 2 and 4 microbatches, a table shared by embedding and logits: hashes of their own ----
before=$sets plain=$want
for parts in 1 2 4; do
    sets="$leaves --set train.steps=6 --set train.microbatches=$parts --set model.logits_via_embedding=true"
    reference tied-$parts
    [ "$want" != "$plain" ] || fail "tied-$parts: no hash of its own"
    for n in 1 2 4 8; do
        same tied-$parts-ranks-$n $n --comm mpi
    done
    same tied-$parts-data-2-expert-2-model-2 8 --set mesh.data=2 --set mesh.expert=2 --set mesh.model=2
done
sets=$before want=$plain

# ---- saved by 1, 2 and 4 ranks: the same bytes; so one of them stands for all where 1, 2 and 4 ranks go on ----
saved() {
    n=$1
    shift
    same "saved-$n" "$n" --comm mpi --set train.checkpoint_every=20 --set train.keep_checkpoints=5 "$@"
    for file in params.safetensors state.safetensors meta.json; do
        cmp "$here/saved-1/checkpoints/20/$file" "$here/saved-$n/checkpoints/20/$file" || fail "saved-$n: another $file"
    done
}
resumed() {
    n=$1
    shift
    cp -R "$here/saved-4" "$here/resumed-$n"
    rm -r "$here/resumed-$n/checkpoints/40" "$here/resumed-$n/checkpoints/50"
    same "resumed-$n" "$n" --resume "$@"
    grep -q 'going on from the checkpoint of step 20' "$here/resumed-$n/log" || fail "resumed-$n did not go on"
}
saved 1
saved 2 --set mesh.expert=2 --set mesh.zero=1
saved 4 --set mesh.data=2 --set mesh.expert=2 --set mesh.zero=3
resumed 1 --set mesh.expert=1 --set mesh.data=1 --set mesh.zero=0
resumed 2 --set mesh.model=2 --set mesh.data=1 --set mesh.expert=1
resumed 4 --set mesh.expert=4 --set mesh.data=1 --set mesh.zero=1

# ---- eval and predict ----
cut -f 1 "$here/train.tsv" | head -n 40 >"$here/words"
"$program" eval "$here/threads-3" --quiet --file "$here/train.tsv" >"$here/eval-self" || fail "eval: exit $?"
"$program" predict "$here/threads-3" <"$here/words" >"$here/predict-self" || fail "predict: exit $?"
"$program" score "$here/threads-3" <"$here/train.tsv" >"$here/score-self" || fail "score: exit $?"
for n in 2 4; do
    ranks $n "$program" eval "$here/threads-3" --quiet --file "$here/train.tsv" >"$here/eval-$n" || fail "eval $n: exit $?"
    cmp "$here/eval-self" "$here/eval-$n" || fail "eval with $n ranks differs"
    ranks $n "$program" predict "$here/threads-3" <"$here/words" >"$here/predict-$n" || fail "predict $n: exit $?"
    cmp "$here/predict-self" "$here/predict-$n" || fail "predict with $n ranks differs"
    ranks $n "$program" score "$here/threads-3" --file "$here/train.tsv" >"$here/score-$n" || fail "score $n: exit $?"
    cmp "$here/score-self" "$here/score-$n" || fail "score with $n ranks differs"
done
# Who waits for input hangs not, however long it takes.
{ head -n 1 "$here/words"; sleep 8; tail -n +2 "$here/words"; } | SWITCHYARD_COMM_TIMEOUT=3 ranks 2 "$program" predict "$here/threads-3" >"$here/slow" ||
    fail "predict of a slow input: exit $?"
cmp "$here/predict-self" "$here/slow" || fail "predict of a slow input differs"
finish
