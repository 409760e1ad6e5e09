#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# System calls that fail: a full disk, an I/O error, no more files or permission, at the n-th call of each kind, while a
# run trains and while commands read it. Needs strace. In `make check` a sample.
. "${abs_top_srcdir:?}/tests/faults/_faults.sh"

command -v strace >/dev/null || { echo "SKIP: no strace here (apt-get install strace)"; exit 77; }
strace -f --seccomp-bpf -qq -e trace=read -o "$here/trace" true 2>/dev/null ||
    { echo "SKIP: strace cannot trace processes here"; exit 77; }

# hit_call: whether the last command met the fault.
hit_call() {
    grep -q INJECTED "$here/trace"
}
hit=hit_call

# each CALL ERROR FUNCTION WHAT: runs FUNCTION with the n-th CALL failing with ERROR, until no call is left.
each() {
    call=$1 error=$2
    shift 2
    n=1
    while :; do
        inject="strace -f --seccomp-bpf -qq -e trace=$call -e inject=$call:error=$error:when=$n -o $here/trace"
        "$1" "$call $n: $error, $2" || break
        n=$(next "$n")
        [ "$failures" -lt 10 ] || break
    done
}

train() { train_fails "$1"; }
predicts() { answers_fail "$1" "$here/answers" "$program" predict "$here/whole"; }
evaluates() { answers_fail "$1" "$here/rates" "$program" eval "$here/whole" --file "$here/valid.tsv"; }

for fault in pwrite64:ENOSPC write:ENOSPC write:EIO fsync:EIO fdatasync:EIO rename:EIO read:EIO pread64:EIO \
    getdents64:EIO openat:EMFILE openat:EACCES mkdir:ENOSPC unlink:EIO newfstatat:ESTALE; do
    each "${fault%:*}" "${fault#*:}" train training
done
for fault in read:EIO openat:EMFILE getdents64:EIO write:ENOSPC; do
    each "${fault%:*}" "${fault#*:}" predicts predict
    each "${fault%:*}" "${fault#*:}" evaluates eval
done
[ "$injected" -ge 60 ] || fail "only $injected calls were made to fail"
echo "$injected calls failed, $survived commands ended well all the same"
finish
