#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# 10,000 predictions by 8 threads on one handle, under ThreadSanitizer: no data race, and the answers are the command's.
. "$(dirname "$0")/../cli/_common.sh"
data "$here/train.tsv" 300 1
cd "$here" || exit 99
exits 0 tiny run --set train.steps=40
cut -f 1 train.tsv | sort -u >words
"$program" predict run --quiet <words | paste words - >answers
flags='-O1 -g -fsanitize=thread'
mkdir tsan
(cd tsan && "$top/configure" -q CC="${CC:-cc}" CFLAGS="$flags" --disable-training --disable-shared --enable-static &&
    "${MAKE:-make}" -s -j2) >out 2>&1 || fail "a build with ThreadSanitizer: $(tail -n 3 out)"
# shellcheck disable=SC2086
${CC:-cc} $flags -I"$top/include" "$top/tests/cli/many_calls.c" -o many_calls tsan/.libs/libswitchyard.a -lm -ldl -lpthread ||
    fail "many_calls does not link"
unset SWITCHYARD_BACKEND_PATH
TSAN_OPTIONS=halt_on_error=1 ./many_calls run answers 10000 4 >out 2>err || fail "many_calls: $(cat out err)"
cat out
finish
