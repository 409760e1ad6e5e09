#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory that runs out: an allocation of a command fails, once. A command is asked undisturbed, and the preloaded library of
# this folder lists the allocations that it makes, each with a hash of the stack of its callers. Then they fail in turn:
#   FAULTS=some    (`make check`) of the distinct stacks a sample, the first allocation of each
#   FAULTS=stacks  (`make bigcheck`) the first allocation of every distinct stack, some 14,900
#   FAULTS=every   every allocation: 88,000 commands, hours
# ONLY='training diff': of these commands alone. Threads may make an allocation in one run that they do not make in the next;
# those are counted as missed. Needs glibc and no sanitizer.
. "${abs_top_srcdir:?}/tests/faults/_faults.sh"

library=${abs_top_builddir:?}/tests/faults/.libs/allocations.so
[ -e "$library" ] || { echo "SKIP: this build has no shared libraries"; exit 77; }
env LD_PRELOAD="$library" SY_ALLOCATIONS="$here/list" "$program" --version >/dev/null 2>&1 && [ -s "$here/list" ] ||
    { echo "SKIP: allocations cannot be replaced in this build"; exit 77; }

# NVIDIA's runtime ends the process where an allocation fails while its plugin is loaded, and so do the C++ libraries of
# SentencePiece.
mkdir "$here/plugins"
for plugin in "$abs_top_builddir"/.libs/switchyard-*.so; do
    case $plugin in */switchyard-cuda.so | */switchyard-sentencepiece.so) ;; *) ln -s "$plugin" "$here/plugins/" ;; esac
done
SWITCHYARD_BACKEND_PATH=$here/plugins
export SWITCHYARD_BACKEND_PATH

hit_allocation() {
    [ -e "$here/failed" ]
}
hit=hit_allocation

# arm N: the N-th row of $here/stacks, a stack and which of the allocations with that stack.
arm() {
    row=$(sed -n "$1{p;q}" "$here/stacks")
    [ -n "$row" ] || return 1
    rm -f "$here/failed"
    fault="allocation ${row#* } of stack ${row% *}"
    inject="$limit env LD_PRELOAD=$library SY_FAIL_STACK=${row% *} SY_FAIL_TIME=${row#* } SY_FAILED=$here/failed"
}

wanted() {
    case " ${ONLY:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
}

# each_stack FUNCTION NAME: asks it undisturbed for the list of its allocations, then they fail in turn.
missed=0
each_stack() {
    wanted "$2" || return 0
    asked=$1 known=$failures before=$injected
    rm -f "$here/list" "$here/failed"
    inject="env LD_PRELOAD=$library SY_ALLOCATIONS=$here/list"
    "$asked" "$2, undisturbed"
    awk -v every="$faults" '{ n[$1]++ } every == "every" || n[$1] == 1 { print $1, n[$1] }' "$here/list" >"$here/stacks"
    each fails_once "$2"
    echo "$2: $(wc -l <"$here/list") allocations with $(sort -u "$here/list" | wc -l) stacks, $((injected - before)) failed"
    [ "$injected" -ge $((before + 4)) ] || fail "$2: only $((injected - before)) allocations were made to fail"
}
fails_once() {
    "$asked" "$1" || missed=$((missed + 1))
    [ "$failures" -eq "$known" ] || cat "$here/failed" >&2 # the callers: addr2line -e OBJECT OFFSET
    known=$failures
}

# filtered COMMAND...: its output, or $product, a file that it makes, without what changes from run to run, which $changing
# removes. What ends well makes the whole file, what fails none.
product=
filtered() {
    rm -rf "$here/made"
    "$@" >"$here/unfiltered"
    status=$?
    [ -z "$product" ] || [ "$status" -ne 0 ] || cat "$product" >"$here/unfiltered"
    [ "$status" -eq 0 ] || [ ! -e "$here/made" ] || echo "switchyard: what failed left $(ls -A "$here/made")" >&2
    sed "$changing" "$here/unfiltered"
    return $status
}
free='s/  of .* free here.*//; /^the longest step: /d' # what is free and how fast the machine is now
times='s,[0-9.e+ -]*,,g' # all numbers, and the blanks that align them
nothing=

