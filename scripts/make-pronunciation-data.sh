#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the data of bench/pronunciation.run: words and their IPA pronunciations in ten languages, the medium tables of the
# SIGMORPHON 2021 shared task 1 (CC BY-SA 3.0, from Wiktionary), as OUTDIR/LANGUAGE.train.tsv, .valid.tsv and .test.tsv.
# Words are letters with spaces between them, as pronunciations are phonemes: a space of a word is "_", a Korean syllable its
# two or three letters. OUTDIR/letters.txt and OUTDIR/phonemes.txt are the vocabularies; that of letters begins with the names of
# the languages. SOURCE is a clone of https://github.com/sigmorphon/2021-task1, or its folder data; without it the files are
# fetched from there.
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

# spell: lines "word TAB pronunciation" to "w o r d TAB pronunciation". awk sees bytes here: a letter is one and those after it
# that begin none in UTF-8. The syllables of Korean, U+AC00 and so on, are counted through by first letter, vowel and last letter.
spell() {
  awk '
    BEGIN { FS = OFS = "\t"; for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i }
    function utf8(c) { return sprintf("%c%c%c", 224 + int(c / 4096), 128 + int(c / 64) % 64, 128 + c % 64) }
    function letters(c,    s) {
      if (length(c) != 3) return c
      s = (code[substr(c, 1, 1)] - 224) * 4096 + (code[substr(c, 2, 1)] - 128) * 64 + code[substr(c, 3, 1)] - 128 - 44032
      if (s < 0 || s >= 11172) return c
      return utf8(4352 + int(s / 588)) " " utf8(4449 + int(s % 588 / 28)) (s % 28 ? " " utf8(4519 + s % 28) : "")
    }
    {
      gsub(/ /, "_", $1)
      gsub(/[^\200-\277]/, " &", $1)
      n = split($1, character, " ")
      $1 = letters(character[1])
      for (i = 2; i <= n; i++) $1 = $1 " " letters(character[i])
      print
    }'
}

# tokens FIELD: what stands between spaces in a column of the training files, each once.
tokens() {
  cut -f "$1" "$out"/*.train.tsv | tr ' ' '\n' | sort -u | sed '/^$/d'
}

mkdir -p "$out"
for language in $languages; do
  for part in train dev test; do
    name=$part
    [ $part = dev ] && name=valid
    get "${language}_$part.tsv" >"$out/words.tmp"
    spell <"$out/words.tmp" >"$out/$language.$name.tsv.tmp"
    mv "$out/$language.$name.tsv.tmp" "$out/$language.$name.tsv"
  done
done
rm "$out/words.tmp"
{
  for language in $languages; do echo "${language%%_*}"; done
  tokens 1
} >"$out/letters.txt.tmp"
tokens 2 >"$out/phonemes.txt.tmp"
for name in letters phonemes; do mv "$out/$name.txt.tmp" "$out/$name.txt"; done

# The thirty files in the order of their names.
expect 609a26f2513e0e647717c58d40f29f13656efdacefae2753fe4a330373ce4b21 \
  bench/pronunciation.run "$out"/*.t*.tsv "$out"/*.valid.tsv
wc -l "$out"/*.train.tsv | tail -1
