#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# import and export: folders of Hugging Face transformers give what transformers computes, a run that goes out comes back
# bit for bit, and what is damaged or not supported is an error that leaves nothing behind.
. "$(dirname "$0")/_common.sh"
golden=$top/tests/golden/import
cd "$here" || exit 99

# ---- numbers of transformers ----
exits 0 "$program" verify "$golden"
says out '^3 passed, 0 failed, 0 skipped$'
if [ -n "${SWITCHYARD_GOLDENS:-}" ]; then
    exits 0 "$program" verify "$SWITCHYARD_GOLDENS/import/hf" # one with texts wants the plugin of SentencePiece
    grep -Eq '^1[23] passed, 0 failed, [01] skipped$' out || fail "$SWITCHYARD_GOLDENS/import/hf: $(tail -1 out)"
fi

# ---- there and back ----
# same_weights A B: two run directories of step 0.
weights=checkpoints/0/params.safetensors
round_trip() {
    exits 0 "$program" import "$1" --to "$2-a"
    exits 0 "$program" export "$2-a" --format hf --to "$2-out"
    exits 0 "$program" import "$2-out" --to "$2-b"
    cmp -s "$2-a/$weights" "$2-b/$weights" || fail "$1: other weights after export and import"
}
round_trip "$golden/t5-1.1-sharded" sharded
round_trip "$golden/t5-1.0-bin" zip
round_trip "$golden/t5-1.0-bin-legacy" legacy
says sharded-out/config.json '"tie_word_embeddings":false'
[ "$(ls -A sharded-out | tr '\n' ' ')" = 'config.json generation_config.json model.safetensors ' ] ||
    fail "a folder without a tokenizer: $(ls -A sharded-out)"
exits 0 "$program" plan sharded-a/run.conf

# A run of one's own: relu experts as Switch has them, in every second layer; its outputs stay what they are.
good_run
exits 0 tiny switch --set train.steps=3 --set model.mlp_activations=relu --set moe.num_selected_experts=1 \
    --set model.logits_via_embedding=true --set loss.z_loss=0
exits 0 "$program" export switch --format hf --to switch-hf
says switch-hf/config.json '"model_type":"switch_transformers"'
says switch-hf/config.json '"num_sparse_encoder_layers":1'
says switch-hf/tokenizer_config.json ByT5Tokenizer
exits 0 "$program" import switch-hf --to back
cmp -s switch/checkpoints/3/params.safetensors back/$weights || fail 'experts: other weights after export and import'
printf 'abc\nhgfe\n' >words
for run in switch back; do
    "$program" predict "$run" --set decode.max_length=12 <words >"$run.words" || fail "predict $run"
done
cmp -s switch.words back.words || fail 'other outputs after export and import'
exits 0 "$program" export switch --format safetensors --to plain
cmp -s switch/checkpoints/3/params.safetensors plain/model.safetensors && fail 'names still have target/ in them'
exits 0 "$program" export switch --format hf --dtype bfloat16 --to half
[ "$(wc -c <half/model.safetensors)" -lt "$(wc -c <switch-hf/model.safetensors)" ] || fail 'bfloat16 is no smaller'
exits 0 "$program" import half --to half-run

# ---- what a family there cannot hold ----
exits 1 "$program" export good --format hf --to refused
one_line_error
says err 'model.mlp_activations'
exits 1 "$program" export switch --set moe.eval_capacity_factor=2 --format hf --to refused
says err 'moe.eval_capacity_factor'
exits 1 "$program" export switch --format onnx --to refused
says err 'hf, '
exits 2 "$program" export switch --format hf
[ ! -e refused ] && [ ! -e refused.tmp ] || fail 'a refused export left something'

# ---- folders that are refused ----
# refused TEXT ARGUMENTS...: import fails with that text and leaves nothing.
refused() {
    text=$1
    shift
    exits 1 "$program" import "$@" --to refused
    one_line_error
    says err "$text"
    [ ! -e refused ] && [ ! -e refused.tmp ] || fail "a refused import left something: $text"
}
# changed FROM SED: the folder `changed` with another config.json.
changed() {
    rm -rf changed
    cp -r "$golden/$1" changed && chmod -R u+w changed
    sed "$2" "$golden/$1/config.json" >changed/config.json
    ! cmp -s "$golden/$1/config.json" changed/config.json || fail "nothing is changed by $2"
}
refused 'looks like no checkpoint' empty
mkdir empty
refused 'looks like no checkpoint' empty
changed t5-1.1-sharded 's/"model_type": "t5"/"model_type": "longt5"/'
refused 'longt5.*nearest is t5' changed
changed t5-1.1-sharded 's/gated-gelu/gated-mish/'
refused 'gated-mish.*not supported' changed
changed t5-1.1-sharded 's/"d_kv": 12/"d_kv": 24/'
refused 'has shape \[32,24\], .* wants \[32,48\]' changed
changed t5-1.1-sharded 's/"num_layers": 2/"num_layers": 3/'
refused 'has nothing for encoder/layers_2/' changed
changed t5-1.1-sharded 's/"num_layers": 2/"num_layers": 1/'
refused 'encoder.block.1.*has no place' changed
changed t5-1.1-sharded 's/"num_layers": 2/"num_layers": 1e9/'
refused 'num_layers.*whole number' changed
changed t5-1.1-sharded 's/"eos_token_id": 1/"eos_token_id": 2/'
refused 'the end 2' changed
changed t5-1.1-sharded 's/"vocab_size": 192/"vocab_size": /'
refused 'config.json' changed
refused 'has shape' "$golden/t5-1.1-sharded" --set model.d_ff=41

changed t5-1.1-sharded 's/"d_ff": 40/"d_ff":  40/'
rm changed/model-00003-of-00004.safetensors
refused 'model-00003-of-00004.safetensors' changed
cp "$golden/t5-1.1-sharded"/model-00003* changed && chmod u+w changed/*
sed 's/model-00003-of/..\/model-00003-of/' "$golden/t5-1.1-sharded/model.safetensors.index.json" \
    >changed/model.safetensors.index.json
refused 'in no file of this folder' changed
cp "$golden/t5-1.1-sharded/model.safetensors.index.json" changed
head -c 30000 "$golden/t5-1.1-sharded/model-00003-of-00004.safetensors" >changed/model-00003-of-00004.safetensors
refused 'model-00003-of-00004.safetensors' changed

# Pickles: a name outside the list, and files that end early, byte after byte where it matters.
for form in t5-1.0-bin t5-1.0-bin-legacy; do
    changed $form 's/"d_ff": 48/"d_ff":  48/'
    LC_ALL=C sed 's/_rebuild_tensor_v2/_rebuild_tensor_v7/' "$golden/$form/pytorch_model.bin" >changed/pytorch_model.bin
    refused '_rebuild_tensor_v7' changed
    bytes=$(wc -c <"$golden/$form/pytorch_model.bin")
    for end in 0 3 14 15 40 200 1000 7000 $((bytes / 2)) $((bytes - 40)) $((bytes - 1)); do
        head -c "$end" "$golden/$form/pytorch_model.bin" >changed/pytorch_model.bin
        refused 'pytorch_model.bin' changed
    done
done

# ---- where to ----
exits 1 "$program" import "$golden/t5-1.0-bin" --to zip-a
says err 'not empty'
mkdir taken.tmp
exits 1 "$program" import "$golden/t5-1.0-bin" --to taken
says err 'taken.tmp is in the way'
exits 2 "$program" import "$golden/t5-1.0-bin"
exits 1 "$program" import "$golden/t5-1.0-bin" --format pickle --to refused
says err 'no format pickle'
finish
