#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the data of bench/cmudict.run: English words and their pronunciation without stress, CMUdict 0.7b (BSD-style licence) in
# the split that papers report on, as OUTDIR/train.tsv, dev.tsv and test.tsv, and OUTDIR/phonemes.txt, the vocabulary of targets.
# SOURCE is a folder that holds cmudict-0.7b.test, .train-dev-1-21 and .train-dev-20-21, or a clone of
# https://github.com/microsoft/CNTK; without it the three files are fetched from there. Words of dev.tsv are taken out of
# train.tsv, and what is there twice stays once.
set -eu
. "$(dirname "$0")/_data.sh"

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "$1" = --help ]; then
  echo "usage: ${0##*/} OUTDIR [SOURCE]" >&2
  exit 2
fi
out=$1
folder=${2:-}
repository=https://github.com/microsoft/CNTK
inside=Examples/SequenceToSequence/CMUDict/Data
address=https://raw.githubusercontent.com/microsoft/CNTK/master/$inside
[ -z "$folder" ] || [ -r "$folder/cmudict-0.7b.test" ] || folder=$folder/$inside
[ -z "$folder" ] || [ -r "$folder/cmudict-0.7b.test" ] ||
  fail "$2 has no cmudict-0.7b.test: name a clone of microsoft/CNTK, or a folder with its three files"

# table: lines "WORD  PHONEMES" to "word TAB phonemes", each once, in their order.
table() {
  tr -d '\r' | awk '{ word = tolower($1); sub(/^[^ \t]+[ \t]+/, ""); sub(/[ \t]+$/, ""); row = word "\t" $0 }
    !seen[row]++ { print row }'
}

mkdir -p "$out"
temporary=$(mktemp "$out/cmudict.XXXXXX")
trap 'rm -f "$temporary"' EXIT
trap 'exit 1' HUP INT TERM
for pair in dev:train-dev-1-21 test:test train:train-dev-20-21; do
  get "cmudict-0.7b.${pair#*:}" >"$temporary"
  table <"$temporary" >"$out/${pair%%:*}.tsv.tmp"
done
awk -F '\t' 'NR == FNR { dev[$1]; next } !($1 in dev)' "$out/dev.tsv.tmp" "$out/train.tsv.tmp" >"$temporary"
mv "$temporary" "$out/train.tsv.tmp"
for part in train dev test; do mv "$out/$part.tsv.tmp" "$out/$part.tsv"; done
cut -f 2 "$out/train.tsv" | tr ' ' '\n' | sort -u >"$out/phonemes.txt"

expect 7f23fc2f2a820fc19313c64cd3e1c745e09a15e8c184c3bddd8957036077eea5 \
  bench/cmudict.run "$out/train.tsv" "$out/dev.tsv" "$out/test.tsv"
wc -l "$out/train.tsv" "$out/dev.tsv" "$out/test.tsv"
