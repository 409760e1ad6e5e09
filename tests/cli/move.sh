#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training that moves to another backend while it runs: the weights are those of a run that never moved, on one rank and
# several; what cannot be had is refused, and the run goes on.
. "$(dirname "$0")/_common.sh"
unset SWITCHYARD_CPU_VARIANT
data "$here/train.tsv" 300 1
data "$here/valid.tsv" 8 2
cd "$here" || exit 99
same='--set train.log_every=1 --set train.schedule=constant --threads 1'
long="$same --set train.steps=1000000"

# begin RUN ARGUMENTS...: starts it, and returns when it trains.
begin() {
    # shellcheck disable=SC2086
    start "$1" $long $2
    eventually grep -q '^step 2/' "$1.out"
}

# moves RUN ARGUMENTS...
moves() {
    run=$1
    shift
    exits 0 "$program" move "$run" "$@"
    says out "^moved from backend .* to .* after step [0-9]*, in [0-9.]* s$"
    [ ! -s err ] || fail "a move writes on stderr: $(cat err)"
    step=$(sed -n 's/^step \([0-9]*\)\/.*/\1/p' "$run.out" | tail -n 1)
    eventually grep -q "^step $((step + 2))/" "$run.out" # it goes on
}

# stays RUN TEXT ARGUMENTS...: refused by the run.
stays() {
    run=$1 text=$2
    shift 2
    exits 1 "$program" move "$run" "$@"
    one_line_error
    says err "^switchyard: move: no move after step [0-9]*, the run goes on with backend .*: .*$text"
    step=$(sed -n 's/^step \([0-9]*\)\/.*/\1/p' "$run.out" | tail -n 1)
    eventually grep -q "^step $((step + 2))/" "$run.out"
}

# unmoved RUN ARGUMENTS [ENVIRONMENT]: stops it, and trains as many steps without a move: weights and state are the same.
unmoved() {
    kill -TERM "$owner"
    ended
    ends "$1" stopped 3 $?
    at=$(newest "$1")
    # shellcheck disable=SC2086
    exits 0 tiny "$1-whole" $same --set train.steps="$at" $2
    [ "$(hash_in out)" = "$(hash_in "$1.out")" ] || fail "$1: other weights than without a move"
    cmp "$1/checkpoints/$at/state.safetensors" "$1-whole/checkpoints/$at/state.safetensors" || fail "$1: other state"
}

# ---- variants of the CPU ----
# With evaluations, whose programs move too, and checkpoints under way while the run moves.
evaluating='--set task.words.valid=valid.tsv --set train.evaluate_every=3 --set decode.max_length=2 --set train.checkpoint_every=2'
begin one "$evaluating"
moves one --set cpu.variant=portable
says out 'from backend cpu ([a-z0-9_]*) to cpu (portable) after'
moves one --backend cpu
says out 'from backend cpu (portable) to cpu (portable) after'
moves one --set cpu.variant=auto
says out 'from backend cpu (portable) to cpu ('
[ "$(query one "SELECT count(*) FROM event WHERE kind = 'backend' AND text LIKE 'moved from backend cpu (%'")" = 3 ] ||
    fail "not an event for each move: $(query one "SELECT count(*) FROM event WHERE kind = 'backend'")"
grep -q 'moved from backend cpu (portable) to' one/log || fail "the log lacks the move: $(cat one/log)"

# ---- what is refused ----
stays one 'backend nosuch: no switchyard-nosuch.so in ' --backend nosuch
grep -q '^switchyard: warning: no move after step' one.err || fail "the run does not warn: $(cat one.err)"
exits 2 "$program" move one --backend null
says err 'backend null computes nothing'
exits 2 "$program" move one --set cpu.threads=2
says err 'cpu.threads stays while a run goes on'
exits 2 "$program" move one --set train.seed=1
says err 'train.seed stays while a run goes on: a move sets keys of cpu, cuda, device and memory'
exits 2 "$program" move one --set cpu.variant=fast
says err 'cpu.variant'
exits 2 "$program" move one
says err 'where to?'
exits 2 "$program" move nosuch --backend cpu
says err 'nosuch'

