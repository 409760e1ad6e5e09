#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What each process reads. The ranks work in folders of their own, and all files are named without one: what rank 1 opens has
# to be in its folder, and is.
. "$(dirname "$0")/_common.sh"
mkdir "$here/first" "$here/second" "$here/disk"
cp "$top/bench/tiny.run" "$here/first"
data "$here/first/train.tsv" 300 1
data "$here/first/valid.tsv" 20 2
printf '%s\n' a b c d e f g h A B C D E F G H ' ' >"$here/first/characters"
options='--quiet --threads 1 --set task.words.train=train.tsv --set task.words.valid=valid.tsv
    --set vocabulary.kind=characters --set vocabulary.file=characters --set vocabulary.extra_ids=0 --set train.evaluate_every=10'

# apart NAME ARGUMENTS...: two ranks, each in its folder; output in NAME.out, NAME.err.
apart() {
    run=$1
    shift
    # shellcheck disable=SC2086,SC2016 # options; the shells of the ranks
    ranks 1 sh -c 'cd "$0" && exec "$@"' "$here/first" "$program" train tiny.run --run-dir "$here/$run" $options "$@" : \
        -n 1 sh -c 'cd "$0" && exec "$@"' "$here/second" env DISK="$here/disk" "$program" train tiny.run \
        --run-dir "$here/$run" $options "$@" >"$here/$run.out" 2>"$here/$run.err" </dev/null
}

# refused NAME TEXT ARGUMENTS...
refused() {
    name=$1 text=$2
    shift 2
    apart "$name" "$@" && fail "$name: exit 0"
    one_message "$name" "$text"
    [ ! -e "$here/$name" ] || fail "$name: a refused training leaves a folder"
}

cd "$here/first" || exit 99
# shellcheck disable=SC2086
exits 0 "$program" train tiny.run --comm self --run-dir "$here/self" $options
want=$(hash_in out)
export SWITCHYARD_NODE_RANKS=1 # each is a node

# ---- only the data are there, with another time of writing ----
sleep 0.05
cat train.tsv >"$here/second/train.tsv"
apart two || fail "two: exit $?: $(cat "$here/two.err")"
[ "$(hash_in two.out)" = "$want" ] || fail "two: other weights: $(cat "$here/two.out" "$here/two.err")"
loss="SELECT printf('%.9g', value) FROM eval_latest WHERE task = 'words/valid' AND name = 'loss' AND step = 20"
[ "$(query two "$loss")" = "$(query self "$loss")" ] && [ -n "$(query two "$loss")" ] ||
    fail "two: loss $(query two "$loss") instead of $(query self "$loss")"

# ---- other data, none ----
data "$here/second/train.tsv" 300 3
refused other 'rank 1 reads another train.tsv than rank 0'
rm "$here/second/train.tsv"
refused nothing 'rank 1: cannot open train.tsv'

# ---- data that rank 1 cannot read any more ----
cat train.tsv >"$here/second/train.tsv"
apart lost --set train.steps=1000000 --set train.schedule=constant --set train.checkpoint_every=50 &
owner=$!
eventually test -e "$here/lost/checkpoints/50"
: >"$here/second/train.tsv"
ended && fail "lost: exit 0"
one_message lost 'stopped after step [0-9]*, for data cannot be read: rank 1: .*train.tsv'

# ---- copies: each node has a folder of its own ----
cat train.tsv >"$here/second/train.tsv"
# shellcheck disable=SC2016 # the program finds it
refused unset 'data.stage = "$DISK": DISK is not set' --set 'data.stage="$DISK"'
export DISK="$here/first/disk"
# shellcheck disable=SC2016
apart copied --set 'data.stage="$DISK"' || fail "copied: exit $?: $(cat "$here/copied.err")"
[ "$(hash_in copied.out)" = "$want" ] || fail "copied: other weights"
for disk in "$here/disk" "$here/first/disk"; do
    cmp -s "$disk"/train.tsv-* train.tsv || fail "no copy in $disk: $(ls "$disk")"
done
[ "$(query copied "SELECT count(*) FROM event WHERE kind = 'stage' AND text LIKE '%: 2 files of % copied to 2 nodes in %'")" -eq 1 ] ||
    fail "copied: $(query copied "SELECT text FROM event WHERE kind = 'stage'")"

# ---- a packed model that only rank 0 has ----
exits 0 "$program" pack "$here/self" -o model.sy
# shellcheck disable=SC2016 # the shells of the ranks
printf 'abc\n' | ranks 1 sh -c 'cd "$0" && exec "$@"' "$here/first" "$program" predict model.sy --threads 1 : \
    -n 1 sh -c 'cd "$0" && exec "$@"' "$here/second" "$program" predict model.sy --threads 1 >"$here/packed.out" 2>"$here/packed.err" &&
    fail "packed: exit 0"
one_message packed 'rank 1: cannot open model.sy'

# ---- rank 0 cannot read ----
rm characters
refused no-vocabulary 'cannot open characters'
mv tiny.run moved.run
refused no-run-file 'cannot open tiny.run'
finish
