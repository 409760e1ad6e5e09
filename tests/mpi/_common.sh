# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share: the launcher, more ranks than processors, skipping where there is no MPI.
. "$abs_top_srcdir/tests/cli/_common.sh"
launcher=${MPIEXEC:-mpirun}
if [ ! -e "$SWITCHYARD_BACKEND_PATH/switchyard-mpi.so" ]; then
    echo "skipped: the MPI backend was not built (configure found no mpicc)"
    exit 77
fi
if ! command -v "$launcher" >/dev/null; then
    echo "skipped: there is no $launcher to start ranks with (MPIEXEC names another)"
    exit 77
fi
if "$launcher" --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
    launcher="$launcher --oversubscribe"
    [ "$(id -u)" -ne 0 ] || launcher="$launcher --allow-run-as-root"
fi
data "$here/train.tsv" 500 1
export SWITCHYARD_COMM_TIMEOUT=60

# ranks N COMMAND...: the command as N ranks, for two minutes at most.
ranks() {
    n=$1
    shift
    # shellcheck disable=SC2086 # a command and its options
    timeout -k 5 300 $launcher -n "$n" "$@"
}

# mpi DIR N ARGUMENTS...: trains bench/tiny.run in $here/DIR with N ranks of one thread; output in DIR.out, DIR.err.
mpi() {
    run=$1 n=$2
    shift 2
    ranks "$n" "$program" train "$top/bench/tiny.run" --run-dir "$here/$run" --quiet --threads 1 \
        --set task.words.train="$here/train.tsv" "$@" >"$here/$run.out" 2>"$here/$run.err" </dev/null
}

# one_message NAME TEXT: NAME.err has exactly one error of the program, with this text; launchers add their own words.
one_message() {
    grep '^switchyard: ' "$here/$1.err" | grep -v '^switchyard: warning: ' >"$here/messages"
    [ "$(wc -l <"$here/messages")" -eq 1 ] || fail "$1: not one message: $(cat "$here/$1.err")"
    grep -q -e "$2" "$here/messages" || fail "$1 lacks '$2': $(cat "$here/$1.err")"
}
