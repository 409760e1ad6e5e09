#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a start takes from its surroundings: tasks of srun that cannot find each other, numbers of a job array, limits of
# threads, misspelt variables, the width of the terminal.
. "$(dirname "$0")/_common.sh"
unset SLURM_JOB_ID SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_STEP_NUM_TASKS SLURM_PROCID SLURM_CPUS_PER_TASK OMP_NUM_THREADS
data "$here/train.tsv" 100 1
cd "$here" || exit 99
one='--set train.steps=1'

# ---- srun without PMI ----
exits 2 env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$program" train "$top/bench/tiny.run" --run-dir apart
says err 'srun started 2 processes as one step, but without PMI, .*srun --mpi=pmix .*--comm self'
[ ! -e apart ] || fail "a start that is refused makes a run directory"
exits 2 env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$program" train "$top/bench/tiny.run" --run-dir apart
says err '^switchyard: rank 1 on host .*: srun started 2 processes'
export SLURM_STEP_NUM_TASKS=2
exits 0 tiny self $one --comm self
SLURM_STEP_NUM_TASKS=1
exits 0 tiny single $one
unset SLURM_STEP_NUM_TASKS

# ---- job arrays ----
export SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3 SLURM_JOB_ID=10
exits 0 tiny array/%A_%a-%j-100%% $one
[ -f array/7_3-10-100%%/run.conf ] || fail "the run directory of a job array: $(find array)"
unset SLURM_ARRAY_TASK_ID
exits 2 tiny array/%A_%a $one
says err 'array/%A_%a: %a is SLURM_ARRAY_TASK_ID, which is not set'
unset SLURM_ARRAY_JOB_ID SLURM_JOB_ID

# ---- a run goes on by the run file that it keeps ----
exits 0 tiny self --resume --quiet --set train.steps=3
before=$(cat self/run.conf)
exits 0 "$program" train --resume self --quiet
[ "$(cat self/run.conf)" = "$before" ] || fail "a run that goes on by itself has another run file"
[ ! -s err ] || fail "a run that goes on by itself: $(cat err)"
exits 0 "$program" train --resume self --quiet --set train.steps=5
says err 'resume: train.steps changes from 3 to 5'
says out '^done after 5 steps'
exits 0 tiny whole --quiet --set train.steps=5 --set train.schedule=constant
whole=$(hash_in out)
exits 0 tiny part --quiet --set train.steps=2 --set train.schedule=constant
exits 0 "$program" train --resume part --quiet --set train.steps=5
[ "$(hash_in out)" = "$whole" ] || fail "a run that goes on by itself has other weights"
exits 2 "$program" train self
says err 'self is a folder: `switchyard train --resume self` goes on'
exits 2 "$program" train self --resume --run-dir other
exits 2 "$program" train . --resume
says err 'holds no run'

# ---- threads ----
exits 0 tiny free $one
if grep -q 'on 1 CPU,' out; then
    echo "skipped: limits of threads (there is one CPU)"
else
    export OMP_NUM_THREADS=1,1
    exits 0 tiny limited $one
    says out '1 rank x 1 thread on [0-9]* CPUs (threads: OMP_NUM_THREADS), '
    SLURM_CPUS_PER_TASK=1 OMP_NUM_THREADS=9
    export SLURM_CPUS_PER_TASK
    exits 0 tiny slurm $one
    says out '1 rank x 1 thread on [0-9]* CPUs (threads: SLURM_CPUS_PER_TASK), '
    exits 0 tiny chosen $one --threads 2
    says out '1 rank x 2 threads on [0-9]* CPUs, '
    SLURM_CPUS_PER_TASK=none OMP_NUM_THREADS=0
    exits 0 tiny nothing $one
    says out ' CPUs, '
    unset OMP_NUM_THREADS SLURM_CPUS_PER_TASK
fi

# ---- misspelt variables ----
exits 0 env SWITCHYARD_CPU_VARIENT=portable SWITCHYARD_VALUE_WER=1 "$program" backends
one_line_error
says err 'warning: SWITCHYARD_CPU_VARIENT is set, which means nothing here, did you mean SWITCHYARD_CPU_VARIANT?'

# ---- a line that is rewritten fits the terminal ----
cat >terminal.py <<'END'
import fcntl, os, pty, struct, sys, termios
width = int(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
text = b""
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:
        break
    if not piece:
        break
    text += piece
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
lines = [l for l in text.decode().replace("\n", "\r").split("\r") if l.startswith("step ")]
print(status, len(lines), max(map(len, lines)), lines[-1].strip())
END
if command -v python3 >/dev/null; then
    for width in 50 80 120; do
        python3 terminal.py $width "$program" train "$top/bench/tiny.run" --run-dir "width$width" --set task.words.train=train.tsv \
            --set train.steps=10 >out 2>err || fail "terminal.py: $(cat err)"
        read -r status lines longest last <out
        [ "$status" = 0 ] && [ "$lines" -ge 1 ] || fail "on a terminal of $width columns: $(cat out)"
        [ "$longest" -lt $width ] || fail "a line of $longest columns on a terminal of $width"
        case $last in 'step 10/10  loss '*' s left') ;; *) fail "the progress line is $last" ;; esac
    done
    case $last in *' tokens/s '*' ms/step '*) ;; *) fail "a wide terminal shows not all: $last" ;; esac
else
    echo "skipped: the width of the terminal (there is no python3)"
fi
finish
