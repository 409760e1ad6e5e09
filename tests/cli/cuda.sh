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
    [ $dtype = bfloat16 ] || float32=$reference
done
# shellcheck disable=SC2086
exits 0 tiny ranks $small --backend cuda --set model.dtype=bfloat16 --ranks 2 --set mesh.expert=2
says_same "$reference" "two ranks"

# shellcheck disable=SC2086
exits 0 tiny own $small --backend cuda --set model.dtype=bfloat16 --set cuda.products=own
says_same "$reference" "the own products"

# Heads of 16 columns: attention on tensor cores, whose bits are not the CPU's, but do not depend on ranks.
heads="$small --set model.dtype=bfloat16 --set model.head_dim=16"
# shellcheck disable=SC2086
exits 0 tiny heads-cpu $heads $cpu
reference=$(hash_in out)
# shellcheck disable=SC2086
exits 0 tiny heads-own $heads --backend cuda --set cuda.products=own
says_same "$reference" "heads of 16 columns without tensor cores"
# shellcheck disable=SC2086
exits 0 tiny heads $heads --backend cuda
tensor=$(hash_in out)
[ "$tensor" != "$reference" ] || fail "heads of 16 columns: attention does not run on tensor cores"
# As compiled for devices that have none, though this one has.
# shellcheck disable=SC2086
SY_EMULATED_CUDA_PTX=75 exits 0 tiny heads-old $heads --backend cuda
says_same "$reference" "kernels of compute capability 7.5"
# shellcheck disable=SC2086
exits 0 tiny heads-ranks $heads --backend cuda --ranks 2 --set mesh.model=2
[ "$(hash_in out)" = "$tensor" ] || fail "attention on tensor cores depends on the number of ranks"

# Gradients in bfloat16: products write them rounded, or sums over ranks; the update reads them as they are.
half="$small --set train.microbatches=1 --set train.gradient_dtype=bfloat16 --set metrics.weights_every=4"
for how in 'float32 --set optimizer.name=adafactor --set optimizer.min_dim_size_to_factor=8' bfloat16; do
    # shellcheck disable=SC2086
    exits 0 tiny half-cpu $half $cpu --set model.dtype=$how
    reference=$(hash_in out)
    # shellcheck disable=SC2086
    exits 0 tiny half $half --backend cuda --set model.dtype=$how
    says_same "$reference" "gradients in bfloat16, $how"
    # shellcheck disable=SC2086
    exits 0 tiny half-whole $half $cpu --set model.dtype=$how --set train.gradient_dtype=float32
    [ "$(hash_in out)" != "$reference" ] || fail "rounding gradients changes nothing, $how: this proves nothing"
    rm -r half-cpu half half-whole
done
# shellcheck disable=SC2086
exits 0 tiny half-ranks $half --backend cuda --set model.dtype=bfloat16 --ranks 2 --set mesh.data=2 --set mesh.zero=3
says_same "$reference" "gradients in bfloat16, two ranks"
# shellcheck disable=SC2086
exits 0 "$program" explain "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" $half --backend cuda --program update_metrics \
    --after plan
says out ' map_sums .*<- .*(grad/.*kernel)'

# Metrics of every weight in every step are outputs of the update, and change nothing.
# shellcheck disable=SC2086
for backend in cpu cuda; do
    exits 0 tiny "weights-$backend" $small --backend $backend --set cpu.variant=portable --set model.dtype=float32 \
        --set metrics.weights_every=1 --set metrics.every=1
    [ "$(hash_in out)" = "$float32" ] || fail "metrics of weights change the weights on $backend"
    exits 0 "$program" metrics "weights-$backend" 'SELECT step, parameter, name, value FROM parameter ORDER BY 1, 2, 3'
    mv out "weights.$backend"
done
[ "$(wc -l <weights.cuda)" -gt 50 ] || fail "few metrics of weights: $(cat weights.cuda)"
cmp weights.cuda weights.cpu || fail "metrics of weights on the emulation are not the CPU's"
exits 0 "$program" explain weights-cuda --backend cuda --program update_metrics --after plan
says out ' map_sums '

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

# ---- op by op, and cases of other programs ----

# shellcheck disable=SC2086
exits 0 "$program" diff "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" $small --backends cpu,cuda \
    --set cpu.variant=portable
says out '^B: .*backend cuda (emulated on the CPU'
says out '^no difference: [1-9][0-9]* ops, .*; whole steps: 1$'
exits 2 "$program" diff "$top/bench/tiny.run" --backends cuda
says err 'expected the names of two backends'
# Some of each kind that runs kernels, but for whole trainings, which take minutes. SWITCHYARD_GOLDENS: all.
cases="layer loss router moe_layer weight_metrics microbatch model/model-moe-scatter-top2* optimizer optimizer_state
    multi_optimizer decode/decode-moe-overflow*"
