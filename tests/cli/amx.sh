#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cpu.variant = amx_bf16: refused where the processor has no tiles; emulated (cpu.emulate) it trains to the same weights
# on any threads and ranks, those of the instructions where there are these; auto never emulates.
. "$(dirname "$0")/_common.sh"
unset SWITCHYARD_CPU_VARIANT
data "$here/train.tsv" 200 1
# heads of 32 columns: tiles multiply in attention, too
amx='--quiet --set cpu.variant=amx_bf16 --set model.dtype=bfloat16 --set model.head_dim=32 --set train.steps=2'
emulated="$amx --set cpu.emulate=true"

exits 1 tiny wrong --quiet --set cpu.emulate=true
one_line_error
says err 'option emulate is for variant amx_bf16 alone'

if "$program" backends | grep -q '^cpu .*\(: \| \)amx_bf16'; then
    has_tiles=yes
else
    has_tiles=
    # shellcheck disable=SC2086
    exits 1 tiny none $amx
    one_line_error
    says err 'variant "amx_bf16" is not possible here: this CPU and build have auto'
    says err 'cpu.emulate = true\|even in C (option emulate) it takes a CPU with AVX512-BF16'
fi

# shellcheck disable=SC2086
tiny one --threads 1 $emulated >"$here/out" 2>"$here/err"
if [ $? -ne 0 ]; then
    says err 'AVX512-BF16\|no kernels of amx_bf16'
    [ "$failures" -eq 0 ] && echo "skipped: training with emulated tiles ($(cat "$here/err"))"
    finish
fi
weights=$(hash_in out)
[ "${#weights}" -eq 64 ] || fail "no hash: $(cat "$here/out")"

# same NAME ARGUMENTS...: the weights must be those of one thread and rank.
same() {
    exits 0 tiny "$@"
    [ "$(hash_in out)" = "$weights" ] || fail "$1: weights differ"
}

# shellcheck disable=SC2086
{
    same two-threads --threads 2 $emulated
    same data-2 --comm thread --ranks 2 --threads 1 --set mesh.data=2 $emulated
    same expert-2 --comm thread --ranks 2 --threads 1 --set mesh.expert=2 $emulated
    same model-2 --comm thread --ranks 2 --threads 1 --set mesh.model=2 $emulated
    [ -z "$has_tiles" ] || same instructions --threads 2 $amx
    exits 0 tiny other --threads 2 $amx --set cpu.variant=avx512_bf16
}
[ "$(hash_in out)" != "$weights" ] || fail "tiles give the weights of avx512_bf16: nothing ran on them"
exits 0 tiny named --threads 1 --set cpu.variant=amx_bf16 --set cpu.emulate=true --set train.steps=1
says out 'backend cpu (amx_bf16: emulated, slow)'

# Short parts of sums waste tiles: a run that begins on them has parts of 256 elements, any other of 64. It keeps them.
leaf_of() {
    sed -n 's/^min_leaf = \([0-9]*\).*/\1/p' "$here/$1/run.conf"
}
auto='--set reproducible.min_leaf=0 --set reproducible.blocks=8 --set model.d_ff=512'
# shellcheck disable=SC2086
{
    exits 0 tiny long $emulated $auto
    exits 0 tiny short $amx $auto --set cpu.variant=avx512_bf16
    exits 0 tiny wide $amx $auto --set cpu.variant=amx_bf16 --set cpu.emulate=true --set model.dtype=float32
}
[ "$(leaf_of long) $(leaf_of short) $(leaf_of wide)" = "256 64 64" ] ||
    fail "min_leaf: $(leaf_of long) on tiles, $(leaf_of short) by vectors, $(leaf_of wide) in float32"
# shellcheck disable=SC2086
exits 0 tiny long --resume $emulated $auto --set train.steps=3 --set cpu.variant=avx512_bf16 --set cpu.emulate=false
[ "$(leaf_of long)" = 256 ] || fail "a resume by vectors has min_leaf = $(leaf_of long)"
# shellcheck disable=SC2086
leaves() {
    "$program" explain "$top/bench/tiny.run" ${emulated#--quiet} $auto "$@" --program grad_first | grep -c 'leaf=256'
}
[ "$(leaves)" -gt 0 ] || fail "no sum over parts of 256 elements on tiles"
[ "$(leaves --set reproducible.min_leaf=64)" -eq 0 ] || fail "parts of 256 elements where 64 was asked for"
finish
