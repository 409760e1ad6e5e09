#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What configure refuses, each with a reason: fast mathematics however it comes in, 32 bits, an SQLite that is not there or
# does not start, the build machine's SQLite in a cross build, MPI without shared libraries, a prefix with a space, zlib and zstd
# that are asked for and not there. And an SQLite in a folder of its own, a prefix that a link leads to, and the container recipes
# in a clone that was built in.
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

refuses 'ffast-math, its parts and -Ofast change results' CC='gcc -ffast-math'
refuses 'ffast-math, its parts' CPPFLAGS=-ffinite-math-only
refuses 'ffast-math, its parts' CFLAGS='-O2 -fassociative-math -fno-signed-zeros -fno-trapping-math'
refuses 'ffast-math, its parts' CFLAGS='-O2 -fno-signed-zeros'
refuses 'ffast-math, its parts' LDFLAGS=-Ofast
refuses 'ffast-math, its parts' CFLAGS='-O2 -mrecip=all'
if command -v clang >/dev/null; then
    for flag in -fno-honor-nans -fapprox-func -fdenormal-fp-math=preserve-sign; do # it defines nothing for them
        refuses 'ffast-math, its parts' CC=clang CFLAGS="-O2 $flag"
    done
    refuses 'ffp-model other than strict' CC=clang CFLAGS='-O2 -ffp-model=precise' # turns contraction on
else
    echo "skipped: flags that clang alone has (it is not installed)"
fi
refuses 'ffp-contract other than off changes results' CFLAGS='-O2 -ffp-contract=fast'
refuses 'ffp-contract other than off' CPPFLAGS='-ffp-contract=on'
# A script as compiler hides its flags, but not what it defines.
printf '#!/bin/sh\nexec gcc -ffast-math "$@"\n' >"$here/fast"
chmod +x "$here/fast"
refuses 'the compiler runs with -ffast-math or a part of it' CC="$here/fast"
# Flags that come in after configure: config.h refuses what a compiler defines, CUDA sources have their wrapper.
echo '#include "config.h"' >"$here/empty.c"
$compiler -I"${abs_top_builddir:?}" -c -o "$here/empty.o" "$here/empty.c" || fail "config.h does not compile"
case $(uname -m) in
x86_64)
    $compiler -I"$abs_top_builddir" -mfpmath=387 -c -o "$here/empty.o" "$here/empty.c" 2>"$here/out" && fail "config.h takes -mfpmath=387"
    says out 'more bits than a float has'
    ;;
esac
$compiler -I"$abs_top_builddir" -ffast-math -c -o "$here/empty.o" "$here/empty.c" 2>"$here/out" && fail "config.h takes -ffast-math"
says out 'ffast-math and its parts change results'
sh "$top/build-aux/nvcc-wrap.sh" true -O2 -fmad=false || fail "nvcc-wrap.sh refuses what configure gives it"
for flags in '-fmad=false -use_fast_math' '-fmad=false --ftz=true' '-fmad true' -O2; do
    # shellcheck disable=SC2086 # several words
    sh "$top/build-aux/nvcc-wrap.sh" true $flags 2>"$here/out" && fail "nvcc-wrap.sh takes $flags"
    says out 'changes results'
done
# With a stand-in for nvcc, which nobody calls.
refuses 'use_fast_math changes results: take it out of NVCC and NVCCFLAGS' NVCC=/bin/true NVCCFLAGS=-use_fast_math
case $(uname -m) in
x86_64)
    refuses 'training needs pointers of 8 bytes. Leave -m32' --host=i686-pc-linux-gnu CC='gcc -m32 -nostdlib -static -Wl,-e,0'
    refuses 'pointers of 8 bytes' --host=x86_64-pc-linux-gnux32 CC='gcc -mx32 -nostdlib -static -Wl,-e,0'
    refuses 'more bits than a float has' CFLAGS=-mfpmath=387
    refuses 'add -msse2 -mfpmath=sse' --disable-training --host=i686-pc-linux-gnu CC='gcc -m32 -nostdlib -static -Wl,-e,0'
    ;;
*) echo "skipped: 32 bits (this is no x86-64)" ;;
esac
if command -v arm-linux-gnueabihf-gcc >/dev/null; then
    refuses 'less than 64 bits (arm' --host=arm-linux-gnueabihf CC=arm-linux-gnueabihf-gcc
else
    echo "skipped: 32-bit ARM (arm-linux-gnueabihf-gcc is not installed)"
fi
refuses '--with-sqlite=/nowhere: there is no such folder' --with-sqlite=/nowhere
refuses "there is no $here/include/sqlite3.h" --with-sqlite=..
refuses 'needs the folder of an installation' --with-sqlite
refuses 'a program with SQLite .* does not compile, link, start' SQLITE_CFLAGS=-I. SQLITE_LIBS=-lm
refuses '--with-zlib: no program with zlib.h' --with-zlib ZLIB_CFLAGS=-I. ZLIB_LIBS=-lnowhere
refuses '--with-zstd: no program with zstd.h' --with-zstd ZSTD_CFLAGS=-I. ZSTD_LIBS=-lnowhere
refuses '--with-zlib=maybe: expected auto, yes or no (.* PKG_CONFIG_PATH, or ZLIB_CFLAGS and ZLIB_LIBS)' --with-zlib=maybe
refuses '--with-cuda=/opt/cuda: expected auto, yes or no (.* NVCC=' --with-cuda=/opt/cuda
refuses '--without-sqlite: .* --disable-training' --without-sqlite
# One that is asked for and cannot be.
refuses '--with-sqlite and --disable-training' --disable-training --with-sqlite="$here"
refuses 'there is white space in it' --prefix="$here/a b"
refuses '--with-mpi and --disable-shared' --disable-shared --with-mpi
refuses '--enable-cpu=plugin and --disable-shared' --disable-shared --enable-cpu=plugin
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

