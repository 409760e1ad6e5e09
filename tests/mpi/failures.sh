#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whatever goes wrong on one rank ends all of them: one message, one exit status, no hang.
. "$(dirname "$0")/_common.sh"

# differ NAME STATUS TEXT ARGUMENTS...: rank 1 has these arguments, rank 0 not; both are refused with one message.
differ() {
    name=$1 status=$2 text=$3
    shift 3
    both "$name" "$status" "$text" "$program" train "$top/bench/tiny.run" --quiet --threads 1 --set \
        task.words.train="$here/train.tsv" --run-dir "$here/$name" : -n 1 "$@" --run-dir "$here/$name"
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
command="$program train $top/bench/tiny.run --quiet --threads 1 --set task.words.train=$here/train.tsv"
# shellcheck disable=SC2086 # commands with their options
{
    differ values 1 'rank 1 has train.seed = 9 where rank 0 has 7: all ranks need the same' $command --set train.seed=9
    differ missing 2 'rank 1 was started with nosuch.run where rank 0 has .*tiny.run: all ranks need the same' "$program" train nosuch.run --quiet
    differ no-data 1 'rank 1 has task.words.train = ' $command --set task.words.train=nosuch
    if [ -e "$(dirname "$program")/.libs/switchyard" ]; then cp "$(dirname "$program")/.libs/switchyard" "$here/other"; else cp "$program" "$here/other"; fi
    echo >>"$here/other"
    LD_LIBRARY_PATH=$(dirname "$program")/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    differ program 1 'rank 1 runs another switchyard than rank 0' "$here/other" train "$top/bench/tiny.run" --quiet \
        --threads 1 --set task.words.train="$here/train.tsv"
    mkdir "$here/plugins"
    cp "$SWITCHYARD_BACKEND_PATH"/switchyard-*.so "$here/plugins"
    echo >>"$here/plugins/switchyard-cpu.so"
    both commands 2 'rank 1 was started as `switchyard predict` where rank 0 is `switchyard train --run-dir .*all ranks need the same command' \
        $command --run-dir "$here/commands" : -n 1 "$program" predict "$here/commands"
    both steps 2 'rank 1 was started as `switchyard bench --steps 3` where rank 0 is `switchyard bench --steps 2`' \
        "$program" bench "$top/bench/tiny.run" --steps 2 : -n 1 "$program" bench --steps 3 "$top/bench/tiny.run"
    both plugin 1 'rank 1 has another backend cpu (.*) than rank 0' $command --run-dir "$here/plugin" : \
        -n 1 env SWITCHYARD_BACKEND_PATH="$here/plugins" $command --run-dir "$here/plugin"
}

# ---- the same mistake everywhere ----
mpi wrong 3 --set train.sed=1
[ $? -eq 2 ] || fail "wrong: not exit 2: $(cat "$here/wrong.err")"
one_message wrong 'unknown key train.sed, did you mean train.seed'
mpi mesh 3 --set mesh.data=2
[ $? -eq 2 ] || fail "mesh: not exit 2: $(cat "$here/mesh.err")"
one_message mesh 'mesh data=2 expert=1 model=1 does not make 3 ranks'
mpi batch 3
[ $? -eq 1 ] || fail "batch: not exit 1: $(cat "$here/batch.err")"
one_message batch 'axis batch has 4 leaves, which 3 ranks do not divide: use a number of ranks there that is a power of two'
[ ! -e "$here/batch" ] || fail "batch: a refused training leaves a folder"

# refused N STATUS TEXT ARGUMENTS...: the same code says so to ranks that are threads, sooner.
refused() {
    n=$1 status=$2 text=$3
    shift 3
    rm -rf "$here/refused"
    tiny refused --quiet --comm thread --ranks "$n" --threads 1 "$@" >"$here/refused.out" 2>"$here/refused.err" </dev/null
    got=$?
    [ $got -eq "$status" ] || fail "$*: exit $got instead of $status: $(cat "$here/refused.err")"
    one_message refused "$text"
    [ ! -e "$here/refused" ] || fail "$*: a refused training leaves a folder"
}
refused 2 2 'mesh.expert=4 .* need at least 4 ranks, but there are 2' --set mesh.expert=4
refused 4 2 'mesh.expert=4 does not divide moe.num_experts=2: take mesh.expert=2' --set mesh.expert=4 --set moe.num_experts=2
refused 4 2 'mesh.data=1 makes mesh.expert=4 of 4 ranks, which does not divide moe.num_experts=2: leave mesh.data out, or take mesh.data=2' \
    --set mesh.data=1 --set moe.num_experts=2
refused 2 2 'mesh.expert = 2, but moe.num_experts = 0: leave mesh.expert out' --set mesh.expert=2 --set moe.num_experts=0
refused 2 2 'train.microbatches = 2 must divide data.batch_size = 33' --set data.batch_size=33
refused 4 1 'axis joined_kv has 2 leaves, which 4 ranks do not divide: raise reproducible.blocks to 4' \
    --set mesh.model=4 --set reproducible.blocks=2
refused 2 1 'moe.group_rows = 8 does not divide the 4 rows .* take 4, or reproducible.blocks = 2' --set moe.group_rows=8
refused 2 1 'memory.budget=102400 bytes is not enough' --set memory.budget=100KiB

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

# ---- another MPI's launcher, another MPI's library ----
env OMPI_COMM_WORLD_SIZE=4 PMI_SIZE=4 "$program" train "$top/bench/tiny.run" --run-dir "$here/size" --set \
    task.words.train="$here/train.tsv" >"$here/size.out" 2>"$here/size.err" </dev/null
[ $? -eq 1 ] || fail "size: $(cat "$here/size.err")"
one_message size 'SIZE says that 4 processes were started as one run, but MPI knows of 1: the launcher is of another MPI'
for other in "$abs_top_builddir"/tests/mpi/.libs/other.so; do
    for command in "env LD_PRELOAD=$other" "ranks 2 env LD_PRELOAD=$other"; do
        $command "$program" train "$top/bench/tiny.run" --comm mpi --run-dir "$here/other-mpi" --set \
            task.words.train="$here/train.tsv" >"$here/other-mpi.out" 2>"$here/other-mpi.err" </dev/null
        [ $? -eq 1 ] || fail "other-mpi: not exit 1: $(cat "$here/other-mpi.err")"
        one_message other-mpi 'built for ".*", but the MPI library found here is "Other MPI v9.8.7": load the other one'
        [ ! -e "$here/other-mpi" ] || fail "other-mpi: a refused training leaves a folder"
    done
done

# ---- a process that fails before it meets the others ends them ----
early() {
    name=$1 text=$2
    shift 2
    ranks 1 "$program" train "$top/bench/tiny.run" --run-dir "$here/$name" : -n 1 "$@" \
        >"$here/$name.out" 2>"$here/$name.err" </dev/null
    [ $? -eq 2 ] || fail "$name: not exit 2: $(cat "$here/$name.err")"
    one_message "$name" "$text"
}
early option 'rank 1 on host .*: train: unknown option --bogus' "$program" train --bogus
early no-plugin 'rank 1 on host .* MPI cannot be used: .* no switchyard-mpi.so in /nowhere' \
    env SWITCHYARD_BACKEND_PATH=/nowhere "$program" train "$top/bench/tiny.run" --run-dir "$here/no-plugin"
ranks 3 "$program" train --bogus >"$here/all.out" 2>"$here/all.err" </dev/null
[ $? -eq 2 ] || fail "all: not exit 2: $(cat "$here/all.err")"
one_message all 'unknown option --bogus'

# ---- work of rank 0 that takes longer than a wait may ----
[ -d /proc/self ] || { echo "left out: slow files and ranks that are killed; without /proc they are not found"; finish; }
# slow FILES ARGUMENTS...: rank 0 needs 2.5 s for the first look at each of these files; ranks wait 2 s for each other.
slow() {
    files=$1
    shift
    # shellcheck disable=SC2086 # a library or none, a command with its options
    ranks 1 env ${slow_files:+LD_PRELOAD="$slow_files"} SY_SLOW="$files" SY_SLOW_SECONDS=2.5 SWITCHYARD_COMM_TIMEOUT=2 $command "$@" : \
        -n 1 env SWITCHYARD_COMM_TIMEOUT=2 $command "$@" >"$here/slow.out" 2>"$here/slow.err" </dev/null
}
slow_files=$abs_top_builddir/tests/mpi/.libs/slow.so
[ -e "$slow_files" ] || slow_files= # this build has no shared libraries
command="$program train $top/bench/tiny.run --threads 1 --run-dir $here/slow --set task.words.train=$here/train.tsv
    --set task.words.valid=$here/valid.tsv --set data.auto_buckets=2 --set data.length_buckets=[]"
head -n 20 "$here/train.tsv" >"$here/valid.tsv"
slow 'train.tsv valid.tsv params.safetensors' || fail "slow files: exit $?: $(cat "$here/slow.err")"
[ "$(newest slow)" = 20 ] || fail "slow files: no checkpoint: $(ls "$here/slow/checkpoints")"
# The run directory is in use, and its checkpoint takes long to read.
echo "$(hostname) $$ 0 - -1" >"$here/slow/lock"
slow params.safetensors --resume --set train.steps=21 &
owner=$!
eventually grep -q 'is held by process' "$here/slow.err"
sleep 2.5
rm "$here/slow/lock"
ended
[ "$(newest slow)" = 21 ] || fail "slow to begin: $(cat "$here/slow.err")"
# One rank reads its part of the checkpoint longer than the others wait.
# shellcheck disable=SC2086
ranks 1 env SWITCHYARD_COMM_TIMEOUT=2 $command --resume --set train.steps=22 : \
    -n 1 env ${slow_files:+LD_PRELOAD="$slow_files"} SY_SLOW=params.safetensors SY_SLOW_SECONDS=4 SWITCHYARD_COMM_TIMEOUT=2 \
    $command --resume --set train.steps=22 >"$here/slow.out" 2>"$here/slow.err" </dev/null ||
    fail "slow to read: exit $?: $(cat "$here/slow.err")"
[ "$(newest slow)" = 22 ] || fail "slow to read: $(cat "$here/slow.err")"

# A rank that does not come to the first meeting of all, after MPI has begun.
if [ -n "$slow_files" ]; then
    # shellcheck disable=SC2086
    ranks 1 env SWITCHYARD_COMM_TIMEOUT=2 $command : -n 1 env LD_PRELOAD="$slow_files" SY_SLOW=status SY_SLOW_SECONDS=20 \
        SWITCHYARD_COMM_TIMEOUT=2 $command >"$here/late.out" 2>"$here/late.err" </dev/null &&
        fail "late: exit 0: $(cat "$here/late.out")"
    one_message late 'rank 0 of 2 waited 2 s for a group of ranks to come together and not all ranks came'
fi

# The next program of an action waits for the one before, and the end of training for the last.
(
    SWITCHYARD_COMM_TIMEOUT=2
    mpi programs 2 --set train.checkpoint_every=10 --set action.long.kind=command --set action.long.on=checkpoint \
        --set 'action.long.command=sleep 2.5; echo "$SWITCHYARD_STEP"'
) || fail "long programs: exit $?: $(cat "$here/programs.err")"
[ "$(tr '\n' ' ' <"$here/programs/action-long.log")" = '10 20 ' ] || fail "long programs: $(cat "$here/programs/action-long.log")"

# ---- a rank that fails, hangs, dies in the middle of a training ----
# rank_pids RUN: processes of the training in this folder, one a line; never the launcher or a shell.
rank_pids() {
    for process in /proc/[0-9]*; do
        case $(cat "$process/cmdline" 2>/dev/null | tr '\0' ' ') in
        *mpirun* | *mpiexec* | *hydra* | *timeout* | *'sh '*) ;;
        *switchyard*" --run-dir $here/$1 "*) echo "${process#/proc/}" ;;
        esac
    done
}

