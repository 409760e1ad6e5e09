#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training of processes moves to another backend with all of them, or with none where one cannot.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
unset SWITCHYARD_CPU_VARIANT
sets='--set mesh.expert=2 --set mesh.zero=1 --set train.schedule=constant --set train.log_every=1'

# start_ranks RUN MORE: in the background, rank 1 with another folder of plugins.
mkdir some
for plugin in "$SWITCHYARD_BACKEND_PATH"/switchyard-*.so; do ln -s "$plugin" some/; done
[ -z "${SY_TEST_PLUGINS-}" ] || ln -s "$SY_TEST_PLUGINS/switchyard-far.so" some/
train="$program train $top/bench/tiny.run --run-dir $here/run --threads 1 --set task.words.train=$here/train.tsv --set train.steps=1000000 $sets"
# shellcheck disable=SC2086
timeout -k 5 300 $launcher -n 1 env SWITCHYARD_BACKEND_PATH="$here/some" $train : -n 1 $train >run.out 2>run.err </dev/null &
owner=$!
eventually grep -q '^step 2/' run.out
for i in 1 2 3; do
    exits 0 "$program" move run --set cpu.variant=portable
    says out 'to cpu (portable) after step'
    exits 0 "$program" move run --set cpu.variant=auto
    says out 'from backend cpu (portable) to cpu ('
done
if [ -n "${SY_TEST_PLUGINS-}" ]; then
    exits 1 "$program" move run --backend far
    says err 'no move after step .*: backend far: no switchyard-far.so in '
fi
step=$(sed -n 's/^step \([0-9]*\)\/.*/\1/p' run.out | tail -n 1)
eventually grep -q "^step $((step + 2))/" run.out

# The lock names rank 0's process: a signal to it stops all.
kill -TERM "$(cut -d ' ' -f 2 run/lock)"
ended
eventually grep -q stopped run/status
at=$(newest run)
# shellcheck disable=SC2086
exits 0 tiny whole --quiet --threads 1 --set train.schedule=constant --set train.steps="$at"
[ "$(hash_in out)" = "$(hash_in run.out)" ] || fail "other weights than without a move: $(cat run.out)"
finish
