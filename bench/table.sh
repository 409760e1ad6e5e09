#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The table of doc/performance.md on this machine: training steps against another program, in turn, then products, the
# MoE layer and decoding. Some twenty minutes; nothing else should run.
#
#   sh bench/table.sh ['PEER COMMAND']
#
# The peer is called as `PEER COMMAND CONFIG --steps N [--dtype bf16 [--compile]]`, CONFIG one of g2p, dense-g2p, small and
# dense-small, and prints `step=SECONDS`. Without one only switchyard is measured. Environment: SWITCHYARD (the program,
# default switchyard), PAIRS (default 3), SMALL_PAIRS (of small and dense-small, default 1).
set -u
program=${SWITCHYARD:-switchyard}
here=$(cd "$(dirname "$0")" && pwd)
peer=${1-}
small=${SMALL_PAIRS:-1}
bf16='--set model.dtype=bfloat16'

# step PAIRS CONFIG STEPS PEER-OPTIONS OPTIONS...
step() {
    pairs=$1 config=$2 steps=$3 options=$4
    shift 4
    echo "== $config $options $*"
    if [ -n "$peer" ]; then
        PAIRS=$pairs SWITCHYARD=$program sh "$here/compare.sh" "$here/$config.run" "$peer $config --steps $steps $options" \
            --steps "$steps" "$@" || exit 1
    else
        $program bench "$here/$config.run" --steps "$steps" "$@" | grep 'median_seconds\|percent_of_peak\|peak_process' || exit 1
    fi
}
# own ARGUMENTS...
own() {
    echo "== bench $*"
    $program bench "$@" || exit 1
}

$program backends --verbose | sed -n '/^variants of cpu/,$p' || exit 1
for config in g2p dense-g2p; do
    step "${PAIRS:-3}" $config 6 ''
    # shellcheck disable=SC2086
    for options in '--dtype bf16' '--dtype bf16 --compile'; do step "${PAIRS:-3}" $config 6 "$options" $bf16; done
done
step "$small" small 3 '' --warmup 1 --set memory.budget=2950MiB
# shellcheck disable=SC2086
for options in '--dtype bf16' '--dtype bf16 --compile'; do
    step "$small" small 3 "$options" --warmup 1 $bf16 --set memory.budget=2850MiB
    step "$small" dense-small 3 "$options" --warmup 1 $bf16
done
step "$small" dense-small 3 '' --warmup 1
own gemm
own gemm --dtype bfloat16
own moe --seconds 0.3
own moe --seconds 0.3 --dtype bfloat16
for config in g2p-relu dense-g2p; do
    own decode "$here/$config.run" --set decode.batch_size=128
    # shellcheck disable=SC2086
    own decode "$here/$config.run" --set decode.batch_size=128 $bf16
done
