#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# System calls that fail: a full disk, an I/O error, no more files or permission, at the n-th call of each kind, while a
# run trains and while commands read it. Needs strace. In `make check` a sample; in `make bigcheck` each, some 2,000 of 0.6 s.
. "${abs_top_srcdir:?}/tests/faults/_faults.sh"

command -v strace >/dev/null || { echo "SKIP: no strace here (apt-get install strace)"; exit 77; }
strace -f --seccomp-bpf -qq -e trace=read -o "$here/trace" true 2>/dev/null ||
    { echo "SKIP: strace cannot trace processes here"; exit 77; }

# hit_call: whether the last command met the fault.
hit_call() {
    grep -q INJECTED "$here/trace"
}
hit=hit_call

arm() {
    fault="$call $1: $error"
    inject="$limit strace -f --seccomp-bpf -qq -e trace=$call -e inject=$call:error=$error:when=$1 -o $here/trace"
}

# all_of CALL:ERROR FUNCTION WHAT
all_of() {
    call=${1%:*} error=${1#*:}
    each "$2" "$3"
}

for kind in pwrite64:ENOSPC write:ENOSPC write:EIO fsync:EIO fdatasync:EIO rename:EIO read:EIO pread64:EIO \
    getdents64:EIO openat:EMFILE openat:EACCES mkdir:ENOSPC unlink:EIO newfstatat:ESTALE; do
    all_of "$kind" train training
done
for kind in read:EIO openat:EMFILE getdents64:EIO write:ENOSPC; do
    all_of "$kind" predicts predict
    all_of "$kind" evaluates eval
done
[ "$injected" -ge 60 ] || fail "only $injected calls were made to fail"
echo "$injected calls failed, $survived commands ended well all the same"
finish
