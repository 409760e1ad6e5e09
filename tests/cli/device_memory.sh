#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A backend with device memory, which no host code may touch (tests/plugins/far.c): training, evaluation, answers, checkpoints
# and what looks at tensors are those of the CPU backend, bit for bit; a full or failing device ends a run with one message.
. "$(dirname "$0")/_common.sh"
[ -n "${SY_TEST_PLUGINS-}" ] || { echo "SKIP: this build has no shared libraries"; exit 77; }
data "$here/all.tsv" 100 1
awk -F '\t' 'length($1) <= 6' "$here/all.tsv" >"$here/train.tsv"
head -n 8 "$here/train.tsv" >"$here/valid.tsv"
cut -f 1 "$here/valid.tsv" >"$here/words"
cd "$here" || exit 99
SWITCHYARD_BACKEND_PATH=$SWITCHYARD_BACKEND_PATH:$SY_TEST_PLUGINS
SY_FAR_REPORT=$here/report
export SWITCHYARD_BACKEND_PATH SY_FAR_REPORT
same="--threads 1 --quiet --set train.checkpoint_every=10 --set train.keep_checkpoints=0 --set metrics.every=1
    --set data.batch_size=8 --set data.length_buckets=[] --set data.max_input_length=8 --set data.max_target_length=16 --set reproducible.min_leaf=2
    --set task.words.valid=$here/valid.tsv --set train.evaluate_every=10 --set decode.max_length=3 --set decode.batch_size=4
    --set metrics.weights_every=4"
two='--comm thread --ranks 2'

# as_near RUN: its last checkpoint is that of the run on the CPU, and the plugin has everything back.
as_near() {
    for file in params state; do
        cmp "$1/checkpoints/20/$file.safetensors" near/checkpoints/20/$file.safetensors || fail "$1: other $file"
    done
    given_back "$1"
}

given_back() {
    grep -qx 'left 0 contexts 0 blocks 0 graphs' report || fail "$1: the plugin still has out: $(cat report)"
}

# values RUN: what its database says of steps, weights and evaluations.
values() { "$program" metrics "$1" --tsv "SELECT name, step, value FROM metric WHERE name NOT LIKE 'timing%' ORDER BY name, step"; }

# ---- the same weights, state and metrics ----
# shellcheck disable=SC2086
{
    exits 0 tiny near $same --set cpu.variant=portable
    exits 0 tiny far $same --backend far
    as_near far
    grep -q '^replays [1-9][0-9]* of [1-9]' report || fail "no graph was replayed: $(cat report)"
    cmp near/checkpoints/10/state.safetensors far/checkpoints/10/state.safetensors || fail "other state in step 10"
    for run in near far; do values $run | grep -v 'seconds\|per_second' >$run.values; done
    grep -q weight near.values || fail "no metrics of weights are compared"
    cmp near.values far.values || fail "other metrics: $(diff near.values far.values | head -n 4)"

    exits 0 tiny experts $same --backend far $two --set mesh.expert=2
    as_near experts
    exits 0 tiny zero $same --backend far $two --set mesh.data=2 --set mesh.zero=3
    as_near zero
}

# ---- what reads and writes tensors beside training ----
for backend in cpu far; do
    # shellcheck disable=SC2086
    exits 0 tiny begun-$backend $same --backend $backend --set train.init_from=near --set train.steps=2
done
cmp begun-cpu/checkpoints/2/params.safetensors begun-far/checkpoints/2/params.safetensors || fail "another beginning from weights of a run"
for command in 'eval near --file valid.tsv' 'predict near' 'predict near --set decode.beams=2'; do
    # shellcheck disable=SC2086
    {
        "$program" $command --threads 1 --set cpu.variant=portable <words >want 2>err || fail "$command: $(cat err)"
        "$program" $command --threads 1 --backend far <words >got 2>err || fail "$command on the device: $(cat err)"
        for file in want got; do grep -v '^1 rank x' $file >$file.same; done
        cmp want.same got.same || fail "$command: $(diff want got)"
    }
