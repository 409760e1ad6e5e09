#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Actions of a user's own: the example that doc/action-plugins.md shows ends runs, counts over a resume and speaks for all
# ranks; what cannot be an action is refused before there is a run directory; one that fails does no harm.
. "$(dirname "$0")/_common.sh"
[ -n "${SY_TEST_PLUGINS:-}" ] || { echo "SKIP: built without shared libraries, so there are no plugins"; exit 77; }
data "$here/train.tsv" 300 1
data "$here/valid.tsv" 20 2
cd "$here" || exit 99
mkdir plugins
cp "${SWITCHYARD_BACKEND_PATH%%:*}"/switchyard-*.so plugins
cp "$SY_TEST_PLUGINS/switchyard_action-threshold.so" plugins
for name in magic major newer layout tiny renamed idle failing loud lines absent; do
    cp "$SY_TEST_PLUGINS/action_hostile.so" plugins/switchyard_action-$name.so
done
head -c 3000 plugins/switchyard_action-threshold.so >plugins/switchyard_action-cut.so
export SWITCHYARD_BACKEND_PATH="$here/plugins"
mine='--set action.mine.kind=plugin --set action.mine.plugin=threshold'
same='--set train.steps=8 --set train.schedule=constant'

# ---- the example ----
exits 0 tiny steps $same $mine --set 'action.mine.arguments=["below=1000", "times=3"]'
says out '^plugin of \[action.mine\]: loss was below 1000 for the 3th time, says rank 0'
says out '^plugin: loss was below 1000 for the 2th time'
[ "$(cat steps/status)" = "done" ] || fail "status $(cat steps/status) after a plugin ended the run"
[ "$(ls steps/checkpoints)" = 3 ] || fail "ended with checkpoint $(ls steps/checkpoints) instead of 3"
[ "$(query steps "SELECT count(*) FROM event WHERE kind = 'plugin'")" = 2 ] || fail "no events of a plugin"
[ "$(query steps "SELECT group_concat(step) FROM event WHERE kind = 'plugin'")" = 1,2 ] || fail "events of other steps"
hash=$(hash_in out)
exits 0 tiny apart $same --set train.steps=3
[ "$(hash_in out)" = "$hash" ] || fail "a plugin changed the weights"

# What it counts is in checkpoints.
exits 0 tiny twice $same $mine --set train.steps=2 --set 'action.mine.arguments=["below=1000", "times=4"]'
exits 0 tiny twice --resume $same $mine --set 'action.mine.arguments=["below=1000", "times=4"]'
says out 'for the 4th time'
[ "$(ls twice/checkpoints | tr '\n' ' ')" = "2 4 " ] || fail "counted anew: $(ls twice/checkpoints)"

# Of an evaluation, by its value alone.
exits 0 tiny words $same $mine --set task.words.valid=valid.tsv --set train.evaluate_every=2 --set decode.max_length=2 \
    --set 'action.mine.arguments=["metric=wer", "below=1.5"]'
says out '^plugin of \[action.mine\]: wer was below 1.5'
[ "$(ls words/checkpoints)" = 2 ] || fail "the evaluation: $(ls words/checkpoints)"

# One rank speaks for all.
exits 0 tiny ranks $same $mine --comm thread --ranks 2 --set mesh.data=2 \
    --set 'action.mine.arguments=["below=1000", "times=2", "rank=1"]'
says out 'says rank 1'
[ "$(ls ranks/checkpoints)" = 2 ] || fail "ranks: $(ls ranks/checkpoints)"

# ---- what is refused ----
refused() {
    exits 1 tiny "refused-$1" $same --set action.mine.kind=plugin --set action.mine.plugin="$1"
    one_line_error
    says err "$2"
    [ ! -e "refused-$1" ] || fail "$1: there is a run directory"
}
refused magic 'is not a switchyard plugin (magic 00000007'
refused major 'action plugin major: .*(ABI 9.1, this host 0.1) speaks another major version'
refused newer 'needs a newer host'
refused layout 'built with structures of another size'
refused tiny 'has a descriptor that is too short'
refused renamed 'calls itself by another name than its file'
refused idle 'has no function to run'
refused absent 'has no symbol sy_action_absent'
refused cut 'the file is cut short'
refused nobody 'no switchyard_action-nobody.so in'
refused ../evil 'a name has lower-case letters'
exits 1 tiny argument $same $mine --set 'action.mine.arguments=["depth=3"]'
one_line_error
says err 'plugin threshold of \[action.mine\] does not open: argument "depth=3" is none of'
[ ! -e argument ] || fail "there is a run directory"
exits 0 "$program" backends
! grep -q action out || fail "actions are no backends"

# ---- what goes wrong later ----
exits 0 tiny failing $same --set action.mine.kind=plugin --set action.mine.plugin=failing
says out '^done after 8 steps'
[ "$(grep -c 'failing failed: the device fell off the bus' err)" = 1 ] || fail "a failure is not one warning: $(cat err)"
[ "$(query failing "SELECT step FROM event WHERE kind = 'action'")" = 1 ] || fail "a warning of another step"
exits 0 tiny loud $same --set action.mine.kind=plugin --set action.mine.plugin=loud
says out '^done after 8 steps'
exits 0 tiny loud --resume $same --set train.steps=9 --set action.mine.kind=plugin --set action.mine.plugin=loud
exits 0 tiny lines $same --set action.mine.kind=plugin --set action.mine.plugin=lines
says out '^plugin: one line?and another$'
! grep -v '^[0-9-]* [0-9:]* ' lines/log >untimed || fail "lines of the log without a time: $(cat untimed)"
[ -e lines/closed ] || fail "a plugin whose context is NULL was not closed"
finish
