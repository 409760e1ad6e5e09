#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is wrong with files, plugins and requests: one line on stderr that says what and where, the right exit status, and
# nothing lost of what was there before.
. "$(dirname "$0")/_common.sh"
good_run

# wrong STATUS TEXT COMMAND...: one line with TEXT.
wrong() {
    status=$1 text=$2
    shift 2
    exits "$status" "$@"
    one_line_error
    says err "$text"
}

# untouched RUN: the command before made no run of this name.
untouched() {
    [ ! -e "$1" ] || fail "a refused command leaves $1: $(ls "$1")"
}

# ---- data ----
wrong 2 'task.NAME.train is not set' "$program" train "$top/bench/tiny.run" --run-dir none
wrong 1 'task.words.train: cannot read none.tsv: No such file' tiny none --set task.words.train=none.tsv
wrong 1 'task.words.valid: cannot read none.tsv: No such file' tiny none --set task.words.valid=none.tsv
wrong 1 'task.words.test: cannot read none.tsv: No such file' tiny none --set task.words.test=none.tsv
untouched none
wrong 1 'none.tsv: No such file' "$program" eval good --file none.tsv --quiet
wrong 2 'no task.NAME.test: give a file of format tsv as --file' "$program" eval good
wrong 2 'no task.words.test: give a file of format jsonl as --file' "$program" eval good --task words --set task.words.format=jsonl
wrong 2 'none: No such file' "$program" eval none
wrong 2 'none: No such file' "$program" predict none
wrong 2 'holds no run (it has no run.conf)' "$program" eval .
wrong 1 'there is no none/metrics.db' "$program" metrics none

# tsv TEXT: bad.tsv is refused for training, for evaluation while training and after it, and by eval.
n=0
tsv() {
    n=$((n + 1))
    wrong 1 "bad.tsv:$1" tiny "bad-$n" --set task.words.train=bad.tsv
    wrong 1 "bad.tsv:$1" tiny "bad-$n" --set task.words.valid=bad.tsv
    wrong 1 "bad.tsv:$1" tiny "bad-$n" --set task.words.test=bad.tsv
    untouched "bad-$n"
    wrong 1 "bad.tsv:$1" "$program" eval good --file bad.tsv
}
: >bad.tsv
tsv '1: the file is empty'
printf 'a\tA\nb\tB\nno tab\n' >bad.tsv
tsv '3: no tab in this line; each line is `input TAB target`'
printf 'a\tA\n\nb\tB\n' >bad.tsv
tsv '2: no tab in this line'
printf 'a\tA\nb\t\n' >bad.tsv
tsv '2: the target is empty'
printf '\tA\n' >bad.tsv
tsv '1: the input is empty'
printf 'a\0\tA\n' >bad.tsv
tsv '1: NUL byte'
wrong 1 'is no regular file' tiny folder --set task.words.train=.
printf 'abcdefghabcdefghabcdefgh\tA\n' >bad.tsv
wrong 1 'bad.tsv: ' tiny all-long --set task.words.train=bad.tsv
untouched all-long
exits 0 tiny bad-1 --resume --set train.steps=2
says out 'no checkpoint in .*bad-1: starting fresh'

# What is over the limits is left out and counted; bytes that are no UTF-8 are said once.
{
    cat train.tsv
    printf 'abcdefghabcdefghabcdefgh\tA\nab\tA A A A A A A A A A A A A A A A\n'
} >long.tsv
exits 0 tiny long $good --set task.words.train=long.tsv
says out '302 examples, 2 left out as too long'
{
    printf '\377\tA\n'
    cat train.tsv
    printf 'a\376\tA\nb\t\300\200\n'
} >bytes.tsv
for ranks in '' '--comm thread --ranks 2'; do
    rm -rf bytes
    exits 0 tiny bytes $good --set task.words.train=bytes.tsv $ranks
    one_line_error
    says err 'warning: bytes.tsv:1: not valid UTF-8 (3 of 303 records); the bytes are used as they are'
done
printf 'a\377\tA\nb\tB\nabcdefghabcdefghabcdefgh\tC\n' >bytes.tsv
exits 0 "$program" eval good --file bytes.tsv
one_line_error
says err 'warning: bytes.tsv:1: not valid UTF-8 (1 of 3 records)'
says out '3 items, .*, 1 cut (counted wrong)'

# ---- checkpoints ----
wrong 1 'checkpoint of another model: target/decoder/.* has shape F32 \[.*\], the run file.s model wants F32 \[' \
    "$program" eval good --file valid.tsv --set model.d_model=64
wrong 1 'checkpoint of another model: it has target/encoder/layers_1/.*, which the run file.s model lacks' \
    "$program" predict good --set model.num_encoder_layers=1 --set moe.num_encoder_sparse_layers=0
