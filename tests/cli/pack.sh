#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# switchyard pack: a packed model answers as its run does, to the byte; int8 weights answer nearly so in a quarter of the
# bytes; what is cut, damaged or of another kind is refused, and a failure leaves nothing.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 300 1
data test.tsv 40 2
printf '%s\n' a b c d e f g h >letters
printf '%s\n' A B C D E F G H >names
cut -f 1 test.tsv >words
exits 0 tiny run --quiet --set train.steps=60 --set train.checkpoint_every=30 --set model.d_model=64 --set model.d_ff=128 \
    --set vocabulary.kind=characters --set vocabulary.file=letters --set vocabulary.targets.kind=words \
    --set vocabulary.targets.file=names --set model.vocab_size=128 --set task.words.test="$here/test.tsv"
rm letters names # the run has copies, and a packed model has its own

# pack FILE ARGUMENTS...: of the run.
pack() {
    file=$1
    shift
    exits 0 "$program" pack run -o "$file" "$@"
    says out "bytes written to $file"
    [ ! -e "$file.tmp" ] || fail "pack left $file.tmp"
}
pack f32.sy
pack bf16.sy --dtype bfloat16
pack int8.sy --int8
pack early.sy --checkpoint 30
exits 0 "$program" pack run/checkpoints/30 -o folder.sy
cmp early.sy folder.sy || fail 'the folder of a checkpoint is packed otherwise than --checkpoint'
cmp -s early.sy f32.sy && fail '--checkpoint is ignored'
exits 0 "$program" pack run/checkpoints/30 -o same.sy --checkpoint 30
exits 1 "$program" pack run/checkpoints/30 -o other.sy --checkpoint 60
one_line_error
says err 'run/checkpoints/30 is the checkpoint of step 30, and another one is asked for'
[ ! -e other.sy ] || fail 'a checkpoint was packed that nobody asked for'

# answers_of MODEL NAME: what predict, score and eval say, in NAME.*.
answers_of() {
    "$program" predict "$1" --beams 4 --decodes 2 --scores --quiet <words >"$2.answers" 2>err || fail "predict $1: $(cat err)"
    "$program" score "$1" --quiet <test.tsv >"$2.scores" 2>err || fail "score $1: $(cat err)"
    "$program" eval "$1" --quiet >"$2.eval" 2>err || fail "eval $1: $(cat err)"
    "$program" tokenize "$1" --targets <words >"$2.ids" 2>err || fail "tokenize $1: $(cat err)"
    [ ! -s err ] || fail "$1: $(cat err)"
}

# ---- the same to the byte, away from the run ----
answers_of run run
mkdir away && mv f32.sy away
mv run elsewhere
answers_of away/f32.sy f32
for what in answers scores eval ids; do
    cmp -s run.$what f32.$what || fail "a packed model has other $what than its run"
done
[ "$(sort -u run.answers | wc -l)" -gt 20 ] || fail 'answers are too much alike to tell models apart'
exits 0 "$program" predict away/f32.sy --quiet --comm thread --ranks 2 --set mesh.model=2
exits 0 "$program" plan away/f32.sy
exits 0 "$program" config away/f32.sy
says out 'd_model = 64'
ls away >files
[ "$(cat files)" = f32.sy ] || fail "reading a packed model left $(cat files)"

# ---- the library ----
pronounce=${abs_top_builddir:?set abs_top_builddir to the build tree}/examples/pronounce
if [ -x "$pronounce" ]; then
    # shellcheck disable=SC2046
    "$pronounce" elsewhere $(cat words) >run.library 2>err || fail "pronounce of the run: $(cat err)"
    # shellcheck disable=SC2046
    "$pronounce" away/f32.sy $(cat words) >f32.library 2>err || fail "pronounce of a packed model: $(cat err)"
    cmp -s run.library f32.library || fail 'the library answers otherwise from a packed model'
    head -n 32 test.tsv >pairs
    "$abs_top_builddir/examples/train_step" away/f32.sy 1 trained <pairs >out 2>err && fail 'a packed model is trained'
    says err 'a packed model answers only'
fi

# ---- rounded weights: small files, and scores close by ----
answers_of bf16.sy bf16
answers_of int8.sy int8
# close NAME BOUND: the largest difference of a score from the run's, relative to it, is over 0 and at most BOUND.
close() {
    paste run.scores "$1.scores" | awk -v bound="$2" '
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d }
        END { printf "%g\n", most; exit !(most > 0 && most <= bound) }' >distance || fail "$1: scores differ by $(cat distance)"
}
close bf16 0.015
close int8 0.02
"$program" score int8.sy --quiet --comm thread --ranks 2 --set mesh.model=2 <test.tsv >split.scores 2>err ||
    fail "two ranks: $(cat err)"
