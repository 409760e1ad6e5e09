#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What predict reads and writes: an input that waits for answers, one that ends badly, an output that cannot be written;
# and predict and eval of a run that was trained on another number of ranks.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/test.tsv" 40 2
cd "$here" || exit 99
exits 0 tiny run --comm thread --ranks 2 --set mesh.expert=2 --threads 1 --set task.words.test=test.tsv
cut -f 1 train.tsv >words
"$program" predict run --scores --quiet <words >answers 2>err || fail "predict: $(cat err)"
[ "$(wc -l <answers)" -eq 300 ] || fail "300 words have $(wc -l <answers) answers"
[ "$(sort -u answers | wc -l)" -gt 20 ] || fail "answers are too much alike to tell lines apart"

# ---- an answer is one line for any reader ----
for i in $(seq 300); do echo ab; done | "$program" predict run --temperature 4 --quiet >drawn 2>err || fail "predict: $(cat err)"
[ "$(wc -l <drawn)" -eq 300 ] && [ "$(tr -d '\r\t' <drawn | wc -c)" -eq "$(wc -c <drawn)" ] ||
    fail 'answers have carriage returns or TABs within'

# ---- an input that waits: what is there is answered, whatever comes later ----
lines() {
    [ "$(wc -l <waiting)" -eq "$1" ]
}
for ranks in '' '--comm thread --ranks 2 --threads 1'; do
    mkfifo input
    "$program" predict run --scores --quiet $ranks <input >waiting 2>err &
    owner=$!
    exec 3>input
    head -n 1 words >&3
    eventually lines 1
    sed -n '2,3p' words >&3
    eventually lines 3
    sed -n '4,100p' words >&3
    eventually lines 100
    sed -n '101,299p' words >&3
    printf '%s' "$(tail -n 1 words)" >&3 # a line is whole when its end is there, or the input's
    eventually lines 299
    exec 3>&-
    ended || fail "an input that waits: exit $? ($(cat err))"
    cmp -s waiting answers || fail "$ranks: an input that comes in pieces has other answers: $(diff waiting answers | head -n 4)"
    [ ! -s err ] || fail "an input that waits: $(cat err)"
    rm input
done

# ---- few lines on several ranks: a batch is as small as they can share ----
# (Where leaves are as long as by default.)
few='--set reproducible.min_leaf=64 --set decode.batch_size=32 --threads 1 --quiet'
for n in 1 2 3; do
    head -n $n train.tsv >some.tsv
    cut -f 1 some.tsv >some
    "$program" predict run $few --scores <some >some.answers 2>err || fail "$n lines: $(cat err)"
    "$program" score run $few <some.tsv >some.scores 2>err || fail "score, $n lines: $(cat err)"
    for way in '2' '2 --set mesh.expert=2' '4 --set mesh.data=4' '4 --set mesh.expert=2'; do
        "$program" predict run $few --scores --comm thread --ranks $way <some >other 2>err || fail "$n lines, ranks $way: $(cat err)"
        cmp -s other some.answers || fail "$n lines, ranks $way: other answers"
        "$program" score run $few --comm thread --ranks $way <some.tsv >other 2>err || fail "score, $n lines, ranks $way: $(cat err)"
        cmp -s other some.scores || fail "$n lines, ranks $way: other scores"
    done
done
head -n 1 words | "$program" predict run --scores --quiet --comm thread --ranks 2 --set mesh.model=2 >other 2>err ||
    fail "one line, whose row is on both ranks: $(cat err)"
head -n 1 answers | cmp -s - other || fail "one line, whose row is on both ranks: another answer"

# ---- a file of pairs instead of inputs ----
printf 'ab\tA\nab\tA\n' | "$program" predict run >out 2>err
one_line_error
says err 'warning: predict: input line 1 holds a TAB; all of the line is the input'
head -n 5 train.tsv | "$program" score run >out 2>err
! grep TAB err || fail "score: $(cat err)"

# ---- an input that cannot be read to its end ----
"$program" predict run <"$here" >out 2>err
[ $? -eq 1 ] || fail "a folder as input: exit $?"
one_line_error
says err 'after line 0: cannot read the input: Is a directory'

# A line that does not fit into memory is over the limit, and is not held. (A program with a sanitizer takes more than any limit when it starts; that is
# no report of the kind that its options ask for.)
limit=500000
if (ulimit -v $limit && head -n 1 words | env ASAN_OPTIONS= "$program" predict run --threads 1 --quiet) >out 2>err; then
    {
        head -n 2 words
        head -c 300000000 /dev/zero | tr '\0' a
        echo
        sed -n 3p words
    } | (ulimit -v $limit && "$program" predict run --threads 1 --scores --quiet) >out 2>err
    [ $? -eq 1 ] || fail "a line that does not fit into memory: exit $?"
    one_line_error
    says err 'input line 3 is over the limit of data.max_input_length'
    sed 3d out >other
    [ "$(wc -l <out)" -eq 4 ] && head -n 3 answers | cmp -s - other || fail "lines beside one that is too long: $(cat out)"
