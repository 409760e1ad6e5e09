#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains on several nodes and goes on after every time limit: sbatch slurm-mpi-train.sh RUNFILE RUN_DIR
# As slurm-train.sh, with one rank a socket. srun has to speak the language of the MPI that switchyard was built with:
# `srun --mpi=list` shows what there is (pmix for Open MPI, pmi2 for MPICH).
#SBATCH --job-name=switchyard
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu

run_file=${1:?usage: sbatch slurm-mpi-train.sh RUNFILE RUN_DIR}
run_dir=${2:?usage: sbatch slurm-mpi-train.sh RUNFILE RUN_DIR}

# Newer Slurm does not hand the job's --cpus-per-task to srun by itself.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

status=0
srun --mpi="${SWITCHYARD_SRUN_MPI:-pmix}" --cpu-bind=cores --kill-on-bad-exit=1 \
    switchyard train "$run_file" --run-dir "$run_dir" --resume || status=$?
if [ $status = 3 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
