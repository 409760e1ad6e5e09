#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Keys of [optimizer]: what does not fit is refused, with the key and what to write; what a resume is refused for leaves the
# run as it was.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 100 1
cd "$here" || exit 99
tiny_run=$top/bench/tiny.run
small='--quiet --threads 1 --set train.steps=2 --set train.checkpoint_every=2 --set data.batch_size=8
    --set data.length_buckets=[24]'

# ---- resume ----
# shellcheck disable=SC2086
exits 0 tiny run $small --set optimizer.name=sgd --set optimizer.a.name=sgd --set optimizer.a.momentum=0.9 \
    --set 'optimizer.a.match=["encoder/*"]'
cp run/run.conf before.conf
exits 1 "$program" train --resume run --quiet --threads 1 --set train.steps=4 --set optimizer.a.momentum=0
says err 'state/param_states/'
cmp -s run/run.conf before.conf || fail "a refused resume changed run.conf: $(diff before.conf run/run.conf)"
exits 0 "$program" train --resume run --quiet --threads 1
exits 0 "$program" train --resume run --quiet --threads 1 --set train.steps=4 --set optimizer.a.momentum=0.5
grep -q '^momentum = 0.5$' run/run.conf || fail "run.conf does not say what the run goes on with"
# Arguments of a chain change as those of a named optimizer do; what its state is does not.
chain='optimizer.chain=["trace(0.9)", "scale_by_learning_rate"]'
# shellcheck disable=SC2086
exits 0 tiny chain $small --set optimizer.name=chain --set "$chain"
exits 0 "$program" train --resume chain --quiet --threads 1 --set train.steps=4 \
    --set 'optimizer.chain=["trace(0.5)", "scale_by_learning_rate"]'
says err 'optimizer.chain changes from .*0.9.* to .*0.5'
cp chain/run.conf before.conf
exits 1 "$program" train --resume chain --quiet --threads 1 --set train.steps=6 \
    --set 'optimizer.chain=["ema(0.5)", "scale_by_learning_rate"]'
says err 'state/param_states/0/'
cmp -s chain/run.conf before.conf || fail "another chain that was refused changed run.conf"
finish
