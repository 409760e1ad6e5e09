#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run by `make paranoid`: every fuzz target for a part of $PARANOID_SECONDS (60), alike for all, under AddressSanitizer and
# UndefinedBehaviorSanitizer. With clang and its libFuzzer, which follows the code that inputs reach; else with mutate.c.
# Works in the folder `paranoid` of the build; inputs that break a target stay there, and what libFuzzer found besides: the next
# run begins with it (corpus-TARGET), and the few inputs that reach code which those of tests/fuzz/seeds do not are in new/TARGET,
# for `make check` to try always once they are copied to the seeds.
set -eu
LC_ALL=C
export LC_ALL
top=${abs_top_srcdir:?set abs_top_srcdir to the source tree}
build=$PWD
flags="-std=gnu11 -g -O1 -fno-omit-frame-pointer -ffp-contract=off -Wall -Wextra -I$build -I$top/include -I$top/core ${COMPRESSION_CFLAGS-}"
libraries="${COMPRESSION_LIBS-} -lm -pthread"
sanitize=address,undefined
targets='gin move safetensors json run_file records tsv meta sql vocabulary pickle hf_config msgpack zarray t5x'
# shellcheck disable=SC2086
set -- $targets
each=$((${PARANOID_SECONDS:-60} / $#))
mkdir -p paranoid
cd paranoid

compiler=${CC:-cc} driver=$top/tests/fuzz/mutate.c tool=mutate.c
if clang $flags -fsanitize=fuzzer,$sanitize -o probe "$top/tests/fuzz/json.c" "$top"/core/base/*.c $libraries 2>probe.log; then
    compiler=clang driver= tool=libFuzzer sanitize=fuzzer,$sanitize
fi
# What all targets share is compiled once; core/api/no_trainer.c stands for trainer.c in builds for inference alone.
objects=$(echo $sanitize | sed s/fuzzer,/fuzzer-no-link,/)
compile="$compiler $flags -I$top ${SQLITE_CFLAGS-} -fsanitize=$objects -fno-sanitize-recover=all -c -o"
export compile
rm -rf shared.a objects && mkdir objects
find "$top/core" "$top/metrics" -name '*.c' ! -name no_trainer.c | xargs -n 1 -P "$(nproc 2>/dev/null || echo 1)" sh -c \
    '$compile "objects/$(echo "$0" | tr / _).o" "$0"'
ar rcs shared.a objects/*.o
for target in $targets; do
    $compiler $flags -I$top ${SQLITE_CFLAGS-} -fsanitize=$sanitize -fno-sanitize-recover=all -o $target "$top/tests/fuzz/$target.c" \
        $driver shared.a ${SQLITE_LIBS--lsqlite3} $libraries
done
# keep TARGET: of its corpus into new/TARGET what reaches other code than the seeds, the small ones first.
keep() {
    seeds=$top/tests/fuzz/seeds/$1
    rm -rf merged "new/$1" && mkdir -p "new/$1" && cp -R "$seeds" merged && chmod -R u+w merged
    ./$1 -merge=1 -use_counters=0 -max_len=16384 merged corpus-$1 >$1-merge.log 2>&1 || { tail -40 $1-merge.log; exit 1; }
    for input in merged/*; do
        name=${input#merged/}
        [ -e "$seeds/$name" ] || mv "$input" "new/$1/found-$(echo "$name" | cut -c 1-12)"
    done
    echo "new inputs: $(ls "new/$1" | wc -l)"
}
for target in $targets; do
    echo "$target: $each s with $tool"
    if [ -n "$driver" ]; then
        abs_top_srcdir=$top ./$target --seconds $each
    else
        mkdir -p corpus-$target
        ./$target -max_total_time=$each -timeout=120 -artifact_prefix=$target- -print_final_stats=1 corpus-$target \
            "$top/tests/fuzz/seeds/$target" >$target.log 2>&1 || { tail -40 $target.log; exit 1; }
        grep -E 'number_of_executed_units|new_units_added' $target.log
        keep $target
    fi
done
[ -n "$driver" ] || [ -z "$(find new -type f)" ] || cat <<END
To have make check try the new inputs always, in the source tree:
  cp -R $PWD/new/. tests/fuzz/seeds/ && sh scripts/make-source-lists.sh && autoreconf -fi
END
