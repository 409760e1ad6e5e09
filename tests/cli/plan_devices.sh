#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plan --devices: the plan of a run on any number of devices, without starting them, and one error for what cannot be.
. "$(dirname "$0")/_common.sh"
tiny_run=$top/bench/tiny.run
g2p_run=$top/bench/g2p.run
cd "$here" || exit 99

# member NAME: the number after the first "NAME": of the JSON document in out.
member() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" out | head -1; }

# ---- 1, 8 and 1,024 devices ----
wide='--set data.batch_size=2048 --set decode.batch_size=1024'
before=
for n in 1 8 1024; do
    exits 0 "$program" plan "$g2p_run" --backend null --devices $n $wide --json
    [ ! -s err ] || fail "$n devices: $(cat err)"
    [ "$(member devices)" = $n ] || fail "plan for $n devices says $(member devices)"
    ranks=$(grep -o '"rank":[0-9]*' out | sort -u | wc -l)
    [ "$ranks" -eq $n ] || fail "$n devices: $ranks ranks"
    # a batch of 2,048 rows is taken once: every rank has its own rows, and the last ends where the batch does
    rows=$(grep -o '"rows":\[[0-9]*,[0-9]*\]' out | sort -u | wc -l)
    [ "$rows" -eq $n ] || fail "$n devices take $rows different parts of the batch"
    grep -q '"rows":\[[0-9]*,2048\],"experts":\[0,8\]}\]' out || fail "$n devices do not take the whole batch"
    bytes=$(sed -n 's/.*"rank_bytes":{[^}]*"all":\([0-9]*\).*/\1/p' out)
    [ -z "$before" ] || [ "$bytes" -lt "$before" ] || fail "$n devices: $bytes bytes a rank, fewer have $before"
    before=$bytes
done
exits 0 "$program" plan "$g2p_run" --backend null --devices 1024 $wide
says out '^1024 ranks x '
says out 'comm none, mesh data=1024 expert=1 model=1$'
says out '^planned with reproducible.blocks=1024 reproducible.min_leaf=[0-9]*, which this mesh needs$'
says out '^  1023: data 1023 expert 0 model 0, rows 2046 to 2047, experts 0 to 7$'
if command -v script >/dev/null; then
    script -qec "$program plan '$g2p_run' --backend null --devices 1024 $wide" /dev/null </dev/null >screen
    tr -d '\r' <screen | awk 'length > 79' >wider
    [ ! -s wider ] || fail "wider than a terminal: $(head -n 2 wider)"
    rm screen wider
else
    echo "not tested: lines of a terminal; there is no script"
fi

# ---- the same plan as for ranks that are there ----
eight='--set mesh.data=2 --set mesh.expert=2 --set mesh.model=2'
for backend in cpu null; do
    exits 0 "$program" plan "$tiny_run" --tensors --backend $backend --threads 1 --ranks 8 --comm thread $eight
    sed '1d; s/  of .* free here.*//; /^the longest step: /d' out >started
    exits 0 "$program" plan "$tiny_run" --tensors --backend $backend --threads 1 --devices 8 $eight
    says out '^the longest step: no time, --devices are not here$'
    sed '1d; s/  of .* free here.*//; /^the longest step: /d' out | cmp -s - started || fail "$backend: eight devices and eight ranks have different plans"
done
says out '^  2 to 3: data 0 expert 1 model 0 to 1, rows 4 to 7, experts 2 to 3$'
says out '^optimizer state:'
says out 'nu/decoder/layers_1/mlp/expert/wi_0/kernel  *\[4/e, 32, 64/m\] (expert, embed, expert_mlp)$'
says out '^  all_to_all  *[1-9][0-9]* calls  *[1-9][0-9]* bytes'
# communication is the sum of its kinds
exits 0 "$program" plan "$tiny_run" --backend null --devices 8 $eight --json
sum=$(sed 's/.*"collectives"://; s/"weight_metrics".*//' out | grep -o '"received_bytes":[0-9]*' | awk -F: '{ n += $2 } END { print n }')
[ "$(sed -n 's/.*"communication":{"calls":[0-9]*,"received_bytes":\([0-9]*\)}.*/\1/p' out)" = "$sum" ] ||
    fail "communication is not the sum of its kinds ($sum bytes)"

# Two ranks with other rows each: half of every gradient comes in as terms, the other half as sums, and little else.
exits 0 "$program" plan "$g2p_run" --backend null --devices 2 --set moe.num_experts=0 --json
gradients=$((4 * $(member parameters)))
received=$(sed -n 's/.*"communication":{"calls":[0-9]*,"received_bytes":\([0-9]*\)}.*/\1/p' out)
[ "$received" -ge "$gradients" ] && [ "$received" -le $((gradients * 51 / 50)) ] ||
    fail "two data ranks receive $received bytes for $gradients bytes of gradients"

# ---- what T5X would make of the devices ----
exits 0 "$program" plan "$g2p_run" --backend null --devices 8 --partitions 2
says out 'mesh data=1 expert=4 model=2$'
says out "^T5X's mesh data=4 model=2\$"
exits 0 "$program" plan "$g2p_run" --backend null --devices 32 --partitions 1
says out 'mesh data=4 expert=8 model=1$'
says out "^T5X's mesh data=8 model=4, both of them data axes\$"
exits 0 "$program" plan "$g2p_run" --backend null --devices 8 --partitions 2 --set moe.num_experts=0
says out 'mesh data=4 expert=1 model=2$'

# ---- what cannot be: one line, before anything is taken ----
# refused STATUS TEXT ARGUMENT...
refused() {
    want=$1
    text=$2
    shift 2
    exits "$want" "$program" plan "$g2p_run" --backend null "$@"
    one_line_error
    says err "$text"
    [ ! -s out ] || fail "a refused plan prints: $(head -1 out)"
}
refused 2 'mesh data=1 expert=4 model=1 does not make 6 ranks' --devices 6 --set mesh.expert=4
refused 2 'need at least 16 ranks, but there are 8' --devices 8 --set mesh.data=16
refused 2 'mesh.expert=16 does not divide moe.num_experts=8' --devices 16 --set mesh.expert=16
refused 2 'mesh.expert=16 does not divide moe.num_experts=8' --devices 32 --partitions 2
refused 1 'axis batch has 128 elements, which 1024 ranks do not divide' --devices 1024
refused 1 'which 7 ranks do not divide: use a number of ranks there that is a power of two' --devices 7
refused 1 'axis joined_kv has 4 elements, which 8 ranks do not divide' --devices 8 --set mesh.model=8
refused 2 '3 partitions do not divide 8 devices' --devices 8 --partitions 3
refused 2 'give both' --partitions 2
refused 2 'leave out --ranks and --comm' --devices 8 --ranks 8
refused 2 'leave mesh.\* at 0' --devices 8 --partitions 2 --set mesh.data=4
refused 2 'expected a whole number' --devices 0
[ "$(ls)" = "$(printf 'err\nout\nstarted')" ] || fail "plan leaves files: $(ls)"
finish