cmp -s int8.scores split.scores || fail 'int8 weights that two ranks share give other scores'
# Weights are multiplied as int8; expanded when they are read they give the same bits, and so does plain C.
for with in model.weights=float32 cpu.variant=portable; do
    "$program" score int8.sy --quiet --set $with <test.tsv >other.scores 2>err || fail "$with: $(cat err)"
    cmp -s int8.scores other.scores || fail "int8 weights give other scores with $with"
done
exits 0 "$program" plan int8.sy
exits 0 "$program" explain int8.sy --program decode_step
says out 'matmul_int8'
exits 1 tiny other --set model.weights=int8
says err 'is for packed models'
size() { wc -c <"$1"; }
[ $((10 * $(size int8.sy))) -lt $((4 * $(size away/f32.sy))) ] || fail "int8: $(size int8.sy) bytes of $(size away/f32.sy)"
[ $((10 * $(size bf16.sy))) -lt $((6 * $(size away/f32.sy))) ] || fail "bfloat16: $(size bf16.sy) bytes of $(size away/f32.sy)"

# ---- damage ----
# refused TEXT FILE: no command gives an answer from it.
refused() {
    "$program" predict "$2" --quiet <words >out 2>err
    got=$?
    [ "$got" -eq 1 ] || fail "$2: exit $got instead of 1"
    [ ! -s out ] || fail "$2: answers in spite of damage"
    one_line_error
    says err "$1"
}
bytes=$(size int8.sy)
for part in 1 2 3 5 8; do
    head -c $((bytes * part / 10)) int8.sy >cut.sy
    refused 'cut short' cut.sy
done
head -c $((bytes - 1)) int8.sy >cut.sy
refused 'cut short' cut.sy
# flip PLACE: int8.sy with one byte changed in flipped.sy.
flip() {
    byte=$(od -An -tu1 -j "$1" -N 1 int8.sy | tr -d ' ')
    { head -c "$1" int8.sy; printf "\\$(printf %03o $(((byte + 1) % 256)))"; tail -c +$(($1 + 2)) int8.sy; } >flipped.sy
    [ "$(size flipped.sy)" = "$bytes" ] || fail "a flipped byte changed the size"
}
flip 40
refused 'is no packed model' flipped.sy # it does not begin as packed models do
place=$((40 + bytes / 12))
while [ "$place" -lt "$bytes" ]; do
    flip "$place"
    refused 'flipped.sy' flipped.sy
    place=$((place + bytes / 12))
done
digits=$(head -c 400 int8.sy | tr '\0' ' ' | LC_ALL=C awk '{ print index($0, "weights_sha256") + 20; exit }')
flip "$digits" # a header that can be read all the same
refused 'damaged: the checksum of its header' flipped.sy
for command in score eval plan config tokenize; do
    exits 1 "$program" $command flipped.sy
done
exits 1 "$program" export flipped.sy --format hf --to exported
flip $((bytes - 40))
refused 'damaged: the checksum of its' flipped.sy
refused 'is no packed model' test.tsv
refused 'is no packed model' elsewhere/checkpoints/60/params.safetensors
: >empty.sy
refused 'it is empty, cut short or damaged' empty.sy
exits 1 "$program" predict int8.sy --checkpoint 30
says err 'is a packed model of step 60'
exits 1 "$program" pack int8.sy -o again.sy
says err 'is a packed model, which holds no checkpoint'
exits 1 "$program" ckpt list int8.sy
says err 'is a packed model, which holds no checkpoint'

# ---- what pack refuses, and nothing is left ----
exits 1 "$program" pack elsewhere -o int8.sy
says err 'int8.sy is there already'
[ "$(size int8.sy)" = "$bytes" ] || fail 'pack wrote over a file'
exits 2 "$program" train int8.sy
says err 'train: int8.sy is a packed model: name a run file'
exits 2 "$program" pack elsewhere
says err 'where to?'
exits 2 "$program" pack elsewhere -o new.sy --int8 --dtype float32
says err 'give one of both'
exits 2 "$program" pack elsewhere -o new.sy --dtype float16
exits 1 "$program" pack away -o new.sy
exits 1 "$program" pack elsewhere -o none/new.sy
flip_run=elsewhere/checkpoints/60/params.safetensors
printf 'x' | dd of="$flip_run" bs=1 seek=9000 conv=notrunc 2>/dev/null
exits 1 "$program" pack elsewhere -o new.sy
says err 'corrupt'
[ ! -e new.sy ] && [ ! -e new.sy.tmp ] || fail 'a pack that was refused left something'
finish
