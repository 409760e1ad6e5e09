#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the data of bench/pronunciation.run: words and their IPA pronunciations in ten languages, the medium tables of the
# SIGMORPHON 2021 shared task 1 (CC BY-SA 3.0, from Wiktionary), as OUTDIR/LANGUAGE.train.tsv, .valid.tsv and .test.tsv, and
# OUTDIR/phonemes.txt, the vocabulary of targets. SOURCE is a clone of https://github.com/sigmorphon/2021-task1, or its folder
# data; without it the files are fetched from there.
set -eu
. "$(dirname "$0")/_data.sh"

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "$1" = --help ]; then
  echo "usage: ${0##*/} OUTDIR [SOURCE]" >&2
  exit 2
fi
out=$1
repository=https://github.com/sigmorphon/2021-task1
address=https://raw.githubusercontent.com/sigmorphon/2021-task1/main/data/medium
languages="arm_e bul dut fre geo hbs_latn hun jpn_hira kor vie_hanoi"
folder=
if [ $# -eq 2 ]; then
  for folder in "$2/data/medium" "$2/medium" "$2"; do [ ! -r "$folder/bul_train.tsv" ] || break; done
  [ -r "$folder/bul_train.tsv" ] || fail "$2 has no data/medium/bul_train.tsv: name a clone of sigmorphon/2021-task1"
fi

mkdir -p "$out"
for language in $languages; do
  for part in train dev test; do
    name=$part
    [ $part = dev ] && name=valid
    get "${language}_$part.tsv" >"$out/$language.$name.tsv.tmp"
    mv "$out/$language.$name.tsv.tmp" "$out/$language.$name.tsv"
  done
done
cut -f 2 "$out"/*.train.tsv | tr ' ' '\n' | sort -u | sed '/^$/d' >"$out/phonemes.txt.tmp"
mv "$out/phonemes.txt.tmp" "$out/phonemes.txt"

# The thirty files in the order of their names.
expect 556db0aa3e4084ec30580cac73acedb037223d90e57383d99c6892b6ad8800b5 \
  bench/pronunciation.run "$out"/*.t*.tsv "$out"/*.valid.tsv
wc -l "$out"/*.train.tsv | tail -1
