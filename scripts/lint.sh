#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run by `make lint`: clang-tidy (what it looks for: .clang-tidy) and cppcheck over the sources of the program and its
# backends. What they are wrong about is in clang-tidy.txt and cppcheck.txt beside this script, with reasons. Exit status 1
# when one finds something else, or is not there.
set -u
top=${abs_top_srcdir:?set abs_top_srcdir to the source tree}
build=$PWD
failed=0
for tool in clang-tidy cppcheck; do
    command -v $tool >/dev/null || { echo "make lint needs $tool" >&2; exit 1; }
done
cd "$top" && top=$(pwd) || exit 1
flags="-I$build -Iinclude -Icore -I. -DSYI_PKGLIBDIR=\"lib\" -DSYI_PKGLIBDIR_FROM_BIN=\"lib\""
[ -z "${SQLITE_CFLAGS-}" ] || flags="$flags $SQLITE_CFLAGS"
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)

# Kernels of one instruction set are compiled from these by their own flags; fast_*.c for AVX2 alone, those of tiles for them.
plain=$(find core cli metrics verify backends/null backends/cpu -name '*.c' ! -name 'fast_*' ! -name cpu64.c | sort)
tiles='backends/cpu/fast_attention.c backends/cpu/fast_attention_grad.c backends/cpu/fast_gemm_amx.c
    backends/cpu/fast_gemm_direct.c backends/cpu/fast_gemm_tokens.c'
fast=$(find backends/cpu -name 'fast_*.c' ! -name fast_gemm_amx.c ! -name fast_gemm_direct.c ! -name fast_gemm_tokens.c | sort)
[ "$(uname -m)" = x86_64 ] || fast='' tiles=''
found=$(mktemp) || exit 1
trap 'rm -f "$found" "$found.wrong"' EXIT

# tidy FLAGS FILE...: what clang-tidy says goes into $found.
tidy() {
    extra=$1
    shift
    # shellcheck disable=SC2086 # flags are words
    printf '%s\n' "$@" | xargs -P "$jobs" -I{} clang-tidy --quiet {} -- -std=gnu11 $flags $extra >>"$found" 2>/dev/null
}
# shellcheck disable=SC2086
{
    tidy '' $plain
    [ -z "$fast" ] || tidy '-DSYCPU_ISA=avx2 -mavx2 -mfma -mf16c -ffp-contract=off' $fast
    [ -z "$tiles" ] || tidy "-DSYCPU_ISA=amx_emulated -DSYCPU_PAIRS -DSYCPU_TILES -DSYCPU_TILES_EMULATED -mavx512f -mavx512bw \
        -mavx512dq -mavx512vl -mavx512bf16 -mfma -mf16c -ffp-contract=off" $tiles
}
# A finding in a header comes with every file that includes it.
sed -e '/^ *#/d' -e '/^ *$/d' -e 's/[.]/\\./g' -e 's/ /:[0-9:]* .*\\[/' scripts/clang-tidy.txt >"$found.wrong"
grep -E '^[^ ]*:[0-9]+:[0-9]+: (error|warning): .*\[[a-z]' "$found" | sed "s,^$top/,,; s,^\./,," | sort -u |
    grep -v -f "$found.wrong" && failed=1

# shellcheck disable=SC2086
cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --suppressions-list=scripts/cppcheck.txt \
    --error-exitcode=1 -j "$jobs" --template='{file}:{line}: {id}: {message}' $flags \
    core cli metrics verify backends/null || failed=1
[ "$failed" -eq 0 ] && echo 'clang-tidy and cppcheck find nothing'
exit $failed
