#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A backend that fails as it is opened, as its kernels are prepared, or in the middle of a run: one message, no folder or
# none that counts, checkpoints stay, everything is given back to the plugin, and a run goes on with a backend that works.
. "$(dirname "$0")/_common.sh"
[ -n "${SY_TEST_PLUGINS-}" ] || { echo "SKIP: this build has no shared libraries"; exit 77; }
data "$here/train.tsv" 300 1
head -n 8 "$here/train.tsv" >"$here/valid.tsv"
cut -f 1 "$here/valid.tsv" >"$here/words"
cd "$here" || exit 99
mkdir plugins
ln -s "$SY_TEST_PLUGINS/faulty.so" plugins/switchyard-faulty.so
for plugin in "$SWITCHYARD_BACKEND_PATH"/switchyard-*.so; do ln -s "$plugin" plugins/; done
export SY_FAULT_CPU="$SWITCHYARD_BACKEND_PATH/switchyard-cpu.so" SY_FAULT_LEFT="$here/left"
export SWITCHYARD_BACKEND_PATH="$here/plugins"
same="--set train.steps=8 --set train.checkpoint_every=2 --set train.keep_checkpoints=0 --set train.evaluate_every=4 --set task.words.valid=$here/valid.tsv
    --set decode.max_length=4 --set metrics.every=1"
two='--comm thread --ranks 2 --set mesh.data=2'

# all_back WHAT: the plugin has nothing out.
all_back() {
    [ "$(cat left)" = '0 contexts, 0 plans' ] || fail "$1: the plugin still has out $(cat left)"
    rm -f left
}

# without FAULT TEXT COMMAND...: the command fails with one line.
without() {
    when=$1 text=$2
    shift 2
    SY_FAULT=$when exits 1 "$@"
    grep -v '^switchyard: resume: ' err >line
    mv line err
    one_line_error
    says err "$text"
    all_back "$when: $*"
}

# list RUN: all of a run but the lines of its log.
list() { (cd "$1" && find . -type f ! -name log | sort | xargs sha256sum); }

# ---- without a fault it computes what the CPU backend computes ----
# shellcheck disable=SC2086
exits 0 tiny whole $same
hash=$(hash_in out)
[ "${#hash}" -eq 64 ] || fail "the undisturbed run has no hash"
# shellcheck disable=SC2086
exits 0 tiny other $same --backend faulty
[ "$(hash_in out)" = "$hash" ] || fail "the faulty backend computes something else without a fault"
all_back 'no fault'
"$program" predict whole <words >answers || fail "predict fails undisturbed"
"$program" predict whole --backend faulty <words | cmp - answers || fail "the faulty backend predicts something else"
all_back predict

# ---- so it does in bfloat16: as a plugin of the oldest ABI it is given weights as they are, and it may have fewer ops ----
narrow='--set model.dtype=bfloat16 --set model.mlp_activations=relu'
# shellcheck disable=SC2086
exits 0 tiny narrow $same $narrow
rounded=$(hash_in out)
"$program" predict narrow <words >answers || fail "predict fails in bfloat16"
for fault in '' less; do
    # shellcheck disable=SC2086
    SY_FAULT=$fault exits 0 tiny "narrow-$fault" $same $narrow --backend faulty
    [ "$(hash_in out)" = "$rounded" ] || fail "the faulty backend ($fault) trains something else in bfloat16"
    SY_FAULT=$fault "$program" predict narrow --backend faulty <words | cmp - answers || fail "it predicts something else ($fault)"
    all_back "bfloat16 $fault"
    SY_FAULT=$fault exits 0 "$program" explain narrow --program decode_step --after fold --backend faulty
    shown=no
    grep -q ' add_rms_norm ' out && shown=yes
    [ $shown = "$([ -n "$fault" ] && echo no || echo yes)" ] || fail "explain: add_rms_norm of the faulty backend ($fault) is shown: $shown"
done

