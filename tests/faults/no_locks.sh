#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run directory where file locks do not work: the database is written on this host and copied to the run directory, a
# kill loses no row that was written, and what reads the run reads the copy. Needs the preloaded library of this folder.
. "${abs_top_srcdir:?}/tests/cli/_common.sh"
export LC_ALL=C
library=${abs_top_builddir:?}/tests/faults/.libs/no_locks.so
[ -e "$library" ] || { echo "SKIP: this build has no shared libraries"; exit 77; }
[ -d /proc/self/fd ] || { echo "SKIP: without /proc the library does not know which file is locked"; exit 77; }
data "$here/train.tsv" 300 1
head -n 8 "$here/train.tsv" >"$here/valid.tsv"
cd "$here" || exit 99
mkdir tmp runs
export TMPDIR="$here/tmp"
same='--threads 1 --set train.log_every=1 --set train.schedule=constant --set metrics.every=1 --set metrics.routing_every=1'
real=$program

# Locks fail for paths that begin with $refused.
cat >without_locks <<END
#!/bin/sh
exec env LD_PRELOAD=$library SY_NO_LOCKS="\${refused-$here/runs/}" "$real" "\$@"
END
chmod +x without_locks
program=$here/without_locks

# locals: how many databases are on this host.
locals() {
    find "$here/tmp" "$here/other" -name 'metrics-*.db' 2>/dev/null | wc -l
}

# curve RUN: rows, first and last step of its loss curve, asked without the fault.
curve() {
    "$real" metrics "$here/runs/$1" --tsv 'SELECT count(*), min(step), max(step) FROM loss_curve' | tail -n 1
}

# whole RUN STEPS: no step is missing or there twice, blocks are the rows, the file is sound.
whole() {
    [ "$(curve "$1")" = "$2	1	$2" ] || fail "$1: loss_curve has $(curve "$1") of $2 steps"
    got=$("$real" metrics "$here/runs/$1" --tsv 'SELECT (SELECT sum(tokens) FROM valid_routing) - (SELECT sum(tokens) FROM
        valid_routing_block), (SELECT integrity_check FROM pragma_integrity_check)' | tail -n 1)
    [ "$got" = "0	ok" ] || fail "$1: blocks and rows differ, or the file is damaged: $got"
}

# ---- a run from beginning to end ----
# shellcheck disable=SC2086
exits 0 tiny runs/plain $same --set train.steps=6
[ "$(wc -l <err)" -eq 1 ] || fail "not one line on stderr: $(cat err)"
says err "^switchyard: warning: metrics: file locks do not work beside $here/runs/plain/metrics.db (No locks available)"
says err "written as $here/tmp/switchyard-[0-9]*/metrics-"
whole plain 6
[ "$(locals)" -eq 0 ] || fail "a run that ended left $(find tmp -type f)"
exits 0 "$program" metrics runs/plain --tsv 'SELECT max(step) FROM loss_curve'
[ "$(tail -n 1 out)" = 6 ] || fail "metrics without locks says $(cat out err)"
exits 0 "$program" eval runs/plain --file valid.tsv
[ "$("$real" metrics runs/plain --tsv 'SELECT count(*) > 0 FROM eval' | tail -n 1)" = 1 ] || fail "an evaluation is not kept"
[ "$(locals)" -eq 0 ] || fail "an evaluation left $(find tmp -type f)"
hash=$(refused='' tiny runs/locks $same --set train.steps=6 2>err | sed -n 's/^weights sha256 //p')
[ ! -s err ] || fail "with locks: $(cat err)"
[ "$("$real" metrics runs/plain --tsv "SELECT count(*) FROM event WHERE kind = 'checkpoint'" | tail -n 1)" = 1 ] || fail "events"
[ "${#hash}" -eq 64 ] || fail "no hash"

# ---- only SQLite finds out (5: an I/O error) ----
refused=$here/runs/late/metrics.db SY_LOCK_ERROR=5
export refused SY_LOCK_ERROR
# shellcheck disable=SC2086
exits 0 tiny runs/late $same --set train.steps=6
says err "^switchyard: warning: metrics: file locks do not work beside $here/runs/late/metrics.db (disk I/O error)"
[ "$(hash_in out)" = "$hash" ] || fail "the weights differ"
whole late 6
exits 0 "$program" metrics runs/late --tsv 'SELECT max(step) FROM loss_curve'
[ "$(tail -n 1 out)" = 6 ] || fail "metrics without locks says $(cat out err)"
unset refused SY_LOCK_ERROR

# ---- killed after a checkpoint: it goes on with the rows of this host ----
# shellcheck disable=SC2086
exits 0 tiny runs/killed $same --set train.steps=8
# shellcheck disable=SC2086
start runs/killed --resume $same --set train.steps=1000000
eventually grep -q '^step 30/' runs/killed.out
sleep 1.5
kill -KILL "$owner"
ended 2>/dev/null
[ "$(locals)" -eq 1 ] || fail "killed: $(find tmp -type f)"
[ "$("$real" metrics runs/killed --tsv 'SELECT max(attempt), (SELECT max(step) FROM metric) FROM run' | tail -n 1)" = '2	8' ] ||
    fail "killed: the copy is not that of the start"
# shellcheck disable=SC2086
exits 0 tiny runs/killed --resume $same --set train.steps=12
whole killed 12
rows=$("$real" metrics runs/killed --tsv 'SELECT count(DISTINCT step) FROM metric WHERE attempt = 2' | tail -n 1)
[ "$rows" -ge 20 ] || fail "killed: of the attempt that was killed $rows steps are left"
[ "$(locals)" -eq 0 ] || fail "killed and ended: $(find tmp -type f)"

# ---- killed, and resumed on another host: from the copy; the first host's file is not taken for the newer one ----
# shellcheck disable=SC2086
start runs/moved $same --set train.steps=1000000 --set train.checkpoint_every=8
eventually grep -q '^step 20/' runs/moved.out
kill -KILL "$owner"
ended 2>/dev/null
at=$(ls runs/moved/checkpoints | grep -v '[^0-9]' | sort -n | tail -n 1)
mkdir elsewhere
# shellcheck disable=SC2086
TMPDIR=$here/elsewhere exits 0 tiny runs/moved --resume $same --set train.steps=$((at + 3))
whole moved $((at + 3))
# shellcheck disable=SC2086
exits 0 tiny runs/moved --resume $same --set train.steps=$((at + 5))
whole moved $((at + 5))
[ "$("$real" metrics runs/moved --tsv 'SELECT count(*) FROM run' | tail -n 1)" = 3 ] || fail "moved: an attempt is lost"

# ---- a folder of the user's choice, with and without locks; the copy cannot be written ----
# shellcheck disable=SC2086
refused='' exits 0 tiny runs/chosen $same --set train.steps=4 --set metrics.dir="$here/other"
[ ! -s err ] || fail "chosen: $(cat err)"
whole chosen 4
[ -d other ] && [ "$(locals)" -eq 0 ] || fail "chosen: $(find tmp other -type f)"
echo 'this is no database, but long enough to look like one at first sight' >runs/chosen/metrics.db
# shellcheck disable=SC2086
exits 0 tiny runs/chosen --resume $same --set train.steps=6 --set metrics.dir="$here/other"
says err 'runs/chosen/metrics.db.corrupt-1 and a new one begins'
finish