else
    echo "not tested: a line that does not fit into memory; the program does not start within ulimit -v $limit: $(cat err)"
fi

# As much as a line may have, and a byte more, at the end of the input, too; what is unknown is one token.
{
    printf 'ab '
    head -c 1048573 /dev/zero | tr '\0' z
    printf '\na'
    head -c 1048576 /dev/zero | tr '\0' z
} >long
printf 'a\nb\n' >two-words
exits 0 tiny unknown --quiet --set train.steps=0 --set vocabulary.kind=words --set vocabulary.file=two-words
"$program" predict unknown --quiet <long >out 2>err
[ $? -eq 1 ] || fail "a line over 1 MiB: exit $?"
[ "$(wc -l <out)" -eq 2 ] || fail "a line over 1 MiB: $(wc -l <out) answers"
says err 'input line 2 is over the limit'
sed 's/$/\tA/' long | "$program" score unknown --quiet >out 2>err
[ $? -eq 1 ] || fail "score: a line over 1 MiB: exit $?"
[ "$(tail -n 1 out)" = nan ] || fail "score: a line over 1 MiB: $(cat out)"
says err 'input line 2 is over the limit'

# ---- an output that cannot be written ----
"$program" predict run --quiet <words >/dev/full 2>err
[ $? -eq 1 ] || fail "a full disk: exit $?"
one_line_error
says err 'cannot write the output: No space left on device'

# A reader that is gone: as any filter, or with the reason where SIGPIPE is ignored.
ends_without_reader() {
    "$program" predict run --quiet <words 2>err
    echo $? >status
}
ends_without_reader | :
[ "$(cat status)" -eq 141 ] && [ ! -s err ] || fail "without a reader: exit $(cat status), $(cat err)"
(
    trap '' PIPE
    ends_without_reader
) | :
[ "$(cat status)" -eq 1 ] || fail "without a reader and SIGPIPE: exit $(cat status)"
one_line_error
says err 'cannot write the output: Broken pipe'

# ---- line ends and byte order marks ----
{
    printf '\357\273\277'
    sed 's/$/\r/' words
} | "$program" predict run --scores --quiet >other 2>err || fail "CRLF: $(cat err)"
cmp -s other answers || fail "a byte order mark or CRLF changes answers"
{
    printf '\357\273\277'
    tr '\n' '\r' <test.tsv
} >mac.tsv
exits 0 "$program" eval run --quiet
numbers=$(sed -n 's/^words\/test: //p' out)
exits 0 "$program" eval run --quiet --file mac.tsv
[ "$(sed -n 's/^mac.tsv: //p' out)" = "$numbers" ] || fail "lines that end in CR: $(cat out) instead of $numbers"
printf 'a\tA\rb\tB\nc\tC\n' >mixed.tsv
exits 1 "$program" eval run --quiet --file mixed.tsv
says err 'mixed.tsv:1: a carriage return within the line'
printf 'a\nb\rc\n' | "$program" predict run --quiet >other 2>err && fail "predict takes lines in a line"
one_line_error
says err 'predict: input line 2 has a carriage return within'
exits 1 "$program" score run --quiet --file mixed.tsv
says err 'score: input line 1 has a carriage return within'
tr '\n' '\r' <"$top/bench/tiny.run" >mac.run
exits 0 "$program" config "$top/bench/tiny.run"
mv out config
exits 0 "$program" config mac.run
cmp -s out config || fail "a run file whose lines end in CR: $(diff out config | head -n 4)"
printf '[train]\n# a comment\rsteps = 5\n' >mixed.run
exits 2 "$program" config mixed.run
one_line_error
says err 'mixed.run:2: a carriage return within the line'

# ---- a mesh is of the ranks it was made for ----
# mesh TEXT ARGUMENTS...: eval and predict have this mesh and the same results.
mesh() {
    shape=$1
    shift
    exits 0 "$program" eval run --threads 1 "$@"
    says out "mesh $shape"
    [ "$(sed -n 's/^words\/test: //p' out)" = "$numbers" ] || fail "eval $*: $(tail -n 1 out) instead of $numbers"
    "$program" predict run --scores --quiet --threads 1 "$@" <words >other 2>err || fail "predict $*: $(cat err)"
    cmp -s other answers || fail "predict $*: other answers"
}
mesh 'data=1 expert=1 model=1'
mesh 'data=1 expert=2 model=1' --ranks 2
mesh 'data=2 expert=2 model=1' --ranks 4
mesh 'data=1 expert=1 model=2' --ranks 2 --set mesh.model=2
exits 2 "$program" eval run --ranks 3 --set mesh.expert=2
says err 'does not make 3 ranks'
finish
