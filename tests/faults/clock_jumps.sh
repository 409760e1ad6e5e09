#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A clock that is set hours forward and back while a run trains: checkpoints by time, the time limit, waiting for a lock,
# heartbeats, names of runs and rows go on as if it were not. Needs the preloaded library of this folder. (A heartbeat as
# other hosts see it is the time of a file, which only the system's own clock sets: tests/cli/locks.sh.)
. "${abs_top_srcdir:?}/tests/cli/_common.sh"
export LC_ALL=C
library=${abs_top_builddir:?}/tests/faults/.libs/clock.so
[ -e "$library" ] || { echo "SKIP: this build has no shared libraries"; exit 77; }
data "$here/train.tsv" 300 1
head -n 8 "$here/train.tsv" >"$here/valid.tsv"
cd "$here" || exit 99
real=$program
same="--set train.log_every=1 --set train.schedule=constant --set metrics.every=1 --set task.words.valid=$here/valid.tsv
    --set decode.max_length=4"

# What the scripts' functions start, with a clock that jumps. Any two of its times of day are 5 hours apart or more, so that
# any two events of different moments show it.
cat >jumping <<END
#!/bin/sh
exec env LD_PRELOAD=$library SY_CLOCK_JUMPS="\${jumps-0 21600 -21600 43240 -90000}" "$real" "\$@"
END
chmod +x jumping
program=$here/jumping
exits 0 "$program" --version

# ---- checkpoints by time: one a second, whatever the time of day does ----
# shellcheck disable=SC2086
start timed $same --set train.checkpoint_seconds=1 --set train.steps=1000000
eventually grep -q '^step 2/' timed.out
sleep 6
passed=$(grep -c '^checkpoint of step' timed.out)
[ "$passed" -ge 3 ] && [ "$passed" -le 7 ] || fail "$passed checkpoints in 6 s with train.checkpoint_seconds=1"

# ---- its lock: a second process waits for as long as it was told, and is refused ----
begin=$(date +%s)
# shellcheck disable=SC2086
SWITCHYARD_LOCK_WAIT=2 exits 1 tiny timed --resume $same
took=$(($(date +%s) - begin))
[ "$took" -ge 1 ] && [ "$took" -le 10 ] || fail "a wait of 2 s for a lock took $took s"
says err "in use by process .* on this host"
kill -TERM "$owner"
ended
ends timed stopped 3 $?

# The clock did jump, and rows are those of a run with a clock that did not.
hours=$(query timed "SELECT CAST(24 * (max(julianday(time)) - min(julianday(time))) AS INTEGER) FROM event")
[ "$hours" -ge 5 ] || fail "events are $hours hours apart: the clock did not jump"
steps=$(query timed 'SELECT max(step) FROM loss_curve')
[ "$(query timed 'SELECT count(*), min(step) FROM loss_curve')" = "$steps	1" ] ||
    fail "loss_curve of $steps steps has $(query timed 'SELECT count(*), min(step) FROM loss_curve')"
[ "$(query timed "SELECT count(*) FROM valid_metric WHERE name IN ('step_seconds', 'tokens_per_second')
    AND NOT (value > 0 AND value < 1e9 AND (name <> 'step_seconds' OR value < 100))")" = 0 ] || fail "a step took hours, or less than nothing"

# ---- it goes on, and ends with the weights of a steady clock ----
# shellcheck disable=SC2086
exits 0 tiny timed --resume $same --set train.steps=$((steps + 5))
hash=$(hash_in out)
program=$real
# shellcheck disable=SC2086
exits 0 tiny steady $same --set train.steps=$((steps + 5))
[ "${#hash}" -eq 64 ] && [ "$(hash_in out)" = "$hash" ] || fail "the weights differ from those of a steady clock"
program=$here/jumping

# ---- the time limit ----
begin=$(date +%s)
# shellcheck disable=SC2086
exits 3 tiny limited $same --set train.time_limit=2 --set train.steps=1000000
took=$(($(date +%s) - begin))
[ "$took" -ge 1 ] && [ "$took" -le 20 ] || fail "train.time_limit=2 ended after $took s"

# ---- the newest evaluation is the last one made, though the clock was set back ----
jumps=7200 exits 0 "$program" eval steady --file valid.tsv
first=$(query steady "SELECT count(*) FROM eval WHERE task = 'valid.tsv'")
jumps=-7200 exits 0 "$program" eval steady --file valid.tsv
[ "$first" -gt 0 ] && [ "$(query steady "SELECT count(*) FROM eval WHERE task = 'valid.tsv'")" -eq $((2 * first)) ] ||
    fail "two evaluations left $(query steady 'SELECT count(*) FROM eval') rows"
[ "$(query steady "SELECT count(*) FROM eval_latest l JOIN eval e ON e.task = l.task AND e.name = l.name AND e.time = l.time
    WHERE e.task = 'valid.tsv' AND e.id = (SELECT max(id) FROM eval x WHERE x.task = e.task AND x.name = e.name)")" -eq "$first" ] ||
    fail "eval_latest is not the last evaluation: $("$program" metrics steady 'SELECT * FROM eval')"

# ---- names of runs that start at the same second again and again ----
for i in 1 2 3; do
    now=$(date +%s)
    jumps=$((1700000000 - now)) exits 0 "$program" train "$top/bench/tiny.run" --set task.words.train=train.tsv \
        --set train.steps=1 --threads 1
done
[ "$(ls runs | wc -l)" -eq 3 ] || fail "three runs made $(ls runs)"
finish
