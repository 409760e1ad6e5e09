#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is done once a node: copies of the data on its own disk, turns of those that write checkpoints, log files. Nodes are made
# by SWITCHYARD_NODE_RANKS.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
cd "$here" || exit 99
exits 0 tiny plain --quiet --threads 1 --set train.checkpoint_every=10
plain=$(hash_in out)
exits 0 tiny constant --quiet --threads 1 --set train.schedule=constant
constant=$(hash_in out)

# files_in FOLDER: how many there are.
files_in() {
    find "$1" -type f | wc -l
}

# ---- copies ----
export STAGE="$here/disk"
four="--quiet --comm thread --ranks 4 --threads 1 --set train.checkpoint_every=10"
stage='data.stage="$STAGE/${STAGED}"'
# shellcheck disable=SC2016,SC2086 # the program finds the variables; options
{
    exits 1 tiny unset $four --set "$stage"
    one_line_error
    says err 'data.stage = .*: STAGED is not set'
    [ ! -e unset ] || fail "a refused training leaves a folder"
    export STAGED=data
    exits 0 tiny copied $four --set "$stage" --set train.steps=10 --set train.schedule=constant
    [ "$(files_in disk/data)" -eq 1 ] && cmp -s disk/data/train.tsv-* train.tsv || fail "no copy: $(find disk)"
    [ "$(query copied "SELECT count(*) FROM event WHERE kind = 'stage' AND text LIKE
        'data.stage: 1 file of % copied to 1 node in % s, 0 had been there before'")" -eq 1 ] ||
        fail "no event: $(query copied "SELECT text FROM event WHERE kind = 'stage'")"

    # A run that goes on finds the copy, and data are what they were: identity is the original's.
    exits 0 tiny copied $four --set "$stage" --resume --set train.steps=20 --set train.schedule=constant
    [ "$(hash_in out)" = "$constant" ] || fail "other weights with copies: $(cat out)"
    says copied/log 'data.stage: 0 files of 0.0 MiB copied to 1 node in .* s, 1 had been there before'
    grep -q 'has changed' copied/log && fail "data have changed: $(cat copied/log)"

    # One that is cut off is made again; one of other contents is another copy.
    : >"$(echo disk/data/train.tsv-*)"
    exits 0 tiny cut $four --set "$stage"
    [ "$(hash_in out)" = "$plain" ] || fail "other weights after a copy that was cut off"
    cmp -s disk/data/train.tsv-* train.tsv || fail "a copy that was cut off stays"
    echo 'abc	A B C' >>train.tsv
    exits 0 tiny more --quiet --threads 1 --set train.steps=2
    more=$(hash_in out)
    exits 0 tiny other $four --set "$stage" --set train.steps=2
    [ "$(hash_in out)" = "$more" ] || fail "other weights of other data"
    [ "$(files_in disk/data)" -eq 2 ] || fail "not two copies: $(find disk)"
    exits 1 tiny copied $four --set "$stage" --resume --set train.steps=21 --set train.schedule=constant
    says err 'train.tsv has changed since the checkpoint of step 20'
    : >"$here/file"
    STAGE=$here/file
    exits 1 tiny in-the-way $four --set "$stage"
    says err 'a file of this name is in the way\|Not a directory'
}

# ---- two nodes of two ranks: writers of checkpoints, logs ----
data "$here/train.tsv" 300 1
export SWITCHYARD_NODE_RANKS=2 STAGE="$here/disk2"
for background in true false; do
    # shellcheck disable=SC2086
    exits 0 tiny two-$background $four --set mesh.expert=4 --set "$stage" --set log.ranks=nodes --set checkpoint.writers=1 \
        --set checkpoint.background=$background
    [ "$(hash_in out)" = "$plain" ] || fail "other weights of two nodes: $(cat out err)"
    says two-$background/log ' to 2 nodes in '
    for file in params state; do
        for step in 10 20; do
            cmp -s two-$background/checkpoints/$step/$file.safetensors plain/checkpoints/$step/$file.safetensors ||
                fail "step $step: other $file when ranks write in turns"
        done
    done
done
for rank in 0 1 2 3; do
    log=two-true/ranks/node-$((rank / 2)).log
    says "$log" " rank $rank: rank $rank of 4 on host $(uname -n), "
    says "$log" " rank $rank: step 20/20 .* waiting for other ranks"
    says "$log" " rank $rank: done after 20 steps"
done
[ "$(files_in two-true/ranks)" -eq 2 ] || fail "not a file a node: $(ls two-true/ranks)"
grep -qv ' rank [01]: ' two-true/ranks/node-0.log && fail "lines of other ranks: $(cat two-true/ranks/node-0.log)"
exits 1 env SWITCHYARD_NODE_RANKS=none "$program" train "$top/bench/tiny.run" --quiet --run-dir none --comm thread \
    --ranks 2 --set task.words.train=train.tsv
says err 'SWITCHYARD_NODE_RANKS=none: a number of ranks, 1 or more'
finish