# ask NAME CHANGING ARGUMENTS...: a command that is asked once undisturbed, and then with allocations that fail.
ask() {
    wanted "$1" || return 0
    name=$1 changing=$2
    shift 2
    filtered "$program" "$@" >"$here/$name" 2>/dev/null </dev/null || fail "$name failed undisturbed"
    [ -s "$here/$name" ] || fail "$name says nothing undisturbed"
    arguments=$*
    each_stack asks "$name"
}
# shellcheck disable=SC2086 # words are arguments
asks() { inject="filtered $inject" answers_fail "$1" "$here/$name" "$program" $arguments; }

each_stack train training
each_stack predicts predict
each_stack scores score
each_stack evaluates eval
ask plan "$free" plan "$top/bench/tiny.run"
ask config "$nothing" config "$top/bench/tiny.run"
ask explain "$nothing" explain "$top/bench/tiny.run"
ask metrics "$nothing" metrics "$here/whole"
ask query "$nothing" metrics "$here/whole" --tsv 'SELECT(step)FROM(loss_curve)'
cat >"$here/tiny.gin" <<'END'
include 'nothing_here.gin'
MIXTURE_OR_TASK_NAME = 'some_task'
TASK_FEATURE_LENGTHS = {'inputs': 64, 'targets': 32}
network.T5Config.emb_dim = 64
network.T5Config.mlp_activations = ('gelu', 'linear')
utils.create_learning_rate_scheduler.factors = 'linear_decay'
network.T5Config.nosuch = 3
END
chosen=$faults faults=every # there are not many
ask convert-gin "$nothing" convert-gin "$here/tiny.gin"
faults=$chosen
ask metrics-of-two "$nothing" metrics "$here/whole" "$here/half"
product=$here/made
ask report "$nothing" report "$here/whole" -o "$here/made"
chosen=$faults
[ "$faults" != some ] || faults=stacks # there are not many
ask pack "$nothing" pack "$here/whole" -o "$here/made"
faults=$chosen
product=$here/made/model.safetensors
ask export "$nothing" export "$here/whole" --format safetensors --to "$here/made"
product=
ask ckpt-list "$nothing" ckpt list "$here/whole"
ask ckpt-check "$nothing" ckpt check "$here/whole"
excuse='^[a-z-]* *refused: '
chosen=$faults faults=every # there are not many
ask backends "$nothing" backends
faults=$chosen
# Findings say themselves which library could not be loaded. Lines are joined, for numbers move their ends; in memory, where
# syncing a file never takes long enough to be a finding.
joined="$times;s/[KMGTP]*iB//g;H;1h;\$!d;x;s/\n//g"
excuse='isrfusd:\|cannotbloadd'
chosen=$faults back=$PWD temporary=${TMPDIR:-/tmp}
[ "$faults" != some ] || faults=stacks # there are not many
[ ! -w /dev/shm ] || { cd /dev/shm && TMPDIR=/dev/shm && export TMPDIR; }
ask doctor "$joined" doctor
ask doctor-json "$joined" doctor --json
faults=$chosen
cd "$back" && TMPDIR=$temporary || exit 99
excuse='^FAIL .* out of memory'
ask verify "$nothing" verify "$top/tests/golden/layer/layer-gelu.safetensors"
excuse=
ask diff "$nothing" diff "$top/bench/tiny.run" --threads 1
slow=1
ask bench "$times" bench "$top/bench/tiny.run" --steps 1 --warmup 1 --threads 1
ask gemm "$times" bench gemm --shape 8x8x8 --seconds 0.001 --threads 1
[ "$missed" -le $((injected / 10)) ] || fail "of the stacks to fail $missed did not come again, only $injected did"
echo "$injected allocations failed, $survived commands ended well all the same, $missed stacks were missed"
finish
