#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that is killed again and again goes on every time, and ends with the weights of the run that nobody disturbed:
# SIGKILL after a random time, ranks, mesh, ZeRO stage, threads and kernels changed from attempt to attempt. Its database
# opens after every kill, and ends with each step once.
# KILLS kills (20; `make bigcheck`: 200).
. "${abs_top_srcdir:?}/tests/cli/_common.sh"
kills=${KILLS:-20}
steps=${STEPS:-60}
seed=${SEED:-20240}
data "$here/train.tsv" 300 1
head -n 16 "$here/train.tsv" >"$here/valid.tsv"

settings="--set train.steps=$steps --set train.checkpoint_every=5 --set train.evaluate_every=20
    --set metrics.every=1 --set metrics.routing_every=1 --set task.words.valid=$here/valid.tsv --set decode.max_length=6 --set train.keep_checkpoints=2"

# attempt N: how the N-th attempt is launched.
attempt() {
    case $(($1 % 6)) in
    0) echo "--threads 2" ;;
    1) echo "--comm thread --ranks 2 --set mesh.data=2" ;;
    2) echo "--threads 1 --set cpu.variant=portable" ;;
    3) echo "--comm thread --ranks 2 --set mesh.expert=2 --set mesh.zero=1" ;;
    4) echo "--comm thread --ranks 2 --set mesh.data=2 --set mesh.zero=3" ;;
    5) echo "--comm thread --ranks 2 --set mesh.model=2" ;;
    esac
}

began=$(date +%s%3N)
# shellcheck disable=SC2086
tiny whole $settings >"$here/out" 2>"$here/err" || fail "the undisturbed run failed: $(cat "$here/err")"
want=$(hash_in out)
[ -n "$want" ] || fail "the undisturbed run printed no hash"
# An attempt lives as long as 60 steps at most, or 0.7 s where that is longer: on a busy machine, too, kills come after
# checkpoints, not all of them before the first step.
longest=$((($(date +%s%3N) - began) * 60 / steps))
[ "$longest" -ge 700 ] || longest=700

killed=0 tries=0 resumed=0
: >"$here/killed.out"
while [ "$killed" -lt "$kills" ] && [ "$failures" -eq 0 ]; do
    tries=$((tries + 1))
    seed=$(((seed * 1103 + 12345) % 65536))
    # shellcheck disable=SC2086,SC2046
    start killed --resume $settings $(attempt "$tries")
    delay=$((seed % longest))
    sleep "$((delay / 1000)).$(printf '%03d' $((delay % 1000)))"
    if kill -KILL "$owner" 2>/dev/null; then killed=$((killed + 1)); fi
    ended 2>/dev/null
    got=$?
    if grep -q '^going on from the checkpoint' "$here/killed.out"; then resumed=$((resumed + 1)); fi
    case $got in
    137)
        if [ -s "$here/killed/metrics.db" ]; then
            case $(query killed 'PRAGMA integrity_check' 2>&1) in
            ok | *'is empty'*) ;;
            *) fail "kill $killed damaged the database: $(query killed 'PRAGMA integrity_check' 2>&1)" ;;
            esac
        fi
        continue ;;
    0) # it was done before the kill: once more from the start
        [ "$(hash_in killed.out)" = "$want" ] || fail "attempt $tries ended with other weights"
        rm -rf "$here/killed"
        ;;
    *) fail "attempt $tries ended with $got: $(cat "$here/killed.err")" ;;
    esac
done

# shellcheck disable=SC2086
tiny killed --resume $settings >"$here/out" 2>"$here/err" || fail "the last attempt failed: $(cat "$here/err")"
[ "$(hash_in out)" = "$want" ] || fail "after $killed kills the weights are $(hash_in out), undisturbed $want"
want="$steps	1	$steps	0"
got=$(query killed 'SELECT count(*), min(step), max(step), (SELECT sum(tokens + dropped) FROM valid_routing) -
    (SELECT sum(tokens + dropped) FROM valid_routing_block) FROM loss_curve')
[ "$got" = "$want" ] || fail "after $killed kills the database has '$got' (steps, first, last, lost counts), not '$want'"
got=$(query killed "SELECT count(*), count(DISTINCT step || layer || expert) FROM valid_routing")
[ "${got%	*}" = "${got#*	}" ] || fail "after $killed kills of $got rows of experts some are there twice"
left=$(find "$here/killed/checkpoints" -mindepth 1 -maxdepth 1 ! -name '[0-9]*' -o -name '*.*' | head -n 3)
[ -z "$left" ] || fail "killed attempts left: $left"
[ "$resumed" -gt 0 ] || fail "no attempt went on from a checkpoint: $killed kills prove nothing"
echo "$killed kills in $tries attempts, of which $resumed went on from a checkpoint"
finish
