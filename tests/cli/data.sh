#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training data as people have them: formats, templates, several and compressed files, mixtures, packed rows, running text.
# Where a run is interrupted, and on how many ranks it goes on, shows in no weight.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99

# run DIR ARGUMENTS...: trains bench/tiny.run without length buckets and without its task's file.
run() {
    dir=$1
    shift
    "$program" train "$top/bench/tiny.run" --run-dir "$dir" --set 'data.length_buckets=[]' --set train.steps=6 "$@"
}

# same WHAT DIR...: the runs have the same weights.
same() {
    what=$1
    first=
    shift
    for dir; do
        hash=$(sed -n 's/.*"params_sha256":"\([0-9a-f]*\)".*/\1/p' "$dir/checkpoints/6/meta.json" 2>/dev/null)
        [ -n "$hash" ] || fail "$what: $dir has no checkpoint of step 6"
        [ -z "$first" ] || [ "$hash" = "$first" ] || fail "$what: $dir has other weights"
        first=$hash
    done
}

# interrupted NAME ARGUMENTS...: whole, stopped at step 3 and resumed on two ranks, and on two ranks from the beginning
# without reading ahead.
interrupted() {
    name=$1
    shift
    exits 0 run "$name" "$@"
    exits 0 run "$name-two" "$@" --comm thread --ranks 2 --set data.prefetch=0
    exits 0 run "$name-stopped" "$@" --set train.steps=3 --set train.schedule=constant
    exits 0 run "$name-whole" "$@" --set train.schedule=constant
    exits 0 run "$name-stopped" "$@" --set train.schedule=constant --comm thread --ranks 2 --resume
    same "$name, on two ranks" "$name" "$name-two"
    same "$name, resumed" "$name-whole" "$name-stopped"
}

data one.tsv 300 1
data two.tsv 90 2
data three.tsv 150 3
awk -F '\t' '{ printf "{\"word\": \"%s\", \"n\": %d, \"spelled\": [\"%s\"]}\n", $1, NR, $2 }' one.tsv >one.jsonl
awk 'NR <= 150' one.tsv >part-a.tsv
awk 'NR > 150' one.tsv >part-b.tsv
awk '{ print tolower($2 " " $3 " " $4 " " $1 " " $5 " " $6); if (NR % 4 == 0) print "" }' one.tsv two.tsv three.tsv >text.txt

# ---- one task in several forms ----

exits 0 run tsv --set task.t.train=one.tsv
exits 0 run jsonl --set task.t.train=one.jsonl --set task.t.format=jsonl --set 'task.t.inputs={word}' \
    --set 'task.t.targets={spelled}'