# A checkpoint that cannot be written ends no run that can go on; the last one does.
mpi failing 2 --set train.steps=1000000 --set train.checkpoint_every=50 &
owner=$!
eventually test -e "$here/failing/checkpoints/50"
mv "$here/failing/checkpoints" "$here/failing/moved" && : >"$here/failing/checkpoints"
eventually grep -q 'training goes on and tries again' "$here/failing/log"
for pid in $(rank_pids failing); do last=$pid; done
kill -TERM "$last" # its last checkpoint cannot be written either
ended
[ $? -eq 1 ] || fail "failing: not exit 1: $(cat "$here/failing.err")"
one_message failing 'checkpoint of step'
[ "$(cat "$here/failing/status")" = failed ] || fail "failing: status is $(cat "$here/failing/status")"
[ ! -e "$here/failing/lock" ] || fail "failing: the lock is left"

# A signal to save and stop may come to any rank.
mpi TERM 2 --set train.steps=1000000 --set train.checkpoint_every=50 &
owner=$!
eventually test -e "$here/TERM/checkpoints/50"
for pid in $(rank_pids TERM); do last=$pid; done
kill -TERM "$last"
ended
[ $? -eq 3 ] || fail "TERM: not exit 3: $(cat "$here/TERM.err")"
says TERM.out 'stopped by a signal after step [0-9]*; --resume goes on'
[ "$(cat "$here/TERM/status")" = stopped ] || fail "TERM: status is $(cat "$here/TERM/status")"

