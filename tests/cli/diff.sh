#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# switchyard diff: equal runs, the first element that differs, programs that differ, --json, and what is refused.
. "$(dirname "$0")/_common.sh"
unset SWITCHYARD_CPU_VARIANT
tiny_run=$top/bench/tiny.run
data "$here/train.tsv" 200 3
cd "$here" || exit 99
sed 's/^dropout_rate = .*/dropout_rate = 0.2/' "$tiny_run" >other.run

# compares STATUS ARGUMENTS...: the tiny run on both sides.
compares() {
    want_status=$1
    shift
    exits "$want_status" "$program" diff "$tiny_run" "$@"
    [ "$want_status" -eq 2 ] || [ ! -s err ] || fail "diff $*: writes on stderr: $(cat err)"
}

# ---- equal: one variant, the widest, other threads, other ranks ----
compares 0
says out "^A: $tiny_run: 1 rank x "
says out '^no difference: [0-9]* ops, [0-9]* elements; whole steps: 1$'
compares 0 --set task.words.train=train.tsv --a cpu.variant=portable --b threads=1 --a cpu.threads=2 --steps 3
says out '^A: .*1 rank x 2 threads .*backend cpu (portable)'
says out '^B: .*1 rank x 1 thread '
says out 'whole steps: 3$'
compares 0 --threads 2 --a cpu.threads=1
says out '^A: .*1 rank x 1 thread '
says out '^B: .*1 rank x 2 threads '
compares 0 --a threads=1 --b ranks=2 --b comm=thread --b mesh.expert=2 --steps 2
says out '^B: .*2 ranks x .*mesh data=1 expert=2 model=1'
says out 'on one side only, so not compared'
compares 0 --a fuse=off --a reuse=off --b ranks=2 --steps 2
says out '[1-9][0-9]* ops of A'

# ---- different ----
compares 1 --b train.seed=8
says out '^first difference: step 0, program grad_first of lengths [0-9]* and [0-9]*, op 0 embed of encoder (.*t5\.c:[0-9]*)$'
says out 'input 1: t[0-9]*(token_embedder/embedding) f32\[384,32\], before the op ran$'
says out '^  element  \[0,0\]$'
says out '^  distance [0-9.e-]*, relative [0-9.e-]*, [0-9]* ulp, [0-9.e-]* of the tensor'
says out '^  12288 of 12288 elements differ; farthest apart at \['
says out '^compared until then: 0 ops, [0-9]* elements; whole steps: 0$'
# The rate is that of the first step at both ends, so the weights differ at the end of the first step.
compares 1 --a train.warmup_steps=0 --b train.warmup_steps=0 --b train.learning_rate=4e-3 --steps 2
says out '^first difference: step 0, program update '
says out 'input [0-9]*: t[0-9]*(optimizer/2/scale_by_learning_rate/0) f32\[1\], before the op ran$'
says out '^  A        0.003$'
says out '^  B        0.004$'
compares 0 --a train.warmup_steps=0 --b train.warmup_steps=0 --b train.learning_rate=3.001e-3 --tolerance 1e-3
says out 'whole steps: 1, tolerance 0.001$'
exits 1 "$program" diff "$tiny_run" other.run
says out "^B: other.run: "
says out '^first difference: step 0, program grad_first '
says out '^  op, A: .*rate=0.1\|^  op, A: .*rate 0.1'
says out '^  op, B: .*rate=0.2\|^  op, B: .*rate 0.2'

# ---- other programs ----
compares 1 --b model.d_ff=128
says out '^the runs have different programs: grad_first, from op [0-9]* of A and op [0-9]* of B on$'
says out '^  op, A: [0-9]* q0 encoder/layers_0/mlp .*\[32,128\]'
says out '^  op, B: [0-9]* q0 encoder/layers_0/mlp .*\[32,256\]'
compares 1 --b data.batch_size=64 --b train.microbatches=4
says out '^the runs have different programs: data.batch_size is 32 on one side and 64 on the other$'

# ---- JSON ----
# has TEXT: one object on one line, with this in it.
has() {
    [ "$(wc -l <out)" -eq 1 ] || fail "not one line of JSON: $(cat out)"
    grep -q -e "$1" out || fail "JSON lacks '$1': $(cat out)"
}
compares 0 --json --steps 2
has '^{"result": *"equal"'
has '"steps_equal": *2,'
compares 1 --json --b train.seed=8
has '^{"result": *"different"'
has '"program": *"grad_first"'
has '"input": *"token_embedder/embedding"'
has '"element": *\[0, *0\]'
has '"differing": *12288'
compares 1 --json --b model.d_ff=128
has '^{"result": *"diverged"'
if command -v python3 >/dev/null; then
    python3 -c 'import json; json.load(open("out"))' || fail "not JSON: $(cat out)"
else
    echo "skipped: a second reader of JSON (there is no python3)"
fi

# ---- refused ----
for bad in '--b threads=none' '--a fuse=maybe' '--b reuse=' '--b ranks=0' '--a no.such=1' '--a backend=null' '--b comm=pigeon' '--steps 0' \
    '--tolerance -1' '--b comm=self --b ranks=2'; do
    compares 2 $bad
    one_line_error
    [ ! -s out ] || fail "output in spite of a usage error: $bad"
done
exits 2 "$program" diff
exits 2 "$program" diff "$tiny_run" nowhere.run
one_line_error
SWITCHYARD_CPU_VARIANT=portable
export SWITCHYARD_CPU_VARIANT
compares 2 --a cpu.variant=portable
says err 'SWITCHYARD_CPU_VARIANT=portable overrides cpu.variant on both sides'
unset SWITCHYARD_CPU_VARIANT
exits 1 "$program" diff "$tiny_run" --set task.words.train=nowhere.tsv
one_line_error
exits 1 "$program" diff "$tiny_run" --b model.num_heads=3 --b mesh.model=2 --b ranks=2
one_line_error
says err 'side B: '
finish
