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
# transformers 5 refuses a folder that has 0 where its configuration has a real number.
exits 0 "$program" export switch --format hf --to no-losses --set moe.aux_loss_factor=0 --set moe.router_z_loss_factor=0
for loss in aux z; do says no-losses/config.json "\"router_${loss}_loss_coef\":0\.0"; done
exits 0 "$program" import switch-hf --to back
cmp -s switch/checkpoints/3/params.safetensors back/$weights || fail 'experts: other weights after export and import'
printf 'abc\nhgfe\n' >words
for run in switch back; do
    "$program" predict "$run" --set decode.max_length=12 <words >"$run.words" || fail "predict $run"
done
cmp -s switch.words back.words || fail 'other outputs after export and import'
# A weight that is not finite is warned of on its way in, and once where it shows.
cp -R switch-hf nan-hf
{
    head -c $(($(wc -c <switch-hf/model.safetensors) - 4)) switch-hf/model.safetensors
    printf '\0\0\300\377'
} >nan-hf/model.safetensors
exits 0 "$program" import nan-hf --to nan --quiet
one_line_error
says err 'warning: 1 of [0-9]* values of shared.weight are not finite'
awk '{ print $0 "\tA" }' words >pairs
for command in 'predict nan --scores' 'predict nan --beams 2' 'predict nan --temperature 1 --scores' 'score nan --file pairs'; do
    # shellcheck disable=SC2086
    "$program" $command --set decode.max_length=12 <words >out 2>err
    got=$?
    [ $got -eq 1 ] || fail "$command: exit $got"
    one_line_error
    says err 'the score of input line 1 is not finite'
    ! grep -q -e -nan out || fail "$command: $(cat out)"
done
# A head of its own: transformers 5 wants both tables beside shared.weight.
exits 0 tiny own-head --set train.steps=0 --set model.mlp_activations=relu --set moe.num_selected_experts=1
exits 0 "$program" export own-head --format hf --to own-head-hf
for table in encoder decoder; do
    head -c 20000 own-head-hf/model.safetensors | grep -aq "\"$table.embed_tokens.weight\"" || fail "there is no $table.embed_tokens.weight"
done
exits 0 "$program" import own-head-hf --to own-head-back
cmp -s own-head/$weights own-head-back/$weights || fail 'a head of its own: other weights after export and import'
exits 0 "$program" export switch --format safetensors --to plain
cmp -s switch/checkpoints/3/params.safetensors plain/model.safetensors && fail 'names still have target/ in them'
exits 0 "$program" export switch --format hf --dtype bfloat16 --to half
[ "$(wc -c <half/model.safetensors)" -lt "$(wc -c <switch-hf/model.safetensors)" ] || fail 'bfloat16 is no smaller'
exits 0 "$program" import half --to half-run
# Weights that are bfloat16 in the run already.
exits 0 "$program" ckpt cast switch --dtype bfloat16 --to cast
exits 0 "$program" ckpt cast cast --dtype float32 --to widened
for format in hf safetensors; do
    for of in switch:bfloat16 widened:float32; do
        exits 0 "$program" export "${of%:*}" --format $format --dtype "${of#*:}" --to "$format-${of%:*}"
        exits 0 "$program" export cast --format $format --dtype "${of#*:}" --to "$format-cast-${of#*:}"
        cmp -s "$format-${of%:*}/model.safetensors" "$format-cast-${of#*:}/model.safetensors" ||
            fail "$format: weights of a run in bfloat16 are others as ${of#*:}"
    done
done

# ---- what a family there cannot hold ----
# unexported RUN FORMAT TEXT [KEY=VALUE [KEY=VALUE]]: an export that fails with that text.
unexported() {
    exits 1 "$program" export "$1" --format "$2" --to refused ${4:+--set "$4"} ${5:+--set "$5"}
    one_line_error
    says err "$3"
}
unexported good hf 'model.mlp_activations = "gelu,linear": transformers has no such model'
unexported switch hf 'moe.eval_capacity_factor = 2.0: ' moe.eval_capacity_factor=2
unexported switch hf 'moe.normalize_top_k = true: ' moe.normalize_top_k=true
unexported switch hf 'moe.decoder_router_type = "experts_choose_masked": ' \
    moe.decoder_router_type=experts_choose_masked run.compat=t5x
