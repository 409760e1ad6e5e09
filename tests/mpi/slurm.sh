#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Slurm scripts of packaging/ with stand-ins for srun and scontrol: a job that its time limit stops is queued again
# and ends when the run is done; ranks come over Slurm's variables.
. "$(dirname "$0")/_common.sh"
mkdir "$here/bin"
PATH=$here/bin:$(dirname "$program"):$PATH
export PATH here launcher
export SLURM_JOB_ID=77 SLURM_CPUS_PER_TASK=1 SLURM_NTASKS=2

# srun starts the tasks by the launcher that is here, without that one's own word of how many there are: one that is
# Slurm's says so. Options that it does not know are an error, as with srun.
cat >"$here/bin/srun" <<'EOF'
#!/bin/sh
tasks=$SLURM_NTASKS
for word; do
    case $word in
    --mpi=pmix | --cpu-bind=cores | --kill-on-bad-exit=1) ;;
    --ntasks=*) tasks=${word#*=} ;;
    -*) echo "srun: unrecognized option $word" >&2; exit 1 ;;
    *) break ;;
    esac
    shift
done
[ "${SRUN_CPUS_PER_TASK:-}" = "$SLURM_CPUS_PER_TASK" ] || { echo "srun: CPUs of a task: ${SRUN_CPUS_PER_TASK:-none}" >&2; exit 1; }
export SLURM_STEP_NUM_TASKS=$tasks
exec $launcher -n "$tasks" "$here/bin/task" "$@"
EOF
cat >"$here/bin/task" <<'EOF'
#!/bin/sh
export PMIX_RANK=${PMIX_RANK:-${PMI_RANK:-0}}
case $launcher in *oversubscribe*) unset OMPI_COMM_WORLD_SIZE ;; esac
exec "$@"
EOF
cat >"$here/bin/scontrol" <<'EOF'
#!/bin/sh
echo "$*" >>"$here/requeued"
EOF
chmod +x "$here/bin/srun" "$here/bin/task" "$here/bin/scontrol"

# job SCRIPT NAME STATUS STEPS SECONDS: one job with this script, whose run is to end at STEPS or after SECONDS.
job() {
    sed -e "s|^steps = .*|steps = $4\ntime_limit = $5|" -e "s|^\[data\]|[task.words]\ntrain = \"$here/train.tsv\"\n\n[data]|" \
        "$top/bench/tiny.run" >"$here/my.run"
    timeout -k 5 180 bash "$top/packaging/$1" "$here/my.run" "$here/$2" >"$here/$2.out" 2>"$here/$2.err" </dev/null
    got=$?
    [ $got -eq "$3" ] || fail "$2: exit $got instead of $3: $(cat "$here/$2.out" "$here/$2.err")"
}

command -v bash >/dev/null || { echo "skipped: there is no bash, in which the scripts are written"; exit 77; }
for script in slurm-train.sh slurm-mpi-train.sh; do
    name=${script%-train.sh}
    : >"$here/requeued"
    job $script "$name" 3 1000000 1
    says "$name.out" 'train.time_limit of 1 s reached after step [0-9]*; --resume goes on'
    [ "$(cat "$here/requeued")" = "requeue 77" ] || fail "$name: not queued again: $(cat "$here/requeued")"
    done=$(ls "$here/$name/checkpoints")
    job $script "$name" 0 $((done + 5)) 600
    says "$name.out" "^done after $((done + 5)) steps"
    [ "$(wc -l <"$here/requeued")" -eq 1 ] || fail "$name: queued again when it was done"
done
# launches NAME TEXT: both jobs of that run were launched so.
launches() {
    [ "$(query "$1" "SELECT count(*) FROM event WHERE kind = 'launch' AND text LIKE '$2'")" = 2 ] ||
        fail "$1: launched as $(query "$1" "SELECT text FROM event WHERE kind = 'launch'")"
}
launches slurm '1 rank %comm self%'
launches slurm-mpi '2 ranks x 1 thread %comm mpi%'
finish
