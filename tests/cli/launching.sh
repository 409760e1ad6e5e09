#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a start takes from its surroundings: tasks of srun that cannot find each other, numbers of a job array, limits of
# threads, misspelt variables, the width of the terminal.
. "$(dirname "$0")/_common.sh"
unset SLURM_JOB_ID SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_JOB_NAME SLURM_STEP_NUM_TASKS SLURM_PROCID SLURM_CPUS_PER_TASK
unset SLURM_PTY_PORT OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK OMP_NUM_THREADS
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
if [ -e "$SWITCHYARD_BACKEND_PATH/switchyard-mpi.so" ]; then
    exits 2 env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$program" train "$top/bench/tiny.run" --comm mpi --run-dir apart
    says err 'srun started 2 processes as one step, but without PMI'
    [ ! -e apart ] || fail "a start with --comm mpi that is refused makes a run directory"
else
    echo "not tested: --comm mpi under srun (the MPI backend was not built)"
fi

# ---- job arrays ----
export SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3 SLURM_JOB_ID=10
exits 0 tiny array/%A_%a-%j-100%% $one
[ -f array/7_3-10-100%/run.conf ] || fail "the run directory of a job array: $(find array)"
exits 0 "$program" train --resume array/%A_%a-%j-100% --quiet
exits 0 "$program" ckpt list array/%A_%a-%j-100%%
exits 0 "$program" metrics array/%A_%a-%j-100%% "SELECT '%z' AS z"
says out '%z'
exits 0 "$program" eval array/%A_%a-%j-100% --file "$here/train.tsv" --quiet # a name with % that is there is itself
exits 0 "$program" eval array/7_3-10-100% --file "$here/train.tsv" --quiet
for command in plan config explain tokenize 'diff --steps 1' 'bench --steps 1 --warmup 1'; do
    # shellcheck disable=SC2086
    exits 0 "$program" $command array/%A_%a-%j-100%%
done
exits 0 "$program" diff array/7_3-10-100% array/%A_%a-%j-100%% --steps 1
exits 2 tiny array/%u $one
says err 'array/%u: there is no %u here: %A and %a are .* %% is %'
exits 2 "$program" eval array/%4a
says err 'eval array/%4a: there is no %4 here'
exits 0 env SLURM_JOB_NAME=sweep "$program" train "$top/bench/tiny.run" --run-dir "$here/array/%x" --set task.words.train=train.tsv $one
[ -f array/sweep/run.conf ] || fail "the run directory of a job's name: $(find array)"
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
# So does one of an earlier version, which has a course beside its factors.
exits 0 tiny factors --quiet --set train.steps=1 --set train.lr_factors=constant
before=$(cat factors/run.conf)
sed -i 's/^schedule = .*/schedule = "cosine"/; s/^final_learning_rate = .*/final_learning_rate = 0.1/' factors/run.conf
grep -q cosine factors/run.conf || fail "no schedule in run.conf"
exits 0 "$program" plan factors --backend null
exits 0 "$program" train --resume factors --quiet
[ "$(cat factors/run.conf)" = "$before" ] || fail "a course that counts for nothing stays"
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
exits 0 env SWITCHYARD_THREADS=2 "$program" backends
says err 'warning: SWITCHYARD_THREADS is set, which means nothing here$'

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
    # A warning in between begins a line of its own.
    warned="--set action.a.kind=early_stopping --set action.a.metric=no-such-value --set action.a.task=train"
    for width in 50 80 120; do
        # shellcheck disable=SC2086
        python3 terminal.py $width "$program" train "$top/bench/tiny.run" --run-dir "width$width" --set task.words.train=train.tsv \
            --set train.steps=10 $warned >out 2>err || fail "terminal.py: $(cat err)"
        read -r status lines longest last <out
        [ "$status" = 0 ] && [ "$lines" -ge 1 ] || fail "on a terminal of $width columns: $(cat out)"
        [ "$longest" -lt $width ] || fail "a line of $longest columns on a terminal of $width"
        case $last in 'step 10/10  loss '*' s left') ;; *) fail "the progress line is $last" ;; esac
    done
    case $last in *' tokens/s '*' ms/step '*) ;; *) fail "a wide terminal shows not all: $last" ;; esac

    # Open MPI's mpirun gives a rank a terminal, and writes what comes through it into a file.
    # lent NAME VARIABLE...: whether such a start rewrites a line; exit 0: it does.
    lent() {
        name=$1
        shift
        env "$@" python3 "$top/tests/cli/progress_terminal.py" 80 0 - "$program" train "$top/bench/tiny.run" --run-dir "lent-$name" \
            --set task.words.train=train.tsv $one >out 2>err || fail "$name: $(cat err)"
        grep -q '<CR>' out
    }
    lent none A=b || fail "a terminal that is the user's gets no line that is rewritten: $(cat out)"
    lent openmpi OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 && fail "carriage returns under mpirun -n 1: $(cat out)"
    says out '^step 1/1 '
    lent mpich PMI_RANK=0 PMI_SIZE=1 && fail "carriage returns under mpiexec -n 1: $(cat out)"
    lent pmix PMIX_RANK=0 && fail "carriage returns under a launcher with PMIx: $(cat out)"
    lent pty PMIX_RANK=0 SLURM_PTY_PORT=1 SLURM_PROCID=0 || fail "a shell of srun --pty has no terminal: $(cat out)"
else
    echo "skipped: the width of the terminal (there is no python3)"
fi
finish
