#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line and the run file: help, suggestions for what is mistyped, --set, and what `config` prints.
. "$(dirname "$0")/_common.sh"
tiny_run=$top/bench/tiny.run

# refused TEXT ARGUMENTS...: exit status 2, one line that says TEXT.
refused() {
    text=$1
    shift
    exits 2 "$program" "$@"
    one_line_error
    says err "$text"
    [ ! -s "$here/out" ] || fail "output in spite of a usage error: $*"
}

# ---- help and version ----
for command in train eval predict score metrics top report config explain plan verify diff replay backends version; do
    exits 0 "$program" "$command" --help
    says out "^usage: switchyard $command"
    exits 0 "$program" --help
    says out "^  $command "
done
# A terminal of 80 columns has room for all of it.
for command in '' $("$program" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'); do
    # shellcheck disable=SC2086
    exits 0 "$program" $command --help
    [ -z "$(awk 'length($0) > 79' "$here/out")" ] || fail "$command --help is wide: $(awk 'length($0) > 79' "$here/out")"
done
for option in backend comm ranks threads set quiet run-dir resume; do
    exits 0 "$program" train --help
    says out "^  --$option"
done
for command in eval predict score; do
    for option in backend comm ranks threads set quiet checkpoint; do
        exits 0 "$program" "$command" --help
        says out "^  --$option"
    done
done
exits 0 "$program" help train
says out '^usage: switchyard train'
refused 'unknown command trian, did you mean train?' help trian
# What eval reads has the format of its task, which need not be tsv.
exits 0 "$program" eval --help
says out "^  --file FILE  *read this file, of the task's format"
exits 0 "$program" version
says out '^switchyard [0-9]'
mv "$here/out" "$here/version"
exits 0 "$program" --version
cmp -s "$here/out" "$here/version" || fail "--version and version differ"
exits 2 "$program"
says err '^usage: '

# ---- mistyped ----
refused 'unknown command trian, did you mean train?' trian
for word in -v -V --threads; do
    refused "^switchyard: $word: options come after the command, .* --help .* --version" $word 1 train x
done
refused 'unknown option --run-dri, did you mean --run-dir?' train "$tiny_run" --run-dri x
refused 'unknown option --run-dri, did you mean --run-dir?' train "$tiny_run" --run-dri=x
refused 'unknown option --hlep, did you mean --help?' plan --hlep
refused 'unknown option --to, did you mean --output?' pack run --to x.sy
refused 'unknown option --output, did you mean --to?' export run --output x
# A variable of a script that is not set is no folder to begin another run in.
refused '^switchyard: --run-dir=: expected DIR$' train "$tiny_run" --resume --run-dir ''
refused '^switchyard: --output=: expected FILE$' report run -o ''
for command in plan config explain bench diff tokenize train predict ckpt; do
    action=
    [ $command != ckpt ] || action=list
    # shellcheck disable=SC2086
    refused "^switchyard: $command: an operand is empty, expected .* (is a variable of the script not set?)" $command $action ''
done
refused '^switchyard: diff: an operand is empty, expected A \[B\]' diff "$tiny_run" ''
refused 'unknown option --zzz (switchyard plan --help lists all)' plan --zzz
refused 'unknown option -q' train -q "$tiny_run"
refused 'unknown option --quiet' version --quiet
refused 'usage: switchyard train' train
refused 'usage: switchyard train' train one two
refused 'usage: switchyard backends' backends one
refused '^switchyard: version: usage: switchyard version$' version x
refused 'usage: switchyard eval' eval
refused '--run-dir needs DIR' train "$tiny_run" --run-dir
refused '--quiet takes no value' train "$tiny_run" --quiet=yes
refused '--ranks=two: expected a whole number' train "$tiny_run" --ranks two
refused '--ranks=0: expected a whole number' train "$tiny_run" --ranks=0
refused '--threads=-1: expected a whole number' plan "$tiny_run" --threads -1
for value in 0 300 -1 many; do
    refused "decode.beams: $value is not accepted: it takes an integer in 1..256" bench decode "$tiny_run" --beams $value
done
refused '--beams=: expected N' bench decode "$tiny_run" --beams ''
refused '--from=-2: expected a whole number from 0 on' metrics . --from -2
refused 'unknown option -o' metrics . -o x
refused '--output needs FILE' report . -o
refused '--checkpoint=newest: expected latest|best|STEP' eval . --checkpoint newest
refused 'unknown stage partitoin, did you mean partition?' explain "$tiny_run" --after partitoin
refused 'unknown program updaet, did you mean update?' explain "$tiny_run" --program updaet

# ---- run files ----
# file TEXT LINES...: a run file of these lines is refused with TEXT.
file() {
    text=$1
    shift
    printf '%s\n' "$@" >"$here/bad.run"
    refused "$text" config "$here/bad.run"
    says err "$here/bad.run:"
}
file ':2: unknown key model.d_modle, did you mean model.d_model?' '[model]' 'd_modle = 64'
file ':3: unknown section \[modle\], did you mean \[model\]?' '# a comment' '' '[modle]'
file ':1: unknown key d_model, did you mean model.d_model?' 'd_model = 64'
file ':2: model.d_model: "wide" is not accepted: it takes an integer' '[model]' 'd_model = "wide"'
file ':2: model.d_model: 0 is not accepted: it takes an integer in 1\.\.' '[model]' 'd_model = 0'
file ':2: model.d_model: 1.5 is not accepted' '[model]' 'd_model = 1.5'
file ':2: model.dropout_rate: 1.5 is not accepted: it takes a number in 0\.\.0.9999999' '[model]' 'dropout_rate = 1.5'
file ':2: train.schedule: "cosin" is not accepted, did you mean cosine? It takes one of constant' '[train]' 'schedule = "cosin"'
file ':2: reproducible.enabled: 7 is not accepted: it takes true or false' '[reproducible]' 'enabled = 7'
file ':2: data.length_buckets: ' '[data]' 'length_buckets = [16, "x"]'
file ':3: model.d_model is set already on line 2' '[model]' 'd_model = 64' 'd_model = 64'
file ':2: ' '[model]' 'd_model'
file ':2: ' '[run]' 'name = "no end'
refused "cannot open $here/none.run" config "$here/none.run"
refused "cannot open $here/none.run" train "$here/none.run"
refused "$here" config "$here"
printf '[model]\nd_model = 64\0' >"$here/bad.run"
refused ':2: a NUL byte' config "$here/bad.run"
printf '[moe]\nnum_experts = 2\nnum_selected_experts = 3\n' >"$here/bad.run"
refused 'moe.num_selected_experts = 3 is more than moe.num_experts = 2' config "$here/bad.run"

# ---- --set ----
exits 0 "$program" config "$tiny_run" --set model.d_model=512 --set train.steps=7 --set=train.seed=9 --set train.steps=8 \
    --set task.words.train=a/b=c.tsv --set 'data.length_buckets=[8, 24]'
says out '^d_model = 512$'
says out '^steps = 8$'
says out '^seed = 9$'
says out '^train = "a/b=c.tsv"$'
says out '^length_buckets = \[8, 24\]$'
says out '^d_ff = 64$'
refused 'optimizer.name: adamx is not accepted, did you mean adamw? It takes one of' config --set optimizer.name=adamx
refused 'optimizer.name: qqqq is not accepted: it takes one of' config --set optimizer.name=qqqq
refused 'linear has no argument end_valu, did you mean end_value?' config --set 'train.lr_factors=linear(end_valu=3)'
refused 'unknown key model.d_modle, did you mean model.d_model?' config --set model.d_modle=3
refused 'unknown key lr, did you mean train.learning_rate?' config --set lr=1
refused 'unknown key train.lr, did you mean train.learning_rate?' config --set train.lr=1
refused 'unknown key batch, did you mean data.batch_size?' config --set batch=3
refused 'unknown key dropout, did you mean model.dropout_rate?' config --set dropout=0
refused 'model.d_model: x is not accepted: it takes an integer' config --set model.d_model=x
refused 'write SECTION.KEY=VALUE' config --set model.d_model
refused '--set needs KEY=VALUE' config --set

# ---- what config prints ----
exits 0 "$program" config
mv "$here/out" "$here/defaults"
grep -q '^# .*Checkpoints that stay' "$here/defaults" || fail "config prints no help"
grep -q 'default 1e-3)' "$here/defaults" || fail "config prints no defaults"
exits 0 "$program" config "$here/defaults"
mv "$here/out" "$here/loaded"
grep -v -e '^#' -e '^$' "$here/defaults" >"$here/defaults.values"
grep -v -e '^#' -e '^$' "$here/loaded" | cmp -s - "$here/defaults.values" || fail "the defaults do not load again"
# In a terminal help is wrapped; a key with its value is whole, and what is not a terminal gets lines as they are.
if command -v script >/dev/null; then
    for what in '' --factors --transforms --compat-diff; do
        script -qec "$program config $what" /dev/null </dev/null >"$here/screen"
        tr -d '\r' <"$here/screen" | grep -v ' = ' | awk 'length > 79' >"$here/wide"
        [ ! -s "$here/wide" ] || fail "config $what: wider than a terminal: $(head -n 2 "$here/wide")"
        "$program" config $what | tr -s ' \n#' '\n' >"$here/words"
        tr -d '\r' <"$here/screen" | tr -s ' \n#' '\n' | cmp -s - "$here/words" || fail "config $what: other words in a terminal"
    done
else
    echo "not tested: lines of a terminal; there is no script"
fi
exits 0 "$program" config --factors
says out '^linear_warmup: rises from 0 to 1$'
says out '^  warmup_steps: Steps that it takes; auto: train.warmup_steps.$'
says out '^    (one of linear | cosine | sqrt; default "linear")$'
refused 'with --factors leave out all else' config --factors --set train.steps=2
refused 'with --factors leave out all else' config --factors "$tiny_run"
refused 'with --factors leave out all else' config --factors --compat-diff
exits 0 "$program" config --transforms
says out '^masked: applies what it holds to some parameters only$'
says out '^  decay: Decay of the sum.$'
says out '^    (a number in 0..<1; default 0.9)$'
exits 0 "$program" config --optimizers
says out '^lamb: layerwise Adam for large batches'
says out '^  b2 = 0.98$'
mv "$here/out" "$here/optimizers"
[ "$(grep -c '^[a-z]' "$here/optimizers")" -eq "$(grep -c '^  chain = ' "$here/optimizers")" ] || fail "optimizers without a chain"
# What is printed of an optimizer is a run file: its keys are those it takes, its chain is the one it has. One row a
# batch and no clipping before it, as what clips every example asks for.
printf '[data]\nbatch_size = 1\n[train]\nclip_norm = 0.0\nmicrobatch_normalizer = "microbatch"\n[optimizer]\n' >"$here/head.run"
for name in $(sed -n 's/^\([a-z0-9_]*\): .*/\1/p' "$here/optimizers"); do
    sed -n "/^$name: /,/^  chain = /p" "$here/optimizers" | sed 1d >"$here/printed"
    { cat "$here/head.run" && echo "name = \"$name\"" && grep -v '^  chain' "$here/printed"; } >"$here/by_keys.run"
    { cat "$here/head.run" && echo 'name = "chain"' && grep '^  chain' "$here/printed"; } >"$here/by_chain.run"
    for way in keys chain; do
        exits 0 "$program" plan "$here/by_$way.run"
        grep '^  optimizer of ' "$here/out" | sed 's/.*elements: //' >"$here/planned"
        sed -n 's/^  chain = //p' "$here/printed" | cmp -s - "$here/planned" ||
            fail "$name by its $way: $(cat "$here/planned" "$here/err")"
    done
done
refused 'the optimizers are the same for every run: with --optimizers' config --optimizers "$tiny_run"
refused 'the transforms are the same for every run: with --transforms' config --transforms --set train.steps=2
refused 'leave out all else' config --factors --transforms
exits 0 "$program" config "$tiny_run" --set train.learning_rate=0.1 --set 'run.name=a "quoted" \ name'
mv "$here/out" "$here/once.run"
exits 0 "$program" config "$here/once.run"
cmp -s "$here/out" "$here/once.run" || fail "the values in force do not load again: $(diff "$here/out" "$here/once.run")"
if [ -w /dev/full ]; then
    for command in config version --help 'train --help'; do
        "$program" $command >/dev/full 2>"$here/err" && fail "$command: a full disk is not reported"
        one_line_error
    done
    # Where a status of 1 says that something differs, nobody has said anything yet.
    "$program" verify missing >/dev/full 2>"$here/err"
    [ $? -eq 1 ] || fail "verify: a full disk is not reported"
    one_line_error
    says err '^switchyard: standard output: cannot be written$'
fi
"$program" config >&- 2>"$here/err" && fail "a closed standard output is not reported"
one_line_error
finish
