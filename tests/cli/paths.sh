#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Data paths are relative to the working directory, and absolute in a run directory: eval and train --resume work from any
# folder, and a run directory of an earlier version, whose paths are relative, goes on as before.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data given.tsv 300 1
good='--set train.steps=4 --set train.checkpoint_every=2'
mkdir elsewhere
data held.tsv 5 3
given='--set task.words.train=given.tsv --set task.words.test=held.tsv'
# shellcheck disable=SC2086
exits 0 "$program" train "$top/bench/tiny.run" --run-dir placed $good $given --set train.steps=2 --threads 1
grep -qx "train = \"$(pwd -P)/given.tsv\"" placed/run.conf || fail "run.conf has $(grep '^train = ' placed/run.conf)"
grep -qx 'valid = ""' placed/run.conf || fail "run.conf has $(grep '^valid = ' placed/run.conf)"
# A run file that is used from another folder says what its paths begin at.
mkdir project
cp "$top/bench/tiny.run" given.tsv project
exits 1 "$program" train project/tiny.run --run-dir none --set task.words.train=given.tsv --set task.words.test=held.tsv --set task.words.valid=gone.tsv
says err 'task.words.valid: cannot read gone.tsv: No such file or directory$'
rm given.tsv
exits 1 "$program" train project/tiny.run --run-dir none --set task.words.train=given.tsv
says err 'cannot read given.tsv: .* beside the run file, .* cd project, or'
[ ! -e none ] || fail "a run directory was made"
mv project/given.tsv .
cd elsewhere || exit 99
exits 0 "$program" eval ../placed --threads 1
says out '^words/test: 5 items, '
exits 0 "$program" train --resume ../placed --set train.steps=3 --threads 1
says out '^done after 3 steps$'
cd ..
# The same file by its relative name is no change; in a run directory of an earlier version names are relative.
for stored in absolute relative; do
    # shellcheck disable=SC2086
    exits 0 "$program" train "$top/bench/tiny.run" --resume --run-dir placed $good $given --threads 1
    grep -q 'task.words' err && fail "$stored: $(cat err)"
    sed "s|\"$(pwd -P)/|\"|" placed/run.conf >relative
    cp relative placed/run.conf
    grep -qx 'train = "given.tsv"' placed/run.conf || fail "no relative name: $(grep '^train = ' placed/run.conf)"
done
exits 0 "$program" eval placed --threads 1
finish
