#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whatever goes wrong on one rank ends all of them: one message, one exit status, no hang.
. "$(dirname "$0")/_common.sh"
before=$SWITCHYARD_COMM_TIMEOUT

# differ NAME STATUS TEXT ARGUMENTS...: rank 1 has these arguments, rank 0 not; both are refused with one message.
differ() {
    name=$1 status=$2 text=$3
    shift 3
    both "$name" "$status" "$text" "$program" train "$top/bench/tiny.run" --quiet --threads 1 --set \
        data.train="$here/train.tsv" --run-dir "$here/$name" : -n 1 "$@" --run-dir "$here/$name"
    [ ! -e "$here/$name" ] || fail "$name: a refused training leaves a folder"
}

# both NAME STATUS TEXT COMMAND... : -n 1 COMMAND...: two commands as two ranks.
both() {
    name=$1 status=$2 text=$3
    shift 3
    begin=$(date +%s)
    ranks 1 "$@" >"$here/$name.out" 2>"$here/$name.err" </dev/null
    got=$?
    [ $got -eq "$status" ] || fail "$name: exit $got instead of $status: $(cat "$here/$name.err")"
    [ $(($(date +%s) - begin)) -lt 45 ] || fail "$name: took $(($(date +%s) - begin)) s"
    one_message "$name" "$text"
}

# ---- ranks that were not started alike ----
command="$program train $top/bench/tiny.run --quiet --threads 1 --set data.train=$here/train.tsv"
# shellcheck disable=SC2086 # commands with their options
{
    differ values 1 'rank 1 has train.seed = 9 where rank 0 has 7: all ranks need the same' $command --set train.seed=9
    differ missing 2 'rank 1: cannot open nosuch.run' "$program" train nosuch.run --quiet
    differ no-data 1 'rank 1 has data.train = ' $command --set data.train=nosuch
    if [ -e "$(dirname "$program")/.libs/switchyard" ]; then cp "$(dirname "$program")/.libs/switchyard" "$here/other"; else cp "$program" "$here/other"; fi
    echo >>"$here/other"
    LD_LIBRARY_PATH=$(dirname "$program")/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    differ program 1 'rank 1 runs another switchyard than rank 0' "$here/other" train "$top/bench/tiny.run" --quiet \
        --threads 1 --set data.train="$here/train.tsv"
    mkdir "$here/plugins"
    cp "$SWITCHYARD_BACKEND_PATH"/switchyard-*.so "$here/plugins"
    echo >>"$here/plugins/switchyard-cpu.so"
    both plugin 1 'rank 1 has another backend cpu (.*) than rank 0' $command --run-dir "$here/plugin" : \
        -n 1 env SWITCHYARD_BACKEND_PATH="$here/plugins" $command --run-dir "$here/plugin"
}

# ---- the same mistake everywhere ----
mpi wrong 3 --set train.sed=1
[ $? -eq 2 ] || fail "wrong: not exit 2: $(cat "$here/wrong.err")"
one_message wrong 'unknown key train.sed, did you mean train.seed'
mpi mesh 3 --set mesh.data=2
[ $? -eq 2 ] || fail "mesh: not exit 2: $(cat "$here/mesh.err")"
one_message mesh 'mesh'

for what in 'gemm' "decode $top/bench/tiny.run" "$top/bench/tiny.run --compare threads=1"; do
    # shellcheck disable=SC2086 # operands and options
    ranks 2 "$program" bench $what >"$here/bench.out" 2>"$here/bench.err" </dev/null
    [ $? -eq 2 ] || fail "bench $what: not exit 2: $(cat "$here/bench.err")"
    one_message bench 'bench: only the step of a run file is measured by several processes'
done

# ---- kernels that all ranks have ----
# shellcheck disable=SC2086
ranks 1 $command --run-dir "$here/variant" : \
    -n 1 env SWITCHYARD_CPU_VARIANT=portable $command --run-dir "$here/variant" >"$here/variant.out" 2>&1 </dev/null ||
    fail "variant: $(cat "$here/variant.out")"
[ "$(query variant "SELECT count(*) FROM event WHERE kind = 'launch' AND text LIKE '%cpu (portable)%comm mpi%'")" = 1 ] ||
    fail "variant: not stored: $(query variant "SELECT text FROM event")"

# ---- a rank that fails, hangs, dies in the middle of a training ----
mpi failing 2 --set train.steps=1000000 --set train.checkpoint_every=50 &
owner=$!
eventually test -e "$here/failing/checkpoints/50"
mv "$here/failing/checkpoints" "$here/failing/moved" && : >"$here/failing/checkpoints"
ended
[ $? -eq 1 ] || fail "failing: not exit 1: $(cat "$here/failing.err")"
one_message failing 'checkpoint of step'
[ "$(cat "$here/failing/status")" = failed ] || fail "failing: status is $(cat "$here/failing/status")"
[ ! -e "$here/failing/lock" ] || fail "failing: the lock is left"

# rank_pids RUN: processes of the training in this folder, one a line; never the launcher or a shell.
rank_pids() {
    for process in /proc/[0-9]*; do
        case $(cat "$process/cmdline" 2>/dev/null | tr '\0' ' ') in
        *mpirun* | *mpiexec* | *hydra* | *timeout* | *'sh '*) ;;
        *switchyard*" --run-dir $here/$1 "*) echo "${process#/proc/}" ;;
        esac
    done
}

export SWITCHYARD_COMM_TIMEOUT=3
for how in STOP KILL; do
    mpi "$how" 2 --set train.steps=1000000 --set train.checkpoint_every=50 &
    owner=$!
    eventually test -e "$here/$how/checkpoints/50"
    set -- $(rank_pids "$how")
    [ $# -eq 2 ] || fail "$how: $# ranks found"
    begin=$(date +%s)
    kill -$how "$2"
    ended
    [ $? -ne 0 ] || fail "$how: exit 0"
    [ $(($(date +%s) - begin)) -lt 30 ] || fail "$how: took $(($(date +%s) - begin)) s"
    for pid in $(rank_pids "$how"); do
        fail "$how: rank $pid still runs"
        kill -KILL "$pid"
    done
done
one_message STOP 'rank [01] of 2 waited 3 s for a collective and not all ranks came'
grep -q 'switchyard: .*op [0-9]* .*recorded at' "$here/STOP.err" || fail "STOP: no op is named: $(cat "$here/STOP.err")"
export SWITCHYARD_COMM_TIMEOUT="$before"

# ---- another MPI's launcher, another MPI's library ----
env OMPI_COMM_WORLD_SIZE=4 PMI_SIZE=4 "$program" train "$top/bench/tiny.run" --run-dir "$here/size" --set \
    data.train="$here/train.tsv" >"$here/size.out" 2>"$here/size.err" </dev/null
[ $? -eq 1 ] || fail "size: $(cat "$here/size.err")"
one_message size 'SIZE says that 4 processes were started as one run, but MPI knows of 1: the launcher is of another MPI'
finish
