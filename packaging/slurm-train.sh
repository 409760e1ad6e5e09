#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains on one node and goes on after every time limit: sbatch slurm-train.sh RUNFILE RUN_DIR
# Slurm sends SIGUSR1 to the training 5 minutes before the limit; it saves and ends with status 3, and the job is
# queued again. Adapt the resources; exit status 0 means that the training is done.
#SBATCH --job-name=switchyard
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=16G
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu

run_file=${1:?usage: sbatch slurm-train.sh RUNFILE RUN_DIR}
run_dir=${2:?usage: sbatch slurm-train.sh RUNFILE RUN_DIR}

# Newer Slurm does not hand the job's --cpus-per-task to srun by itself.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

status=0
srun --ntasks=1 switchyard train "$run_file" --run-dir "$run_dir" --resume || status=$?
if [ $status = 3 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
