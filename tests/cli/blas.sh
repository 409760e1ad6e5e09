#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cpu.variant = blas: by name only, said not to be reproducible, near enough to our own kernels; where the build has
# no BLAS, one clear error.
. "$(dirname "$0")/_common.sh"
unset SWITCHYARD_CPU_VARIANT
data "$here/train.tsv" 500 1

if ! "$program" backends | grep -q '^cpu .*, blas$'; then
    exits 1 tiny none --quiet --set cpu.variant=blas
    one_line_error
    says err 'variant "blas" is not possible here: .*; blas takes a build with configure --with-blas$'
    exits 0 "$program" bench gemm --shape 8x8x8 --seconds 0.001 --threads 1
    says out '^library: .*configure --with-blas'
    grep -q blas_gflops "$here/out" && fail "a rate of no library"
    [ "$failures" -eq 0 ] && echo "skipped: training with a BLAS (this build has none: configure --with-blas)"
    finish
fi

# loss RUN: of the last step.
loss() {
    query "$1" "SELECT loss FROM loss_curve ORDER BY step DESC LIMIT 1"
}

exits 0 tiny own --threads 2
says out 'backend cpu (' # auto
grep -q 'blas' "$here/out" && fail "auto chose the BLAS: $(cat "$here/out")"
for threads in 1 2; do
    exits 0 tiny blas-$threads --threads $threads --set cpu.variant=blas
    says out 'backend cpu (blas: .*; not reproducible to the bit)'
    query blas-$threads "SELECT text FROM event WHERE kind = 'launch'" | grep -q 'not reproducible to the bit' ||
        fail "the run's record does not say that it is not reproducible"
    awk "BEGIN { d = $(loss own) - $(loss blas-$threads); exit !(d < 1e-3 && d > -1e-3) }" ||
        fail "loss $(loss own), with the BLAS $(loss blas-$threads)"
done
[ "$(hash_in out)" != "" ] || fail "no hash"
exits 0 tiny half --threads 2 --quiet --set cpu.variant=blas --set model.dtype=bfloat16 --set train.steps=2

exits 0 "$program" bench gemm --shape 64x40x24 --seconds 0.001 --threads 2
says out '^library: blas: '
says out 'blas_percent'
says out 'blas_median'
exits 0 "$program" bench gemm --shape 64x40x24 --seconds 0.001 --dtype bfloat16
says out '^library: none of this dtype'
finish
