#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Older compilers, those of COMPILERS ("gcc-11 clang-13") that are here, and a compiler that is said to know nothing it could be
# asked for (every test of configure that may fail answers no): each builds, and trains the same weights. Skipped where none
# of the compilers is here, after the last of these was tested.
. "$(dirname "$0")/../cli/_common.sh"
cd "$here" || exit 99
data train.tsv 300 1
exits 0 tiny reference --set train.steps=3
reference=$(hash_in out)
unset CC CFLAGS CPPFLAGS LDFLAGS

# build NAME CONFIGURE_ARGUMENTS...
build() {
    name=$1
    shift
    mkdir "$name"
    (cd "$name" && "$top/configure" -q --without-mpi --without-sentencepiece "$@" && "${MAKE:-make}" -s -j2) >"$name.log" 2>&1 ||
        { fail "$name: $(tail -n 3 "$name.log")"; return; }
    (SWITCHYARD_BACKEND_PATH='' program=$here/$name/switchyard tiny "$name-run" --set train.steps=3) >out 2>err ||
        fail "$name: $(tail -n 1 err)"
    [ "$(hash_in out)" = "$reference" ] || fail "$name: weights $(hash_in out) instead of $reference"
    echo "$name: the same weights"
}

tested= left_out=
for compiler in ${COMPILERS-gcc-11 clang-13}; do
    command -v "$compiler" >/dev/null || { left_out="$left_out $compiler"; continue; }
    build "$compiler" CC="$compiler"
    tested="$tested $compiler"
done

# What configure found here, answered with no: but for what it insists on.
answers=$(sed -n '/ffp_contract\|fvisibility/d; s/^\(sy_cv_[a-z0-9_]*\)=yes$/\1=no/p' "${abs_top_builddir:?}/config.log")
case $answers in
*sy_cv_cflags__m*) ;;
*) [ "$(uname -m)" != x86_64 ] || fail "config.log has no tests of the processor's flags" ;;
esac
# shellcheck disable=SC2086 # a list of variables
build nothing $answers
exits 1 env SWITCHYARD_BACKEND_PATH= SWITCHYARD_CPU_VARIANT=avx2 "$here/nothing/switchyard" train "$top/bench/tiny.run" \
    --set task.words.train="$here/train.tsv" --set train.steps=1 --run-dir "$here/avx2"
says err 'variant "avx2" is not possible here: this CPU and build have auto, portable '
[ -z "$left_out" ] || echo "left out, as they are not here:$left_out (packages of these names in Debian)"
if [ -z "$tested" ] && [ "$failures" -eq 0 ]; then
    echo "skipped: no compiler of COMPILERS is here"
    exit 77
fi
finish
