#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model of many layers starts in time that grows as their number does: four times the layers, not sixteen times the
# work. Processor time is compared, so that a slow or busy machine changes nothing.
. "$(dirname "$0")/_common.sh"
tiny_run=$top/bench/tiny.run
small='--set model.d_model=8 --set model.d_ff=8 --set model.num_heads=2 --set model.head_dim=4 --set data.length_buckets=[]'

# hundredths LAYERS ARGUMENTS...: of a second that planning so many layers on both sides takes.
hundredths() {
    layers=$1
    shift
    (
        ulimit -t 40
        "$program" plan "$tiny_run" --threads 1 $small --set model.num_encoder_layers="$layers" \
            --set model.num_decoder_layers="$layers" "$@" >"$here/out" 2>"$here/err" || echo failed
        times
    ) | awk '/failed/ { print "failed"; exit }
             { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += (NR == 2) * (60 * t[1] + t[2]) } }
             END { if (NR == 2) printf "%d\n", 100 * sum }'
}

# grows ARGUMENTS...: with the layers, and a second for what does not depend on them.
grows() {
    few=$(hundredths 200 "$@")
    many=$(hundredths 800 "$@")
    case $few$many in *[!0-9]*) fail "plan $*: $(tail -n 1 "$here/err") ($few, $many)" ;; *)
        [ "$many" -le $((7 * few + 100)) ] || fail "plan $*: 200 layers take 0.01 x $few s, 800 take $many"
        ;;
    esac
}
grows --backend null --set moe.num_experts=0
[ "$failures" -ne 0 ] || grows --backend cpu --set model.dtype=bfloat16 --set moe.num_experts=2 --set moe.num_encoder_sparse_layers=50
[ "$failures" -ne 0 ] || grows --backend null --devices 4 --set mesh.zero=3 --set moe.num_experts=0

# Any number of layers may have experts.
exits 0 "$program" plan "$tiny_run" $small --set model.num_encoder_layers=300 --set moe.num_encoder_sparse_layers=300
finish
