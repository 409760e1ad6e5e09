#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the data of bench/pronunciation.run: words and their IPA pronunciations in ten languages, the medium tables of the
# SIGMORPHON 2021 shared task 1 (CC BY-SA 3.0, from Wiktionary), as OUTDIR/LANGUAGE.train.tsv, .valid.tsv and .test.tsv, and
# OUTDIR/phonemes.txt, the vocabulary of targets. SOURCE is a clone of https://github.com/sigmorphon/2021-task1, or its folder
# data; without it the files are fetched from there.
set -eu
LC_ALL=C
export LC_ALL

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "$1" = --help ]; then
  echo "usage: ${0##*/} OUTDIR [SOURCE]" >&2
  exit 2
fi
out=$1
source=${2:-}
address=https://raw.githubusercontent.com/sigmorphon/2021-task1/main/data/medium
languages="arm_e bul dut fre geo hbs_latn hun jpn_hira kor vie_hanoi"
# Of the thirty files one after the other, in the order of their names.
known=556db0aa3e4084ec30580cac73acedb037223d90e57383d99c6892b6ad8800b5

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

for folder in "$source/data/medium" "$source/medium" "$source"; do
  [ -n "$source" ] && [ -r "$folder/bul_train.tsv" ] && medium=$folder && break
done
[ -z "$source" ] || [ -n "${medium:-}" ] || fail "$source has no data/medium/bul_train.tsv: name a clone of sigmorphon/2021-task1"

# get NAME: the file on standard output.
get() {
  if [ -n "$source" ]; then
    cat "$medium/$1"
  elif command -v curl >/dev/null 2>&1; then
    curl -fsSL "$address/$1"
  else
    wget -qO- "$address/$1"
  fi || fail "cannot get $1: clone https://github.com/sigmorphon/2021-task1 and name the folder"
}

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

if command -v sha256sum >/dev/null 2>&1; then
  sum=$(cat "$out"/*.t*.tsv "$out"/*.valid.tsv | sha256sum | cut -d ' ' -f 1)
  [ "$sum" = "$known" ] || echo "${0##*/}: these are other data than bench/pronunciation.run was written for" >&2
fi
wc -l "$out"/*.train.tsv | tail -1
