#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs of 32 bits predict: a build without training for 32-bit ARM, by a cross compiler, run in an emulator, answers as
# the program of this machine does, from a run and from a packed model with int8 weights.
. "$(dirname "$0")/../cli/_common.sh"
compiler=arm-linux-gnueabihf-gcc
emulator=qemu-arm-static
export QEMU_LD_PREFIX=/usr/arm-linux-gnueabihf # where it finds the C library
for tool in $compiler $emulator; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed (gcc-arm-linux-gnueabihf, qemu-user-static)"; exit 77; }
done
cd "$here" || exit 99
data train.tsv 300 1
exits 0 tiny run --set train.steps=20
exits 0 "$program" pack run --int8 -o small.sy
head -n 3 train.tsv >pairs
cut -f 1 pairs >words
mkdir arm32
(cd arm32 && "$top/configure" -q --host=arm-linux-gnueabihf --disable-shared --disable-training --enable-werror PKG_CONFIG=false CC=$compiler &&
    "${MAKE:-make}" -s -j2) >log 2>&1 || { tail -n 40 log; fail "the cross build"; finish; }

# same FILE COMMAND...: the command's standard output from FILE is the same in both.
same() {
    file=$1
    shift
    "$program" "$@" --quiet <"$file" >want 2>err || fail "$*: $(cat err)"
    (unset SWITCHYARD_BACKEND_PATH; $emulator arm32/switchyard "$@" --quiet <"$file" >got 2>err) || fail "32 bits: $*: $(cat err)"
    [ -s want ] || fail "$* says nothing"
    cmp want got || fail "32 bits: $* answers $(head -n 2 got), not $(head -n 2 want)"
}
same words predict run --beams 2 --scores
same pairs score run
same words predict small.sy
finish