done
exits 0 "$program" replay far --step 7
says out '^loss [0-9.]*, as stored$'
# shellcheck disable=SC2086
exits 0 "$program" diff "$top/bench/tiny.run" ${same#--threads 1 --quiet} --a backend=far --b ranks=2 --b comm=thread --b mesh.data=2
says out 'whole steps: 1$'
golden=$top/tests/golden
exits 0 "$program" verify --backend far "$golden/optimizer/optimizer-adam_schedule.safetensors" \
    "$golden/decode/decode-moe-overflow-beam4.safetensors" "$golden/model/model-dense-t510.safetensors" \
    "$golden/action"
# A step that is not finite: the same tensor is found.
for backend in cpu far; do
    # shellcheck disable=SC2086
    tiny wild-$backend $same --backend $backend --set train.learning_rate=1000 --set train.clip_norm=0 --set train.warmup_steps=0 \
        --set train.schedule=constant >out 2>err
    query wild-$backend "SELECT text FROM event WHERE kind = 'first_not_finite'" >$backend.bad
done
grep -q 'that is not finite' cpu.bad || fail "no bad step: $(cat err)"
cmp cpu.bad far.bad || fail "another bad tensor: $(cat far.bad)"

# Calls side by side lend the weights of the first to the others.
cut -f 1 train.tsv | "$program" predict near >answers 2>err || fail "predict: $(cat err)"
cut -f 1 train.tsv | paste - answers >known
exits 0 "$abs_top_builddir/tests/cli/many_calls" near known 12 2 far
says out '^12 predictions, 0 wrong$'

# ---- which device ----
exits 1 "$program" predict near --backend far --set device.index=7
says err 'backend far: cannot be opened: device = 7: there are devices 0 to 3'
# shellcheck disable=SC2086
exits 0 tiny second $same --backend far --set train.steps=1 --set device.index=2 --set train.log_every=1
grep -q 'backend far (device 2 of 4)' second/log || fail "not on device 2: $(cat second/log)"

# ---- too little memory ----
exits 0 "$program" plan "$top/bench/tiny.run" --backend far --json
device=$(sed -n 's/.*"device":\([0-9]*\),"host":[1-9].*/\1/p' out)
[ "$device" -gt 100000 ] || fail "the plan has no bytes of the device: $(cat out)"
# shellcheck disable=SC2086
for check in true false; do
    SY_FAR_BYTES=100000 exits 1 tiny full $same --backend far --set memory.check=$check
    one_line_error
    says err '^switchyard: out of memory on the device: the plan of a rank needs [0-9]* bytes .*set memory.budget, .*mesh.zero$'
    [ $check = false ] || says err ', 100000 are free here for a rank (memory.check = false tries it)'
    [ ! -e full ] || fail "a run that did not begin leaves a folder"
    given_back "full, memory.check=$check"
done

# ---- a device that fails: as a kernel or a copy is called, while it works, while a graph is captured ----
# fails RUN FAULT TEXT ARGUMENTS...
fails() {
    run=$1 fault=$2 text=$3
    shift 3
    # shellcheck disable=SC2086
    SY_FAR_FAULT=$fault exits 1 tiny "$run" $same --backend far --set train.evaluate_every=20 "$@"
    one_line_error
    says err "^switchyard: backend far: $text.*: the far device does not answer (${fault%% *})"
    given_back "$run"
    for step in "$run"/checkpoints/*; do
        [ ! -d "$step" ] || cmp "$step/state.safetensors" "near/checkpoints/${step##*/}/state.safetensors" || fail "$run: $step"
    done
}
fails nothing 'nothing 1' 'device memory of the plan'
fails kernel 'run 400' 'grad_[a-z]*: op [0-9]* .*(recorded at'
SY_FAR_GRAPHS=0 fails plain 'sync 40' '[a-z_]*: waiting for the device and its outputs' --set checkpoint.background=false
grep -qx 'replays 0 of 0' report || fail "graphs where the device has none: $(cat report)"
[ -d plain/checkpoints/10 ] || fail "no checkpoint was made before the device failed: $(ls plain)"
fails graph 'capture 1' 'grad_first: capturing a graph of kernels'
# shellcheck disable=SC2086
{
    fails ranks 'copy 60' 'grad_first: op [0-9]* [a-z_]* of' $two --set mesh.expert=2
    exits 0 tiny plain --resume $same --backend far
    as_near plain
    # A checkpoint that cannot be brought to the host is left out. The first two moves are those of the start.
    SY_FAR_FAULT='move 3' exits 0 tiny left $same --backend far
    says err 'checkpoint of step 10 was not written: backend far: copying weights and state from the device: '
    [ ! -e left/checkpoints/10 ] || fail "a checkpoint that failed is there"
    as_near left
}
finish
