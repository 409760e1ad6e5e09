#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# switchyard ckpt: what it shows, checks, compares, makes and removes; and checkpoints that are written beside training, which
# are those written while it waits, byte for byte.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/valid.tsv" 8 2
cd "$here" || exit 99
same='--set train.steps=8 --set train.checkpoint_every=2 --set train.keep_checkpoints=0'
exits 0 tiny good $same --set task.words.valid=valid.tsv --set decode.max_length=2
hash=$(hash_in out)
params=good/checkpoints/8/params.safetensors

# ---- beside training and while it waits ----
for ranks in '' '--comm thread --ranks 2 --set mesh.data=2 --set mesh.zero=1' '--comm thread --ranks 2 --set mesh.expert=2'; do
    rm -rf beside waits
    exits 0 tiny beside $same $ranks
    exits 0 tiny waits $same $ranks --set checkpoint.background=false
    for step in 2 4 6 8; do
        for file in params.safetensors state.safetensors meta.json; do
            cmp "beside/checkpoints/$step/$file" "waits/checkpoints/$step/$file" ||
                fail "$ranks: $file of step $step differs from that of a training that waited"
        done
    done
    [ "$(query beside "SELECT group_concat(step) FROM event WHERE kind = 'checkpoint'")" = 2,4,6,8 ] ||
        fail "$ranks: events of checkpoints: $(query beside "SELECT group_concat(step) FROM event WHERE kind = 'checkpoint'")"
    for name in checkpoint_seconds checkpoint_pause_seconds; do
        [ "$(query beside "SELECT count(*) FROM metric WHERE name = 'timing/$name' AND value >= 0")" = 4 ] ||
            fail "$ranks: timing/$name is not there for each checkpoint"
    done
done
exits 0 "$program" plan "$top/bench/tiny.run" --json
with=$(sed 's/.*"rank_bytes":{\([^}]*\)}.*/\1/' out)
persist=$(echo "$with" | sed 's/.*"persist":\([0-9]*\).*/\1/')
echo "$with" | grep -q "\"snapshot\":$persist," || fail "the plan counts no snapshot as large as persist: $with"
exits 0 "$program" plan "$top/bench/tiny.run" --json --set checkpoint.background=false
says out '"snapshot":0,'

# ---- which stay ----
exits 0 tiny every $same --set train.keep_checkpoints=1 --set checkpoint.keep_every=4
[ "$(ls every/checkpoints | sort -n | tr '\n' ' ')" = "4 8 " ] || fail "keep_every leaves $(ls every/checkpoints | tr '\n' ' ')"

# ---- list, show ----
exits 0 "$program" ckpt list good --tsv
[ "$(tail -n 1 out | cut -f 1,4,5)" = "8	best,latest	$hash" ] || fail "list: $(tail -n 1 out)"
[ "$(wc -l <out)" -eq 5 ] || fail "list has $(wc -l <out) lines"
[ "$(tail -n 1 out | cut -f 2)" -eq "$(cat good/checkpoints/8/* | wc -c)" ] || fail "list: bytes $(tail -n 1 out)"
exits 0 "$program" ckpt list good --json
says out '"step":8,"bytes":[0-9]*,"date":"20[-0-9: ]*","marks":"best,latest"'
exits 0 "$program" ckpt show good --step 8 --tsv
grep -q '^target/token_embedder/embedding	F32	\[384,32\]	12288	[01]\.[0-9]*	[0-9.]*$' out || fail "show: $(head -n 3 out)"
exits 0 "$program" ckpt show good/checkpoints/8 --tsv
cp out folder.out
exits 0 "$program" ckpt show good --tsv
cmp out folder.out || fail "show: the folder of the newest differs from the run"

