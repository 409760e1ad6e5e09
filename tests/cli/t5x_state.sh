#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Under run.compat = t5x a checkpoint's state has all leaves of T5X's state_dict under their names; a run goes on from
# it, on other ranks too, as if it had not stopped; without it state has our tensors alone.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 100 1

# run DIR ARGUMENTS...
run() {
    dir=$1
    shift
    tiny "$dir" --quiet --threads 1 --set train.steps=4 --set train.checkpoint_every=2 --set data.batch_size=8 \
        --set data.length_buckets=[24] "$@" >"$dir.out" 2>"$dir.err" </dev/null || fail "$dir $*: $(cat "$dir.err")"
}

# header FILE: the JSON of a safetensors file, a tensor a line.
header() {
    LC_ALL=C tail -c +9 "$1" | head -c "$(od -An -tu8 -N8 "$1")" | sed 's/},"/},\
"/g'
}

# check NAME LEAVES OPTIONS...: LEAVES, one a line as "PATH DTYPE SHAPE", are in the state.
check() {
    name=$1
    leaves=$2
    shift 2
    run "$name" --set run.compat=t5x "$@"
    header "$name/checkpoints/4/state.safetensors" >"$name.header"
    echo "$leaves" | while read -r path dtype shape; do
        grep -qF "\"$path\":{\"dtype\":\"$dtype\",\"shape\":$shape," "$name.header" || echo "$path $dtype $shape"
    done >missing
    [ ! -s missing ] || fail "$name: the state lacks $(cat missing): $(head -5 "$name.header")"
    rm -rf "$name/checkpoints/4"
    run "$name" --set run.compat=t5x "$@" --resume --comm thread --ranks 2 --set mesh.zero=1
    mv "$name.out" "$name.resumed"
    rm -rf straight
    run straight --set run.compat=t5x "$@"
    [ "$(hash_in "$name.resumed")" = "$(hash_in straight.out)" ] || fail "$name: other weights after a resume"
}

kernel=encoder/layers_0/attention/key/kernel
check adam "state/step I32 []
state/param_states/0/count I32 []
state/param_states/0/mu/$kernel F32 [32,32]" --set optimizer.name=adam
check adafactor "state/step I32 []
state/param_states/$kernel/v F32 [32,32]
state/param_states/$kernel/v_row F32 [1]
state/param_states/$kernel/m F32 [1]" --set optimizer.name=adafactor
check parts "state/step I32 []
state/param_states/inner_states/a/inner_state/0/count I32 []
state/param_states/inner_states/a/inner_state/0/mu/$kernel F32 [32,32]" \
    --set optimizer.name=sgd --set optimizer.a.name=adam --set 'optimizer.a.match=["encoder/*"]'

run plain --set optimizer.name=adam
header plain/checkpoints/4/state.safetensors >plain.header
grep -q '"state/param_states/0/mu/' plain.header || fail "plain: no state: $(head -3 plain.header)"
grep -q 'state/step' plain.header && fail "plain: leaves of T5X without run.compat"

# A run that has its leaves goes on without run.compat, and so does another that takes its state; from then on state has our
# tensors alone.
run taken --set optimizer.name=adam --set train.init_from=adam --set train.init_state=true --set train.steps=6
run adam --set optimizer.name=adam --resume --set run.compat=none --set train.steps=6
[ "$(hash_in adam.out)" = "$(hash_in taken.out)" ] || fail "the state of a T5X-compatible run is another one when resumed"
header adam/checkpoints/6/state.safetensors >adam.header
cmp -s adam.header plain.header || fail "after run.compat: state has $(head -3 adam.header)"
exits 0 "$program" replay adam --step 5
finish