for case in $cases; do
    # shellcheck disable=SC2086
    exits 0 "$program" verify --backend cuda $(ls -d $top/tests/golden/$case)
    grep -Eq '^[1-9][0-9]* passed, 0 failed, 0 skipped$' out || fail "$case: $(tail -1 out)"
done
if [ -n "${SWITCHYARD_GOLDENS:-}" ]; then
    for kind in layer loss router moe_layer model microbatch train decode optimizer optimizer_state multi_optimizer \
        weight_metrics; do
        exits 0 "$program" verify --backend cuda "$SWITCHYARD_GOLDENS/$kind"
        grep -Eq '^[1-9][0-9]* passed, 0 failed, 0 skipped$' out || fail "$kind: $(tail -1 out)"
    done
fi

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

# A packed model of int8 weights, which products read as they are: the CPU's bits, and those of weights expanded beforehand.
exits 0 "$program" pack cuda-float32 -o int8.sy --int8
exits 0 "$program" explain int8.sy --backend cuda --program decode_step
for op in embed_int8 matmul_int8 ragged_matmul_int8; do says out "$op"; done
# int8_on NAME ARGUMENTS...: what predict and score say of the packed model.
int8_on() {
    name=$1
    shift
    "$program" predict int8.sy --beams 2 --scores --quiet "$@" <words >"int8.$name" || fail "predict from int8 weights: $*"
    "$program" score int8.sy --quiet "$@" <some.tsv >>"int8.$name" || fail "score from int8 weights: $*"
}
int8_on cpu --backend cpu --set cpu.variant=portable
int8_on cuda --backend cuda
int8_on expanded --backend cuda --set model.weights=float32
[ "$(wc -l <int8.cpu)" -ge 10 ] || fail "few answers: $(cat int8.cpu)"
for name in cuda expanded; do
    cmp int8.cpu "int8.$name" || fail "int8 weights, $name: $(cat int8.cpu "int8.$name")"
done

# ---- what cannot be ----

# shellcheck disable=SC2086
exits 1 tiny none $small --backend cuda --set device.index=1
says err 'device 1: the devices here are 0 to 0'
# shellcheck disable=SC2086
SY_EMULATED_CUDA_BYTES=100000 exits 1 tiny none $small --backend cuda
says err 'out of memory on the device: .*memory.budget'
one_line_error
# shellcheck disable=SC2086
SY_EMULATED_CUDA_BYTES=100000 exits 0 "$program" plan "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" $small --backend cuda
says out '^  device .* of 0.1 MiB free there: too little; memory.budget'
# A device that the kernels were not compiled for.
# shellcheck disable=SC2086
SY_EMULATED_CUDA_PTX=0 exits 1 tiny none $small --backend cuda
says err 'compute capability 9.0, for which the plugin has no kernels: configure with NVCC_ARCHITECTURES=90 (CUDA reports "no kernel image'
one_line_error
SY_EMULATED_CUDA_PTX=0 exits 0 "$program" backends
says out '^cuda .*would not work here: device 0 .* compute capability 9.0, for which'
# A driver of an older CUDA.
# shellcheck disable=SC2086
SY_EMULATED_CUDA_DRIVER=11040 exits 1 tiny none $small --backend cuda
says err 'the NVIDIA driver is one of CUDA 11.4, and the backend was built for CUDA 13: install a newer driver'
one_line_error
SY_EMULATED_CUDA_DRIVER=11040 exits 0 "$program" backends
says out '^cuda .*would not work here: the NVIDIA driver is one of CUDA 11.4'
# A device that is gone in the sixth step: what was saved is whole, and goes on to the bits of a run that met no fault.
# shellcheck disable=SC2086
exits 0 tiny whole $small $cpu --set train.steps=6 --set train.checkpoint_every=2
reference=$(hash_in out)
# shellcheck disable=SC2086
SY_EMULATED_CUDA_LOST=4600 exits 1 tiny lost $small --backend cuda --set train.steps=6 --set train.checkpoint_every=2
says err 'CUDA reports "unspecified launch failure" (719); if the device does not answer any more, .*--resume'
one_line_error
[ "$(cat lost/status)" = failed ] || fail "a run without a device is $(cat lost/status)"
[ -n "$(newest lost)" ] || fail "no checkpoint is left of a run that lost its device"
# shellcheck disable=SC2086
exits 0 tiny lost $small --backend cuda --set train.steps=6 --set train.checkpoint_every=2 --resume
says_same "$reference" "a run that lost its device, resumed"
finish
