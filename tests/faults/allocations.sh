#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory that runs out: the n-th allocation of a command fails, for every n (in `make check` for a sample). Needs the
# preloaded library of this folder, so glibc and no sanitizer. Every n, in `make bigcheck`, is 87,000 commands and 3.4 hours of one
# processor, by ten of each command that were timed: bench 2.0 (4,187 of 1.7 s), training 0.8 (16,515 of 0.18 s), diff and plan 0.3.
. "${abs_top_srcdir:?}/tests/faults/_faults.sh"

library=${abs_top_builddir:?}/tests/faults/.libs/allocations.so
[ -e "$library" ] || { echo "SKIP: this build has no shared libraries"; exit 77; }
env LD_PRELOAD="$library" SY_FAIL_ALLOCATION=1000000000 SY_FAILED="$here/failed" "$program" --version >/dev/null 2>&1 ||
    { echo "SKIP: allocations cannot be replaced in this build"; exit 77; }

# NVIDIA's runtime ends the process where an allocation fails while its plugin is loaded.
mkdir "$here/plugins"
for plugin in "$abs_top_builddir"/.libs/switchyard-*.so; do
    case $plugin in */switchyard-cuda.so) ;; *) ln -s "$plugin" "$here/plugins/" ;; esac
done
SWITCHYARD_BACKEND_PATH=$here/plugins
export SWITCHYARD_BACKEND_PATH

hit_allocation() {
    [ -e "$here/failed" ]
}
hit=hit_allocation

arm() {
    rm -f "$here/failed"
    fault="allocation $1"
    inject="env LD_PRELOAD=$library SY_FAIL_ALLOCATION=$1 SY_FAILED=$here/failed"
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
    name=$1 changing=$2
    shift 2
    filtered "$program" "$@" >"$here/$name" 2>/dev/null </dev/null || fail "$name failed undisturbed"
    [ -s "$here/$name" ] || fail "$name says nothing undisturbed"
    arguments=$* before=$injected
    each asks "$name"
    [ "$injected" -ge $((before + 4)) ] || fail "$name: only $((injected - before)) allocations were made to fail"
}
# shellcheck disable=SC2086 # words are arguments
asks() { inject="filtered $inject" answers_fail "$1" "$here/$name" "$program" $arguments; }

each train training
each predicts predict
each scores score
each evaluates eval
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
ask pack "$nothing" pack "$here/whole" -o "$here/made"
product=$here/made/model.safetensors
ask export "$nothing" export "$here/whole" --format safetensors --to "$here/made"
product=
ask ckpt-list "$nothing" ckpt list "$here/whole"
ask ckpt-check "$nothing" ckpt check "$here/whole"
excuse='^[a-z-]* *refused: '
chosen=$faults faults=every # there are not many
ask backends "$nothing" backends
faults=$chosen
excuse='^FAIL .* out of memory'
ask verify "$nothing" verify "$top/tests/golden/layer/layer-gelu.safetensors"
excuse=
ask diff "$nothing" diff "$top/bench/tiny.run" --threads 1
slow=1
ask bench "$times" bench "$top/bench/tiny.run" --steps 1 --warmup 1 --threads 1
ask gemm "$times" bench gemm --shape 8x8x8 --seconds 0.001 --threads 1
[ "$injected" -ge 40 ] || fail "only $injected allocations were made to fail"
echo "$injected allocations failed, $survived commands ended well all the same"
finish
