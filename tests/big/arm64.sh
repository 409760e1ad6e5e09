#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The NEON kernels, built by a cross compiler and run in an emulator, give the weights that the kernels of this machine
# give, in float32 and bfloat16. SWITCHYARD_ARM64_ROOT: where scripts/get-arm64-sqlite.sh put SQLite.
. "$(dirname "$0")/../cli/_common.sh"
compiler=aarch64-linux-gnu-gcc
emulator=qemu-aarch64-static
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu # where it finds the C library
sqlite=${SWITCHYARD_ARM64_ROOT:-/}/usr/lib/aarch64-linux-gnu/libsqlite3.a
for tool in $compiler $emulator; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed (gcc-aarch64-linux-gnu, qemu-user-static)"; exit 77; }
done
[ -e "$sqlite" ] || { echo "skipped: no $sqlite; see scripts/get-arm64-sqlite.sh"; exit 77; }
data "$here/train.tsv" 300 1

mkdir "$here/arm64"
cd "$here/arm64" || exit 99
"$top/configure" -q --host=aarch64-linux-gnu --disable-shared --enable-werror PKG_CONFIG=false CC=$compiler \
    MPICC=no SQLITE_CFLAGS="-I${SWITCHYARD_ARM64_ROOT:-}/usr/include" SQLITE_LIBS="$sqlite -lm" \
    >log 2>&1 && make -s -j2 >>log 2>&1 || { tail -n 40 log; fail "the cross build"; finish; }
# hash NAME COMMAND...: trains for six steps and prints the hash of the weights.
hash() {
    name=$1
    shift
    "$@" train "$top/bench/tiny.run" --run-dir "$here/$name" --quiet --threads 2 --set task.words.train="$here/train.tsv" \
        --set train.steps=6 --set model.dtype=$dtype $variant >"$here/$name.out" 2>"$here/err" </dev/null ||
        fail "$name: $(cat "$here/err")"
    sed -n 's/^weights sha256 //p' "$here/$name.out"
}

for dtype in float32 bfloat16; do
    variant="--set cpu.variant=portable"
    want=$(hash native-$dtype "$program")
    variant="--set cpu.variant=neon"
    got=$(hash neon-$dtype $emulator "$here/arm64/switchyard")
    echo "$dtype: native $want, NEON $got"
    [ "${#want}" -eq 64 ] || fail "no hash of the native run"
    [ "$got" = "$want" ] || fail "$dtype: NEON gives other weights"
done
finish