# One that nobody answers in time is taken back; meanwhile there is no second one.
kill -STOP "$owner"
"$program" move one --backend cpu --timeout 3 >first 2>first.err &
asks=$!
eventually [ -e one/move ]
exits 1 "$program" move one --backend cpu
says err 'another request'
wait $asks && fail "a stopped run answers"
grep -q 'no answer in 3 s; the request is withdrawn' first.err || fail "no answer: $(cat first.err)"
[ ! -e one/move ] || fail "the request stays"
"$program" move one --backend cpu >first 2>first.err &
asks=$!
eventually [ -e one/move ]
kill -TERM $asks
wait $asks && fail "an interrupted request succeeds"
grep -q 'interrupted; the request is withdrawn' first.err || fail "interrupted: $(cat first.err)"
kill -CONT "$owner"

# Without its last line it is still being written; what is no request stays where it is, and is looked at once.
printf 'id by-hand\nset cpu.variant=portable\n' >one/move
step=$(sed -n 's/^step \([0-9]*\)\/.*/\1/p' one.out | tail -n 1)
sleep 0.6
[ -e one/move ] || fail "a request that is being written was taken"
echo end >>one/move
eventually grep -q '^done moved from backend .* to cpu (portable)' one/move.answer
[ ! -e one/move ] || fail "a request stays when it is answered"
echo 'notes of mine' >one/move
eventually grep -q 'not a request of .*: notes of mine' one.err
sleep 0.6
[ "$(grep -c 'notes of mine' one.err)" = 1 ] || fail "told more than once: $(cat one.err)"
[ "$(cat one/move)" = 'notes of mine' ] || fail "a file of the user's is gone"
exits 1 "$program" move one --backend cpu
says err 'one/move is there'
# Once it is removed, as that says, the next request is answered.
rm one/move
moves one --set cpu.variant=auto --timeout 20
unmoved one "$evaluating"

# ---- a run that does not run; one that goes on has its stored variant, and takes no request of before ----
exits 1 "$program" move one --backend cpu
says err 'one does not run (stopped): '
printf 'id late\nset cpu.variant=portable\nend\n' >one/move
# shellcheck disable=SC2086
exits 0 tiny one --resume $same $evaluating --set train.steps=$((at + 30))
[ ! -e one/move ] || fail "a request of before is there after the end"
grep -q 'variant = "auto"' one/run.conf || fail "the run file was changed: $(grep variant one/run.conf)"
[ "$(query one "SELECT count(*) FROM event WHERE kind = 'backend' AND attempt = 2")" = 0 ] || fail "a request of before was taken"

# What the environment of the run forces it would take in the place of what is asked for.
SWITCHYARD_CPU_VARIANT=portable
export SWITCHYARD_CPU_VARIANT
begin forced ''
unset SWITCHYARD_CPU_VARIANT
stays forced 'SWITCHYARD_CPU_VARIANT=portable, which overrides cpu.variant' --set cpu.variant=auto
unmoved forced ''

# ---- ranks ----
# More moves than there would be groups of ranks, were they not shared.
for mesh in '--set mesh.data=2 --set mesh.zero=3' '--set mesh.expert=2 --set mesh.zero=1'; do
    case $mesh in *zero=3) pairs=10 ;; *) pairs=1 ;; esac
    run=ranks$(echo "$mesh" | tr -dc 'a-z0-9')
    ranks="--comm thread --ranks 2 --set log.ranks=all $mesh"
    begin "$run" "$ranks"
    i=0
    while [ $((i += 1)) -le $pairs ]; do
        exits 0 "$program" move "$run" --set cpu.variant=portable
        exits 0 "$program" move "$run" --set cpu.variant=auto
    done
    stays "$run" 'no switchyard-nosuch.so' --backend nosuch
    grep -c memory "$run/ranks/rank-1.log" | grep -qx $((2 * pairs + 1)) || fail "$run: rank 1 did not move: $(cat "$run/ranks/rank-1.log")"
    unmoved "$run" "$ranks"
