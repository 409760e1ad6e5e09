#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Nothing in a run directory is lost: what cannot be read is not taken for nothing, checkpoints without their run are left
# alone, data that changed are noticed, and a checkpoint that cannot be written ends no run that can go on.
. "$(dirname "$0")/_common.sh"
good_run

# refused STATUS TEXT COMMAND...: one error with TEXT, and the checkpoints in $kept are still those of "good".
refused() {
    status=$1 text=$2
    shift 2
    exits "$status" "$@"
    [ "$(grep -vc '^switchyard: resume: ' err)" -eq 1 ] || fail "not one error: $(cat err)"
    says err "$text"
    diff -r good/checkpoints "$kept" >/dev/null || fail "the checkpoints changed: $(diff -r good/checkpoints "$kept")"
}

# ---- a path that SQLite does not take ----
deep=$(printf '%0250d/%0250d' 0 0)
# shellcheck disable=SC2086
exits 2 tiny "$deep" $good
says err 'would have a path of [0-9]* bytes, and SQLite takes 504: choose a shorter one$'
[ ! -e "${deep%/*}" ] || fail "a run directory that was refused is there"

# ---- checkpoints that cannot be read now ----
cp -R good run
mv run/checkpoints elsewhere
kept=elsewhere
for target in nowhere checkpoints; do
    ln -s $target run/checkpoints
    refused 1 'cannot read folder .*run/checkpoints: ' tiny run --resume $good --set train.steps=6
    refused 1 'cannot read folder .*run/checkpoints: ' "$program" predict run
    refused 1 'cannot read folder .*run/checkpoints: ' "$program" eval run --file valid.tsv --checkpoint best
    rm run/checkpoints
done
: >run/checkpoints
refused 1 'run/checkpoints: Not a directory' tiny run --resume $good
rm run/checkpoints run/run.conf
ln -s ../elsewhere run/checkpoints
kept=run/checkpoints

# ---- checkpoints of which nobody knows the run ----
for resume in '' --resume; do
    refused 2 'run holds checkpoints (the newest of step 4), but no run.conf' tiny run $good $resume
    [ ! -e run/run.conf ] || fail "a refused training writes run.conf"
done
"$program" config good/run.conf >run/run.conf
exits 0 tiny run --resume $good
[ "$(hash_in out)" = "$hash" ] || fail "with its run.conf back the run has other weights"
ln -sf run.conf run/run.conf
refused 2 'run holds a run already' tiny run $good
refused 2 'run.conf: Too many levels' tiny run --resume $good

# ---- a checkpoint without its meta.json is none that counts, and none to write over ----
rm -rf run
cp -R good run
rm run/checkpoints/4/meta.json
cp -R run/checkpoints before
damaged='run/checkpoints/4 has the name of a checkpoint, but no meta.json.*put its meta.json back, or move it out of'
for left in one none; do
    [ "$left" = one ] || rm run/checkpoints/2/meta.json before/2/meta.json
    [ "$left" = one ] || damaged='run/checkpoints/[24] has the name of a checkpoint'
    exits 1 tiny run --resume $good --set train.steps=6
    says err "$damaged"
    mv run/run.conf aside.conf
    exits 1 tiny run $good
    says err "$damaged"
    mv aside.conf run/run.conf
    exits 1 "$program" ckpt check run
    says err "$damaged"
    diff -r before run/checkpoints >/dev/null || fail "a damaged checkpoint: what is there changed"
done
rm -r run/checkpoints/4
cp good/checkpoints/2/meta.json run/checkpoints/2/
exits 0 tiny run --resume $good
[ "$(hash_in out)" = "$hash" ] || fail "with meta.json back the run has other weights"
rm -r before

# ---- what a kill left is cleared away, also by a start that saves nothing ----
rm -rf run
cp -R good run
mkdir run/checkpoints/1.tmp
: >run/checkpoints/1.tmp/state.safetensors
mv run/checkpoints/2 run/checkpoints/2.old
exits 0 tiny run --resume $good
[ "$(ls run/checkpoints | tr '\n' ' ')" = "2 4 " ] || fail "checkpoints: $(ls run/checkpoints)"

# ---- data that changed ----
more="$good --set train.steps=6"
kept=run/checkpoints
mv train.tsv whole.tsv
head -n 290 whole.tsv >train.tsv
refused 1 "task.words.train: $here/train.tsv has changed since the checkpoint of step 4: it had 300 lines.*now 290 lines" \
    tiny run --resume $more
says err 'or set data.allow_changes=true'
sort whole.tsv >train.tsv
refused 1 'it had 300 lines.*now 300 lines' tiny run --resume $more --comm thread --ranks 2
cp whole.tsv copy.tsv
cp -R run same
exits 0 tiny same --resume $more --set task.words.train=copy.tsv
grep -q 'has changed' out && fail "the same contents under another name have changed: $(cat out)"
cp -R run other
exits 0 tiny other --resume $more --set data.allow_changes=true
says out 'task.words.train: .*train.tsv has changed'
[ "$(query other "SELECT count(*) FROM event WHERE kind = 'data' AND text LIKE 'task.words.train:%'")" = 1 ] ||
    fail "the change is not in the database"
