#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where /proc is not mounted, as in some containers and chroots: a training, its going on on two ranks, and what looks at the
# machine. Needs a mount of its own, which root may have.
. "$(dirname "$0")/_common.sh"
[ -z "${SYI_NO_PROC-}" ] || { mount -t tmpfs none /proc || exit 99; }
if [ -z "${SYI_NO_PROC-}" ] && [ -d /proc/self ]; then
    unshare --mount --propagation private mount -t tmpfs none /proc 2>"$here/err" ||
        { echo "skipped: /proc cannot be covered here: $(cat "$here/err")"; exit 77; }
    SYI_NO_PROC=1 unshare --mount --propagation private sh "$0"
    exit $?
fi
[ ! -d /proc/self ] || { echo "/proc is there" >&2; exit 99; }
good_run
exits 0 tiny half --set train.steps=2 --set train.checkpoint_every=2 --set metrics.every=1
exits 0 tiny half $good --resume --comm thread --ranks 2
[ -n "$hash" ] && [ "$(hash_in out)" = "$hash" ] || fail "other weights on two ranks: $(cat out)"
exits 0 "$program" backends
says out '^cpu  *.* kernels; '
exits 0 "$program" doctor --json
says out '"problems":0'
exits 0 "$program" plan "$top/bench/tiny.run"
# A run that was killed: its lock is that of a process that is gone.
start killed --set train.steps=1000000 --set train.checkpoint_every=2
eventually test -e "$here/killed/checkpoints/2"
kill -KILL "$owner"
ended
exits 0 tiny killed --resume --set train.steps="$(($(newest killed) + 2))" --set train.checkpoint_every=2
# Criterion finds its tests by /proc: none is no success.
tests=${abs_top_builddir:?}/tests/unit-tests
if [ -x "$tests" ]; then
    exits 77 "$tests"
    says err 'Criterion finds no test'
else
    echo "not tested: unit tests without /proc; they are not built"
fi
finish
