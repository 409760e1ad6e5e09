#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts that meet another run's directory: waiting for its owner, taking it over, and keeping apart.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
cd "$here" || exit 99
unset SLURM_JOB_ID SLURM_RESTART_COUNT PBS_JOBID LSB_JOBID
same='--set train.log_every=1 --set train.schedule=constant'

# ---- waiting ----
start held $same --set train.steps=1000000
first=$owner
eventually grep -q '^step 2/' held.out
export SWITCHYARD_LOCK_WAIT=0
exits 1 tiny held --resume $same
says err "in use by process $first on this host"
# In a container that has the name of its host the owner's pid is of nobody, which does not make it dead.
apart='unshare --map-root-user --pid --fork --mount-proc'
if $apart true 2>err; then
    # shellcheck disable=SC2086
    exits 1 $apart "$program" train "$top/bench/tiny.run" --run-dir held --resume $same --set task.words.train=train.tsv
    says err "locked by process $first in another PID namespace of host .* which cannot be asked from here: .* --takeover"
else
    echo "not tested: a run in another PID namespace: $(cat err)"
fi
begin=$(date +%s)
SWITCHYARD_LOCK_WAIT=1
exits 1 tiny held --resume --takeover $same
[ $(($(date +%s) - begin)) -ge 1 ] || fail "a start does not wait for the owner"
says err "^run directory .*held is held by process $first on host .*: waiting up to 1 s for its end"
says err "in use by process $first on this host" # --takeover says nothing about a process that is seen to live
SWITCHYARD_LOCK_WAIT=soon
exits 2 tiny held --resume $same
says err 'SWITCHYARD_LOCK_WAIT=soon: a whole number of seconds'
exits 2 env SWITCHYARD_LOCK_WAIT=-1 "$program" train "$top/bench/tiny.run" --run-dir "$here/held" --resume $same --set task.words.train=train.tsv
says err 'SWITCHYARD_LOCK_WAIT=-1: a whole number of seconds, 0 to 1000000000'
unset SWITCHYARD_LOCK_WAIT

# An empty variable is one that is not set.
SWITCHYARD_LOCK_WAIT= "$program" train "$top/bench/tiny.run" --run-dir held --resume $same --set task.words.train=train.tsv \
    --set train.steps=1000000 >next.out 2>next.err </dev/null &
next=$!
eventually grep -q "waiting up to 60 s" next.err
kill -TERM "$first"
ended
ends held stopped 3 $?
owner=$next
eventually grep -q '^step ' next.out
says next.out "going on from the checkpoint of step $(sed -n 's/^checkpoint of step \([0-9]*\) saved/\1/p' held.out)"
[ "$(cut -d ' ' -f 2 held/lock)" = "$next" ] || fail "the lock is not of the process that waited: $(cat held/lock)"

# ---- an owner whose lock was taken over saves no more ----
echo 'elsewhere 12345 1 -' >held/lock
before=$(ls held/checkpoints)
kill -TERM "$owner"
ended
[ $? -eq 1 ] || fail "a run whose directory was taken over exits with $?"
says next.err 'was taken over by process 12345 on host elsewhere: this run ends without saving'
[ "$(ls held/checkpoints)" = "$before" ] || fail "a run whose directory was taken over saves a checkpoint"
[ "$(cat held/status)" = running ] || fail "a run whose directory was taken over writes the status $(cat held/status)"
says held/lock elsewhere