wrong 1 'checkpoint of another model' "$program" predict good --set model.d_model=64 --comm thread --ranks 2
cp -R good other
sed 's/^d_ff = .*/d_ff = 32/' good/run.conf >other/run.conf
wrong 1 'checkpoint of another model: target/.* has shape' tiny other --resume $good --set model.d_ff=32
exits 0 tiny root --set train.steps=1 --set optimizer.name=rmsprop
exits 1 tiny root --resume --set train.steps=1 --set optimizer.name=rmsprop --set optimizer.centered=true
says err 'checkpoint of another optimizer: it lacks state/.*, which the run file.s optimizer has'

# damage RUN STEP FILE: overwrites bytes in the middle of a file of the checkpoint.
damage() {
    bytes=$(wc -c <"$1/checkpoints/$2/$3")
    printf '\252\125\252\125' | dd of="$1/checkpoints/$2/$3" bs=1 seek=$((bytes / 2)) conv=notrunc 2>dd.err || fail "$(cat dd.err)"
}
for kind in corrupt cut empty missing header; do
    rm -rf hurt
    cp -R good hurt
    for file in params.safetensors state.safetensors; do
        at=hurt/checkpoints/4/$file
        case $kind in
        corrupt) damage hurt 4 $file ;;
        cut) dd if=good/checkpoints/4/$file of=$at bs=1000 count=40 2>dd.err || fail "$(cat dd.err)" ;;
        empty) : >$at ;;
        missing) rm $at ;;
        header) printf '\377\377\377\377\377\377\377\177' | dd of=$at conv=notrunc 2>dd.err || fail "$(cat dd.err)" ;;
        esac
    done
    rm -rf hurt-before
    cp -R hurt/checkpoints hurt-before
    wrong 1 'hurt/checkpoints/4/params.safetensors' "$program" predict hurt
    says err 'try --checkpoint with another step: 2$'
    wrong 1 'hurt/checkpoints/4/params.safetensors' "$program" eval hurt --file valid.tsv
    wrong 1 'hurt/checkpoints/4/params.safetensors' tiny hurt --resume $good
    says err '; move the folder of step 4 away to go on from the newest of the others: 2$'
    [ "$(cat hurt/status)" = failed ] || fail "$kind: status $(cat hurt/status)"
    diff -r hurt/checkpoints hurt-before >/dev/null || fail "$kind: a refused checkpoint was changed"
    wrong 1 'hurt/checkpoints/4/params.safetensors' "$program" predict hurt --comm thread --ranks 2
    exits 0 "$program" predict hurt --checkpoint 2
    rm -r hurt/checkpoints/4
    exits 0 tiny hurt --resume $good
    [ "$(hash_in out)" = "$hash" ] || fail "$kind: the run resumed from the checkpoint before has other weights"
done
cp -R good state
damage state 4 state.safetensors
exits 0 "$program" predict state
wrong 1 'state/checkpoints/4/state.safetensors is corrupt' tiny state --resume $good
cp -R good meta
for text in '' '{' '{}' '[1]' '{"format_version": 99, "switchyard": "9.0"}'; do
    printf '%s' "$text" >meta/checkpoints/4/meta.json
    wrong 1 'meta/checkpoints/4/meta.json' "$program" predict meta
done
cp -R good no-checkpoint
rm -r no-checkpoint/checkpoints
wrong 1 'no-checkpoint holds no checkpoint' "$program" predict no-checkpoint

# ---- the run directory ----
cp -R good database
printf 'this is no database, but long enough to look like one at first sight\n' >database/metrics.db
wrong 1 'database/metrics.db' "$program" metrics database
exits 0 "$program" eval database --file valid.tsv
one_line_error
says err 'the result is not kept in the database'
rm database/metrics.db
mkdir database/metrics.db
wrong 1 'database/metrics.db' tiny database --resume $good
[ "$(cat database/status)" = failed ] || fail "status $(cat database/status) without a database"
cp -R good conf
echo '[model' >conf/run.conf
wrong 2 'conf/run.conf:1: ' tiny conf --resume $good
wrong 2 'conf/run.conf:1: ' "$program" predict conf
wrong 1 'train.tsv: a file of this name is in the way' tiny train.tsv/run
wrong 1 'train.tsv' tiny train.tsv
[ -d /proc/self ] && wrong 1 '/proc/switchyard' "$program" train "$top/bench/tiny.run" --run-dir /proc/switchyard \
    --set task.words.train=train.tsv
wrong 2 'longer than' "$program" train "$top/bench/tiny.run" --set task.words.train=train.tsv \
    --run-dir "$(awk 'BEGIN { while (i++ < 1100) printf "x" }')"
wrong 2 'run.name' "$program" train "$top/bench/tiny.run" --set task.words.train=train.tsv --set run.name=a/b
chmod -R a-w good
whole=$program
if bound_by_permissions; then
    wrong 1 'cannot write into run directory' tiny good --resume $good
    exits 0 "$program" predict good
    exits 0 "$program" eval good --file valid.tsv
    one_line_error
    says err 'the result is not kept in the database'
