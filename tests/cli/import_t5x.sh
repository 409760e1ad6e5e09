#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A checkpoint that T5X wrote, scanned and with Adafactor's state: its numbers are those of T5X, training goes on from it,
# export writes one that imports to the same bits, and damage is an error that leaves nothing.
. "$(dirname "$0")/_common.sh"
"$program" version | grep -q 'gzip' || { echo "SKIP: built without zlib, which the arrays are compressed with"; exit 77; }
cd "$here" || exit 99
gzip -dc "$top/tests/golden/import/t5x-scalable-scanned.tar.gz" | tar xf - || exit 99
checkpoint=scalable-scanned/checkpoint_400
exits 0 "$program" verify scalable-scanned
says out '^1 passed, 0 failed, 0 skipped$'

if [ -n "${SWITCHYARD_GOLDENS:-}" ] && [ -d "$SWITCHYARD_GOLDENS/import/t5x" ]; then
    exits 0 "$program" verify "$SWITCHYARD_GOLDENS/import/t5x"
fi

# ---- training goes on ----
awk 'BEGIN { for (i = 0; i < 60; i++) print "w" i }' >words
awk 'BEGIN { for (i = 0; i < 40; i++) print "w" i " w" 10 + i % 30 " w6\tw7 w" i * 7 % 50 }' >train.tsv
import() { # FOLDER RUN
    exits 0 "$program" import "$1" --to "$2" --set vocabulary.kind=words --set vocabulary.file="$here/words"
}
resume() { # RUN
    exits 0 "$program" train "$1/run.conf" --run-dir "$1" --resume --threads 1 --set train.steps=402 \
        --set task.words.train="$here/train.tsv" --set data.batch_size=8 --set data.max_input_length=16 \
        --set data.max_target_length=16
    [ "$(hash_in out | wc -c)" -eq 65 ] || fail "$1: no hash of weights: $(cat err)"
}
import $checkpoint run
says run/run.conf "file = \"$here/run/vocabulary\""
says err 'does not say these.*model.mlp_activations = "gelu,linear".*model.dropout_rate'
says out '^64 parameters, step 400$'
cp -R run trained
resume trained
hash=$(hash_in out)

# ---- to go on with another optimizer ----
exits 0 "$program" import $checkpoint --to other --set vocabulary.kind=words --set vocabulary.file="$here/words" --set optimizer.name=sgd
says out 'state of the optimizer left out: the run is to have optimizer.name = sgd$'
! grep -qs param_states other/checkpoints/400/*.safetensors || fail "state of Adafactor for sgd: $(ls other/checkpoints/400)"

# ---- out and in again ----
exits 0 "$program" export run --format t5x --to out.t5x
says out 'does not say these, give them in its gin file: vocabulary.kind = "words", model.mlp_activations = '
import out.t5x/checkpoint_400 again
for file in params state; do
    cmp -s "run/checkpoints/400/$file.safetensors" "again/checkpoints/400/$file.safetensors" ||
        fail "$file differs after export and import"
done
cp -R again again.trained
resume again.trained
[ "$(hash_in out)" = "$hash" ] || fail "training goes on to other weights from what was exported"
# T5X's own decision on what is an array of its own: parameters, and all of v that is not factored.
ls out.t5x/checkpoint_400 | sed 's/layers_[0-9]*/layers_N/' | sort -u >names
for name in checkpoint target.decoder.logits_dense.kernel target.encoder.layers_N.attention.query.kernel \
    state.param_states.token_embedder.embedding.v; do
    grep -qx "$name" names || fail "the exported checkpoint lacks $name: $(cat names)"
done
grep -q 'v_row\|v_col' names && fail "row and column means are in the index: $(grep v_ names)"

# ---- a run whose weights are bfloat16 already ----
exits 0 "$program" ckpt cast run --dtype bfloat16 --to half
exits 0 "$program" ckpt cast half --dtype float32 --to wide
for dtype in bfloat16:bfloat16 'float32:<f4'; do
    exits 0 "$program" export half --format t5x --dtype "${dtype%:*}" --to "half.${dtype%:*}"
    grep -q "\"dtype\":\"${dtype#*:}\"" "half.${dtype%:*}/checkpoint_400/target.encoder.layers_0.mlp.wo.kernel/.zarray" ||
        fail "weights exported as ${dtype%:*} are not stored so"
    import "half.${dtype%:*}/checkpoint_400" "half.${dtype%:*}.run"
    exits 0 "$program" ckpt diff wide "half.${dtype%:*}.run"
