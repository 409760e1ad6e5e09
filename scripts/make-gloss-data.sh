#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the data of bench/glosses-pretrain.run and bench/glosses.run from the glosses of WordNet 3.0 (WordNet licence): what its
# 117,659 meanings are, each in one of 45 categories (noun act, verb motion, ...). In OUTDIR:
#   text.txt                        a gloss a line, lower case, punctuation apart: all but those of valid.tsv and test.tsv
#   train.tsv valid.tsv test.tsv    gloss TAB category, about 2,000, 1,800 and 5,300 lines
#   words.txt                       the vocabulary: words that are five times in text.txt, words of the categories
# FOLDER holds data.noun, data.verb, data.adj and data.adv; without it they are taken from Debian's package wordnet-base, which
# is downloaded, not installed.
set -eu
. "$(dirname "$0")/_data.sh"

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "$1" = --help ]; then
  echo "usage: ${0##*/} OUTDIR [FOLDER]" >&2
  exit 2
fi
out=$1
folder=${2:-/usr/share/wordnet}
temporary=
trap '[ -z "$temporary" ] || rm -rf "$temporary"' EXIT
trap 'exit 1' HUP INT TERM

if [ ! -r "$folder/data.noun" ]; then
  [ $# -eq 1 ] || fail "$folder has no data.noun: name the folder of WordNet's data files"
  temporary=$(mktemp -d)
  (cd "$temporary" && apt-get -qq download wordnet-base && dpkg-deb -x wordnet-base*.deb .) ||
    fail "cannot download Debian's wordnet-base: unpack WordNet 3.0 and name its folder dict"
  folder=$temporary/usr/share/wordnet
fi

mkdir -p "$out"
# A line of these files: offset, number of the category, ..., | gloss. The offset decides where a gloss goes, so that each
# machine makes the same files.
for kind in noun verb adj adv; do cat "$folder/data.$kind"; done | awk -v out="$out" '
  BEGIN {
    n = split("adj all,adj person,adv all,noun tops,noun act,noun animal,noun artifact,noun attribute,noun body," \
      "noun cognition,noun communication,noun event,noun feeling,noun food,noun group,noun location,noun motive," \
      "noun object,noun person,noun phenomenon,noun plant,noun possession,noun process,noun quantity,noun relation," \
      "noun shape,noun state,noun substance,noun time,verb body,verb change,verb cognition,verb communication," \
      "verb competition,verb consumption,verb contact,verb creation,verb emotion,verb motion,verb perception," \
      "verb possession,verb social,verb stative,verb weather,adj participle", category, ",")
  }
  /^ / { next }
  {
    gloss = tolower(substr($0, index($0, " | ") + 3))
    gsub(/[^a-z0-9 ]/, " & ", gloss)
    gsub(/ +/, " ", gloss)
    gsub(/^ | $/, "", gloss)
    if (gloss == "") next
    place = $1 * 31 % 997
    file = place < 45 ? "test" : place < 60 ? "valid" : place < 77 ? "train" : ""
    if (file != "") print gloss "\t" category[$2 + 1] >(out "/" file ".tsv")
    if (place >= 60) print gloss >(out "/text.txt")
  }'
{
  tr ' ' '\n' <"$out/text.txt" | sort | uniq -c | awk '$1 >= 5 { print $2 }'
  cut -f 2 "$out/train.tsv" | tr ' ' '\n'
} | sort -u >"$out/words.txt"
wc -l "$out/text.txt" "$out/train.tsv" "$out/valid.tsv" "$out/test.tsv" "$out/words.txt"
