#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The CUDA backend, emulated on the CPU (tests/cuda), over two devices: what ranks exchange through NCCL gives the bits of
# one rank and of copies through the host, for every kind of split, by calls and by graphs; and what NCCL refuses is said.
. "$(dirname "$0")/_common.sh"
plugins=${SY_TEST_PLUGINS:?set SY_TEST_PLUGINS to the folder of the plugins of tests}
[ -e "$plugins/switchyard-cuda.so" ] ||
    { echo "skipped: the CUDA backend was not built for the CPU: no C++17 compiler, or no shared libraries"; exit 77; }
SWITCHYARD_BACKEND_PATH=$plugins:${SWITCHYARD_BACKEND_PATH:-$abs_top_builddir/.libs}
SY_EMULATED_CUDA_DEVICES=2
export SWITCHYARD_BACKEND_PATH SY_EMULATED_CUDA_DEVICES
data "$here/train.tsv" 40 1
cd "$here" || exit 99

# By calls, while they are recorded, and from graphs.
small='--threads 1 --set train.steps=3 --set data.batch_size=8 --set model.d_model=16 --set model.d_ff=16
    --set model.num_heads=2 --set train.schedule=constant --set model.dtype=bfloat16'
nccl='--backend cuda --ranks 2 --set cuda.collectives=nccl'

half='--set train.microbatches=1 --set train.gradient_dtype=bfloat16'
for gradients in '' "$half"; do
    # shellcheck disable=SC2086
    exits 0 tiny cpu $small $gradients --backend cpu --set cpu.variant=portable
    reference=$(hash_in out)
    for mesh in expert=2 model=2 zero=2; do
        # shellcheck disable=SC2086
        exits 0 tiny "$mesh" $small $gradients $nccl --set "mesh.$mesh"
        [ "$(hash_in out)" = "$reference" ] || fail "mesh.$mesh $gradients: NCCL gives other weights than one rank"
        rm -r "$mesh"
    done
    rm -r cpu
done
# Sums in any order; of two ranks there is one.
# shellcheck disable=SC2086
exits 0 tiny free-order $small $nccl --set reproducible.enabled=false
order=$(hash_in out)
# shellcheck disable=SC2086
exits 0 tiny free-order-staged $small --backend cuda --ranks 2 --set reproducible.enabled=false
[ "$(hash_in out)" = "$order" ] || fail "sums by NCCL of two ranks differ from those through the host"

# What ranks exchange lies on the device, and nothing of it on the host.
# shellcheck disable=SC2086
exits 0 "$program" plan "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" $small $nccl --set mesh.model=2
says out 'persist, io, carry, scratch and staging'

# ---- a thread with two devices: programs without inputs run on that of their rank, too ----
# goes_on: three steps more.
goes_on() {
    step=$(sed -n 's/^step \([0-9]*\)\/.*/\1/p' moving.out | tail -n 1)
    eventually grep -q "^step $((step + 3))/" moving.out || fail "$1: $(cat moving.err)"
}
# shellcheck disable=SC2086
start moving $small --backend cuda --set train.log_every=1 --set train.steps=1000000
eventually grep -q '^step 2/' moving.out
exits 1 "$program" move moving --set device.index=1 --set memory.budget=1000
says err 'the run goes on with backend cuda'
goes_on "after a move to another device that was refused"
exits 0 "$program" move moving --set device.index=1
says out 'to cuda (.*device 1) after step'
goes_on "after a move to another device"
kill -TERM "$owner"
ended
ends moving stopped 3 $?
# shellcheck disable=SC2086
exits 0 tiny still $small --backend cpu --set cpu.variant=portable --set train.steps="$(newest moving)"
[ "$(hash_in out)" = "$(hash_in moving.out)" ] || fail "a training that moved to another device has other weights"

# ---- what cannot be ----

# shellcheck disable=SC2086
SY_EMULATED_CUDA_DEVICES=1 exits 1 tiny none $small $nccl
says err 'two ranks cannot share one.*NCCL reports "invalid usage"'
one_line_error
# shellcheck disable=SC2086
SY_EMULATED_NCCL_ABSENT=-1 exits 1 tiny none $small $nccl
says err 'joining the devices of a group: NCCL reports "remote process'
one_line_error
# shellcheck disable=SC2086
SY_EMULATED_NCCL_MISSING=1 exits 1 tiny none $small $nccl
says err 'NCCL cannot be used.*collectives = staged'
one_line_error
for seconds in abc 0 -1 5s; do
    # shellcheck disable=SC2086
    SWITCHYARD_COMM_TIMEOUT=$seconds exits 1 tiny none $small $nccl
    says err "SWITCHYARD_COMM_TIMEOUT=$seconds: a whole number of seconds, 1 to 1000000000"
    one_line_error
done
# One that is there no more: the others do not wait for ever, nor what ends the links.
# shellcheck disable=SC2086
SWITCHYARD_COMM_TIMEOUT=5 SY_EMULATED_CUDA_LOST=500 exits 1 tiny lost $small $nccl
one_line_error
# One that does not come to a collective of a graph: the device waits for it, the host does so for a time only.
# shellcheck disable=SC2086
SWITCHYARD_COMM_TIMEOUT=2 SY_EMULATED_NCCL_ABSENT=120 exits 1 tiny absent $small $nccl
says err 'not done after 2 s: a rank hangs, died or does something else (SWITCHYARD_COMM_TIMEOUT'
one_line_error
finish
