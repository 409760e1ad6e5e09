#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tokenize with every kind of vocabulary, against the Python package's ids where the SentencePiece plugin was built; a
# run with a vocabulary for each side, which keeps copies of their files and goes by them.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99

# tokenize TEXT ARGUMENTS...: its answer to the text (printf's format) in $here/out.
tokenize() {
    text=$1
    shift
    # shellcheck disable=SC2059
    printf "$text" | "$program" tokenize "$@" >"$here/out" 2>"$here/err" || fail "tokenize $*: $(cat "$here/err")"
}

# answers TEXT: $here/out is exactly that (printf's format).
answers() {
    # shellcheck disable=SC2059
    printf "$1" | cmp -s - "$here/out" || fail "expected '$1', got: $(od -c "$here/out" | head -5)"
}

# ---- a byte order mark is no part of the text ----
tokenize 'ab\n'
mv out without
tokenize '\357\273\277ab\n'
cmp -s out without || fail "a byte order mark has ids: $(cat out)"

# refuses STATUS TEXT INPUT ARGUMENTS...
refuses() {
    status=$1 why=$2 text=$3
    shift 3
    # shellcheck disable=SC2059
    printf "$text" | "$program" tokenize "$@" >"$here/out" 2>"$here/err"
    got=$?
    [ "$got" -eq "$status" ] || fail "exit $got instead of $status: tokenize $*"
    says err "$why"
}

# ---- bytes ----
tokenize 'ab c\n\nx\0\377'
answers '100 101 35 102\ta b <0x20> c\n\t\n123 3 258\tx <0x00> <0xFF>\n'
tokenize 'na\303\257ve  caf\303\251\n\n'
mv out ids
exits 0 "$program" tokenize --decode
[ ! -s out ] || fail "no input gave an output"
"$program" tokenize --decode <ids >out || fail "ids of tokenize are not taken"
answers 'na\303\257ve  caf\303\251\n\n'
tokenize '358 259 100 1 101\n' --decode --set vocabulary.extra_ids=100
answers 'a\n'
tokenize '4 9999999 -1 0 100' --decode
answers '\001a\n'
refuses 1 'line 2: "x7" is no id' '3\nx7\n' --decode
refuses 1 'line 1: "99999999999" is no id' '99999999999' --decode
refuses 1 'line 1: "3,4" is no id' '3,4' --decode
refuses 2 'vocabulary.file: this kind has no file' '' --set vocabulary.file=x
refuses 2 'vocabulary.file is empty' '' --set vocabulary.kind=words

# ---- words and characters of a file, one for each side ----
printf 'the\ncat\nsat\n' >words
printf 'a\nc\nt\n \n\303\251\n' >letters
cat >two.run <<'END'
[vocabulary]
kind = "characters"
file = "letters"
[vocabulary.targets]
kind = "words"
file = "words"
extra_ids = 2
END
tokenize 'cat \303\251\377z\n' two.run
answers '4 3 5 6 7 2 2\tc a t <0x20> \303\251 <unk> <unk>\n'
tokenize 'the  cat sat\nno <extra_id_0>\n' two.run --targets
answers '3 4 5\tthe cat sat\n2 7\t<unk> <extra_id_0>\n'
tokenize '3 4 6 7 2\n' two.run --targets --decode
answers 'the cat <extra_id_1> <extra_id_0> \342\201\207\n'
refuses 2 '\[vocabulary.inputs\]: there is \[vocabulary\]' '' two.run --set vocabulary.inputs.kind=bytes
printf 'the\nthe\n' >twice
refuses 1 'twice:2: the same token as in line 1' '' --set vocabulary.kind=words --set vocabulary.file=twice
refuses 1 'none: No such file' '' --set vocabulary.kind=words --set vocabulary.file=none

# ---- a run keeps its vocabularies ----
data train.tsv 200 1
printf '%s\n' a b c d e f g h >letters
printf '%s\n' A B C D E F G H >words
vocabularies='--set vocabulary.kind=characters --set vocabulary.file=letters --set vocabulary.targets.kind=words
    --set vocabulary.targets.file=words'
