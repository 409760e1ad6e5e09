#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cpu.variant = auto: what `backends --verbose` measures and says it takes is what doctor and runs take; a run of bfloat16
# keeps the arithmetic that it began with, and is refused where that is not there.
. "$(dirname "$0")/_common.sh"
unset SWITCHYARD_CPU_VARIANT
data "$here/train.tsv" 200 1
cd "$here" || exit 99

# ---- backends --verbose ----
exits 0 "$program" backends --verbose
[ ! -s err ] || fail "words on standard error: $(cat err)"
cp out measured
# Each variant that the list above it names has its line of two speeds.
listed=$(sed -n 's/^cpu .* kernels; //p' measured | tr -d ',')
for name in $listed; do
    awk -v name="$name" '$1 == name && NF >= 3 && $2 > 0 && $3 > 0 { found = 1 } END { exit !found }' measured ||
        fail "no speeds of $name: $(cat measured)"
done
taken=$(sed -n 's/^ *auto takes \([a-z0-9_]*\) in runs of float32, \([a-z0-9_]*\) in those of bfloat16.*/\1 \2/p' measured)
single=${taken% *} half=${taken#* }
for name in $single $half; do
    case " $listed " in *" $name "*) ;; *) fail "auto takes $name, of $listed" ;; esac
done
case $taken in amx* | *blas* | '') fail "auto takes '$taken'" ;; esac
exits 0 "$program" backends -v
says out '^ *auto takes '
exits 0 "$program" backends
grep -q 'auto takes' out && fail "measured without being asked"
exits 2 "$program" version --verbose

# agrees FILE NAME: the file says that backend cpu takes it; of processors whose variants are near the limit of 10 % two
# measurements may differ, so several are looked at.
agrees() {
    for again in 1 2 3 4 5; do
        grep -q "cpu ($2)" "$1" && return
        "$program" backends -v >measured
        set -- "$1" "$(sed -n "s/.*auto takes .*, \([a-z0-9_]*\) in those.*/\1/p" measured)"
    done
    fail "$1 does not take $2: $(cat "$1")"
}

# ---- doctor says the same ----
exits 0 "$program" doctor
tr -s '\n ' '  ' <out >line
says line 'a run takes [a-z0-9_]* here'
if [ "$single" = "$half" ]; then
    says line "a run takes $single here, with"
fi

# ---- what a run keeps ----
short='--threads 1 --set train.steps=4 --set train.checkpoint_every=2'
bf16="$short --set model.dtype=bfloat16"
# kept NAME: the run's cpu.bfloat16.
kept() {
    sed -n 's/^bfloat16 *= *"\([a-z0-9_]*\)".*/\1/p' "$1/run.conf"
}
# shellcheck disable=SC2086
{
    exits 0 tiny plain $short
    [ "$(kept plain)" = auto ] || fail "a run of float32 keeps '$(kept plain)'"
    exits 0 tiny whole $bf16
}
agrees out "$half"
weights=$(hash_in out)
arithmetic=$(kept whole)
case $arithmetic in
widened | avx512_bf16 | amx_bf16) ;;
*) fail "a run of bfloat16 keeps '$arithmetic'" ;;
esac
# shellcheck disable=SC2086
{
    exits 0 tiny named $bf16 --set cpu.variant=portable
    [ "$(kept named)" = auto ] || fail "a run with a variant of its own keeps '$(kept named)'"
    exits 0 env SWITCHYARD_CPU_VARIANT=portable "$program" train "$top/bench/tiny.run" --run-dir forced --quiet \
        --set task.words.train="$here/train.tsv" $bf16
    [ "$(kept forced)" = widened ] || fail "SWITCHYARD_CPU_VARIANT=portable keeps '$(kept forced)'"

    # Ranks that are threads take one variant together.
    exits 0 tiny ranks $bf16 --comm thread --ranks 2 --set mesh.data=2
    [ "$(kept ranks)" = "$arithmetic" ] || fail "two ranks keep '$(kept ranks)', one $arithmetic"
    [ "$(hash_in out)" = "$weights" ] || fail "two ranks: other weights"

    # What was kept is taken again: no change is told, the weights are those of the run that did not stop.
    exits 0 tiny half $bf16 --set train.steps=2
    exits 0 tiny half $bf16 --resume
    grep -q 'cpu.bfloat16' err && fail "resuming tells a change: $(cat err)"
    [ "$(kept half)" = "$arithmetic" ] || fail "after resuming '$(kept half)' is kept"
}

# A run that computes in float32 all the time, and goes on so even where pairs are there and faster.
# shellcheck disable=SC2086
{
    exits 0 tiny wide $bf16 --set cpu.bfloat16=widened --set train.steps=2
    exits 0 tiny wide $bf16 --resume
    [ "$(kept wide)" = widened ] || fail "widened became '$(kept wide)'"
    grep -Eq 'cpu \((portable|avx2|avx512|neon)\)' out || fail "widened is computed by $(grep backend out)"
}

# ---- an arithmetic that is not here ----
# go_on NAME: the run, had it begun with that arithmetic.
go_on() {
    cp -R "whole" "with_$1"
    sed "s/^\(bfloat16 *= *\)\".*\"/\1\"$1\"/" whole/run.conf >"with_$1/run.conf"
    [ "$(kept "with_$1")" = "$1" ] || fail "run.conf was not changed: $(kept "with_$1")"
    case " $listed " in
    *" $1 "*)
        # shellcheck disable=SC2086
        exits 0 tiny "with_$1" $bf16 --set train.steps=6 --resume
        says out "cpu ($1)"
        return
        ;;
    esac
    # shellcheck disable=SC2086
    {
        exits 1 tiny "with_$1" $bf16 --resume --quiet
        one_line_error
        says err "cpu.bfloat16 = $1: this CPU or build has no such instructions, .* is the widest"
        says err 'set cpu.bfloat16 = widened (or cpu.variant) to go on here'
        [ "$(kept "with_$1")" = "$1" ] || fail "a refused resume changed run.conf"
        printf 'abc\n' >words
        "$program" predict "with_$1" --quiet <words >predicted 2>err || fail "predict: $(cat err)"
        says err 'results may differ in their last digits'
        exits 0 tiny "with_$1" $bf16 --set train.steps=6 --resume --set cpu.bfloat16=widened
        says err "cpu.bfloat16 changes from \"\{0,1\}$1\"\{0,1\} to \"\{0,1\}widened"
        [ "$(kept "with_$1")" = widened ] || fail "what was asked for is not kept: '$(kept "with_$1")'"
        exits 1 tiny never $bf16 --set cpu.bfloat16=$1 --quiet
        [ ! -e never ] || fail "a run that was refused left its directory"
    }
}
go_on avx512_bf16
go_on amx_bf16
finish
