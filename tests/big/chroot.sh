#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The README's two commands as they are written there, in a Debian with nothing but its base: once as root, who gets what is
# missing installed, then as a user without sudo, for whom all is there. Only their environment makes them short: a training of
# 40 steps, and few tests; CHROOT=whole leaves them whole. CHROOT_BASE=DIR takes a copy of that folder (a debootstrap) instead of
# a new one. Needs root, debootstrap and a mirror of Debian.
. "$(dirname "$0")/../cli/_common.sh"
PATH=$PATH:/usr/sbin:/sbin
skip() {
    echo "skipped: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "chroot is root's, and this is not"
command -v debootstrap >/dev/null || [ -n "${CHROOT_BASE-}" ] || skip "there is no debootstrap (Debian: debootstrap)"
unshare --mount true 2>"$here/err" || skip "mounts of its own are not allowed here: $(cat "$here/err")"
root=$here/root
if [ -n "${CHROOT_BASE-}" ]; then
    cp -a "$CHROOT_BASE" "$root" || exit 99
else
    debootstrap --variant=minbase bookworm "$root" "${CHROOT_MIRROR:-http://deb.debian.org/debian}" >"$here/out" 2>&1 ||
        { grep -iq 'failed getting release\|unable to\|could not resolve\|connect' "$here/out" && skip "no mirror of Debian: $(tail -n 1 "$here/out")"; } ||
        { fail "debootstrap: $(tail -n 3 "$here/out")"; finish; }
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
chroot "$root" useradd --create-home newcomer || exit 99

# What a clone has, as a newcomer finds it.
clone "$root/root/switchyard"
cp -R "$root/root/switchyard" "$root/home/newcomer/switchyard" || exit 99
chroot "$root" chown -R newcomer /home/newcomer

# as USER FOLDER COMMAND: in the chroot, in mounts that go with it.
as() {
    unshare --mount --propagation private sh -c '
        root=$1 user=$2 home=$3 command=$4
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit 99
        exec chroot --userspec="$user" "$root" /usr/bin/env -i HOME="$home" USER="$user" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            DEBIAN_FRONTEND=noninteractive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 QUICKSTART_SET="$5" MAKEFLAGS="$6" \
            sh -c "cd $home/switchyard && $command"' sh "$root" "$1" "$2" "$3" "$short_run" "$short_check" >"$here/out" 2>&1 </dev/null
}
short_run='--set train.steps=40'
short_check='TESTS=tests/unit-tests\ tests/cli/train.sh\ tests/mpi/files.sh'
[ "${CHROOT-}" != whole ] || short_run='' short_check=''

# The commands, from the README.
commands=$(sed -n '/^Two commands/,/^What to read/s/^    //p' "$top/README.md")
quickstart=$(printf '%s\n' "$commands" | sed -n 1p)
check=$(printf '%s\n' "$commands" | sed -n 2p)
case $quickstart:$check in
sh\ *quickstart.sh:*make\ -j2\ check) ;;
*) fail "the README has other commands: $commands" ;;
esac

# run_both USER HOME
run_both() {
    as "$1" "$2" "$quickstart" || fail "$1: $quickstart: exit $?: $(tail -n 5 "$here/out")"
    says out '^done\|== done: the run is in runs/g2p-quickstart'
    as "$1" "$2" "$check" || fail "$1: $check: exit $?: $(tail -n 20 "$here/out")"
    says out '^# FAIL:  *0$'
    says out '^# PASS:  *[1-9]'
}

# Without root, and nothing is there: it says what is missing.
if as newcomer /home/newcomer "$quickstart"; then fail "the quickstart works in an empty Debian"; fi
says out 'installing packages needs root or sudo'
says out 'Missing here .*: gcc .*make .*libsqlite3-dev'
run_both root /root
run_both newcomer /home/newcomer
finish
