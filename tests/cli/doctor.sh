#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# switchyard doctor: one screen, what it says of a machine that is well, and of each thing that would prevent training.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
mkdir tmp
TMPDIR=$here/tmp
export TMPDIR
unset SLURM_JOB_ID SLURM_STEP_ID SLURM_STEP_NUM_TASKS SLURM_CPUS_PER_TASK SWITCHYARD_CPU_VARIANT OMPI_COMM_WORLD_SIZE PMI_SIZE

# ---- a machine that is well ----
exits 0 "$program" doctor --run-dir "$here/tmp/runs/new"
for topic in build processor kernels backends vocabulary sqlite compressed mpi slurm variables cuda cpus memory limits \
    folder TMPDIR run-dir; do
    grep -Eq "^(ok|note) +$topic +[^ ]" out || fail "no line about $topic: $(cat out)"
done
says out "^[a-z]* *build *switchyard $("$program" version | sed -n 's/^switchyard //p'), "
tr -s '\n ' '  ' <out >line
says line 'locks work, fsync [0-9.]* ms, [0-9.]* [KMGTPE]iB free'
says out '^Nothing here prevents training'
[ ! -s err ] || fail "words on standard error: $(cat err)"
[ -z "$(ls -A tmp)" ] || fail "left in TMPDIR: $(ls -A tmp)"
# On one screen, with paths of the usual length.
(cd / && "$program" doctor) >screen
[ "$(grep -cv '^ ' screen)" -le 19 ] || fail "more than 19 lines without those that are wrapped: $(cat screen)"
# (a path is one word: it is not broken)
awk 'length($0) > 80 && substr($0, 21) !~ /^[^ ]+$/ { print; bad = 1 } END { exit bad }' screen || fail "lines over 80 columns"

# ---- JSON ----
exits 0 "$program" doctor --json
[ "$(wc -l <out)" -eq 1 ] || fail "JSON of several lines"
says out '"problems":0}$'
says out '{"topic":"kernels","level":"ok","text":"a run takes [a-z0-9_]* here'
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
found = {f["topic"]: f for f in json.load(sys.stdin)["findings"]}
assert found["cpus"]["cpus"] >= 1 and found["folder"]["locks"] in (0, 1)' <out || fail "JSON is not what it should be"
fi

# ---- what prevents training, each with its reason ----
# prevented TOPIC TEXT VARIABLE=VALUE...: exit status 1 and a problem.
prevented() {
    topic=$1 text=$2
    shift 2
    exits 1 env "$@" "$program" doctor
    tr -s '\n ' '  ' <out >line
    grep -Eq "problem $topic .*$text" line || fail "no problem with $topic that says $text: $(cat out)"
    says out 'prevents* training\.$'
}
prevented kernels 'variant "avx9" is not possible here' SWITCHYARD_CPU_VARIANT=avx9
prevented slurm 'srun started 4 processes that know nothing of each other: .*--mpi=pmix' SLURM_JOB_ID=7 SLURM_STEP_ID=0 \
    SLURM_STEP_NUM_TASKS=4
prevented variables 'SWITCHYARD_LOCK_WAIT=zz: a whole number of seconds, 0 to 1000000000' SWITCHYARD_LOCK_WAIT=zz
prevented variables 'SWITCHYARD_LOG_RANKS=zz: one of first, all, nodes' SWITCHYARD_LOG_RANKS=zz
for seconds in 0 2000000000; do
    prevented variables "SWITCHYARD_COMM_TIMEOUT=$seconds: a whole number of seconds, 1 to 1000000000" SWITCHYARD_COMM_TIMEOUT=$seconds PMI_SIZE=2
done
mkdir plugins
prevented mpi 'OMPI_COMM_WORLD_SIZE is 4' SWITCHYARD_BACKEND_PATH="$here/plugins" OMPI_COMM_WORLD_SIZE=4
if "$program" backends | grep -q 'switchyard-cpu.so$'; then # else it is part of the program
    echo 'no library' >plugins/switchyard-cpu.so
    prevented kernels 'cannot be loaded' SWITCHYARD_BACKEND_PATH="$here/plugins"
    says line 'note backends cpu (.*plugins/switchyard-cpu.so) is refused'
fi
exits 0 env TMPDIR="$here/nosuch" "$program" doctor
tr -s '\n ' '  ' <out >line
says line "note TMPDIR $here/nosuch: No such file or directory: choose another folder"
echo text >file
exits 1 "$program" doctor --run-dir "$here/file"
says out '^problem *run-dir .*'
# An empty variable is not set; a rank alone waits for none.
exits 0 env SWITCHYARD_LOCK_WAIT= SWITCHYARD_LOG_RANKS= SWITCHYARD_COMM_TIMEOUT=zz "$program" doctor
tr -s '\n ' '  ' <out >line
says line 'note variables SWITCHYARD_COMM_TIMEOUT=zz: a whole number'
exits 0 env SWITCHYARD_CPU_VARAINT=avx2 SWITCHYARD_COMM_TIMEOUT=9 "$program" doctor
tr -s '\n ' '  ' <out >line
says line 'note variables SWITCHYARD_CPU_VARAINT is set, which nothing reads: did you mean SWITCHYARD_CPU_VARIANT?'
says line 'SWITCHYARD_COMM_TIMEOUT=9'
(ulimit -f 4000 && exec "$program" doctor) >out || fail "a limit of the file size prevents training"
says out '^note *limits '

# ---- without locks: training goes on, elsewhere ----
no_locks=${abs_top_builddir:-.}/tests/faults/.libs/no_locks.so
if [ -e "$no_locks" ] && [ -d /proc/self/fd ] && ! ldd "$program" | grep -q asan; then
    exits 0 env LD_PRELOAD="$no_locks" SY_NO_LOCKS="$here/" "$program" doctor
    says out '^note *folder .*'
    tr -s '\n ' '  ' <out >line
    says line 'locks do not work, .* the database is then written below'
else
    echo "not tested: file systems without locks; this build has nothing to preload, or there is no /proc"
fi
finish