# ---- check: a byte of one tensor ----
exits 0 "$program" ckpt check good
[ "$(grep -c ': whole, ' out)" -eq 8 ] && [ "$(grep -c 'meta.json: whole$' out)" -eq 4 ] || fail "check: $(cat out)"
cp -R good edited
sed 's/"examples":/&1/' good/checkpoints/8/meta.json >edited/checkpoints/8/meta.json
cmp -s good/checkpoints/8/meta.json edited/checkpoints/8/meta.json && fail "meta.json lacks what is edited"
exits 1 "$program" ckpt check edited
says err 'edited/checkpoints/8/meta.json is corrupt: .*edited by hand'
sed 's/,"meta_sha256":"[0-9a-f]*"//' good/checkpoints/8/meta.json >edited/checkpoints/8/meta.json
exits 0 "$program" ckpt check edited
says out 'edited/checkpoints/8/meta.json: has no checksum of its own'
cp -r good damaged
size=$(wc -c <$params)
printf 'x' | dd of=damaged/checkpoints/8/params.safetensors bs=1 seek=$((size - 1)) conv=notrunc 2>/dev/null
exits 1 "$program" ckpt check damaged
one_line_error
says err 'checkpoints/8/params.safetensors is corrupt: .*; damaged: target/token_embedder/embedding$'
[ "$(grep -c ': whole, ' out)" -eq 7 ] || fail "check of a damaged run: $(cat out)"
exits 1 "$program" ckpt check damaged/checkpoints/8
exits 0 "$program" ckpt check damaged/checkpoints/6
# a checkpoint under the name of another, as no load takes it
cp -R good renamed
mv renamed/checkpoints/8 renamed/checkpoints/9
exits 1 "$program" ckpt check renamed
one_line_error
says err 'renamed/checkpoints/9/meta.json is of step 8: the folder was renamed$'
for make in 'ckpt average renamed --steps 6,9 --to' 'ckpt cast renamed --dtype bfloat16 --to' 'pack renamed -o' 'export renamed --format hf --to'; do
    # shellcheck disable=SC2086 # a command
    exits 1 "$program" $make made
    one_line_error
    says err 'is of step 8: the folder was renamed$'
    [ ! -e made ] || fail "$make: something is made of a renamed checkpoint"
done
# a checkpoint without meta.json, and one without weights: the others are compared all the same
cp -R damaged broken
rm broken/checkpoints/2/meta.json broken/checkpoints/4/params.safetensors
exits 1 "$program" ckpt check broken
[ "$(wc -l <err)" -eq 3 ] || fail "not an error for each damaged checkpoint: $(cat err)"
says err 'broken/checkpoints/2 has the name of a checkpoint, but no meta.json'
says err 'broken/checkpoints/4/params.safetensors'
says err 'broken/checkpoints/8/params.safetensors is corrupt'
[ "$(grep -c 'checkpoints/6/.*: whole' out)" -eq 3 ] || fail "check of a run without a meta.json: $(cat out)"
exits 1 "$program" predict damaged
says err 'damaged: target/token_embedder/embedding; try --checkpoint'
exits 1 "$program" ckpt average damaged --steps 6,8 --to never
exits 1 "$program" ckpt cast damaged --dtype bfloat16 --to never
[ ! -e never ] || fail "something was made of a damaged checkpoint"
# made before there were sums of tensors
sed 's/,"meta_sha256":"[0-9a-f]*"//; s/"crc32c":{[^}]*}/"older":{}/' good/checkpoints/6/meta.json >meta && mv meta damaged/checkpoints/6/meta.json
exits 0 "$program" ckpt check damaged/checkpoints/6
exits 0 "$program" predict damaged --checkpoint 6
# another sum beside a file that is whole
sed 's/,"meta_sha256":"[0-9a-f]*"//; s/\("target\/token_embedder\/embedding":\)[0-9]*/\11/' good/checkpoints/4/meta.json >meta && mv meta damaged/checkpoints/4/meta.json
exits 1 "$program" ckpt check damaged/checkpoints/4
says err 'is whole, but meta.json beside it has other sums of its tensors; damaged: target/token_embedder/embedding'

