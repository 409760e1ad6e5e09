#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The CUDA backend, emulated on the CPU (tests/cuda): training, evaluation and prediction have the bits of the CPU's
# reference kernels, in float32 and bfloat16, on one rank and on two, by calls and by graphs.
. "$(dirname "$0")/_common.sh"
plugins=${SY_TEST_PLUGINS:?set SY_TEST_PLUGINS to the folder of the plugins of tests}
[ -e "$plugins/switchyard-cuda.so" ] ||
    { echo "skipped: the CUDA backend was not built for the CPU: no C++17 compiler, or no shared libraries"; exit 77; }
SWITCHYARD_BACKEND_PATH=$plugins:${SWITCHYARD_BACKEND_PATH:-$abs_top_builddir/.libs}
export SWITCHYARD_BACKEND_PATH
data "$here/train.tsv" 40 1
cd "$here" || exit 99

says_same() {
    [ "$(hash_in out)" = "$1" ] || fail "$2: the emulation has other weights than the CPU"
}
# Four steps: by calls, while they are recorded, and twice from graphs.
small='--threads 1 --set train.steps=4 --set data.batch_size=8 --set model.d_model=16 --set model.d_ff=16
    --set model.num_heads=2 --set train.schedule=constant'
cpu='--backend cpu --set cpu.variant=portable'

# shellcheck disable=SC2086
for dtype in float32 bfloat16; do
    exits 0 tiny "cpu-$dtype" $small $cpu --set model.dtype=$dtype
    reference=$(hash_in out)
    exits 0 tiny "cuda-$dtype" $small --backend cuda --set model.dtype=$dtype
    says out 'backend cuda (emulated on the CPU, '
    says_same "$reference" $dtype
done
# shellcheck disable=SC2086
exits 0 tiny ranks $small --backend cuda --set model.dtype=bfloat16 --ranks 2 --set mesh.expert=2
says_same "$reference" "two ranks"

# shellcheck disable=SC2086
exits 0 tiny own $small --backend cuda --set model.dtype=bfloat16 --set cuda.products=own
says_same "$reference" "the own products"

# ---- a training that moves: from the CPU, to other options, and back ----
# moves ARGUMENTS...
moves() {
    exits 0 "$program" move moving "$@"
    says out '^moved from backend '
}
# shellcheck disable=SC2086
start moving $small $cpu --set train.log_every=1 --set train.steps=1000000
eventually grep -q '^step 2/' moving.out
moves --backend cuda
says out 'from backend cpu (portable) to cuda (emulated on the CPU, '
moves --set cuda.products=own
moves --backend cpu
kill -TERM "$owner"
ended
ends moving stopped 3 $?
# shellcheck disable=SC2086
exits 0 tiny still $small $cpu --set train.steps="$(newest moving)"
[ "$(hash_in out)" = "$(hash_in moving.out)" ] || fail "a training that moved has other weights"
[ ! -s moving.err ] || fail "a move writes on stderr: $(cat moving.err)"

# The device has room for one of them: the second is made when the first is given up, over a checkpoint.
# shellcheck disable=SC2086
SY_EMULATED_CUDA_BYTES=100000 exits 1 tiny none $small --backend cuda
room=$(sed -n 's/.*the plan of a rank needs \([0-9]*\) bytes.*/\1/p' err)
SY_EMULATED_CUDA_BYTES=$((room * 3 / 2))
export SY_EMULATED_CUDA_BYTES
# shellcheck disable=SC2086
start moving-full $small --backend cuda --set train.log_every=1 --set train.steps=1000000
eventually grep -q '^step 1/' moving-full.out
exits 0 "$program" move moving-full --set cuda.products=own
grep -q '^checkpoint of step' moving-full.out || fail "two engines fit into $SY_EMULATED_CUDA_BYTES bytes"
kill -TERM "$owner"
ended
ends moving-full stopped 3 $?
unset SY_EMULATED_CUDA_BYTES
# shellcheck disable=SC2086
exits 0 tiny still-full $small $cpu --set train.steps="$(newest moving-full)"
[ "$(hash_in out)" = "$(hash_in moving-full.out)" ] || fail "a training that moved over a checkpoint has other weights"

# ---- evaluation and prediction ----

head -n 8 train.tsv >some.tsv
cut -f 1 some.tsv | head -n 2 >words
for backend in cuda cpu; do
    exits 0 "$program" eval cuda-float32 --backend $backend --set cpu.variant=portable --set task.words.test="$here/some.tsv"
    sed -n 's/.*: 8 items, //p' out >eval.$backend
    "$program" predict cuda-float32 --backend $backend --set cpu.variant=portable --beams 2 --quiet <words >predict.$backend ||
        fail "predict on $backend"
done
[ -s eval.cuda ] && cmp eval.cuda eval.cpu || fail "evaluation differs: $(cat eval.cuda eval.cpu)"
cmp predict.cuda predict.cpu || fail "predictions differ: $(cat predict.cuda predict.cpu)"

# ---- what cannot be ----

# shellcheck disable=SC2086
exits 1 tiny none $small --backend cuda --set device.index=1
says err 'device 1: the devices here are 0 to 0'
# shellcheck disable=SC2086
SY_EMULATED_CUDA_BYTES=100000 exits 1 tiny none $small --backend cuda
says err 'out of memory on the device: .*memory.budget'
one_line_error
finish
