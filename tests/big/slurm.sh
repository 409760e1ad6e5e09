#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A real Slurm of one node, started here: the scripts of packaging/, a signal before the time limit and the job that is
# queued again, a step that dies with its node's daemon, job arrays, ranks that find each other by PMIx. Needs root,
# slurmctld, slurmd and munged; nothing of a Slurm that may run on this machine is touched.
. "$(dirname "$0")/../cli/_common.sh"
PATH=$PATH:/usr/sbin:/sbin
for tool in munged slurmctld slurmd srun sbatch scontrol; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool (Debian: slurmctld slurmd slurm-client munge)"; exit 77; }
done
[ "$(id -u)" -eq 0 ] || { echo "skipped: slurmd runs as root, and this is not"; exit 77; }

# ---- the cluster ----

slurm=$here/slurm
mkdir -m 700 "$slurm" && mkdir "$slurm/state" "$slurm/spool" || exit 99
node=$(hostname -s)
port=$((20000 + $$ % 20000))
cat >"$slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
ReturnToService=2
SwitchType=switch/none
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF="$slurm/slurm.conf"
end_cluster() {
    scancel --user=root >/dev/null 2>&1
    for daemon in slurmd slurmctld munged; do
        [ -s "$slurm/$daemon.pid" ] || continue
        pid=$(cat "$slurm/$daemon.pid")
        kill "$pid" 2>/dev/null
        eventually sh -c "! kill -0 $pid"
    done
    rm -rf "$here"
}
trap end_cluster EXIT
head -c 128 /dev/urandom >"$slurm/munge.key" && chmod 400 "$slurm/munge.key"
munged --force --key-file="$slurm/munge.key" --socket="$slurm/munge.socket" --pid-file="$slurm/munged.pid" \
    --log-file="$slurm/munged.log" --seed-file="$slurm/munge.seed" 2>"$slurm/munged.err" &&
    slurmctld -c 2>"$slurm/out" && slurmd -c 2>"$slurm/out" || {
    echo "skipped: no Slurm starts here: $(cat "$slurm/munged.err" "$slurm/out" | tail -n 1)"
    exit 77
}
eventually sh -c 'sinfo -h -o %T | grep -q idle'

# ---- jobs ----

mkdir "$here/bin"
ln -s "$program" "$here/bin/switchyard"
PATH=$here/bin:$PATH
export PATH
data "$here/train.tsv" 300 1
cd "$here" || exit 99
common="--set task.words.train=$here/train.tsv --set train.schedule=constant --set train.log_every=1"

# script ARGUMENTS: packaging/slurm-train.sh as slurm-train.sh, whose training has these arguments, too.
script() {
    sed "s|--resume|--resume $common $*|" "$top/packaging/slurm-train.sh" >slurm-train.sh
    grep -q -e "$common" slurm-train.sh || fail "slurm-train.sh starts no training"
}

# submit RUN_DIR OPTIONS...: its number is in $job, its output in job-NUMBER.out.
submit() {
    run=$1
    shift
    job=$(sbatch --parsable --output="$here/job-%A.out" --mem=0 --cpus-per-task=1 "$@" slurm-train.sh \
        "$top/bench/tiny.run" "$here/$run") || fail "sbatch $*"
}
job_has() {
    scontrol show job "$job" | grep -q "$1"
}
output_has() {
    grep -q "$1" "job-$job.out"
}
# completes WHAT: the job ends well, with the weights of the run that nothing disturbs.
completes() {
    eventually job_has 'JobState=COMPLETED'
    [ "$(sed -n 's/^weights sha256 //p' "job-$job.out" | tail -n 1)" = "$whole" ] ||
        fail "$1 has other weights: $(tail -n 5 "job-$job.out")"
}

script --set train.steps=400
submit whole
eventually job_has 'JobState=COMPLETED'
whole=$(hash_in "job-$job.out")
[ -n "$whole" ] || fail "a job trains nothing: $(cat "job-$job.out")"
says "job-$job.out" '1 rank x 1 thread on '

# ---- a signal, and the job is queued again ----

submit again
eventually output_has '^step '
scancel --signal=USR1 "$job"
eventually job_has 'Restarts=1 '
completes "a job that was queued again"
says "job-$job.out" '^checkpoint of step [0-9]* saved'
says "job-$job.out" '^going on from the checkpoint of step'

# ---- a node that dies ----

# Of a job whose environment has this text, every process, its step's daemon included.
processes_of() {
    grep -las "$1" /proc/[0-9]*/environ | sed 's|/proc/\([0-9]*\)/.*|\1|' | grep -v "^$$\$"
    pgrep -f "slurmstepd: \[$job"
}
script --set train.steps=400 --set train.checkpoint_every=20
submit dead
eventually output_has 'checkpoint of step 20 saved'
# shellcheck disable=SC2046 # several processes
kill -KILL "$(cat "$slurm/slurmd.pid")" $(processes_of "SLURM_JOB_ID=$job") 2>/dev/null
begin=$(date +%s)
slurmd -c 2>out || fail "slurmd does not start again: $(cat out)"
scontrol requeue "$job" 2>/dev/null
eventually job_has 'Restarts=1 '
completes "a job whose node died"
says "job-$job.out" '^going on from the checkpoint of step'
grep -q 'waiting up to' "job-$job.out" && fail "the lock of a dead start of the same job was waited for: $(cat "job-$job.out")"
echo "a node that died: the job was done $(($(date +%s) - begin)) s later"

# ---- an array ----

script --set train.steps=3
submit array/%A_%a --array=0-1
eventually sh -c "[ -z \"\$(squeue -h -j $job 2>/dev/null)\" ]"
for i in 0 1; do
    [ -f "array/${job}_$i/run.conf" ] || fail "job $i of an array has no run directory of its own: $(find array)"
done

# ---- several ranks ----

train_by() {
    srun "$@" "$program" train "$top/bench/tiny.run" --set task.words.train="$here/train.tsv" --set train.steps=5
}
if "$program" backends | grep -q '^mpi ' && srun --mpi=list 2>&1 | grep -q pmix; then
    exits 0 train_by --mpi=pmix -n 2
    says out '2 ranks x '
    two=$(hash_in out)
    rm -r runs
    exits 0 train_by -n 1
    [ "$(hash_in out)" = "$two" ] || fail "two tasks of srun have other weights than one"
    rm -r runs
else
    echo "skipped: ranks by PMIx (no MPI backend, or no PMIx in this Slurm)"
fi
exits 2 train_by --mpi=none -n 2
says err 'srun started 2 processes as one step, but without PMI, .*srun --mpi=pmix'
[ ! -e runs ] || fail "a start that is refused makes a run directory"
finish
