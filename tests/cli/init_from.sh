#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training that begins with weights of another run: all of them or some, under other names, on any ranks, with the
# optimizer's state; what is taken and what is not is listed; frozen weights stay; what does not fit is refused before
# there is a run directory.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/tune.tsv" 200 3
data "$here/valid.tsv" 20 2
cd "$here" || exit 99
common='--quiet --threads 1 --set train.schedule=constant --set task.words.valid=valid.tsv --set task.words.metrics=[]'

# good RUN ARGUMENTS...: a training that must work; bad STATUS RUN ARGUMENTS...: one that must not, and leaves nothing.
good() {
    run=$1
    shift
    rm -rf "$here/$run"
    # shellcheck disable=SC2086
    exits 0 tiny "$run" $common "$@"
}
bad() {
    status=$1
    shift
    # shellcheck disable=SC2086
    exits "$status" tiny bad $common "$@"
    one_line_error
    [ ! -e bad ] || fail "a run directory was made for: $*"
    rm -rf bad
}

# tensor RUN/checkpoints/STEP NAME: a checksum of its bytes.
tensor() {
    file=$1/params.safetensors
    header=$(od -An -tu8 -N8 "$file")
    range=$(tail -c +9 "$file" | head -c "$header" |
        sed 's|.*"target/'"$2"'":{[^}]*"data_offsets":\[\([0-9]*\),\([0-9]*\)\].*|\1 \2|')
    set -- $range
    [ $# -eq 2 ] || fail "no tensor in $file"
    tail -c +$((9 + header + $1)) "$file" | head -c $(($2 - $1)) | cksum
}

good base --set train.steps=8
hash=$(hash_in out)
loss=$(query base "SELECT value FROM eval WHERE name = 'loss' AND step = 8")

[ -n "$loss" ] || fail "no loss of the run"

# ---- all of it ----
good tuned --set train.init_from=base --set train.steps=0
[ "$(hash_in out)" = "$hash" ] || fail "not the weights of the other run"
[ "$(query tuned "SELECT value FROM eval WHERE name = 'loss' AND step = 0")" = "$loss" ] ||
    fail "another loss at step 0 than $loss"
says tuned/log 'init: 54 of 54 parameters are from base, step 8 (weights '
[ "$(grep -c '^taken' tuned/init.txt)" -eq 54 ] || fail "init.txt: $(cat tuned/init.txt)"
query tuned "SELECT text FROM event WHERE kind = 'init'" | grep -q 'from base, step 8' || fail "no event"
[ "$(query tuned "SELECT count(*) FROM event WHERE kind = 'start'")" -eq 1 ] || fail "no event of the start"
good folder --set train.init_from=base/checkpoints/8/ --set train.steps=0
[ "$(hash_in out)" = "$hash" ] || fail "not the weights of the folder"

# ---- the same on any ranks, and without the other run once there is a checkpoint ----
set -- --set train.init_from=base --set task.words.train="$here/tune.tsv" --set train.steps=3
good one "$@"
hash=$(hash_in out)
for way in '--set mesh.data=2' '--set mesh.expert=2 --set mesh.zero=3' '--set mesh.model=2'; do
    # shellcheck disable=SC2086
    good two --comm thread --ranks 2 $way "$@"
    [ "$(hash_in out)" = "$hash" ] || fail "$way: other weights"
done
cp -R base gone
good halves "$@" --set train.init_from=gone --set train.steps=2
rm -rf gone
exits 0 tiny halves $common "$@" --set train.init_from=gone --resume
[ "$(hash_in out)" = "$hash" ] || fail "a run that went on has other weights"
exits 2 tiny halves $common "$@" --resume
says err 'train.init_from is "gone" in the run directory and "base" now'
exits 1 "$program" replay one --step 1
says err 'began with weights of another one'

exits 0 "$program" diff "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" --set train.init_from=base \
    --b ranks=2 --b mesh.data=2
exits 1 "$program" diff "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" --b train.init_from=base
says out 'first difference: step 0, program grad_first'

# ---- with the optimizer's state: as if the other run went on ----
cp -R base longer
exits 0 tiny longer $common --set train.steps=12 --resume
hash=$(hash_in out)
good fork --set train.init_from=base --set train.init_state=true --set train.steps=12 --comm thread --ranks 2
[ "$(hash_in out)" = "$hash" ] || fail "another run than the one it goes on from"
says fork/log "the optimizer's state are from base, step 8"
bad 1 --set train.init_from=base --set train.init_state=true --set train.steps=8
says err 'train.steps = 8 ends it before'
bad 2 --set train.init_from=base --set train.init_state=true --set 'train.init_match=["*", "a*"]'
says err 'leave train.init_match out'

# ---- some of it ----
set -- --set train.init_from=base --set train.steps=0
bad 1 "$@" --set 'train.init_match=["!decoder/layers_1/*", "*"]'
says err 'has nothing for the parameter decoder/layers_1/encoder_decoder_attention/key/kernel \[32,32\]'
good some "$@" --set 'train.init_match=["!decoder/layers_1/*", "encoder/layers_1/mlp/* -> decoder/layers_1/mlp/*", "*"]' \
    --set train.init_missing=fresh
kernel=mlp/expert/wo/kernel
[ "$(tensor some/checkpoints/0 decoder/layers_1/$kernel)" = "$(tensor base/checkpoints/8 encoder/layers_1/$kernel)" ] ||
    fail "not what the rule names"
[ "$(tensor some/checkpoints/0 encoder/layers_1/$kernel)" = "$(tensor base/checkpoints/8 encoder/layers_1/$kernel)" ] ||
    fail "a rule took the tensor away from its own name"
query_key=decoder/layers_1/self_attention/query/kernel
[ "$(tensor some/checkpoints/0 $query_key)" != "$(tensor base/checkpoints/8 $query_key)" ] || fail "what is left out was taken"
tab=$(printf '\t')
says some/init.txt "^fresh${tab}$query_key${tab}\\[32,32\\]\$"
says some/init.txt "^left${tab}${tab}${tab}$query_key${tab}"
says some/log "fresh${tab}$query_key"
bad 1 "$@" --set 'train.init_match=["encodr/*", "*"]'
says err '"encodr/\*" matches no tensor'

# ---- another shape ----
bad 1 "$@" --set model.d_ff=32 --set moe.expert_mlp_dim=64
says err 'holds decoder/layers_0/mlp/wi_0/kernel with shape \[32,64\], and the parameter decoder/layers_0/mlp/wi_0/kernel of this model has \[32,32\]'
says err '; model.d_ff is 64 in base and 32 here; moe.expert_mlp_dim is 0 in base and 64 here$'
bad 1 "$@" --set model.num_heads=2 --set train.init_state=true --set train.steps=12 --comm thread --ranks 2
says err 'checkpoint of another model: .*; model.num_heads is 4 in base and 2 here$'
good narrow "$@" --set model.d_ff=32 --set moe.expert_mlp_dim=64 --set train.init_missing=fresh
says narrow/init.txt "^fresh${tab}decoder/layers_0/mlp/wi_0/kernel${tab}\\[32,32\\]${tab}decoder/layers_0/mlp/wi_0/kernel${tab}\\[32,64\\]"
says narrow/log 'init: model.d_ff is 64 in the run that weights are taken from, and 32 in this one'

# ---- frozen weights: an optimizer named none ----
good frozen "$@" --set train.steps=3 --set optimizer.frozen.name=none --set 'optimizer.frozen.match=["*embedding*", "encoder/*"]'
for name in token_embedder/embedding encoder/layers_0/attention/key/kernel encoder/layers_1/mlp/router/router_weights/w/kernel; do
    [ "$(tensor frozen/checkpoints/3 $name)" = "$(tensor base/checkpoints/8 $name)" ] || fail "$name is frozen and changed"
done
for name in decoder/decoder_norm/scale decoder/logits_dense/kernel decoder/layers_0/mlp/wo/kernel; do
    [ "$(tensor frozen/checkpoints/3 $name)" != "$(tensor base/checkpoints/8 $name)" ] || fail "$name did not change"
done
grep -q 'param_states.*encoder/' frozen/checkpoints/3/state.safetensors && fail "what is frozen has state"

# ---- another vocabulary ----
bad 1 "$@" --set vocabulary.extra_ids=10
says err 'the vocabulary of inputs is another one in base'
bad 1 "$@" --set vocabulary.special_tokens=huggingface
says err 'the vocabulary of inputs is another one in base'
good tokens "$@" --set vocabulary.extra_ids=10 --set train.init_missing=fresh \
    --set 'train.init_match=["!token_embedder/*", "!decoder/logits_dense/*", "*"]'
good tokens "$@" --set vocabulary.extra_ids=10 --set train.init_vocabulary=any

# ---- what is no run, or damaged ----
bad 1 --set train.init_from=nowhere
says err 'train.init_from = "nowhere": nowhere holds no run'
bad 1 --set train.init_from=nowhere --resume
says err 'nowhere holds no run'
bad 1 --set train.init_from=base --set train.init_step=5
says err 'base holds no checkpoint of step 5; there are: 8'
bad 2 --set train.init_from=base --set train.init_step=last
says err 'train.init_step = "last": expected "latest", "best" or a step'
bad 2 --set train.init_missing=fresh
says err 'train.init_missing is about weights of another run'
printf 'x' | dd of=base/checkpoints/8/params.safetensors bs=1 seek=60000 conv=notrunc 2>/dev/null
bad 1 --set train.init_from=base
says err 'params.safetensors is corrupt'
bad 1 --set train.init_from=base --comm thread --ranks 2
finish