done

# ---- Adafactor's momentum in bfloat16; what T5X has no form for ----
adafactor='--set run.compat=t5x --set optimizer.name=adafactor --set optimizer.min_dim_size_to_factor=16'
half='--set optimizer.beta1=0.9 --set optimizer.dtype_momentum=bfloat16'
# shellcheck disable=SC2086
exits 0 tiny momentum $adafactor $half --set train.steps=1
# A gin file has no word for places for all tokens but the number of experts.
exits 0 "$program" export momentum --format t5x --to all.t5x --set moe.train_capacity_factor=0 --set moe.num_experts=4
says out 'moe.decoder_router_type = "same", .*moe.ignore_padding_tokens = false, .*moe.train_capacity_factor = 4, moe.eval_capacity_factor = 2,'
exits 0 "$program" export momentum --format t5x --to momentum.t5x
exits 0 "$program" import momentum.t5x/checkpoint_1 --to momentum.back --set moe.num_selected_experts=2
! grep -q 'left out' out || fail "a momentum in bfloat16 is left out: $(cat out)"
cmp -s momentum/checkpoints/1/state.safetensors momentum.back/checkpoints/1/state.safetensors ||
    fail 'a momentum in bfloat16 is another after export and import'
exits 0 "$program" train momentum.back/run.conf --run-dir momentum.back --resume --set task.words.train="$here/train.tsv" \
    --set train.steps=2 --set data.batch_size=8
# shellcheck disable=SC2086
exits 0 tiny beside $adafactor --set 'optimizer.emb.match=["*embedding*"]' --set optimizer.emb.name=adamw --set train.steps=0
exits 0 "$program" export beside --format t5x --to beside.t5x
says out "state is left out: it is not in T5X's form, and there is none for Adafactor in a chain or beside others"

# ---- damage ----
# A folder that T5X has not renamed: its own name says so, not that of one above it.
mkdir above.tmp-1
cp -R $checkpoint above.tmp-1/checkpoint_400
import above.tmp-1/checkpoint_400 above
cp -R $checkpoint bad.tmp-1
exits 1 "$program" import bad.tmp-1/ --to never --quiet
says err 'a checkpoint that was never finished'
# refused TEXT: an import of the folder `bad` is one line with TEXT, and leaves nothing.
refused() {
    exits 1 "$program" import bad --to never --quiet --format t5x
    one_line_error
    says err "$1"
    [ ! -e never ] && [ ! -e never.tmp ] || fail "$1: it left $(ls -d never*)"
    rm -rf bad
}
damaged() { # makes the folder `bad`
    cp -R $checkpoint bad
    array=bad/target.encoder.encoder.mlp.wo.kernel
}
damaged
chunk=$(ls $array | head -1)
head -c 100 "$checkpoint/target.encoder.encoder.mlp.wo.kernel/$chunk" >"$array/$chunk"
refused "wo.kernel/$chunk"
damaged
rm "$array/$chunk"
refused "wo.kernel/$chunk is missing"
damaged
rm $array/.zarray
ln -s /dev/null $array/.zarray
refused 'wo.kernel/.zarray is no regular file'
damaged
printf '{' >$array/.zarray
refused 'wo.kernel/.zarray: malformed JSON'
for bytes in 0 1 100 5000; do
    damaged
    head -c $bytes $checkpoint/checkpoint >bad/checkpoint
    refused 'bad/checkpoint: malformed msgpack at byte'
done
mkdir -p bad/state
: >bad/state/manifest.ocdbt
refused 'OCDBT.*use_orbax = False'
mkdir bad
refused 'give the folder of one step, checkpoint_N'
exits 1 "$program" import $checkpoint --to never --quiet --set model.d_ff=41
says err 'mlp.*has shape .*wants'
exits 1 "$program" import $checkpoint --to never --quiet --set train.microbatches=128
says err 'train.microbatches = 128 must divide data.batch_size'
[ ! -e never ] || fail 'an import that does not fit left a run directory'
finish