exits 0 run parts --set 'task.t.train=part-[ab].tsv'
same "a task as tsv, as jsonl and in two files" tsv jsonl parts
exits 0 run tagged --set task.t.train=one.tsv --set 'task.t.inputs=say {input}'
exits 0 "$program" replay tagged --step 5
sed 's,$,<pad> A,' one.tsv >padded.tsv
exits 0 run padded --set task.t.train=padded.tsv --set vocabulary.special_tokens=huggingface
exits 0 run padded-two --set task.t.train=padded.tsv --set vocabulary.special_tokens=huggingface --comm thread --ranks 2
same "padding in texts, on two ranks" padded padded-two
for tool in gzip zstd; do
    command -v $tool >/dev/null || continue
    $tool -c one.tsv >one.tsv.$tool
    if ! "$program" version | grep -q "^compressed files.*$tool"; then
        exits 1 run "$tool" --set task.t.train=one.tsv.$tool
        says err "built without"
    else
        exits 0 run "$tool" --set task.t.train=one.tsv.$tool
        # Three at once make one cache.
        for i in 1 2 3; do
            run "together/$tool-$i" --set task.t.train=one.tsv.$tool --threads 1 >together-$i.out 2>&1 &
        done
        wait
        same "a task compressed by $tool, three times at once" "$tool" "together/$tool-1" "together/$tool-2" "together/$tool-3"
        ls together/data-cache/*.index >/dev/null || fail "no index of $tool"
        ls together/data-cache/*.tmp 2>/dev/null && fail "unfinished files are left"
        same "a task, and compressed by $tool" tsv "$tool"
        exits 0 run "$tool-two" --set task.t.train=one.tsv.$tool --set data.cache=cache --comm thread --ranks 2
        same "a task compressed by $tool, on two ranks" tsv "$tool-two"
        exits 0 "$program" eval "$tool-two" --file one.tsv.$tool
        says out "items"
        ls cache/* >/dev/null || fail "nothing is in data.cache"
        # The last example of the index is longer than any row, or in a file that there is not.
        cp -r cache whole
        for from in 8 16; do
            for index in cache/*.index; do
                printf '\377\377\377\377\377\377\377\377' |
                    dd of="$index" bs=1 seek=$(($(wc -c <"$index") - from)) conv=notrunc 2>/dev/null
            done
            exits 1 run "$tool-damaged-$from" --set task.t.train=one.tsv.$tool --set data.cache=cache
            says err 'is damaged: remove .*index'
            rm -r cache
            cp -r whole cache
        done
        rm -r whole
        mkdir -p moment
        TMPDIR=$here/moment exits 0 "$program" eval "$tool" --file one.tsv.$tool
        says out "items"
        ls moment/* 2>/dev/null && fail "an evaluation leaves the files that it unpacked"
        TMPDIR=$here/nowhere exits 1 "$program" eval "$tool" --file one.tsv.$tool
        says err 'no folder to unpack it into: name one as data.cache'
        # What special tokens are decides how long an example is, so an index is of one kind of them.
        sed 's,\t,</s>\t,' one.tsv | $tool -c >special.tsv.$tool
        for kind in seqio huggingface; do
            exits 0 run "$tool-$kind" --set task.t.train=special.tsv.$tool --set data.cache=cache \
                --set vocabulary.special_tokens=$kind
        done
        exits 0 "$program" score "$tool" --file one.tsv
        mv out scores
        exits 0 "$program" score "$tool" --file one.tsv.$tool
        cmp -s out scores || fail "score of a file compressed by $tool: other scores"
    fi
    for command in 'predict tsv' 'score tsv' tokenize; do
        "$program" $command <one.tsv.$tool >out 2>err && fail "$command takes an input compressed by $tool"
        one_line_error
        says err "the input is compressed with $tool: unpack it first"
    done
done

# ---- one file by several spellings of its path: one copy, one index ----

ln -s one.tsv link.tsv
exits 0 run spelled --set task.t.train=one.tsv --set data.stage=disk --set train.steps=3 --set train.schedule=constant
steps=3
for path in "$here/one.tsv" ./one.tsv link.tsv; do
    steps=$((steps + 1))
    exits 0 run spelled --set "task.t.train=$path" --set data.stage=disk --set train.steps=$steps \
        --set train.schedule=constant --resume
    says spelled/log 'data.stage: 0 files of 0.0 MiB copied to 1 node in .* s, 1 had been there before'
done
[ "$(find disk -type f | wc -l)" -eq 1 ] || fail "a file is copied once for each spelling of its path: $(ls disk)"
if [ -e one.tsv.gzip ] && "$program" version | grep -q '^compressed files.*gzip'; then
    ln -s one.tsv.gzip link.gzip
    for path in one.tsv.gzip "$here/one.tsv.gzip" link.gzip; do
        exits 0 run "indexed-$(echo "$path" | wc -c)" --set "task.t.train=$path" --set data.cache=indexes --set train.steps=1
    done
    [ "$(find indexes -name '*.index' | wc -l)" -eq 1 ] || fail "a file has an index for each spelling of its path: $(ls indexes)"
fi

mkdir among
cp one.tsv among
exits 1 run among-run --set 'task.t.train=among/*' --set data.stage=among
says err 'name another folder as data.stage'
[ "$(ls among)" = one.tsv ] || fail "a refused data.stage has copies: $(ls among)"

# ---- mixtures and packed rows ----

three="--set task.a.train=one.tsv --set task.b.train=two.tsv --set task.c.train=three.tsv --set mixture.m.tasks=[a,b,c]"
interrupted mixture $three
interrupted packed $three --set data.pack=true --set data.batch_size=16 --set data.max_input_length=40 \
    --set data.max_target_length=60
exits 0 "$program" replay packed --step 5
exits 0 run far --set task.t.train=one.tsv --set data.pack=true --set data.batch_size=16 --set train.steps=60 \
    --set data.max_input_length=40 --set data.max_target_length=60
grep -q '"packed_row":[1-9]' far/checkpoints/60/meta.json || fail "the position of packed rows is in no checkpoint"
# With smaller batches the run is at an earlier row, of which that position says nothing: what is saved there can be read.
exits 0 run far --resume --set task.t.train=one.tsv --set data.pack=true --set data.batch_size=4 --set train.steps=60 \
    --set data.max_input_length=40 --set data.max_target_length=60 --set task.t.valid=two.tsv
says out 'checkpoint of step 60 saved'
! grep -q packed_row far/checkpoints/60/meta.json || fail "a checkpoint keeps a position that is behind its rows"
exits 0 run weighted $three --set 'mixture.m.rates=[1,1,2]'
says out "25 % of the mixture"

# Files of all tasks and ranks leave descriptors to the checkpoint and the database.
few_files() { (ulimit -n 112 && run "$@"); }
mkdir shards
for task in a b c d; do
    awk -v task=$task '{ print > sprintf("shards/%s-%02d.tsv", task, NR % 50) }' one.tsv
done
shards='--set task.a.train=shards/a-*.tsv --set task.b.train=shards/b-*.tsv --set task.c.train=shards/c-*.tsv --set task.d.train=shards/d-*.tsv'
exits 0 few_files shards $shards --set mixture.m.tasks=[a,b,c,d] --comm thread --ranks 2

# ---- running text ----

text="--set task.t.train=text.txt --set task.t.valid=text.txt --set task.t.eval_examples=40 --set task.t.metrics=[]"
interrupted spans $text --set task.t.format=documents --set task.t.objective=span_corruption --set vocabulary.extra_ids=100 \
    --set data.pack=true --set data.batch_size=16 --set data.max_input_length=40 --set data.max_target_length=40
says out "40 items, loss"
interrupted prefix $text --set task.t.format=text --set task.t.objective=prefix_lm

# ---- what is not as it should be ----

printf 'a\tb\nno tab\nc\td\n' >bad.tsv
exits 1 run refused --set task.t.train=bad.tsv
says err 'bad.tsv:2: no tab'
[ ! -e refused ] || fail "a file that cannot be used leaves a run directory"
exits 0 run skipped --set task.t.train=bad.tsv --set task.t.on_bad_record=skip
says err 'bad records are skipped: 1, the first is '
printf 'a\tb\nno\rtab\n\te\nc\td\n' >bad.tsv
exits 1 run refused --set task.t.train=bad.tsv
says err 'bad.tsv:2: a carriage return within the line'
rm -rf skipped
exits 0 run skipped --set task.t.train=bad.tsv --set task.t.on_bad_record=skip
says err 'bad records are skipped: 2, the first is .*bad.tsv:2: a carriage return within the line: end all lines with a line feed'
printf '\tb\nc\td\n' >bad.tsv
rm -rf skipped
exits 0 run skipped --set task.t.train=bad.tsv --set task.t.on_bad_record=skip
says err 'bad records are skipped: 1, the first is .*bad.tsv:1: the input is empty; .*, or remove the line or the tab'
# Of running text, too, no record is lost without a word.
prefix="--set task.t.objective=prefix_lm --set task.t.metrics=[]"
json="$prefix --set task.t.format=jsonl"
for record in '{"text": ""}' '{"text": null}' '{"text": []}' '{"txt": "some"}' '{"text": {"a": "b"}}' \
    '{"text": ["some", ""]}'; do
    printf '{"text": "some"}\n%s\n{"text": ["text of", "several parts"]}\n' "$record" >lost.jsonl
    exits 1 run lost $json --set task.t.train=lost.jsonl
    says err 'lost.jsonl:2: \(no field text; there is\|field text is no text\|a text is empty\)'
    rm -rf lost-skipped
    exits 0 run lost-skipped $json --set task.t.train=lost.jsonl --set task.t.on_bad_record=skip
    says err 'bad records are skipped: 1, the first is .*lost.jsonl:2: .*'
    exits 1 "$program" eval lost-skipped --file lost.jsonl --set task.t.on_bad_record=error
    says err 'lost.jsonl:2: '
done
for record in '{"input": "a", "target": "x", "target": "y"}' '{"input": "a\u0000b", "target": "x"}'; do
    printf '{"input": "a", "target": ["x", "y"]}\n%s\n' "$record" >lost.jsonl
    exits 1 run lost --set task.t.format=jsonl --set task.t.train=lost.jsonl
    says err 'lost.jsonl:2: \(field target is there twice: several texts are a list\|a NUL character\)'
done
printf '{"text": "some"}\n' >lost.jsonl
exits 1 run other-name $json --set task.t.train=lost.jsonl --set 'task.t.inputs={body}'
says err 'lost.jsonl:1: no field body; there is only text'
exits 1 run other-format $prefix --set task.t.train=one.tsv
says err 'one.tsv:1: no field text; there are input, target'
printf 'a\n\nb\n' >short.txt
exits 1 run too-short $prefix --set task.t.format=text --set task.t.train=short.txt
says err 'short.txt: no record has two tokens of text'
printf 'ab\nabcdefgh\n%060d\n' 1 >spans.txt
exits 1 run spanless --set task.t.train=spans.txt --set task.t.format=text --set task.t.objective=span_corruption \
    --set vocabulary.extra_ids=2 --set data.max_input_length=64 --set data.max_target_length=64
says err 'spans.txt:3: span corruption: an example of 60 tokens needs 3 sentinels, the vocabulary has 2: raise its extra_ids'
[ ! -e spanless ] || fail "text without room for spans leaves a run directory"
awk '{ print $1 $1 $1 $1 $1 $1 $1 $1 $1 $1 $1 $1 $1 $1 $1 $1 }' one.tsv >wide.txt
wide="--set task.t.train=wide.txt --set task.t.format=text --set vocabulary.extra_ids=100 --set task.t.metrics=[] --set train.steps=1"
# shellcheck disable=SC2086
for objective in 'span_corruption 24 114' 'prefix_lm 64 512'; do
    set -- $objective
    rm -rf narrow
    exits 0 run narrow $wide --set task.t.objective=$1 --set data.max_input_length=512 --set data.max_target_length=$2
    says err "task.t: inputs have at most .* over data.max_target_length = $2: set that to $3"
    rm -rf narrow
    exits 0 run narrow $wide --set task.t.objective=$1 --set data.max_input_length=512 --set data.max_target_length=$3
    ! grep -q 'task.t: inputs have' err || fail "$1: a warning of inputs that are filled: $(cat err)"
done
printf 'no tab\n' >none.tsv
exits 1 run left --set task.t.train=none.tsv --set task.t.on_bad_record=skip
says err 'none.tsv: all records are skipped, none is left; the first: .*none.tsv:1: no tab'
printf 'abc\t%0100d\n' 1 >long.tsv
exits 1 run long --set task.t.train=long.tsv
says err 'long.tsv: no example fits .* raise data.max_input_length and data.max_target_length'
exits 1 run none --set 'task.t.train=nothing-*.tsv'
says err 'nothing-'
: >empty.tsv
exits 1 run nothing $three --set task.b.train=empty.tsv
says err 'empty.tsv:1: the file is empty'
exits 2 run unmixed --set task.a.train=one.tsv --set task.b.train=two.tsv
says err 'mixture'
exits 0 run changed --set task.t.train=part-a.tsv --set train.steps=3
printf 'more\tM O R E\n' >>part-a.tsv
exits 1 run changed --set task.t.train=part-a.tsv --resume
says err 'task.t.train: .*part-a.tsv has changed since the checkpoint'
# Of several tasks it is not known which, so none is named alone.
both='--set task.a.train=one.tsv --set task.b.train=two.tsv --set mixture.m.tasks=[a,b]'
exits 0 run several $both --set train.steps=3
printf 'more\tM O R E\n' >>two.tsv
exits 1 run several $both --resume
says err 'one or more of task.a.train, task.b.train, which count as one file here, changed since the checkpoint'
# ---- batches that steps wait for: rows that are long to read, and nobody reads ahead ----
awk 'BEGIN { text = "abcdefgh"; for (i = 0; i < 16; i++) text = text text; for (i = 0; i < 16; i++) print text "\t" i }' >train.tsv
exits 0 tiny waits --quiet --threads 1 --set train.steps=20 --set data.prefetch=0 --set task.words.too_long=trim
says err 'warning: steps wait [0-9]* % of their time for batches'
[ "$(query waits "SELECT count(*) FROM event WHERE kind = 'warning' AND text LIKE 'steps wait %'")" = 1 ] ||
    fail "the warning is not among those of the database: $(query waits 'SELECT group_concat(kind) FROM event')"
# ---- data that cannot be read any more: the weights are saved, and a resumed run goes on as if nothing had been ----
# unreadable FILE ARGUMENTS...: cut.data, a copy of the file, is cut while a run with these arguments trains.
unreadable() {
    file=$1
    shift
    cp "$file" cut.data
    rm -rf cut whole cut.out # of the call before, in which the step that is waited for is there
    "$program" train "$top/bench/tiny.run" --run-dir cut "$@" --set train.steps=1000000 --set train.schedule=constant \
        --set train.log_every=1 >cut.out 2>cut.err </dev/null &
    owner=$!
    eventually grep -q '^step 3/' cut.out
    head -n 50 "$file" >beginning
    cat beginning >cut.data
    ended
    ends cut failed 1 $?
    says cut.err 'stopped after step [0-9]*, for data cannot be read: .*cut.data: no record is at byte .*--resume goes on'
    at=$(newest cut)
    [ -n "$at" ] || fail "nothing is saved where data cannot be read: $(cat cut.err)"
    cp "$file" cut.data
    for run in cut whole; do
        exits 0 "$program" train "$top/bench/tiny.run" --run-dir $run --resume "$@" --set train.steps=$((at + 3)) \
            --set train.schedule=constant --set train.log_every=1
        cp out $run.hash
    done
    [ -n "$(hash_in cut.hash)" ] && [ "$(hash_in cut.hash)" = "$(hash_in whole.hash)" ] || fail "other weights after data that could not be read"
}
unreadable one.tsv --set task.t.train=cut.data
unreadable one.tsv --set task.t.train=cut.data --comm thread --ranks 2 --threads 1
cut -f 1 one.tsv >lines.txt
# shellcheck disable=SC2086
unreadable lines.txt $prefix --set task.t.format=text --set task.t.train=text.txt --set task.t.valid=cut.data --set train.evaluate_every=3 \
    --comm thread --ranks 2 --threads 1
finish