# configured ARGUMENTS...: in $here/build.
configured() {
    rm -rf "$here/build"
    mkdir "$here/build"
    (cd "$here/build" && "$top/configure" -q "$@" >"$here/out" 2>&1) || fail "configure $*: $(tail -3 "$here/out")"
}

# makefile NAME VALUE: what a variable of the configured Makefile is.
makefile() {
    grep -qx "$1 = $2" "$here/build/Makefile" || fail "not $2: $(grep "^$1 = " "$here/build/Makefile")"
}

# ---- an MPI whose compiler quotes its folders, as Intel's does, and one of another name, as Cray's ----
if command -v mpicc >/dev/null; then
    cat >"$here/bin/quoting" <<END
#!/bin/sh
[ "\$1" = -show ] || exec mpicc "\$@"
mpicc -show | sed 's/-\\([IL]\\)\\([^ ]*\\)/-\\1"\\2"/g'
echo '-Xlinker -rpath -Xlinker "/odd/lib"'
END
    chmod +x "$here/bin/quoting"
    configured --with-mpi --without-cuda MPICC="$here/bin/quoting"
    makefile MPI_LIBS '.*-Wl,-rpath -Wl,/odd/lib'
    makefile MPIEXEC '\(.*/\)\{0,1\}mpiexec'
else
    echo "skipped: an MPI whose compiler quotes its folders (mpicc is not installed)"
fi

# ---- folders, and programs named without one ----
mkdir "$here/cuda"
printf '#!/bin/sh\nexit 1\n' >"$here/cuda/mynvcc"
chmod +x "$here/cuda/mynvcc"
(PATH=$here/cuda:$PATH && configured --without-mpi NVCC=mynvcc --prefix="$here/x,y" --exec-prefix="$here/x,y/arch" --includedir=/usr/include)
makefile NVCC mynvcc
makefile LIBDIR_FROM_BIN ../lib
for line in 'PATH  *$prefix/arch/bin' 'LD_LIBRARY_PATH $prefix/arch/lib' 'CPATH  *$prefix/.*\.\./usr/include'; do
    grep -q "^prepend-path $line\$" "$here/build/packaging/modulefile.tcl" || fail "$(cat "$here/build/packaging/modulefile.tcl")"
done

# ---- an SQLite of one's own, found when the program starts, too ----
library=$(ls /usr/lib/*/libsqlite3.so /usr/lib64/libsqlite3.so /usr/lib/libsqlite3.so 2>/dev/null | head -1)
if [ -e /usr/include/sqlite3.h ] && [ -n "$library" ]; then
    mkdir -p "$here/own/include" "$here/own/lib" "$here/build2"
    cp /usr/include/sqlite3.h "$here/own/include"
    cp -L "$library" "$here/own/lib/libsqlite3.so.0"
    ln -s libsqlite3.so.0 "$here/own/lib/libsqlite3.so"
    mkdir "$here/place"
    ln -s place "$here/link"
    (cd "$here/build2" && "$top/configure" -q --without-mpi --with-sqlite=../own --prefix="$here/link//by" \
        ZSTD_LIBS='-lzstd -Wl,-rpath,/odd/lib' && make -s -j2) >"$here/out" 2>&1 ||
        fail "--with-sqlite: $(tail -5 "$here/out")"
    ldd "$here/build2/switchyard" 2>/dev/null | grep -q "$here/own/lib/libsqlite3" ||
        fail "the program does not find the SQLite it was built with"
    for file in switchyard .libs/libswitchyard.so; do
        readelf -d "$here/build2/$file" | grep -q '/odd/lib' || fail "$file has no run path to its zstd"
    done
    # Installed where a link leads: the folder of its plugins, which configure fixed, is the one beside the program.
    make -s -C "$here/build2" install >"$here/out" 2>&1 || fail "make install: $(tail -n 3 "$here/out")"
    for path in "$here/place/by/bin" "$here/link/by/bin" "$here//link//by/./bin"; do
        exits 0 env -u SWITCHYARD_BACKEND_PATH "$path/switchyard" backends
        says out '^cpu  .*compute'
        ! grep -q refused "$here/out" || fail "$path/switchyard refuses plugins of its own: $(cat "$here/out")"
    done
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

# ---- recipes build from a clone that was built in ----
clone "$here/clone"
(cd "$here/clone" && ./configure -q --without-mpi --without-cuda &&
    "${MAKE:-make}" -s core/base/text.lo) >"$here/out" 2>&1 || fail "a build in the source folder: $(tail -3 "$here/out")"
for recipe in Dockerfile switchyard.def; do
    cp -R "$here/clone" "$here/$recipe"
    grep -o 'if \[ -e config.status .*' "$top/packaging/$recipe" >"$here/clean" || fail "$recipe does not clean"
    mkdir "$here/$recipe-build"
    (cd "$here/$recipe" && sh -e "$here/clean" && cd "$here/$recipe-build" && "$here/$recipe/configure" -q --without-mpi --without-cuda) \
        >"$here/out" 2>&1 || fail "$recipe in a clone that was built in: $(tail -3 "$here/out")"
    [ -z "$(find "$here/$recipe" -name '*.o' -o -name '*.lo')" ] || fail "$recipe leaves objects in the sources"
done
finish
