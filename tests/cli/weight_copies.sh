#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# model.dtype = bfloat16: programs of gradients read copies of the weights that the update leaves, with the emulated tiles of
# amx_bf16 in panels. Whatever writes weights in between (a checkpoint, averages that are evaluated, nothing at all where
# weights are frozen), the weights have the bits of a run that casts them anew in every program, which one with memory.budget
# does.
. "$(dirname "$0")/_common.sh"
unset SWITCHYARD_CPU_VARIANT
cd "$here" || exit 99
data train.tsv 300 1
data valid.tsv 20 2
sed 's/^\[train\]$/[task.words]\ntrain = "train.tsv"\nvalid = "valid.tsv"\n&/' "$top/bench/tiny.run" >plain.run
# Of the weights that attention packs, those of the value stand still.
frozen() {
    cat "$1" - <<'END'
[optimizer.moving]
match = ["*/query/*", "*/key/*", "*/mlp/*", "token_embedder/*", "*/out/*"]
END
}
# What fills panels, on the kernels that train with them, which are slow: little else.
sed 's/^d_model = .*/d_model = 64/; s/^d_ff = .*/d_ff = 128/; s/^head_dim = .*/head_dim = 32/; s/^batch_size = 32/batch_size = 16/' plain.run >panels.run
cat >>panels.run <<'END'
[cpu]
variant = "amx_bf16"
emulate = true
END

# hash NAME RUNFILE ARGUMENTS...: trains $steps steps and prints the hash of the weights.
hash() {
    name=$1 file=$2
    shift 2
    rm -rf "$name"
    "$program" train "$file" --run-dir "$name" --quiet --threads 1 --set model.dtype=bfloat16 --set train.steps=$steps "$@" \
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
    [ -n "$got" ] && [ "$got" = "$want" ] || fail "$of, $what: weights are others than with casts"
}

# count PATTERN RUNFILE ARGUMENTS...: lines of explain.
count() {
    pattern=$1
    shift
    "$program" explain "$@" --set model.dtype=bfloat16 | grep -c "$pattern"
}

# check RUNFILE: one that casts, updates and goes on in every way.
check() {
    file=$1
    frozen "$file" >frozen.run
    same plain "$file"
    unbroken=$got
    same microbatches "$file" --set train.microbatches=4
    same evaluated "$file" --set train.evaluate_every=3
    same metrics "$file" --set metrics.weights_every=1
    same averages "$file" --set optimizer.name=schedule_free --set train.evaluate_every=3
    same muon "$file" --set optimizer.name=muon
    same frozen frozen.run
    [ "$got" != "$unbroken" ] || fail "$file: frozen weights moved: this proves nothing"

    # Ranks and ZeRO; with stage 3 a rank has pieces of weights and casts them.
    for zero in 0 1 2 3; do
        got=$(hash ranks "$file" --comm thread --ranks 2 --set mesh.data=2 --set mesh.zero=$zero)
        [ "$got" = "$unbroken" ] || fail "$file: mesh.zero = $zero: weights are others"
    done
    got=$(hash ranks "$file" --comm thread --ranks 4 --set mesh.expert=2 --set mesh.model=2)
    [ "$got" = "$unbroken" ] || fail "$file: mesh.expert = 2, mesh.model = 2: weights are others"

    # A checkpoint has the weights alone.
    hash parts "$file" --set train.steps=$((steps / 2)) >/dev/null
    exits 0 "$program" train --resume parts --quiet --set train.steps=$steps
    [ "$(hash_in out)" = "$unbroken" ] || fail "$file, resumed: weights are others"
}

[ "$(count ' map .* bf16/\|(bf16/' plain.run --program update)" -ge 10 ] || fail "the update leaves no copies"
[ "$(count ' q0 .*(bf16/.*<-' plain.run --program grad_first --after record)" -eq 0 ] || fail "a program of gradients makes copies"
[ "$(count '<-.*(bf16/' plain.run --program grad_first --after record)" -ge 10 ] || fail "a program of gradients reads no copies"
[ "$(count 'bf16/' plain.run --program update $casts)" -eq 0 ] || fail "copies under memory.budget"
steps=8
check plain.run

if ! "$program" explain panels.run --program grad_first >/dev/null 2>err; then
    says err 'AVX512-BF16\|no kernels of amx_bf16'
    [ "$failures" -eq 0 ] && echo "skipped: training with panels ($(cat err))"
    finish
fi
laid=$(count ' lay_out_both .*panels/.*panels_nt/' panels.run --program update)
[ "$laid" -ge 20 ] && [ "$(count ' lay_out_both .*+' panels.run --program update)" -ge 4 ] || fail "the update lays out $laid pairs of copies"
[ "$(count ' lay_out \| lay_out_nt ' panels.run --program update)" -eq 0 ] || fail "the update reads weights twice"
[ "$(count ' matmul_panels .*(panels/' panels.run --program grad_first)" -ge 10 ] || fail "forward products read no panels"
[ "$(count ' matmul_panels .*(panels_nt/' panels.run --program grad_first)" -ge 10 ] || fail "gradients of x read no panels"
[ "$(count ' grouped_matmul_panels ' panels.run --program grad_first)" -ge 8 ] || fail "experts read no panels"
[ "$(count ' matmul \| matmul_nt .*bf16' panels.run --program grad_first)" -lt 10 ] || fail "products read weights as they are"
[ "$(count '(bf16/\| lay_out' panels.run --program grad_first)" -eq 0 ] || fail "other copies, or panels made in grad_first"
[ "$(count 'panels' panels.run --program update $casts)" -eq 0 ] || fail "panels under memory.budget"
[ "$(count 'panels' panels.run --program grad_first --set cpu.variant=avx512_bf16 --set cpu.emulate=false)" -eq 0 ] ||
    fail "avx512_bf16 trains with panels"
steps=4
check panels.run
finish