# ---- diff ----
exits 0 "$program" ckpt diff good good/checkpoints/8
[ ! -s out ] || fail "diff of one with itself: $(cat out)"
exits 1 "$program" ckpt diff good/checkpoints/6 good/checkpoints/8 --tsv
grep -q '^target/token_embedder/embedding	values	[0-9]*	[0-9.e-]*	[0-9.e-]*$' out || fail "diff: $(head -n 3 out)"

# ---- average, cast: runs that predict and eval take ----
cut -f 1 valid.tsv >words
exits 0 "$program" ckpt average good --steps 8 --to one
exits 1 "$program" ckpt diff good one --tsv # one has no optimizer state
grep -q '^target' out && fail "the mean of one checkpoint is another: $(grep '^target' out)"
cmp "$params" one/checkpoints/8/params.safetensors || fail "the mean of one checkpoint has other bytes"
exits 0 "$program" ckpt average good --steps 4,8 --to mean
exits 0 "$program" ckpt check mean
exits 0 "$program" eval mean --file valid.tsv
exits 1 "$program" ckpt diff good/checkpoints/4 mean --tsv
half=$(awk -F '\t' '$1 == "target/token_embedder/embedding" { print $4 }' out)
exits 1 "$program" ckpt diff good/checkpoints/4 good/checkpoints/8 --tsv
whole=$(awk -F '\t' '$1 == "target/token_embedder/embedding" { print $4 }' out)
awk -v h="$half" -v w="$whole" 'BEGIN { exit !(w > 0 && 2 * h / w > 0.999 && 2 * h / w < 1.001) }' ||
    fail "the mean is $half from one of two checkpoints that are $whole apart"
exits 1 "$program" ckpt average good --steps 4,8 --to mean
says err 'mean is not empty'
exits 2 "$program" ckpt average good --steps 4,8x --to other
exits 2 "$program" ckpt average good --steps 4,4 --to other
exits 1 "$program" ckpt average good --steps 4,5 --to other
says err 'no checkpoint of step 5; there are: 8, 6, 4, 2'
# No room for the file: nothing is left of the run that was begun.
(trap '' XFSZ && ulimit -f 8 && exec "$program" ckpt average good --steps 4,8 --to torn) >out 2>err && fail "average writes over the limit"
one_line_error
(trap '' XFSZ && ulimit -f 8 && exec "$program" ckpt cast good --dtype float32 --to torn) >out 2>err && fail "cast writes over the limit"
one_line_error
[ -z "$(ls -d torn* 2>/dev/null)" ] || fail "a failure leaves $(ls -d torn*)"
exits 0 "$program" ckpt cast good --dtype bfloat16 --to small
[ "$(wc -c <small/checkpoints/8/params.safetensors)" -lt $((size * 6 / 10)) ] || fail "bfloat16 saves no room"
exits 0 "$program" ckpt cast small --dtype float32 --to wide
exits 0 "$program" ckpt diff small wide
for run in small wide; do
    "$program" predict $run <words >$run.predicted 2>err || fail "predict $run: $(cat err)"
    exits 0 "$program" eval $run --file valid.tsv
    grep ' items, loss ' out >$run.eval
done
cmp small.predicted wide.predicted || fail "parameters in bfloat16 predict something else than those they are widened to"
cmp small.eval wide.eval || fail "parameters in bfloat16 give other losses than those they are widened to"
exits 0 "$program" eval small --file valid.tsv --comm thread --ranks 2 --set mesh.model=2
grep ' items, loss ' out >ranks.eval
cmp small.eval ranks.eval || fail "parameters in bfloat16 are read otherwise on two ranks"
exits 1 tiny small --resume $same
says err 'has no optimizer state'