# ---- at open, at prepare: no folder is left, and one that is there is as it was ----
list whole >before
for ranks in '' "$two"; do
    for fault in 'open:backend faulty: cannot be opened: no device answers' \
        'prepare:backend faulty: .*op [0-9]* embed.*(recorded at .*): no room for tables' \
        'prepare 3:backend faulty: .*op [0-9]* embed.*(recorded at .*): no room for tables'; do
        # shellcheck disable=SC2086
        {
            without "${fault%%:*}" "${fault#*:}" tiny fresh $same $ranks --backend faulty
            [ ! -e fresh ] || fail "$fault: a run that did not begin leaves a folder: $(ls fresh)"
            without "${fault%%:*}" "${fault#*:}" tiny whole --resume $same $ranks --set train.steps=10 --backend faulty
        }
    done
done
for command in "predict whole" "eval whole --file valid.tsv"; do
    # shellcheck disable=SC2086
    {
        without open 'cannot be opened: no device answers' "$program" $command --backend faulty
        without prepare 'embed.*: no room for tables' "$program" $command --backend faulty
    }
done
list whole >after
cmp before after || fail "a backend that did not start changed the run: $(diff before after)"

# ---- in a kernel: in the first step, between checkpoints, in an evaluation, on one rank of two ----
# breaks RUN CALL ARGUMENTS...: the CALL-th embed fails, and the run goes on with the CPU backend.
breaks() {
    run=$1 call=$2
    shift 2
    # shellcheck disable=SC2086
    without "run $call" "backend faulty: .*op [0-9]* embed.*(recorded at .*): the device fell off the bus" \
        tiny "$run" $same "$@" --backend faulty
    mv err broken
    newest=$(ls "$run/checkpoints" 2>/dev/null | sort -n | tail -n 1)
    [ "$(cat "$run/status")" = failed ] || fail "$run: status is $(cat "$run/status")"
    [ ! -e "$run/lock" ] || fail "$run: the lock is left"
    left=$(find "$run" -name '*.tmp' -o -name '*.old')
    [ -z "$left" ] || fail "$run: left $left"
    for step in "$run"/checkpoints/*; do
        [ ! -d "$step" ] || cmp "$step/params.safetensors" "whole/checkpoints/${step##*/}/params.safetensors" ||
            fail "$run: $step is no checkpoint of this run"
    done
    # shellcheck disable=SC2086
    exits 2 tiny "$run" $same
    says err 'holds a run already'
    # shellcheck disable=SC2086
    exits 0 tiny "$run" --resume $same
    [ "$(hash_in out)" = "$hash" ] || fail "$run: goes on to other weights"
    [ "$(query "$run" 'SELECT count(*), min(step), max(step) FROM loss_curve')" = "8	1	8" ] ||
        fail "$run: loss_curve has $(query "$run" 'SELECT count(*), min(step), max(step) FROM loss_curve')"
}

breaks first 1
[ "$(query first 'SELECT max(attempt) FROM run')" = 2 ] || fail "first: not two attempts"
# Two microbatches of encoder and decoder: 4 calls a step, and twice as many on two ranks.
breaks middle 11
[ "$newest" = 2 ] || fail "middle: failed with the newest checkpoint '$newest'"
breaks evaluated 18
[ "$newest" = 2 ] || fail "evaluated: failed with the newest checkpoint '$newest'"
grep -q 'eval\|encode\|decode' broken || fail "evaluated: it failed elsewhere: $(cat broken)"
# Ranks that fail together give up a checkpoint that is still being written, so this one is written before the next step.
breaks ranks 27 $two --set checkpoint.background=false
[ "$newest" = 2 ] || fail "ranks: failed with the newest checkpoint '$newest'"
without 'run 2' 'embed.*: the device fell off the bus' "$program" eval whole --file valid.tsv --backend faulty
predicts() { "$program" predict whole --backend faulty <words; }
without 'run 2' 'embed.*: the device fell off the bus' predicts
list whole >after
cmp before after || fail "a backend that failed changed a run that was only read: $(diff before after)"
finish