done

# ---- optimizers: averages in the place of parameters, T5X's names of the state ----
averages='--set optimizer.name=schedule_free --set task.words.valid=valid.tsv --set train.evaluate_every=3 --set decode.max_length=2'
for more in "$averages" '--set optimizer.name=adafactor --set run.compat=t5x --set moe.num_selected_experts=1'; do
    run=optimizer$(echo "$more" | cut -c 1-34 | tr -dc 'a-z')
    begin "$run" "$more"
    moves "$run" --set cpu.variant=portable
    moves "$run" --set cpu.variant=auto
    unmoved "$run" "$more"
done

[ -n "${SY_TEST_PLUGINS-}" ] || { echo "skipped: other backends (this build has no shared libraries)"; finish; }

# ---- device memory ----
mkdir plugins
ln -s "$SY_TEST_PLUGINS/faulty.so" plugins/switchyard-faulty.so
ln -s "$SY_TEST_PLUGINS/switchyard-far.so" plugins/
for plugin in "$SWITCHYARD_BACKEND_PATH"/switchyard-*.so; do ln -s "$plugin" plugins/; done
export SY_FAULT_CPU="$SWITCHYARD_BACKEND_PATH/switchyard-cpu.so" SY_FAULT_LEFT="$here/left" SY_FAR_REPORT="$here/report"
export SWITCHYARD_BACKEND_PATH="$here/plugins"
small='--set data.batch_size=8 --set data.length_buckets=[] --set data.max_input_length=16 --set reproducible.min_leaf=2'

begin far "$small --set cpu.variant=portable"
moves far --backend far --set device.index=2
says out 'to far (device 2 of 4) after'
moves far --set device.index=1
says out 'from backend far (device 2 of 4) to far (device 1 of 4) after'
moves far --backend cpu
stays far 'device = 7: there are devices 0 to 3' --backend far --set device.index=7
unmoved far "$small --set cpu.variant=portable"
grep -qx 'left 0 contexts 0 blocks 0 graphs' report || fail "far: the plugin still has out: $(cat report)"

two="$small --comm thread --ranks 2 --set mesh.data=2 --set mesh.zero=1"
begin far-two "$two"
moves far-two --backend far
moves far-two --backend cpu
unmoved far-two "$two"

# Both do not fit. First the new one alone does not either; with memory.check = false it is tried, and the run goes on as it was.
SY_FAR_BYTES=100000
export SY_FAR_BYTES
begin full "$two"
stays full 'out of memory on the device.*, 100000 are free here' --backend far
stays full 'memory.budget=1 bytes is not enough' --set memory.budget=1
! grep -q '^checkpoint of step' full.out || fail "full: a checkpoint is written for what cannot fit"
stays full 'out of memory on the device' --backend far --set memory.check=false
grep -q '^checkpoint of step' full.out || fail "full: the old engine was given up without a checkpoint"
unmoved full "$two"
unset SY_FAR_BYTES
SY_FAR_FAULT='alloc 3'
export SY_FAR_FAULT
begin instead "$two --backend far"
moves instead --set device.index=3
grep -q '^checkpoint of step' instead.out || fail "instead: nothing failed"
moves instead --backend cpu
unset SY_FAR_FAULT
unmoved instead "$two"

# ---- one rank alone cannot move: none does, and what the others have is given back ----
for fault in 'open 2' 'prepare 3'; do
    run=faulty-${fault% *}
    SY_FAULT=$fault
    export SY_FAULT
    begin "$run" "$two"
    case $fault in open*) stays "$run" 'no device answers' --backend faulty ;; esac
    moves "$run" --backend faulty # the fault is over; that of prepare is one of memory, so there is a second try
    case $fault in prepare*) grep -q '^checkpoint of step' "$run.out" || fail "$run: nothing failed" ;; esac
    moves "$run" --backend cpu
    unmoved "$run" "$two"
    [ "$(cat left)" = '0 contexts, 0 plans' ] || fail "$run: the plugin still has out $(cat left)"
done
finish