exits 0 tiny wide --set train.steps=0 --set model.mlp_activations=relu --set moe.num_selected_experts=1 \
    --set model.logits_via_embedding=true --set moe.expert_mlp_dim=48
unexported wide hf 'moe.expert_mlp_dim = 48: transformers has no such model'
unexported switch hf 'other weights than this model, the first is ' model.d_ff=65

# ---- what T5X's networks do not have ----
unexported switch t5x 'moe.expert_capacity = 8: T5X has no such model.*--set moe.expert_capacity=0' moe.expert_capacity=8
unexported switch t5x 'moe.normalize_top_k = true: ' moe.normalize_top_k=true
unexported switch t5x 'model.scale_decoder_outputs = "false": ' model.scale_decoder_outputs=false
unexported switch t5x 'model.decoder_start_token_id = 3: ' model.decoder_start_token_id=3
unexported switch t5x 'other weights than this model' model.logits_via_embedding=false
exits 0 tiny apart --set train.steps=0 --set model.num_encoder_layers=4 --set 'moe.encoder_sparse_layers=[0, 3]' \
    --set moe.num_shared_experts=1 --set moe.num_encoder_sparse_layers=1
unexported apart t5x 'moe.num_shared_experts = 1: '
# A key that takes away weights is no way around it.
unexported apart t5x 'parameters and this model' moe.num_shared_experts=0
exits 0 tiny apart-2 --set train.steps=0 --set model.num_encoder_layers=4 --set 'moe.encoder_sparse_layers=[0, 3]' \
    --set moe.num_encoder_sparse_layers=1
unexported apart-2 t5x 'moe.encoder_sparse_layers = \[0, 3\]: T5X has no such model: .*evenly spread'

# ---- one folder, two models: versions 4 and 5 ----
dense='--set train.steps=0 --set moe.num_experts=0'
# shellcheck disable=SC2086
exits 0 tiny umt5 $dense --set model.relpos_per_layer=true
exits 0 "$program" export umt5 --format hf --to umt5-hf --quiet
says err 'transformers 4 and 5.24 compute this model, and the first versions of transformers 5 another one'
# The scale stands in config.json, and what imports it reads it there.
data pairs.tsv 4 3
for scaled in true false; do
    exits 0 "$program" export umt5 --format hf --to umt5-$scaled --quiet --set model.scale_decoder_outputs=$scaled
    says umt5-$scaled/config.json "\"scale_decoder_outputs\":$scaled"
    exits 0 "$program" import umt5-$scaled --to umt5-$scaled-back
    exits 0 "$program" score umt5 --file pairs.tsv --set model.scale_decoder_outputs=$scaled
    mv out scores
    exits 0 "$program" score umt5-$scaled-back --file pairs.tsv
    paste scores out | awk '{ if (!($1 - $2 < 1e-4 && $2 - $1 < 1e-4)) exit 1 }' ||
        fail "umt5: other scores after export and import, scaled $scaled: $(paste scores out)"
done
# shellcheck disable=SC2086
exits 0 tiny dense $dense
exits 0 "$program" export dense --format hf --to dense-hf --quiet
[ ! -s err ] || fail "a warning about a model that both versions compute: $(cat err)"
exits 0 "$program" export dense --format hf --to scaled-hf --quiet --set model.scale_decoder_outputs=true
says err 'transformers 5 computes this model, and transformers 4 another one'
exits 2 "$program" export switch --format onnx --to refused
says err '^switchyard: there is no format onnx: one of hf, safetensors, t5x$'
exits 2 "$program" export switch --format hf
[ ! -e refused ] && [ ! -e refused.tmp ] || fail 'a refused export left something'

