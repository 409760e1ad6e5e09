#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# verify: the golden vectors that come with the project pass, those of SWITCHYARD_GOLDENS too, and wrong files do not.
. "$(dirname "$0")/_common.sh"
golden=$top/tests/golden
cd "$here" || exit 99

# passed FOLDER: all cases of all kinds that are implemented. Beside them may be others, and checkpoints of other programs.
kinds='action layer loss router moe_layer model microbatch train decode partitioner schedule optimizer optimizer_state multi_optimizer'
passed() {
    # shellcheck disable=SC2046,SC2086
    exits 0 "$program" verify $(printf "$1/%s " $kinds)
    grep -Eq '^[1-9][0-9]* passed, 0 failed, 0 skipped$' out || fail "$1: $(tail -1 out)"
    for kind in $kinds; do
        grep -Eq "^$kind +[1-9]" out || fail "$1: no case of kind $kind"
    done
}
passed "$golden"
SWITCHYARD_CPU_VARIANT=portable
export SWITCHYARD_CPU_VARIANT
passed "$golden"
unset SWITCHYARD_CPU_VARIANT
if [ -n "${SWITCHYARD_GOLDENS:-}" ]; then passed "$SWITCHYARD_GOLDENS"; fi

# Without the plugin of SentencePiece (tokenize.sh) its two cases are left out, and that is no failure.
SWITCHYARD_VERIFY_MODELS=$top/tests/spm
export SWITCHYARD_VERIFY_MODELS
for folder in "$golden" ${SWITCHYARD_GOLDENS:+"$SWITCHYARD_GOLDENS"}; do
    exits 0 "$program" verify "$folder/data"
    grep -Eq '^[1-9][0-9]* passed, 0 failed, [02] skipped$' out || fail "$folder/data: $(tail -1 out)"
done

# ---- options ----
exits 0 "$program" verify --verbose "$golden/loss/loss-plain.safetensors"
says out 'grad_in/logits'
exits 1 "$program" verify --tolerance 1e-6 "$golden/loss/loss-plain.safetensors"
says out '^FAIL  loss/plain'
says out '0 passed, 1 failed, 0 skipped'
exits 2 "$program" verify --tolerance 1e100 "$golden/loss/loss-plain.safetensors"
says err '--tolerance=1e100: expected a number over 0, at most 1e30'

exits 0 "$program" verify "$golden/import/t5-1.0-bin//"
says out '^ok    import/t5-1.0-bin '

# ---- wrong files ----
mkdir empty bad
exits 1 "$program" verify empty
case=$golden/loss/loss-plain.safetensors
bytes=$(wc -c <"$case")
head -c $((bytes - 4)) "$case" >bad/short.safetensors
exits 1 "$program" verify bad/short.safetensors
says out '^FAIL'
{ head -c $((bytes - 40)) "$case" && printf '\377\377\177\101' && tail -c 36 "$case"; } >bad/value.safetensors
exits 1 "$program" verify bad/value.safetensors
says out '^FAIL  loss/plain'
# damaged CASE CHANGE TEXT: a case that sed has changed fails with that text.
damaged() {
    sed "$2" "$1" >bad/changed.json
    ! cmp -s "$1" bad/changed.json || fail "nothing is changed by $2"
    exits 1 "$program" verify bad/changed.json
    says out "$3"
}
rules=$golden/partitioner/partitioner-t5x_axis_rules.json
damaged "$rules" 's/"vocab"/"words"/' '^FAIL  partitioner/t5x_axis_rules .*row'
damaged "$rules" 's/"ValueError"/"KeyError"/' '^FAIL  partitioner/t5x_axis_rules .*row'
states=$golden/optimizer_state/optimizer_state-restore.json
damaged "$states" 's/"KeyError"/"ValueError"/' '^FAIL  optimizer_state/restore .*row'
damaged "$states" 's/missing_count/missing_word/' '^FAIL  optimizer_state/restore .*is not known here'
damaged "$golden/optimizer_state/optimizer_state-optax_states.json" 's/"embed"/["embed"]/' '^FAIL  optimizer_state/optax_states '
sequences=$golden/action/action-sequences.json
damaged "$sequences" 's/"stop":true/"stop":false/' '^FAIL  action/sequences .*sequence row'
damaged "$sequences" 's/"sequence":\[1,/"sequence":[{},/' '^FAIL  action/sequences .*neither a number nor a text'
rates=$golden/schedule/schedule-all.json
damaged "$rates" 's/0\.040670/0.040690/' '^FAIL  schedule/all .*at step 250 it is'
damaged "$rates" 's/"steps":\[0,/"steps":[/' '^FAIL  schedule/all .*two lists of the same length'
damaged "$golden/schedule/schedule-unknown.json" 's/ValueError/KeyError/' '^FAIL  schedule/unknown'
damaged "$golden/schedule/schedule-unknown.json" 's/ \* quadratic//' '^FAIL  schedule/unknown .*an error was expected'
layer=$golden/moe_layer/moe_layer-masked-bias.safetensors
LC_ALL=C sed 's/num_experts\\": 4/num_experts\\": 0/' "$layer" >bad/experts.safetensors
exits 1 "$program" verify bad/experts.safetensors
says out '^FAIL  moe_layer/masked-bias .*num_experts: 0 is outside'
printf '\377\377\377\377\377\377\377\177{}' >bad/header.safetensors
exits 1 "$program" verify bad/header.safetensors
says out '^FAIL'
mkfifo bad/pipe.json
exits 1 timeout 20 "$program" verify bad/pipe.json
says out '^FAIL  bad/pipe.json  is no regular file'
exits 1 "$program" verify missing.safetensors
exits 1 "$program" verify missing
says out '^FAIL  missing  No such file or directory'
exits 2 "$program" verify
# Of data: one number of what is expected, and another one comes out.
for change in 's/"decoder_segment_ids":\[\[1,1,/"decoder_segment_ids":[[1,2,/ encdec_converter_many_packed' \
    's/"decoder_loss_weights":\[\[1,/"decoder_loss_weights":[[0,/ lm_converter_many_packed' \
    's/InvalidArgumentError/ValueError/ encdec_converter_overlong_packed' \
    's/13.822074075384924/13.82207407/ mixing_rate' \
    's/"num_noise_spans":1,/"num_noise_spans":2,/ random_spans_noise_mask_counts' \
    's/"noise_span_to_sentinel":\[7,268/"noise_span_to_sentinel":[7,267/ sentinels' \
    's/\[107,104,111,111,114\]/[107,104,111,111,115]/ byte_vocabulary_extra100' \
    's/"eos_id":1/"eos_id":2/ trim_and_eos'; do
    sed "${change% *}" "$golden/data/data-${change##* }.json" >bad/data.json
    exits 1 "$program" verify bad/data.json
    says out "^FAIL  data/${change##* }"
done
finish