# Signals to the launcher. Open MPI hands USR1 on; after TERM it kills the ranks within seconds, so that at least the last
# periodic checkpoint is there, and the run goes on from it.
# launcher_of RUN: the parent of its ranks.
launcher_of() {
    for pid in $(rank_pids "$1"); do sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status"; done | sort -u
}
case $launcher in
*oversubscribe*)
    mpi launcher-USR1 2 --set train.steps=1000000 --set train.checkpoint_every=50 &
    owner=$!
    eventually test -e "$here/launcher-USR1/checkpoints/50"
    kill -USR1 "$(launcher_of launcher-USR1)"
    ended
    [ $? -eq 3 ] || fail "USR1 to the launcher: not exit 3: $(cat "$here/launcher-USR1.err")"
    says launcher-USR1.out 'stopped by a signal after step [0-9]*; --resume goes on'
    mpi launcher-TERM 2 --set train.steps=1000000 --set train.checkpoint_every=50 &
    owner=$!
    eventually test -e "$here/launcher-TERM/checkpoints/50"
    kill -TERM "$(launcher_of launcher-TERM)"
    ended
    [ $? -ne 0 ] || fail "TERM to the launcher: exit 0"
    at=$(ls "$here/launcher-TERM/checkpoints" | grep -v '[^0-9]' | sort -n | tail -1)
    mpi launcher-TERM 2 --resume --set train.steps=$((at + 2)) ||
        fail "after TERM to the launcher: $(cat "$here/launcher-TERM.err")"
    says launcher-TERM.out "going on from the checkpoint of step $at\|^done after $((at + 2)) steps"
    ;;