# ---- a vocabulary in tokenizer.json alone, as version 5 saves it ----
cp -r "$golden/t5-1.1-sharded" texts && chmod -R u+w texts
cat >texts/tokenizer.json <<'END'
{"normalizer": null, "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": false, "vocab":
    [["<pad>", 0], ["</s>", 0], ["<unk>", 0], ["\u2581", -2], ["\u2581ab", -3], ["c", -4]]}}
END
exits 0 "$program" import texts --to texts-run
says texts-run/run.conf "file = \"$here/texts-run/vocabulary\""
# Another kind has another file, or none: the folder's is of no use to it.
exits 0 "$program" import texts --to bytes-run --set vocabulary.kind=bytes
says bytes-run/run.conf '^kind = "bytes"$'
exits 1 "$program" import texts --to never --set vocabulary.kind=words
says err 'vocabulary.file is empty'
# What cannot be had is no hindrance where it is not wanted.
echo '{"model": {"type": "BPE", "vocab": {"a": 0}}}' >texts/tokenizer.json
exits 1 "$program" import texts --to never
says err 'its model is not a unigram one.*name another with --set vocabulary.kind'
printf 'a\nb\n' >letters
exits 0 "$program" import texts --to letters-run --set vocabulary.kind=characters --set vocabulary.file=letters
says out '^tokenizer.json is not taken over'
rm -r texts
exits 0 "$program" export texts-run --format hf --to texts-out
cmp -s texts-run/vocabulary texts-out/spiece.model || fail 'the model made of tokenizer.json is not what is exported'
if [ -e "${SWITCHYARD_BACKEND_PATH%%:*}/switchyard-sentencepiece.so" ]; then
    printf 'abc ab\n' >text
    "$program" tokenize texts-run <text >ids || fail 'tokenize'
    says ids '^4 5 4	'
    # A model whose end is another id than T5's: generate() has to stop there, and T5's tokenizer is another.
    piece() { # TEXT TYPE
        printf "\\012\\$(printf %03o $((${#1} + 9)))\\012\\$(printf %03o ${#1})%s\\025\\000\\000\\000\\000\\030\\$(printf %03o "$2")" "$1"
    }
    { piece '<pad>' 3; piece '<unk>' 2; piece '<s>' 3; piece '</s>' 3; piece a 1; piece b 1; } >other.model
    exits 0 tiny other --set train.steps=0 --set moe.num_experts=0 --set vocabulary.kind=sentencepiece --set vocabulary.file=other.model
    exits 0 "$program" export other --format hf --to other-hf
    says out '^no tokenizer is written'
    for name in config generation_config; do says other-hf/$name.json '"eos_token_id":3,'; done
    # Models without rows for extra ids, and a folder that does not say how many there are.
    cp -r "$golden/t5-1.0-bin-legacy" no-rows && chmod -R u+w no-rows
    cp other.model no-rows/spiece.model
    exits 0 "$program" import no-rows --to no-rows-run
    says out '^vocabulary.extra_ids is 0: the model has no rows for 100 more ids'
    echo ab | "$program" predict no-rows-run --set decode.max_length=4 >/dev/null || fail 'a model without rows for extra ids'
else
    echo 'skipped: ids of that vocabulary: the plugin of SentencePiece was not built'
fi

# ---- tokens that were added to a tokenizer ----
cp -r "$golden/t5-1.1-sharded" added && chmod -R u+w added
tokens='{"id": 0, "content": "<pad>"}, {"id": 6, "content": "<extra_id_0>"}'
vocabulary='[["<pad>", 0], ["</s>", 0], ["<unk>", 0], ["a", -2], ["ab", -3], ["c", -4]]'
for more in '' ', {"id": 7, "content": "<sep>"}, {"id": 8, "content": "\n"}'; do
    printf '{"added_tokens": [%s], "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": false, "vocab": %s}}\n' \
        "$tokens$more" "$vocabulary" >added/tokenizer.json
    rm -rf added-run
    exits 0 "$program" import added --to added-run
    [ -n "$more" ] || ! grep -q 'added to the tokenizer' out || fail 'an extra id passes for an added token'
