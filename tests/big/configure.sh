#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What configure refuses, each with a reason: fast mathematics however it comes in, 32 bits, an SQLite that is not there or
# does not start, the build machine's SQLite in a cross build, zlib and zstd that are asked for and not there. And an SQLite
# in a folder of its own.
. "$(dirname "$0")/../cli/_common.sh"
unset CC CFLAGS CPPFLAGS LDFLAGS SQLITE_CFLAGS SQLITE_LIBS PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR

# refuses WHY ARGUMENTS...
refuses() {
    why=$1
    shift
    rm -rf "$here/build"
    mkdir "$here/build"
    (cd "$here/build" && "$top/configure" -q --without-mpi "$@" >"$here/out" 2>&1) && fail "configure takes $*"
    says out "$why"
}

refuses 'ffast-math or a part of it' CC='gcc -ffast-math'
refuses 'ffast-math or a part of it' CPPFLAGS=-ffinite-math-only
refuses 'ffast-math or a part of it' CFLAGS='-O2 -fassociative-math -fno-signed-zeros -fno-trapping-math'
refuses 'ffast-math and -Ofast change results' LDFLAGS=-Ofast
case $(uname -m) in
x86_64) refuses 'pointers of 8 bytes' --host=i686-pc-linux-gnu CC='gcc -m32 -nostdlib -static -Wl,-e,0' ;;
*) echo "skipped: 32 bits (this is no x86-64)" ;;
esac
refuses 'there is no /nowhere/include/sqlite3.h' --with-sqlite=/nowhere
refuses 'needs the folder of an installation' --with-sqlite
refuses 'a program with SQLite .* does not compile, link, start' SQLITE_CFLAGS=-I. SQLITE_LIBS=-lm
refuses '--with-zlib: no program with zlib.h' --with-zlib ZLIB_CFLAGS=-I. ZLIB_LIBS=-lnowhere
refuses '--with-zstd: no program with zstd.h' --with-zstd ZSTD_CFLAGS=-I. ZSTD_LIBS=-lnowhere
refuses '--with-zlib=maybe: expected auto, yes or no' --with-zlib=maybe
if command -v aarch64-linux-gnu-gcc >/dev/null; then
    refuses 'SQLite' --host=aarch64-linux-gnu CC=aarch64-linux-gnu-gcc
else
    echo "skipped: a cross build (aarch64-linux-gnu-gcc is not installed)"
fi

# ---- an SQLite of one's own, found when the program starts, too ----
library=$(ls /usr/lib/*/libsqlite3.so /usr/lib64/libsqlite3.so /usr/lib/libsqlite3.so 2>/dev/null | head -1)
if [ -e /usr/include/sqlite3.h ] && [ -n "$library" ]; then
    mkdir -p "$here/own/include" "$here/own/lib" "$here/build2"
    cp /usr/include/sqlite3.h "$here/own/include"
    cp -L "$library" "$here/own/lib/libsqlite3.so.0"
    ln -s libsqlite3.so.0 "$here/own/lib/libsqlite3.so"
    (cd "$here/build2" && "$top/configure" -q --without-mpi --with-sqlite="$here/own" && make -s metrics/schema_sql.h && make -s -j2 switchyard) >"$here/out" 2>&1 ||
        fail "--with-sqlite: $(tail -5 "$here/out")"
    ldd "$here/build2/switchyard" 2>/dev/null | grep -q "$here/own/lib/libsqlite3" ||
        fail "the program does not find the SQLite it was built with"
else
    echo "skipped: an SQLite of one's own (none in the usual places to copy)"
fi
finish
