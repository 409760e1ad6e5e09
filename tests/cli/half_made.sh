#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What import, export, pack, ckpt and replay make is there whole or not at all: a signal removes what was begun, what a process
# left that was killed is made again without a question, and what is somebody else's stays.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
cd "$here" || exit 99
mark=being-made-by-switchyard

# Large enough that a signal comes while it is written.
exits 0 tiny run --quiet --set train.steps=1 --set optimizer.name=sgd --set model.d_model=512 \
    --set model.d_ff=6144 --set moe.num_experts=0 --set moe.num_encoder_sparse_layers=0 --set moe.num_decoder_sparse_layers=0
exits 0 "$program" export run --format hf --to other

# begin COMMAND NAME: in the background, as process $owner, until it writes or has said why not.
begin() {
    case $1 in
    import) set -- "$2" import other --to "$2" ;;
    export) set -- "$2" export run --format safetensors --to "$2" ;;
    pack) set -- "$2" pack run -o "$2" ;;
    ckpt) set -- "$2" ckpt cast run --dtype bfloat16 --to "$2" ;;
    esac
    name=$1
    shift
    rm -f "$name.out" "$name.err"
    "$program" "$@" >"$name.out" 2>"$name.err" </dev/null &
    owner=$!
    until [ -s "$name.tmp/$mark" ] || [ -s "$name.err" ] || [ -s "$name.out" ]; do :; done
}

# hit SIGNAL COMMAND NAME: begun, and sent the signal while it writes: once more where it was done before that. Its exit status
# is $got, unless it is only stopped.
hit() {
    for try in 1 2 3 4 5 6 7 8 9 10; do
        begin "$2" "$3"
        kill -"$1" $owner
        if [ "$1" = STOP ]; then
            sleep 0.1
            [ -e "$3" ] || return 0
            kill -KILL $owner
        fi
        ended 2>/dev/null
        got=$?
        [ -e "$3" ] || return 0
        rm -rf "$3" "$3.tmp"
    done
    fail "$2 was always done before SIG$1 came"
}

for command in import export pack ckpt; do
    made=$command.made

    # ---- asked to stop ----
    for pair in 'INT 130' 'TERM 143'; do
        hit "${pair% *}" $command $made
        [ $got -eq "${pair#* }" ] || fail "$command, $pair: exit $got: $(cat $made.err)"
        grep -q "^switchyard: stopped by a signal: $made is not made, and nothing is left of it$" $made.err ||
            fail "$command, $pair: it says: $(cat $made.err)"
        [ ! -e $made ] && [ ! -e $made.tmp ] || fail "$command, $pair: it left $(ls -d $made $made.tmp 2>&1)"
    done

    # ---- two at once ----
    hit STOP $command $made
    first=$owner
    begin $command $made
    ended
    [ $? -eq 1 ] || fail "$command: a second one is not refused"
    grep -q "another process is at work in $made.tmp" $made.err || fail "$command: to a second one it says: $(cat $made.err)"
    kill -KILL "$first"
    wait "$first" 2>/dev/null

    # ---- killed ----
    [ -e $made.tmp ] && [ ! -e $made ] || fail "$command: nothing was left by a kill, so this tests nothing"
    cp $made.tmp/$mark mark
    echo mine >"$here/beside"
    ln -s "$here/beside" $made.tmp/link
    begin $command $made
    ended
    [ $? -eq 0 ] || fail "$command: after a kill it is refused: $(cat $made.err)"
    grep -q "$made.tmp, which a process that was killed left" $made.err || fail "$command: it clears away without a word"
    [ ! -e $made.tmp ] && [ -e $made ] || fail "$command: after a kill it made $(ls -d $made $made.tmp 2>&1)"
    [ ! -e $made/$mark ] || fail "$command: the mark is in what was made"
    [ ! -e $made/link ] && [ -e beside ] || fail "$command: what was left is in what was made, or removed beyond it"
    mv $made $made.whole

    # ---- not ours: a folder, a file, a link; a mark of another host or without its text ----
    for what in 'mkdir X && echo mine >X/mine' 'echo mine >X' 'mkdir there; ln -s there X' \
        "mkdir there && cp mark there/$mark && ln -s there X" \
        "mkdir X && echo switchyard on elsewhere >X/$mark" "mkdir X && : >X/$mark" "mkdir X && mkfifo X/$mark"; do
        eval "$(echo "$what" | sed "s/X/$made.tmp/g")"
        find $made.tmp there >before 2>/dev/null
        begin $command $made
        ended
        [ $? -eq 1 ] || fail "$command, $what: not refused"
        grep -q "$made.tmp is in the way" $made.err || fail "$command, $what: it says: $(cat $made.err)"
        find $made.tmp there >after 2>/dev/null
        cmp before after || fail "$command, $what: it removed something"
        [ ! -e $made ] || fail "$command, $what: it made something"
        rm -rf $made.tmp there
    done
done

# ---- names that no new folder can get are refused before the work ----
mkdir hollow
ln -s hollow linked
ln -s nowhere dangling
for name in linked linked/ dangling; do
    exits 1 "$program" export run --format hf --to $name
    says err "^switchyard: ${name%/} is a link: give the folder itself"
done
for name in . .. hollow/.; do
    exits 1 "$program" export run --format hf --to $name
    says err "^switchyard: $name is no name for a new folder"
done
if unshare --map-root-user --mount true 2>err; then
    # shellcheck disable=SC2016
    exits 1 unshare --map-root-user --mount sh -c 'mount -t tmpfs none hollow && exec "$0" export run --format hf --to hollow' "$program"
    says err '^switchyard: hollow is where a file system is mounted: give the name of a new folder in it'
else
    echo "not tested: a mount point: $(cat err)"
fi
[ -z "$(ls -A hollow)" ] && [ -z "$(ls -d -- *.tmp 2>/dev/null)" ] || fail "a name that is refused leaves $(ls -A . hollow)"

# ---- a file system without hard links ----
if strace -f --seccomp-bpf -qq -e trace='?link,linkat' -o trace true 2>err; then
    exits 0 strace -f --seccomp-bpf -qq -e trace='?link,linkat' -e inject='?link,linkat:error=EPERM' -o trace \
        "$program" pack run -o unlinked
    grep -q INJECTED trace || fail "pack makes no link, so this tests nothing"
    cmp unlinked pack.made.whole || fail "without hard links pack makes another file"
    [ ! -e unlinked.tmp ] || fail "without hard links pack leaves $(ls unlinked.tmp)"
else
    echo "not tested: no hard links: $(cat err)"
fi

# ---- replay ----
tensors='--dump grad/*embedding*'
# shellcheck disable=SC2086
(trap '' XFSZ && ulimit -f 8 && exec "$program" replay run --step 1 $tensors --write seen) >out 2>err && fail "replay writes over the limit"
one_line_error
[ -z "$(ls -d seen* 2>/dev/null)" ] || fail "replay without room leaves $(ls -d seen*)"
# shellcheck disable=SC2086
exits 0 "$program" replay run --step 1 $tensors --write seen
says seen '"format":"pt"'
[ ! -e seen.tmp ] || fail "replay leaves $(ls seen.tmp)"

# What was made after all that is what it should be.
for model in import.made.whole pack.made.whole; do
    mv $model model # their names are in what predict says of a file
    echo abc | "$program" predict model --quiet >answer 2>err || fail "$model: $(cat err)"
    [ -s answer ] || fail "$model: no answer"
    rm -r model
done
finish
