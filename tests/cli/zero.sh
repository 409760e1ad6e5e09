#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mesh.zero splits optimizer state, gradients and parameters over the ranks that share a batch: less memory, the same bits.
. "$(dirname "$0")/_common.sh"
tiny_run=$top/bench/tiny.run
cd "$here" || exit 99
data train.tsv 500 1

hash_run=$tiny_run
momentum='--set optimizer.name=adafactor --set optimizer.min_dim_size_to_factor=8 --set optimizer.beta1=0.9'
adamw=$(hash adamw --set train.checkpoint_every=4)
adafactor=$(hash adafactor $momentum)
rounded="$momentum --set optimizer.dtype_momentum=bfloat16"
rounded_adafactor=$(hash rounded $rounded)
[ "$adamw" != "$adafactor" ] || fail "two optimizers with the same weights: the hash says nothing"
for zero in 1 3; do
    same "$adamw" data-4-$zero --comm thread --ranks 4 --set mesh.zero=$zero
    same "$adamw" experts-$zero --comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2 --set mesh.zero=$zero
    same "$adamw" model-$zero --comm thread --ranks 4 --set mesh.data=2 --set mesh.model=2 --set mesh.zero=$zero
    same "$adafactor" adafactor-$zero --comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2 --set mesh.zero=$zero \
        $momentum
    same "$rounded_adafactor" rounded-$zero --comm thread --ranks 2 --set mesh.zero=$zero $rounded
done

# A checkpoint of shards goes on as whole tensors, and the reverse.
same "$adamw" saved --comm thread --ranks 2 --set mesh.zero=1 --set train.checkpoint_every=4
rm -rf saved/checkpoints/8 adamw/checkpoints/8
same "$adamw" saved --resume
same "$adamw" adamw --resume --comm thread --ranks 4 --set mesh.zero=3

# ---- memory: whole, parameters whole and state in four parts, everything in four parts ----
for zero in 0 1 3; do
    exits 0 "$program" plan "$tiny_run" --tensors --backend null --devices 4 --set mesh.zero=$zero
    eval "bytes_$zero=\$(sed -n 's/^  persist  *\([0-9]*\) bytes.*/\1/p' out)"
done
parameters=$((4 * $(sed -n 's/^\([0-9]*\) parameters in .*/\1/p' out)))
near() { [ "$1" -ge "$2" ] && [ "$1" -le $(($2 * 105 / 100)) ]; } # padding to cache lines
near "$bytes_0" $((3 * parameters)) || fail "copies take $bytes_0 bytes"
near "$bytes_1" $((parameters + 2 * parameters / 4)) || fail "zero 1 takes $bytes_1 bytes of $bytes_0"
near "$bytes_3" $((3 * parameters / 4)) || fail "zero 3 takes $bytes_3 bytes of $bytes_0"
says out 'token_embedder/embedding  *\[384/d, 32\] (vocab, embed)'
exits 2 "$program" plan "$tiny_run" --set mesh.zero=4
finish