*) echo "skipped: signals to the launcher (tried with Open MPI)" ;;
esac

export SWITCHYARD_COMM_TIMEOUT=3
for how in STOP KILL; do
    mpi "$how" 2 --set train.steps=1000000 --set train.checkpoint_every=50 --set train.schedule=constant &
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
grep -q -e 'switchyard: .*op [0-9]* .*recorded at' -e 'after step [0-9]*, asking all ranks' \
    -e 'after step [0-9]*, writing a checkpoint' "$here/STOP.err" ||
    fail "STOP: nobody says at what: $(cat "$here/STOP.err")"
# A batch system that suspends a job stops all ranks: the time does not count as waiting. One of a few tries meets a rank that waits.
mpi suspended 2 --set train.steps=1000000 --set train.checkpoint_every=50 --set train.schedule=constant &
owner=$!
eventually test -e "$here/suspended/checkpoints/50"
pids=$(rank_pids suspended)
# shellcheck disable=SC2086 # process ids
for try in 1 2 3; do
    kill -STOP $pids
    sleep 4
    kill -CONT $pids
    sleep 1
done
# shellcheck disable=SC2086
kill -USR1 $pids || fail "suspended: the ranks run no more: $(cat "$here/suspended.err")"
ended
grep -q stopped "$here/suspended/status" || fail "suspended: not stopped by the signal: $(cat "$here/suspended.err")"
# ---- what was killed or stopped goes on, and ends with the weights of a run that nobody disturbed ----
export SWITCHYARD_COMM_TIMEOUT=60
for how in STOP KILL; do
    at=$(newest "$how")
    # without --quiet, which leaves the hash out
    ranks 2 "$program" train "$top/bench/tiny.run" --run-dir "$here/$how" --threads 1 --resume \
        --set task.words.train="$here/train.tsv" --set train.schedule=constant --set train.steps=$((at + 3)) \
        >"$here/out" 2>"$here/err" </dev/null ||
        fail "$how: cannot be resumed: $(cat "$here/err")"
    says out "going on from the checkpoint of step $at"
    hash=$(hash_in out)
    tiny "$how-whole" --comm thread --ranks 2 --threads 1 --set train.schedule=constant --set train.steps=$((at + 3)) \
        >"$here/out" 2>"$here/err" </dev/null ||
        fail "$how: undisturbed: $(cat "$here/err")"
    [ "${#hash}" -eq 64 ] && [ "$(hash_in out)" = "$hash" ] || fail "$how: other weights than undisturbed: $(cat "$here/out")"
done
finish