done
says out '^2 tokens that were added to the tokenizer are not imported.*: "<sep>" (id 7), "\\n" (id 8)$'

# What is done to texts before SentencePiece has them.
for do in '{"type": "Lowercase"}' '{"type": "Strip"}'; do
    printf '{"normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, %s]},
        "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always"}, "model": {"type": "Unigram", "unk_id": 2, "vocab": %s}}\n' \
        "$do" "$vocabulary" >added/tokenizer.json
    rm -rf added-run
    exits 0 "$program" import added --to added-run
    case $do in
    *Lowercase*) says out '^tokenizer.json: the normalizer "Lowercase" is not taken over: ' ;;
    *) ! grep -q 'not taken over' out || fail "what is done here is said to be not: $(cat out)" ;;
    esac
done
rm added/tokenizer.json
echo '{"<sep>": 384, "<extra_id_0>": 383}' >added/added_tokens.json
rm -rf added-run
exits 0 "$program" import added --to added-run
says out '^1 tokens that were added to the tokenizer are not imported.*: "<sep>" (id 384)$'
echo '{"<sep>": 384, "<extra_id_0>": 9223372036854775807}' >added/added_tokens.json
rm -rf added-run
exits 0 "$program" import added --to added-run
! grep -q 'added to the tokenizer' out || fail "an extra id of the largest number passes for an added token: $(cat out)"

# ---- what generate() does by default ----
# generation JSON: the folder of t5-1.1 with this generation_config.json, imported to generation-run.
generation() {
    rm -rf generation generation-run
    cp -r "$golden/t5-1.1-sharded" generation && chmod -R u+w generation
    echo "$1" >generation/generation_config.json
    exits 0 "$program" import generation --to generation-run
}
generation '{"do_sample": true, "temperature": 0.7, "top_k": 20, "num_return_sequences": 2, "max_new_tokens": 9, "repetition_penalty": 1.0}'
for key in 'temperature = 0.7' 'topk = 20' 'topp = 0.0' 'num_decodes = 2' 'max_length = 9'; do says generation-run/run.conf "^$key\$"; done
! grep -q 'not taken over' out || fail "what is taken over is said to be not: $(cat out)"
generation '{"do_sample": true, "top_p": 0.9, "top_k": 50, "no_repeat_ngram_size": 3, "forced_bos_token_id": 7, "bad_words_ids": []}'
for key in 'temperature = 1.0' 'topk = 0' 'topp = 0.9'; do says generation-run/run.conf "^$key\$"; done
for key in top_k no_repeat_ngram_size forced_bos_token_id; do says out "^generation_config.json: \"$key\" is not taken over: "; done
! grep -q bad_words_ids out || fail 'an empty list is said to be left out'
generation '{"do_sample": true, "top_p": 0.0}' # one token at least
for key in 'topk = 1' 'topp = 0.0'; do says generation-run/run.conf "^$key\$"; done
generation '{"num_beams": 4, "do_sample": true, "length_penalty": -1.0, "temperature": 0.5}'
for key in 'temperature = 0.0' 'beams = 4' 'alpha = 0.6'; do says generation-run/run.conf "^$key\$"; done
for key in do_sample length_penalty; do says out "^generation_config.json: \"$key\" is not taken over: "; done
generation '{"max_length": -9223372036854775808}'
says out 'max_length" is not taken over: .* -9223372036854775808 is not accepted'
# What is drawn or searched is the same after an export.
decoding() { sed -n '/^\[decode\]/,/^$/p' "$1/run.conf"; }
for json in '"do_sample": true, "temperature": 0.7, "top_k": 20, "num_return_sequences": 2' '"do_sample": true, "top_p": 0.9' \
    '"do_sample": true, "top_k": 0' '"num_beams": 4, "num_return_sequences": 3, "early_stopping": true'; do
    generation "{$json, \"max_new_tokens\": 9}"
    rm -rf generation-out generation-back
    exits 0 "$program" export generation-run --format hf --to generation-out
    ! grep -q beams out || fail "beams that are exported are said to be not: $(cat out)"
    exits 0 "$program" import generation-out --to generation-back
    [ "$(decoding generation-run)" = "$(decoding generation-back)" ] ||
        fail "$json: other decoding after export and import: $(cat generation-out/generation_config.json)"
