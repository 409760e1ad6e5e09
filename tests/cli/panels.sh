#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Weights in panels (model.dtype = bfloat16): answers and scores are the same on any mesh and for all variants that widen, and
# a backend that knows no panels has the plain copies.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 200 1
data words.tsv 24 2
cut -f 1 words.tsv >words
exits 0 tiny run --quiet --set train.steps=20 --set train.learning_rate=1e-2 --set model.dtype=bfloat16 \
    --set model.d_model=64 --set model.d_ff=256 --set model.head_dim=32 --set cpu.variant=portable
[ "$("$program" explain run/run.conf --program decode_step | grep -c '_panels ')" -ge 15 ] || fail "decode_step has no panels"
[ "$("$program" explain run/run.conf --program weights | grep -c 'q0 *lay_out ')" -ge 15 ] || fail "weights has no panels"
[ "$("$program" explain run/run.conf --program grad_first | grep -c '_panels ')" -eq 0 ] || fail "training has panels"

# ask NAME ARGUMENTS...: scores of known targets and answers, into the file NAME.
ask() {
    to=$1
    shift
    "$program" score run "$@" <words.tsv >"$to" 2>err || fail "score $*: $(cat err)"
    "$program" predict run "$@" <words >>"$to" 2>err || fail "predict $*: $(cat err)"
}
ask want --threads 1
[ "$(sort -u want | wc -l)" -ge 20 ] || fail "hardly two answers differ: this proves nothing"
for variant in avx2 avx512 neon; do
    "$program" backends | grep -q "[ ,]$variant\(,\|\$\)" || continue
    ask got --threads 2 --set cpu.variant=$variant
    cmp -s want got || fail "$variant: $(diff want got | head -n 3)"
done
for mesh in data expert model; do
    ask got --comm thread --ranks 2 --set mesh.$mesh=2
    cmp -s want got || fail "mesh.$mesh = 2: $(diff want got | head -n 3)"
done
finish