exits 0 tiny other --resume $more --set train.steps=7 # the newest checkpoint knows the new contents
mv whole.tsv train.tsv
cp -R run old
sed 's/,"meta_sha256":"[0-9a-f]*"//; s/"train":/"before":/' run/checkpoints/4/meta.json >old/checkpoints/4/meta.json
exits 0 tiny old --resume $more
says out 'the checkpoint does not say which data it was trained on'
evaluated="$more --set task.words.valid=valid.tsv"
exits 0 tiny valid $evaluated
head -n 10 train.tsv >valid.tsv
exits 0 tiny valid --resume $evaluated --set train.steps=8
says out 'task.words.valid: valid.tsv has changed since the checkpoint of step 6: it had 20 lines'
evaluated="$evaluated --set task.more.valid=more.tsv"
head -n 5 train.tsv >more.tsv
exits 0 tiny valid --resume $evaluated --set train.steps=9
grep -q 'changed since' out && fail "another task has changed none: $(cat out)"
head -n 6 train.tsv >more.tsv
exits 0 tiny valid --resume $evaluated --set train.steps=10
says out 'task.NAME.valid, which count as one here, have changed since the checkpoint of step 9: it had 15 lines.*now 16'

# ---- checkpoints that cannot be written: a folder that nobody may remove stands where one is made ----
exits 0 tiny undisturbed --set train.steps=8
whole=$(hash_in out)
for ranks in '' '--comm thread --ranks 2 --set mesh.data=2'; do
    rm -rf full
    mkdir -p full/checkpoints/4.tmp/mine
    exits 0 tiny full --quiet --set train.steps=8 --set train.checkpoint_every=4 --set checkpoint.background=false $ranks
    [ "$(hash_in out)" = "$whole" ] || fail "$ranks: a checkpoint that was not written changed the weights"
    says err 'warning: checkpoint of step 4 was not written: .*; training goes on and tries again after step 5'
    says full/log 'tries again after step 5'
    [ -e full/checkpoints/4.tmp/mine ] || fail "$ranks: what a user put there was removed"
    for step in 5 8; do
        [ -e full/checkpoints/$step/meta.json ] || fail "$ranks: no checkpoint of step $step: $(ls full/checkpoints)"
    done
    [ "$(query full "SELECT group_concat(kind || ' ' || step) FROM event WHERE kind IN ('save_failed', 'checkpoint')")" = \
        'save_failed 4,checkpoint 5,checkpoint 8' ] || fail "$ranks: events: $(query full 'SELECT kind, step FROM event')"
    [ "$(cat full/status)" = "done" ] || fail "$ranks: status $(cat full/status)"
done
# Beside training it is tried again after that step or a later one.
for ranks in '' '--comm thread --ranks 2 --set mesh.data=2'; do
    rm -rf beside
    mkdir -p beside/checkpoints/4.tmp/mine
    exits 0 tiny beside --quiet --set train.steps=100 --set train.checkpoint_every=4 --set train.keep_checkpoints=0 $ranks
    says err 'warning: checkpoint of step 4 was not written: .*; training goes on and tries again after step [0-9]* at the latest$'
    [ "$(query beside "SELECT group_concat(kind || ' ' || step) FROM event WHERE kind = 'save_failed'")" = 'save_failed 4' ] ||
        fail "$ranks: events: $(query beside 'SELECT kind, step FROM event')"
    # once: the steps beside the second try are no reason for a third
    [ "$(query beside "SELECT count(*) < 2 FROM event WHERE kind = 'checkpoint' AND step % 4 > 0")" = 1 ] ||
        fail "$ranks: more than one try again: $(query beside "SELECT group_concat(step) FROM event WHERE kind = 'checkpoint'")"
    [ "$(query beside "SELECT count(*) > 2 FROM event WHERE kind = 'checkpoint'")" = 1 ] || fail "$ranks: no save later"
done
rm -rf full
mkdir -p full/checkpoints/8.tmp/mine
exits 1 tiny full --quiet --set train.steps=8 --set train.checkpoint_every=4
[ "$(grep -v warning err | wc -l)" -eq 1 ] || fail "not one error: $(cat err)"
says err '^switchyard: checkpoint of step 8 was not written: .*; earlier ones are kept, --resume goes on from the newest of them$'
[ "$(cat full/status)" = failed ] || fail "status $(cat full/status) after a last checkpoint that was not written"
rm -r full/checkpoints/8.tmp
exits 0 tiny full --resume --quiet --set train.steps=8 --set train.checkpoint_every=4
[ "$(hash_in out)" = "$whole" ] || fail "resumed after a last checkpoint that was not written: other weights"
# The first one: there is none to go on from.
rm -rf full
mkdir -p full/checkpoints/2.tmp/mine
exits 1 tiny full --quiet --set train.steps=2 --set train.checkpoint_every=0
says err '^switchyard: checkpoint of step 2 was not written: .*; there is no earlier one, so --resume starts fresh$'

# Each that fails says truly when the next try is, whether that is one again or one that is due anyway.
for step in 6 7 9 12; do mkdir -p full/checkpoints/$step.tmp/mine; done
exits 0 tiny full --quiet --resume --set train.steps=16 --set train.checkpoint_every=3 --set checkpoint.background=false
tries=$(sed -n 's/.*checkpoint of step \([0-9]*\) was not written: .* tries again after step \([0-9]*\) at the latest$/\1>\2/p' err | tr '\n' ' ')
[ "$tries" = '6>7 7>9 9>12 12>15 ' ] || fail "steps that a save failed at, and that it was said to be tried again after: $tries"
[ -e full/checkpoints/15/meta.json ] || fail "no checkpoint of step 15: $(ls full/checkpoints)"

# ---- a run directory that is moved away: the run goes on in a new one of that name, and so does --resume ----
start moved --set train.steps=1000000 --set train.checkpoint_every=5
eventually [ -e moved/checkpoints/5/meta.json ]
mv moved away
eventually grep -q 'warning: .*/moved/run.conf was moved or removed: it is written again' moved.err
kill -TERM "$owner"
ended
ends moved stopped 3 $?
at=$(newest moved)
exits 0 tiny moved --resume --set train.steps=$((at + 1))
says out "going on from the checkpoint of step $at"
finish
