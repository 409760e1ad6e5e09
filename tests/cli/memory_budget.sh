#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# memory.budget: the plan fits, the bits stay, the price is reported, and what cannot fit is refused with the least that can.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 500 1

# bytes ARGUMENTS...: of the whole plan.
bytes() {
    "$program" plan "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" "$@" >"$here/plan" 2>"$here/err" ||
        fail "plan $*: $(cat "$here/err")"
    sed -n 's/^ *all  *\([0-9]*\) bytes.*/\1/p' "$here/plan"
}

# hash NAME ARGUMENTS...: trains and prints the hash of the weights.
hash() {
    name=$1
    shift
    "$program" train "$top/bench/tiny.run" --run-dir "$here/$name" --quiet --set task.words.train="$here/train.tsv" "$@" \
        >"$here/$name.out" 2>"$here/$name.err" </dev/null || fail "$name: $(cat "$here/$name.err")"
    sed -n 's/^weights sha256 //p' "$here/$name.out"
}

all=$(bytes)
grep -q 'computed again' "$here/plan" && fail "something is computed again without a budget"
exits 1 "$program" plan "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" --set memory.budget=1KiB
says err 'memory.budget=1024 bytes is not enough'
one_line_error
least=$(sed -n 's/.*still needs \([0-9]*\);.*/\1/p' "$here/err")
[ -n "$least" ] && [ "$least" -lt "$all" ] || fail "the least of $all bytes is said to be '$least'"

for budget in $least $(((least + all) / 2)); do
    got=$(bytes --set memory.budget="$budget")
    [ "$got" -le "$budget" ] || fail "$got bytes for a budget of $budget"
    grep -q '^computed again for memory.budget: [1-9][0-9]* ops' "$here/plan" || fail "no price: $(cat "$here/plan")"
done

for mode in float32 bfloat16; do
    want=$(hash whole-$mode --set model.dtype=$mode)
    [ "${#want}" -eq 64 ] || fail "no hash: $(cat "$here/whole-$mode.out")"
    got=$(hash least-$mode --set model.dtype=$mode --set memory.budget="$least" --threads 1)
    [ "$got" = "$want" ] || fail "$mode: weights change with the budget"
done
got=$(hash ranks --set model.dtype=bfloat16 --comm thread --ranks 2 --set memory.budget="$least")
[ "$got" = "$want" ] || fail "weights change with the budget on two ranks"

# Of two ranks that hold the same weights one alone writes them: both compute the same again.
whole=$(hash whole-float32-2 --comm thread --ranks 2)
all=$(bytes --comm thread --ranks 2)
exits 1 "$program" plan "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" --comm thread --ranks 2 --set memory.budget=1KiB
least=$(sed -n 's/.*still needs \([0-9]*\);.*/\1/p' "$here/err")
for budget in $least $(((least + all) / 2)); do
    got=$(hash "two-$budget" --comm thread --ranks 2 --set memory.budget="$budget")
    [ "$got" = "$whole" ] || fail "two ranks, $budget of $all bytes: other weights: $got, not $whole"
done
finish