# ---- the lock of another host ----
export SWITCHYARD_LOCK_WAIT=0
exits 1 tiny held --resume $same
says err 'locked by process 12345 on host elsewhere, .* start again with --takeover'
exits 0 tiny held --resume --takeover $same --set train.steps=$((before + 1))
says err 'took over the lock of process 12345 on host elsewhere, as --takeover asks'
says held/log 'took over the lock of process 12345 on host elsewhere, as --takeover asks'
[ ! -f held/lock ] || fail "the lock stays after the end"
# Nor does one that was suspended until its successor had ended: that left a status, and took its lock along.
start asleep $same --set train.steps=1000000
eventually grep -q '^step 2/' asleep.out
kill -STOP "$owner"
echo "done" >asleep/status
rm asleep/lock
kill -TERM "$owner"
kill -CONT "$owner"
ended
[ $? -eq 1 ] || fail "a run that was taken over while it slept does not fail"
says asleep.err 'asleep was taken over by a process that has ended since: this run ends without saving'
[ "$(cat asleep/status)" = "done" ] && [ -z "$(newest asleep)" ] && [ ! -e asleep/lock ] ||
    fail "a run that was taken over while it slept leaves $(cat asleep/status asleep/lock; ls asleep/checkpoints)"
# The same job of Slurm, started again: what ran before was ended.
echo 'elsewhere 12345 1 SLURM_JOB_ID=17 1' >held/lock
exits 1 env SLURM_JOB_ID=17 SLURM_RESTART_COUNT=1 "$program" train "$top/bench/tiny.run" --run-dir held --resume $same \
    --set task.words.train=train.tsv
says err 'locked by process 12345 on host elsewhere'
exits 0 env SLURM_JOB_ID=17 SLURM_RESTART_COUNT=2 "$program" train "$top/bench/tiny.run" --run-dir held --resume $same \
    --set task.words.train=train.tsv --set train.steps=$((before + 1))
says err 'host elsewhere, of the same batch job, whose earlier start Slurm has ended (restart 2)'
# One whose time is old is watched for 25 s: its owner may live, and the clock of the files may have been set forward.
echo 'elsewhere 12345 1 -' >held/lock
cp -a held set-forward
cp -a held job
touch -d '11 minutes ago' held/lock
touch -d '5 hours ago' set-forward/lock
echo 'elsewhere 12345 1 SLURM_JOB_ID=17' >job/lock
touch -d '1 minute ago' job/lock
exits 1 tiny job --resume $same
start set-forward --resume $same --set train.steps=$((before + 2))
eventually grep -q 'no heartbeat of process 12345 on host elsewhere for long, .*: watching for 25 s' set-forward.err
begin=$(date +%s)
tiny held --resume $same --set train.steps=$((before + 2)) >held.out 2>held.err </dev/null &
other=$!
SLURM_JOB_ID=17 SWITCHYARD_LOCK_WAIT=60 tiny job --resume $same --set train.steps=$((before + 2)) >job.out 2>job.err </dev/null &
job=$!
sleep 2
touch set-forward/lock
ended
[ $? -eq 1 ] || fail "a run whose owner gives heartbeats was taken over: $(cat set-forward.err)"
says set-forward.err 'locked by process 12345 on host elsewhere, whose last heartbeat was [01] s ago'
wait $other || fail "a silent owner was not followed: $(cat held.err)"
says held.err 'on host elsewhere, whose last heartbeat was 6[0-9]* s ago'
[ $(($(date +%s) - begin)) -ge 24 ] || fail "a silent owner was not watched"
wait $job || fail "a silent owner of the same job was not followed: $(cat job.err)"
says job.err 'on host elsewhere, of the same batch job, whose last heartbeat was'
exits 2 tiny held --takeover $same
says err 'held holds a run already'
exits 2 "$program" train "$top/bench/tiny.run" --takeover --set task.words.train=train.tsv
says err 'train: --takeover needs --run-dir'

# ---- a run that came to be while its lock was waited for is not begun anew ----
mkdir young
echo 'elsewhere 12345 1 -' >young/lock
export SWITCHYARD_LOCK_WAIT=60
start young $same
eventually grep -q 'waiting up to 60 s' young.err
cp held/run.conf young
rm young/lock
ended
[ $? -eq 2 ] || fail "a run begins in a folder that holds another"
says young.err 'young holds a run already: add --resume'
[ ! -f young/metrics.db ] && [ ! -f young/lock ] || fail "a refused start leaves $(ls young)"

