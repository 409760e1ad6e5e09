#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What configure refuses, each with a reason: fast mathematics however it comes in, 32 bits, an SQLite that is not there or
# does not start, the build machine's SQLite in a cross build, MPI without shared libraries, a prefix with a space, zlib and zstd that are asked for and not there. And an SQLite
# in a folder of its own.
. "$(dirname "$0")/../cli/_common.sh"
compiler=${CC:-cc}
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
x86_64)
    refuses 'training needs pointers of 8 bytes. Leave -m32' --host=i686-pc-linux-gnu CC='gcc -m32 -nostdlib -static -Wl,-e,0'
    refuses 'pointers of 8 bytes' --host=x86_64-pc-linux-gnux32 CC='gcc -mx32 -nostdlib -static -Wl,-e,0'
    ;;
*) echo "skipped: 32 bits (this is no x86-64)" ;;
esac
if command -v arm-linux-gnueabihf-gcc >/dev/null; then
    refuses 'less than 64 bits (arm' --host=arm-linux-gnueabihf CC=arm-linux-gnueabihf-gcc
else
    echo "skipped: 32-bit ARM (arm-linux-gnueabihf-gcc is not installed)"
fi
refuses 'there is no /nowhere/include/sqlite3.h' --with-sqlite=/nowhere
refuses 'needs the folder of an installation' --with-sqlite
refuses 'a program with SQLite .* does not compile, link, start' SQLITE_CFLAGS=-I. SQLITE_LIBS=-lm
refuses '--with-zlib: no program with zlib.h' --with-zlib ZLIB_CFLAGS=-I. ZLIB_LIBS=-lnowhere
refuses '--with-zstd: no program with zstd.h' --with-zstd ZSTD_CFLAGS=-I. ZSTD_LIBS=-lnowhere
refuses '--with-zlib=maybe: expected auto, yes or no' --with-zlib=maybe
# One that is asked for and cannot be.
refuses 'there is white space in it' --prefix="$here/a b"
refuses '--with-mpi and --disable-shared' --disable-shared --with-mpi
# A cross build asks the pkg-config of this machine for no library.
mkdir "$here/bin"
printf '#!/bin/sh\ncase $* in *atleast-pkgconfig*) exit 0 ;; esac\necho "$*" >>%s\nexit 1\n' "$here/asked" >"$here/bin/pkg-config"
chmod +x "$here/bin/pkg-config"
for build in '--build=x86_64-pc-linux-gnu --host=riscv64-linux-gnu CC=gcc' ''; do
    rm -rf "$here/asked" "$here/build"
    mkdir "$here/build"
    # shellcheck disable=SC2086 # several words
    (cd "$here/build" && PATH=$here/bin:$PATH "$top/configure" -q --without-mpi $build >"$here/out" 2>&1) ||
        fail "configure $build: $(tail -3 "$here/out")"
    case $build in
    '') grep -q zlib "$here/asked" || fail "configure does not ask pkg-config for zlib" ;;
    *) [ ! -e "$here/asked" ] || fail "a cross build asks this machine's pkg-config: $(cat "$here/asked")" ;;
    esac
done
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
    (cd "$here/build2" && "$top/configure" -q --without-mpi --with-sqlite="$here/own" && make -s -j2) >"$here/out" 2>&1 ||
        fail "--with-sqlite: $(tail -5 "$here/out")"
    ldd "$here/build2/switchyard" 2>/dev/null | grep -q "$here/own/lib/libsqlite3" ||
        fail "the program does not find the SQLite it was built with"
    # Another one that comes first when the program starts.
    echo 'int sqlite3_libversion_number(void) { return 3007017; } const char *sqlite3_libversion(void) { return "3.7.17"; }' \
        >"$here/old.c"
    $compiler -shared -fPIC -o "$here/old.so" "$here/old.c" || fail "old.so is not made"
    data "$here/train.tsv" 50 1
    (SWITCHYARD_BACKEND_PATH= LD_PRELOAD=$here/old.so "$here/build2/switchyard" train "$top/bench/tiny.run" --run-dir "$here/run" \
        --set train.steps=1 --set task.words.train="$here/train.tsv" >"$here/out" 2>&1)
    [ $? -eq 1 ] || fail "an old SQLite is taken: $(cat "$here/out")"
    says out 'the SQLite library that was found at start is version 3.7.17, and 3.25 is needed'
else
    echo "skipped: an SQLite of one's own (none in the usual places to copy)"
fi
finish
