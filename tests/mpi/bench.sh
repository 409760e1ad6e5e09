#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench RUNFILE as several processes: rank 0 prints, once; tokens and products are those of all ranks.
. "$(dirname "$0")/_common.sh"

# number FILE NAME: the first value of that member in a JSON document.
number() {
    sed -n "s/.*\"$2\":\(-\{0,1\}[0-9][0-9.e+-]*\)[,}].*/\1/p" "$here/$1" | head -n 1
}

# bench NAME ARGUMENTS...: what `bench tiny.run` prints as a document. Without dropout and experts the FLOPs are exact.
bench() {
    name=$1
    shift
    "$@" bench "$top/bench/tiny.run" --threads 1 --steps 2 --warmup 1 --json --set moe.num_experts=0 \
        >"$here/$name" 2>"$here/err" </dev/null || fail "$name: exit $?: $(cat "$here/err")"
    [ "$(wc -l <"$here/$name")" -eq 1 ] || fail "$name: not one line: $(head -c 600 "$here/$name")"
}

bench one "$program"
bench two ranks 2 "$program"
for name in tokens product_gflop; do
    [ "$(number one $name)" = "$(number two $name)" ] ||
        fail "$name: $(number one $name) of one process, $(number two $name) of two"
done
says two '"launch":"2 ranks x 1 thread .* comm mpi, mesh data=2 '
[ "$(number two threads)" = 2 ] || fail "threads of two ranks: $(number two threads)"
says two '"reproducible":{"on_seconds":[0-9.e-]*,"off_seconds":[0-9.e-]*,"price_percent":'
grep -q '"reproducible"' "$here/one" && fail "one rank sends nothing, but a price is printed"

# The tables: those of rank 0, with what it sends and waits for.
ranks 2 "$program" bench "$top/bench/tiny.run" --threads 1 --steps 1 --warmup 1 --profile \
    --set reproducible.enabled=false >"$here/out" 2>"$here/err" </dev/null || fail "profile: exit $?: $(cat "$here/err")"
[ "$(grep -c '^launch: 2 ranks' "$here/out")" -eq 1 ] || fail "printed more than once: $(cat "$here/out")"
says out '^  wait '
says out '^  all_reduce '
grep -q '^reproducible$' "$here/out" && fail "a price of what is off"
finish