# ---- a node that dies: the job that Slurm queues again goes on by the same script, and nobody decides anything ----
# job NAME=VALUE...: the script of packaging/ in the environment that Slurm gives its job, without Slurm.
job() {
    env PATH="$here/bin:$PATH" SLURM_JOB_ID=17 SLURM_CPUS_PER_TASK=1 "$@" bash "$top/packaging/slurm-train.sh" my.run node
}
if command -v bash >/dev/null; then
    sed -e 's|^steps = .*|steps = 400|; s|^schedule = .*|schedule = "constant"|; s|^checkpoint_every = .*|checkpoint_every = 20|' \
        -e "s|^\[data\]|[task.words]\ntrain = \"$here/train.tsv\"\n\n[data]|" "$top/bench/tiny.run" >my.run
    exits 0 "$program" train my.run --run-dir undisturbed
    whole=$(hash_in out)
    mkdir bin
    ln -s "$program" bin/switchyard
    printf '#!/bin/sh\n[ "$1" = --ntasks=1 ] && shift && exec "$@"\n' >bin/srun
    printf '#!/bin/sh\necho "$*" >>requeued\n' >bin/scontrol
    chmod +x bin/srun bin/scontrol
    export SWITCHYARD_LOCK_WAIT=60
    job >node.out 2>&1 </dev/null &
    script=$!
    eventually grep -q '^checkpoint of step 20 saved' node.out
    owner=$(cut -d ' ' -f 2 node/lock)
    kill -KILL "$script" "$owner"
    wait "$script" 2>/dev/null
    owner=
    [ "$(cat node/status)" = running ] || fail "the node died too late: $(cat node.out)"
    sed 's/^[^ ]* /dead-node /' node/lock >lock && mv lock node/lock # the next start is on another node
    exits 0 job SLURM_RESTART_COUNT=1
    [ "$(hash_in out)" = "$whole" ] || fail "a job that was queued again has other weights: $(cat out err)"
    says out '^going on from the checkpoint of step'
    says err 'on host dead-node, of the same batch job, whose earlier start Slurm has ended (restart 1)'
    grep -q 'waiting up to' err && fail "the lock of a dead start of the same job is waited for: $(cat err)"
    [ ! -e requeued ] || fail "a node that died: the script asks for $(cat requeued)"
else
    echo "not tested: a job that is queued again; there is no bash, in which its script is written"
fi

# ---- a host that gets another name: its run still knows its own lock ----
if unshare --map-root-user --uts true 2>err; then
    # shellcheck disable=SC2086
    unshare --map-root-user --uts "$program" train "$top/bench/tiny.run" --run-dir renamed $same --set train.steps=1000000 \
        --set task.words.train=train.tsv >renamed.out 2>renamed.err </dev/null &
    owner=$!
    eventually grep -q '^step 3/' renamed.out
    nsenter --target "$owner" --user --uts --preserve-credentials hostname another || fail "the host keeps its name"
    kill -TERM "$owner"
    ended
    ends renamed stopped 3 $?
    [ ! -e renamed/lock ] || fail "a run whose host got another name leaves its lock: $(cat renamed/lock)"
else
    echo "not tested: a host that gets another name: $(cat err)"
fi

# ---- runs that start together ----
processes=
for i in 1 2 3 4 5 6; do
    "$program" train "$top/bench/tiny.run" --set task.words.train=train.tsv --set train.steps=1 --threads 1 >"many$i" 2>&1 &
    processes="$processes $!"
done
i=0
for process in $processes; do
    i=$((i + 1))
    wait "$process" || fail "run $i of those that start together: $(cat many$i)"
done
[ "$(ls runs | wc -l)" -eq 6 ] || fail "six runs made $(ls runs)"
[ "$(cat runs/*/status | sort | uniq -c | tr -s ' ')" = ' 6 done' ] || fail "not all six are done: $(cat runs/*/status)"
finish