done
exits 0 "$program" export generation-run --format hf --to t5x-beams --set decode.length_penalty=gnmt
says out '^generation_config.json has no beams, .*decode.length_penalty = "gnmt"'
exits 0 "$program" export generation-run --format hf --to t5x-outputs --set decode.finished_beams=t5x
says out '^generation_config.json: .*decode.finished_beams = "t5x"'
generation '{"decoder_start_token_id": 7}'
says out 'outputs begin with id 7, in config.json with 0'
says generation-run/run.conf '^decoder_start_token_id = 7$'
exits 0 "$program" import "$golden/t5-1.1-sharded" --to long-run --set data.max_input_length=1024
says long-run/run.conf '^length_buckets = .*, 1024]$'

# ---- a run file holds over what the folder says, as --set does ----
cat >mine.run <<'EOF'
[data]
max_input_length = 33
batch_size = 5
[decode]
beams = 3
[loss]
z_loss = 0.001
EOF
generation '{"num_beams": 4}'
exits 0 "$program" import generation mine.run --to mine-run --set data.batch_size=6
for key in 'max_input_length = 33' 'batch_size = 6' 'beams = 3' 'z_loss = 0.001'; do says mine-run/run.conf "^$key\$"; done
# An optimizer that nothing names is none where named ones move weights: as a file of all keys it is still.
printf '[optimizer.emb]\nmatch = ["*embedding*"]\n' >named.run
exits 0 "$program" import "$golden/t5-1.1-sharded" named.run --to named-run
sed -n '/^\[optimizer\]/,/^$/p' named-run/run.conf >section
says section '^name = "none"$'
printf 'a\nb\n' >words.txt
exits 0 "$program" import "$golden/t5-1.1-sharded" --to words-run --set vocabulary.kind=words --set vocabulary.file=words.txt
says out '\[vocabulary\] is what a run file or --set says'
says words-run/run.conf '^kind = "words"$'

# ---- weights in several files of torch.save ----
# shards FOLDER NAME NAME: an index of pytorch_model.bin that names these files.
shards() {
    printf '{"metadata": {"total_size": 1}, "weight_map": {"shared.weight": "%s", "lm_head.weight": "%s"}}\n' \
        "$2" "$3" >"$1/pytorch_model.bin.index.json"
}
cp -r "$golden/t5-1.0-bin" zip-shards && chmod -R u+w zip-shards
mv zip-shards/pytorch_model.bin zip-shards/a.bin
shards zip-shards a.bin a.bin
exits 0 "$program" import zip-shards --to zip-shards-run
cmp -s zip-a/$weights zip-shards-run/$weights || fail 'other weights by an index'

# ---- fine-tuning an import, whose folder is gone ----
awk 'BEGIN { for (i = 0; i < 60; i++) print "w" i }' >words
awk 'BEGIN { for (i = 0; i < 40; i++) print "w" i " w" 10 + i % 30 "\tw" i }' >tune.tsv
cp words kept
exits 0 "$program" import "$golden/t5-1.1-sharded" --to pretrained --set vocabulary.kind=words --set vocabulary.file=words
rm words
cp pretrained/run.conf tune.run
exits 0 "$program" train tune.run --run-dir tuned --threads 1 --set train.init_from=pretrained \
    --set task.words.train=tune.tsv --set data.batch_size=8 --set 'data.length_buckets=[]' \
    --set data.max_input_length=8 --set data.max_target_length=8 --set train.steps=20 --set train.learning_rate=0.01 \
    --set metrics.every=1
