#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train.gradient_dtype = bfloat16: gradients of matrices are rounded once they are whole, so weights do not depend on threads,
# instruction sets, ranks, ZeRO, or whether a product rounds itself; half the memory; what cannot be kept is refused.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 500 1
sed 's/^\[train\]$/[task.words]\ntrain = "train.tsv"\n&\ngradient_dtype = "bfloat16"/; s/^microbatches = 2$/microbatches = 1/' "$top/bench/tiny.run" >half.run

hash_run=half.run
adamw=$(hash adamw)
[ "$adamw" != "$(hash float32 --set train.gradient_dtype=float32)" ] || fail "rounding changes nothing: this proves nothing"
same "$adamw" portable --set cpu.variant=portable
same "$adamw" threads-3 --threads 3
same "$adamw" metrics --set metrics.weights_every=1
same "$adamw" budget --set memory.budget=4000000000
for variant in avx2 avx512 neon; do # those that this CPU has
    "$program" train half.run --run-dir "probe-$variant" --quiet --set cpu.variant=$variant --set train.steps=0 >/dev/null 2>&1 &&
        same "$adamw" $variant --set cpu.variant=$variant
done

# ---- ranks ----
same "$adamw" data-2 --comm thread --ranks 2 --set mesh.data=2
same "$adamw" split-2 --comm thread --ranks 2 --set mesh.model=2
same "$adamw" expert-2-model-2 --comm thread --ranks 4 --set mesh.expert=2 --set mesh.model=2
for zero in 1 2 3; do
    same "$adamw" data-4-$zero --comm thread --ranks 4 --set mesh.zero=$zero
    same "$adamw" experts-$zero --comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2 --set mesh.zero=$zero
    same "$adamw" model-$zero --comm thread --ranks 4 --set mesh.data=2 --set mesh.model=2 --set mesh.zero=$zero
done

# ---- other optimizers; a model in bfloat16, whose products round by other kernels ----
adafactor='--set optimizer.name=adafactor --set optimizer.min_dim_size_to_factor=8 --set optimizer.beta1=0.9'
for how in "$adafactor" '--set optimizer.name=muon' '--set model.dtype=bfloat16' '--set train.clip_norm=0' \
    '--set moe.scale_expert_gradients=false --set optimizer.name=adafactor'; do
    n=$((${n:-0} + 1))
    want=$(hash plain-$n $how)
    echo "$how"
    same "$want" ranks-$n $how --comm thread --ranks 2 --set mesh.data=2
    same "$want" zero-$n $how --comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2 --set mesh.zero=1
done

# ---- a resume goes on with it, says when it is another, and refuses what it refuses at the start ----
same "$adamw" resumed --set train.checkpoint_every=4
rm -rf resumed/checkpoints/8
same "$adamw" resumed --resume
rm -rf resumed/checkpoints/8
exits 0 "$program" train resumed --resume --set train.gradient_dtype=float32
says err 'train.gradient_dtype.*float32'
exits 2 "$program" train resumed --resume --set train.gradient_dtype=bfloat16 --set train.microbatches=2
says err 'train.microbatches = 2 would round the sum'

# ---- refused ----
exits 2 "$program" plan half.run --set train.microbatches=2
says err 'set train.microbatches = 1, or train.gradient_dtype = float32'
exits 2 "$program" plan half.run --set run.compat=t5x
says err 'run.compat = t5x follows, keeps gradients in float32'
exits 2 "$program" plan half.run --set optimizer.name=dpsgd --set data.batch_size=1 --set train.clip_norm=0 \
    --set train.microbatch_normalizer=microbatch --set moe.scale_expert_gradients=false --set moe.group_rows=1
says err 'set train.gradient_dtype = "float32"'
exits 2 "$program" plan half.run --set train.gradient_dtype=float16
says err 'float32 | bfloat16\|float32, bfloat16'

# ---- memory, and who writes a gradient ----
carry() { "$program" plan half.run "$@" | sed -n 's/^  carry  *\([0-9]*\) bytes.*/\1/p'; }
matrices=$("$program" explain half.run --program grad_first --after record | grep -c 'copy.*(grad/\|(grad/.*bf16.*copy')
[ "$matrices" -gt 10 ] || fail "$matrices gradients are rounded"
half=$(carry) whole=$(carry --set train.gradient_dtype=float32)
parameters=$("$program" plan half.run | sed -n 's/^\([0-9]*\) parameters in .*/\1/p')
[ $((whole - half)) -ge $((parameters * 2 * 95 / 100)) ] || fail "gradients of $parameters weights take $half bytes, in float32 $whole"
"$program" explain half.run --program grad_first --after fold >fold.txt
grep -q 'grouped_matmul_tn  *t[0-9]*(grad/.*bf16' fold.txt || fail "no product of experts writes its gradient"
grep -q 'unpack  *t[0-9]*(grad/.*bf16' fold.txt || fail "no joined gradient is rounded before it is taken apart"
"$program" explain half.run --program grad_first --after fold --comm thread --ranks 2 --set mesh.data=2 >ranks.txt
grep -q 'matmul_tn  *t[0-9]*(grad/.*bf16' ranks.txt && fail "a product rounds what is a term of a sum"
finish