train() {
    # shellcheck disable=SC2086
    "$program" train "$top/bench/tiny.run" $vocabularies --set task.words.train=train.tsv --set model.vocab_size=11 \
        --set train.checkpoint_every=2 --quiet "$@"
}
exits 2 train --run-dir small --set model.vocab_size=10
says err 'model.vocab_size = 10 is less than the 11 ids of the vocabulary'
[ ! -e small ] || fail "a run directory in spite of a vocabulary that does not fit"
exits 0 train --run-dir run --set train.steps=2
cmp -s letters run/vocabulary || fail "run/vocabulary is no copy"
cmp -s words run/vocabulary.targets || fail "run/vocabulary.targets is no copy"
printf 'cab\n' >line
"$program" predict run <line >before || fail "predict fails"
sed 's/\xe2\x81\x87/?/g' before | grep -q '^[A-H? ]*$' || fail "predict writes what is no word: $(cat before)"
"$program" tokenize run <line >ids || fail "tokenize RUN_DIR fails"
printf '5 3 4\tc a b\n' | cmp -s - ids || fail "tokenize RUN_DIR: $(cat ids)"
mv letters gone
printf '%s\n' H G F E D C B A >words
"$program" predict run <line >after || fail "predict fails without the original files"
cmp -s before after || fail "predict reads the original files, not the copies"
mv gone letters
exits 1 train --run-dir run --resume --set train.steps=4
says err 'is not the vocabulary that the run was trained with'
exits 0 train --run-dir run --resume --set train.steps=4 --set vocabulary.targets.file=run/vocabulary.targets

# ---- SentencePiece ----
spm=$top/tests/spm
model="--set vocabulary.kind=sentencepiece --set vocabulary.file=$spm/seqio_test_26.model"
exits 0 "$program" backends
! grep -q sentencepiece out || fail "backends takes the plugin of a vocabulary for one of its own"
if [ -e "${SWITCHYARD_BACKEND_PATH%%:*}/switchyard-sentencepiece.so" ]; then
    # shellcheck disable=SC2086
    "$program" tokenize $model --set vocabulary.extra_ids=100 <"$spm/lines.txt" | cut -f 1 >ids || fail "tokenize fails"
    cmp ids "$spm/ids.txt" || fail "other ids than those of the Python package"
    # shellcheck disable=SC2086
    tokenize 'hello <extra_id_0>\n\n\000\377x\n' $model --set vocabulary.extra_ids=100
    answers '3 20 4 9 9 7 125\t\342\226\201 h e l l o <extra_id_0>\n\t\n3 2\t\342\226\201 <unk>\n'
    # shellcheck disable=SC2086
    tokenize '20 4 9 9 7 125 1 20\n5 126 -1\n' $model --set vocabulary.extra_ids=100 --decode
    answers 'hello <extra_id_0>\na \342\201\207  \342\201\207 \n'
    head -c 100000 "$spm/seqio_test_26.model" >cut.model
    refuses 1 'cut.model: not a SentencePiece model' '' --set vocabulary.kind=sentencepiece --set vocabulary.file=cut.model
    SWITCHYARD_VERIFY_MODELS=$spm
    export SWITCHYARD_VERIFY_MODELS
    exits 0 "$program" verify "$top/tests/golden/data"
    ! grep -q ^skip out || fail "cases are skipped though the plugin is there"
    if python3 -c 'import sentencepiece' 2>/dev/null; then
        python3 "$spm/compare.py" "$program" "$spm/seqio_test_26.model" >compared || fail "$(tail -3 compared)"
    else
        echo "skipped: 10,000 lines against the Python package sentencepiece, which is not there"
    fi
else
    echo "skipped: SentencePiece, whose plugin was not built (libsentencepiece-dev)"
fi
mkdir none
for plugin in "${SWITCHYARD_BACKEND_PATH%%:*}"/switchyard-cpu.so; do ln -s "$plugin" none/; done
# shellcheck disable=SC2086
SWITCHYARD_BACKEND_PATH=$here/none refuses 1 'no switchyard-sentencepiece.so in .*install libsentencepiece-dev' '' $model
finish