# ---- prune ----
start busy --set train.steps=1000000 --set train.checkpoint_every=2 --set train.keep_checkpoints=0 --set train.schedule=constant
eventually [ -e busy/checkpoints/4 ]
exits 1 "$program" ckpt prune busy --keep 1
one_line_error
[ -e busy/checkpoints/2 ] || fail "prune removes checkpoints while the run trains"
kill -TERM "$owner"
ended
[ $? -eq 3 ] || fail "busy: exit $got"
cp -r good thin
sed 's/,"meta_sha256":"[0-9a-f]*"//; s/"best_step":[-0-9]*/"best_step":2/' thin/checkpoints/8/meta.json >meta && mv meta thin/checkpoints/8/meta.json
exits 0 "$program" ckpt prune thin --keep 1
[ "$(ls thin/checkpoints | sort -n | tr '\n' ' ')" = "2 8 " ] || fail "prune --keep 1 leaves $(ls thin/checkpoints)"
exits 1 "$program" ckpt prune thin --steps 2,6
says err 'no checkpoint of step 6: nothing was removed'
exits 2 "$program" ckpt prune thin --steps 2,
one_line_error
# On a full disk, which pruning makes room on.
mkdir disk
if unshare --map-root-user --mount true 2>err; then
    # shellcheck disable=SC2016
    exits 0 unshare --map-root-user --mount sh -c 'mount -t tmpfs -o size=64m none disk && cp -r good disk/run && { cat /dev/zero >disk/rest || :; } &&
        ! "$0" train disk/run --resume && "$0" ckpt prune disk/run --keep 1 && [ ! -e disk/run/lock ]' "$program"
    says err 'disk/run/lock (make room'
else
    echo "not tested: a full disk: $(cat err)"
fi
# A checkpoint that is a link to one elsewhere: the link goes, what it leads to stays.
mkdir elsewhere
mv thin/checkpoints/2 elsewhere/2
ln -s "$here/elsewhere/2" thin/checkpoints/2
exits 0 "$program" ckpt prune thin --steps 2
[ -s elsewhere/2/meta.json ] || fail "prune removes files outside of the run"
[ "$(ls -A thin/checkpoints)" = 8 ] || fail "prune of a link leaves $(ls -A thin/checkpoints)"
cp -r elsewhere/2 thin/checkpoints/2
exits 0 "$program" ckpt prune thin --steps 2
# What a save left that was killed is cleared away first.
for state in 'cp -r 8 8.old && rm 8.old/meta.json' 'cp -r 8 8.old' 'mv 8 8.old && cp -r 8.old 8.tmp' 'cp -r 8 8.tmp'; do
    rm -rf left
    cp -r good left
    (cd left/checkpoints && eval "$state")
    exits 0 "$program" ckpt prune left --steps 6,8
    [ "$(ls left/checkpoints | tr '\n' ' ')" = "2 4 " ] || fail "prune after '$state' leaves $(ls left/checkpoints | tr '\n' ' ')"
done
for action in list show check 'diff good'; do
    # shellcheck disable=SC2086
    exits 1 "$program" ckpt $action nowhere
    says err '^switchyard: run directory nowhere: No such file or directory$'
done
[ "$(ls thin/checkpoints)" = 8 ] || fail "prune --steps 2 leaves $(ls thin/checkpoints)"
[ ! -e thin/lock ] || fail "prune leaves its lock"
exits 0 tiny thin --resume $same --set task.words.valid=valid.tsv --set decode.max_length=2
[ "$(hash_in out)" = "$hash" ] || fail "a pruned run does not go on"

# ---- usage ----
exits 2 "$program" ckpt lst good
says err 'did you mean list'
exits 2 "$program" ckpt list good --keep 3
says err 'ckpt list takes no --keep'
exits 2 "$program" ckpt prune good
exits 2 "$program" ckpt diff good
exits 2 "$program" ckpt cast good --dtype float16 --to nowhere
exits 1 "$program" ckpt list nowhere
finish