says tuned/log 'init: .* parameters are from pretrained, step 0'
loss() { # of the first or last step: ASC or DESC
    query tuned "SELECT loss FROM loss_curve ORDER BY step $1 LIMIT 1"
}
echo "$(loss ASC) $(loss DESC)" | awk '{ exit !($2 > 0 && $2 < 0.8 * $1) }' || fail "the loss went from $(loss ASC) to $(loss DESC)"
cmp -s kept tuned/vocabulary || fail 'fine-tuning has another vocabulary'
for folder in "$golden/t5-1.0-bin" tuned/checkpoints; do
    exits 1 "$program" train tune.run --run-dir never --set task.words.train=tune.tsv --set train.init_from="$folder"
    [ ! -e never ] || fail 'a run began with weights that are not there'
    cp err "err.$(basename "$folder")"
done
says err.t5-1.0-bin "switchyard import $golden/t5-1.0-bin --to RUN_DIR"
says err.checkpoints '.switchyard train. or .switchyard import. made, or a folder checkpoints/STEP in one'
exits 2 "$program" predict "$golden/t5-1.0-bin"
says err "switchyard import $golden/t5-1.0-bin --to RUN_DIR"

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
refused 'cannot import "empty": No such file' empty
refused 'config.json is a file: give the folder that holds it' "$golden/t5-1.1-sharded/config.json"
refused 'is a run directory already' sharded-a
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
changed t5-1.1-sharded 's/"eos_token_id": 1/"eos_token_id": [1, 2]/'
refused '"eos_token_id" has 2 ids, here there is one' changed
changed t5-1.1-sharded 's/"vocab_size": 192/"vocab_size": /'
refused 'config.json' changed
refused 'has shape' "$golden/t5-1.1-sharded" --set model.d_ff=41

# A named pipe in the place of weights is not waited for.
for of in t5-1.1-sharded:model-00001-of-00004.safetensors t5-1.0-bin:pytorch_model.bin; do
    rm -rf changed
    cp -r "$golden/${of%%:*}" changed && chmod -R u+w changed
    rm "changed/${of#*:}"
    mkfifo "changed/${of#*:}"
    exits 1 timeout 20 "$program" import changed --to refused
    says err 'is no regular file'
done

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

# The same of torch.save's files.
rm -r changed
mv zip-shards changed
shards changed a.bin b.bin
refused 'b.bin' changed
cp changed/a.bin changed/b.bin
refused 'is there twice, in .*a.bin and .*b.bin' changed
shards changed a.bin ../a.bin
refused 'in no file of this folder' changed
echo '{"weight_map": 1}' >changed/pytorch_model.bin.index.json
refused 'pytorch_model.bin.index.json has no "weight_map"' changed

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

# What is under the name of a file is looked at before it is read: a device or a pipe may have no end.
for name in config.json generation_config.json tokenizer_config.json tokenizer.json spiece.model pytorch_model.bin.index.json; do
    for make in 'ln -s /dev/null' mkfifo; do
        changed t5-1.0-bin 's/"d_ff": 48/"d_ff":  48/'
        case $name in tokenizer.json) rm -f changed/spiece.model ;; *index*) rm changed/pytorch_model.bin ;; esac
        rm -f "changed/$name"
        $make "changed/$name"
        timeout 20 "$program" import changed --to refused >out 2>err </dev/null
        [ $? -eq 1 ] || fail "$make $name is not refused: $(cat err)"
        says err "changed/$name is no regular file"
    done
done
changed t5-1.0-bin 's/"d_ff": 48/"d_ff":  48/'
dd of=changed/config.json bs=1 seek=300M count=0 2>/dev/null
refused 'config.json has more than the 268435456 bytes that are read of such a file' changed

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
