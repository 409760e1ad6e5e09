#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A build without training and with the CPU backend inside: it answers as the whole program does, refuses what it does not
# have, needs no SQLite, and a program that links its archive stays small.
. "$(dirname "$0")/../cli/_common.sh"
data "$here/train.tsv" 300 1
cd "$here" || exit 99
exits 0 tiny run --set train.steps=40
cut -f 1 train.tsv >words
"$program" predict run --beams 3 --scores --quiet <words >answers
"$program" score run --quiet <train.tsv >scores
mkdir small
(cd small && "$top/configure" -q CC="${CC:-cc}" CFLAGS='-O2' --disable-training --disable-shared --enable-static &&
    "${MAKE:-make}" -s -j2) >out 2>&1 || fail "a build without training: $(tail -n 3 out)"
small=$here/small/switchyard
unset SWITCHYARD_BACKEND_PATH
"$small" predict run --beams 3 --scores --quiet <words 2>err | cmp - answers || fail "other answers: $(cat err)"
"$small" score run --quiet <train.tsv 2>err | cmp - scores || fail "other scores: $(cat err)"
for command in train eval metrics top report explain plan verify diff replay bench; do
    exits 2 "$small" $command run
    one_line_error
    says err 'built without training'
done
${CC:-cc} -O2 -I"$top/include" "$top/examples/pronounce.c" -o pronounce small/.libs/libswitchyard.a -no-pie -Wl,--gc-sections -s -lm -ldl -lpthread ||
    fail "a program with the archive does not link"
./pronounce run abc >out 2>err || fail "pronounce: $(cat err)"
[ "$(wc -l <out)" -eq 3 ] || fail "pronounce: $(cat out)"
ldd pronounce | grep -Ev 'linux-vdso|libm\.|libc\.|libdl\.|libpthread\.|ld-linux' && fail "libraries besides libc, libm and pthreads"
text=$(size pronounce | awk 'NR == 2 { print $1 }')
echo "a program that links the archive has $text bytes of text"
[ "$text" -lt 1000000 ] || fail "$text bytes of text are over a megabyte"

# ---- memory: the weights and less than a tenth of them, 6 MiB for a process with its programs taken for granted ----
exits 0 tiny large --set train.steps=1 --set data.batch_size=8 --set train.microbatches=1 --set model.d_model=512 --set model.d_ff=4096 --set model.num_heads=8 \
    --set model.head_dim=64 --set decode.batch_size=1 --set checkpoint.background=false
exits 0 "$program" pack large -o large.sy
mkfifo lines
"$small" predict large.sy --quiet --threads 1 <lines >got 2>err &
process=$!
exec 3>lines
echo abc >&3
while [ ! -s got ] && kill -0 $process 2>/dev/null; do sleep 0.1; done
resident=$(awk '/^VmHWM/ { print $2 }' /proc/$process/status)
exec 3>&-
wait $process
weights=$(($(wc -c <large.sy) / 1024))
echo "a model of $weights KiB takes $resident KiB"
[ "$resident" -lt $((weights * 11 / 10 + 6144)) ] || fail "a model of $weights KiB takes $resident KiB: $(cat err)"
${CC:-cc} -O2 -I"$top/include" "$top/examples/train_step.c" -o train_step small/.libs/libswitchyard.a -lm -ldl -lpthread
exits 1 ./train_step run 1 new
says err 'built without training'
finish
