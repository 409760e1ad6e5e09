#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the quickstart's data: English words and their pronunciations (ARPAbet, no stress), as TSV tasks
# OUTDIR/train.tsv, dev.tsv and test.tsv, one line per pronunciation. The source is the dictionary of the Debian and
# Ubuntu package pocketsphinx-en-us. A hash of the word decides where it goes (5 % test, 5 % dev), so all
# pronunciations of a word are in one file and no word is left out.
set -eu
. "$(dirname "$0")/_data.sh"

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "$1" = --help ]; then
  echo "usage: ${0##*/} OUTDIR [DICTIONARY]" >&2
  exit 2
fi
out=$1
source=${2:-/usr/share/pocketsphinx/model/en-us/cmudict-en-us.dict}

# What the files were when this script was written.
source_sum=9de99dd2a24b63c653c1c30ab39388d05185cae36d0875f15c319b4ad6dc43af
train_sum=9555c8fd9bb1726816738b67bbda06dfacfd53e0ab4f816d003314fe0b32340a
dev_sum=716b333e78d79865827f3c5e04d176e9ba4554a31aaaea1ac41e5d560d03e448
test_sum=1f02ac277c378ad3e752dc50fb179725c7f5cc4103a98c55cc756c9073090b32

[ -r "$source" ] || fail "cannot read $source; install it (apt-get install pocketsphinx-en-us) or name a dictionary"

mkdir -p "$out"
for part in train dev test; do : >"$out/$part.tsv.tmp"; done

# A line of the dictionary is `word PHONEME ...`, a further pronunciation `word(2) PHONEME ...`; other editions have
# upper case, digits of stress, and comments after `;;;` or ` #`, which all go. Words with other
# characters than a to z and the apostrophe are no English words (about 1,100 of 126,000) and in no file.
awk -v out="$out" '
  BEGIN {
    letters = "\047abcdefghijklmnopqrstuvwxyz"
    for (i = 1; i <= length(letters); i++) code[substr(letters, i, 1)] = i
  }
  {
    sub(/\r$/, "")
    sub(/ #.*$/, "")
    word = tolower($1)
    sub(/\([0-9]+\)$/, "", word)
    if (word !~ /^[a-z\047]+$/ || NF < 2) next
    phonemes = $2
    for (i = 3; i <= NF; i++) phonemes = phonemes " " $i
    gsub(/[0-9]/, "", phonemes)
    if (((word, phonemes) in seen)) next
    seen[word, phonemes] = 1
    hash = 7
    for (i = 1; i <= length(word); i++) hash = (hash * 31 + code[substr(word, i, 1)]) % 1000003
    bucket = hash % 20
    part = bucket == 0 ? "test" : bucket == 1 ? "dev" : "train"
    print word "\t" phonemes > (out "/" part ".tsv.tmp")
  }' "$source"

# Only when all is there do the files get their names.
source_now=$(sum <"$source")
if [ "$source_now" = "$source_sum" ]; then
  for part in train dev test; do
    eval "expected=\$${part}_sum"
    if [ "$(sum <"$out/$part.tsv.tmp")" != "$expected" ]; then
      echo "${0##*/}: $part.tsv came out different from the known source; is this awk broken?" >&2
      rm -f "$out/train.tsv.tmp" "$out/dev.tsv.tmp" "$out/test.tsv.tmp"
      exit 1
    fi
  done
  checked="checksums as expected"
else
  echo "${0##*/}: warning: $source is another edition (SHA-256 $source_now) than the one" \
    "the published numbers come from; going on, results may differ" >&2
  checked="source of another edition, results not checked"
fi
for part in train dev test; do
  if [ ! -s "$out/$part.tsv.tmp" ]; then
    echo "${0##*/}: no words for $part.tsv in $source; is it a dictionary of \`word PHONEME ...' lines?" >&2
    rm -f "$out/train.tsv.tmp" "$out/dev.tsv.tmp" "$out/test.tsv.tmp"
    exit 1
  fi
done

echo "source  $source_now  $source"
for part in train dev test; do
  mv "$out/$part.tsv.tmp" "$out/$part.tsv"
  words=$(cut -f 1 "$out/$part.tsv" | sort -u | wc -l)
  lines=$(wc -l <"$out/$part.tsv")
  echo "$part  $((words)) words, $((lines)) lines  $(sum <"$out/$part.tsv")  $out/$part.tsv"
done
echo "$checked"