else
    echo "skipped: a read-only run directory (this user may write everywhere: $(cat unbound))"
fi
program=$whole
chmod -R u+w good
exits 0 tiny good --resume $good
[ "$(hash_in out)" = "$hash" ] || fail "the good run was changed"

# ---- requests ----
mkdir without-mpi
for name in cpu null; do
    [ ! -e "${SWITCHYARD_BACKEND_PATH-}/switchyard-$name.so" ] ||
        ln -s "$SWITCHYARD_BACKEND_PATH/switchyard-$name.so" without-mpi/
done
no_mpi="env SWITCHYARD_BACKEND_PATH=$here/without-mpi"
for command in train plan explain; do
    set -- "$program" $command "$top/bench/tiny.run" --set task.words.train=train.tsv
    [ $command = train ] && set -- "$@" --run-dir none
    wrong 2 'comm mpi: backend mpi: no switchyard-mpi.so in ' $no_mpi "$@" --comm mpi
    wrong 2 'comm nothing: unknown; there are auto, self, thread and mpi' "$@" --comm nothing
    wrong 2 'comm self is one rank, but --ranks is 2' "$@" --comm self --ranks 2
    wrong 2 'backend nope: no switchyard-nope' "$@" --backend nope
    wrong 2 'backend "../cpu": a name has' "$@" --backend ../cpu
    wrong 2 'mesh.data=2, .* need at least 2 ranks, but there is 1' "$@" --set mesh.data=2
    wrong 2 '3' "$@" --ranks 3 --set mesh.data=2
    wrong 2 'OMPI_COMM_WORLD_SIZE says that 4 processes' $no_mpi OMPI_COMM_WORLD_SIZE=4 "$@"
done
untouched none
wrong 2 'train: backend null computes nothing' tiny none --backend null
wrong 2 'eval: backend null computes nothing' "$program" eval good --file valid.tsv --backend null
wrong 2 'predict: backend null computes nothing' "$program" predict good --backend null
untouched none
wrong 2 'train.microbatches = 3 must divide data.batch_size = 32' tiny parts --set train.microbatches=3
wrong 2 'data.warm_examples: a prefix ends somewhere else in each epoch: set it to 0' tiny prefix --set data.warm_examples=9 \
    --set data.warm_max_target=9 --set task.words.objective=prefix_lm --set 'task.words.inputs={input}' --set 'task.words.metrics=[]'
wrong 2 'a beam search draws nothing' tiny beams --set decode.beams=4 --set decode.temperature=1
for key in topk=3 topp=0.5; do
    wrong 2 "decode.$key: decode.temperature is 0, so nothing is drawn" "$program" predict good --set decode.$key
    exits 0 "$program" config good --set decode.$key --set decode.temperature=1
done
exits 0 "$program" config good --set decode.topk=0
# What makes training smaller is no help here.
wrong 1 'take a smaller decode.batch_size' "$program" eval good --file valid.tsv --set memory.budget=64KiB
wrong 1 'take a smaller decode.batch_size' "$program" eval good --file valid.tsv --beams 256 --set data.length_buckets=[] \
    --set data.max_input_length=1048575 --set decode.max_length=1048576 --set decode.batch_size=1024
wrong 2 'model.vocab_size = 200 is less than the 259 ids' tiny small --set model.vocab_size=200
wrong 1 'this CPU and build have' env SWITCHYARD_CPU_VARIANT=abacus "$program" predict good
says err 'SWITCHYARD_CPU_VARIANT'

# ---- plugins ----
if [ -n "${SY_TEST_PLUGINS-}" ]; then
    mkdir plugins
    for name in major minor layout magic truncated cpu; do
        ln -s "$SY_TEST_PLUGINS/hostile.so" plugins/switchyard-$name.so
    done
    echo 'no library' >plugins/switchyard-text.so
    SWITCHYARD_BACKEND_PATH=$here/plugins
    export SWITCHYARD_BACKEND_PATH
    exits 0 "$program" backends
    mv out list
    for name in major minor layout magic truncated text; do
        says list "^$name *refused: backend $name: $here/plugins/switchyard-$name.so .*ABI"
        wrong 1 "backend $name: $here/plugins/switchyard-$name.so" tiny none --backend $name
        untouched none
    done
    wrong 1 'switchyard-major.so (ABI 7.*, this host .*) speaks another major version of the ABI' \
        "$program" predict good --backend major
    wrong 1 'has no symbol sy_backend_cpu' "$program" predict good
    SWITCHYARD_BACKEND_PATH=$here/empty
    exits 0 "$program" backends
    says out "folder $here/empty cannot be read"
    wrong 2 'backend cpu: no switchyard-cpu' "$program" predict good
else
    echo "skipped: plugins of another ABI (this build has no shared libraries)"
fi
finish
