#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# data.auto_buckets: padded lengths that are worked out from the examples leave less padding; a run keeps them, so that where it
# is interrupted and on how many ranks it goes on shows in no weight.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 300 1

# run DIR ARGUMENTS...
run() {
    dir=$1
    shift
    "$program" train "$top/bench/tiny.run" --run-dir "$dir" --set 'data.length_buckets=[]' --set data.max_target_length=64 \
        --set task.words.train=train.tsv --set train.steps=6 --set train.schedule=constant --threads 1 "$@" </dev/null
}

buckets() {
    sed -n 's/^length_buckets = //p' "$1/run.conf"
}

filled() {
    "$program" metrics "$1" --tsv "SELECT avg(value) FROM metric WHERE name = 'non_padding_fraction/loss_weights'" | tail -n 1
}

weights() {
    sed -n 's/.*"params_sha256":"\([0-9a-f]*\)".*/\1/p' "$1/checkpoints/6/meta.json"
}

exits 0 run one
exits 0 run whole --set data.auto_buckets=3
says out '^padded lengths [0-9]*, .*: [0-9.]* positions a row on average, [0-9.]* with one length$'
[ "$(buckets one)" = '[]' ] || fail "lengths that nobody asked for: $(buckets one)"
case $(buckets whole) in
\[*,\ *,\ 64\]) ;;
*) fail "three lengths are asked for: $(buckets whole)" ;;
esac
awk -v one="$(filled one)" -v three="$(filled whole)" 'BEGIN { exit !(three > one + 0.1) }' ||
    fail "$(filled whole) of the target positions are tokens, without lengths $(filled one)"

# ---- the same in other words: given by hand, on two ranks, stopped and resumed ----
exits 0 run hand --set data.auto_buckets=0 --set "data.length_buckets=$(buckets whole)"
exits 0 run two --set data.auto_buckets=3 --comm thread --ranks 2
exits 0 run stopped --set data.auto_buckets=3 --set train.steps=3
before=$(buckets stopped)
exits 0 run stopped --set data.auto_buckets=3 --resume
grep buckets "$here/err" && fail "a resumed run changes its lengths"
[ "$(buckets stopped)" = "$before" ] || fail "a resumed run has other lengths: $before, then $(buckets stopped)"
exits 0 run folder --set data.auto_buckets=3 --set train.steps=3
exits 0 "$program" train --resume folder --set train.steps=6 --quiet
for dir in hand two stopped folder; do
    [ -n "$(weights whole)" ] && [ "$(weights "$dir")" = "$(weights whole)" ] || fail "$dir: other weights than the run in one piece"
done

# Other examples, which the run file allows, are no reason either.
awk -F '\t' '{ print $1 $1 "\t" $2 " " $2 " " $2 }' train.tsv >longer.tsv
exits 0 run stopped --set data.auto_buckets=3 --set train.steps=7 --set data.allow_changes=true \
    --set task.words.train=longer.tsv --resume
[ "$(buckets stopped)" = "$before" ] || fail "a resumed run has the lengths of other data: $before, then $(buckets stopped)"

# ---- another number is a change like others; so are lengths by hand ----
exits 0 run folder --set data.auto_buckets=2 --set train.steps=7 --resume
says err 'data.auto_buckets changes from 3 to 2'
says err 'data.length_buckets changes from \[.*\] to \[[0-9]*, 64\]'
exits 0 run folder --set data.auto_buckets=2 --set 'data.length_buckets=[16, 64]' --set train.steps=8 --resume
[ "$(buckets folder)" = '[16, 64]' ] || fail "lengths by hand do not count: $(buckets folder)"

# ---- longer examples than the lengths reach are allowed now: they are worked out anew, and the run stays one ----
exits 0 run longer --set data.auto_buckets=3 --set train.steps=2
exits 0 run longer --set data.auto_buckets=3 --set train.steps=3 --set data.max_target_length=80 --resume
says err 'data.length_buckets changes from \[.*, 64\] to \[.*, 80\]'
exits 0 "$program" eval longer --file train.tsv --set decode.max_length=2
exits 0 "$program" train --resume longer --set train.steps=4 --quiet

# ---- refused ----
exits 2 run packed --set data.auto_buckets=2 --set data.pack=true
says err 'data.auto_buckets: packed rows have one length'
exits 2 run many --set data.auto_buckets=9
says err 'data.auto_buckets'
[ ! -e packed ] && [ ! -e many ] || fail "a folder is made for what is refused"
finish
