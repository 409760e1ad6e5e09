#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several tasks are evaluated, in training and by eval, one of them without decoding and one on a few items; score gives the
# log-likelihoods that the loss is made of, in order, whatever the batches and ranks.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 300 1
data test.tsv 30 2
awk -F '\t' '{ print $1 "\t" substr($2, 1, 1) }' test.tsv >first.tsv

exits 0 tiny run --set train.steps=6 --set train.evaluate_every=3 --set loss.z_loss=0 --set task.words.valid=test.tsv \
    --set task.words.eval_examples=4 --set 'task.words.metrics=["wer", "per", "bleu", "rougeL"]' --set task.words.test=test.tsv \
    --set task.first.valid=first.tsv --set 'task.first.metrics=[]' --set task.first.test=first.tsv
[ "$(grep -c '^step [36]  words/valid: 4 items, loss [0-9.]*, word error rate .* %, phoneme error rate .* %, BLEU .*, ROUGE-L' out)" -eq 2 ] ||
    fail "words/valid: $(cat out)"
[ "$(grep -c '^step [36]  first/valid: [0-9]* items, loss [0-9.]*, token accuracy [0-9.]* %, 0 cut (left out)$' out)" -eq 2 ] ||
    fail "first/valid: $(cat out)"
[ "$(query run "SELECT count(*) FROM eval WHERE task = 'first/valid' AND name IN ('wer', 'per')")" = 0 ] || fail "first was decoded"
for name in loss accuracy cross_ent_loss z_loss experts/auxiliary_loss experts/router_z_loss \
    experts/fraction_tokens_left_behind experts/expert_usage experts/router_confidence; do
    [ "$(query run "SELECT count(*) FROM eval WHERE name = '$name'")" = 4 ] || fail "$name is not there for both tasks and steps"
done

[ "$(query run "SELECT count(*), count(DISTINCT tokens) FROM (SELECT sum(tokens) AS tokens FROM eval_routing
    WHERE task = 'first/valid' AND layer LIKE 'encoder/%' GROUP BY step)")" = '2	1' ] || fail "one evaluation counts tokens of another"

# ---- decoding on a schedule of its own: it is left out between, which is no missing value to an action ----
exits 0 tiny apart --set train.steps=7 --set train.evaluate_every=2 --set train.decode_every=3 --set task.words.valid=test.tsv \
    --set decode.max_length=2 --set action.best.kind=keep_best --set action.best.metric=wer --set action.early.metric=wer \
    --set action.early.patience=9 --set action.slow.kind=reduce_lr_on_plateau --set action.slow.patience=9 --set action.slow.metric=chrf
steps_with() {
    query apart "SELECT group_concat(step, ' ') FROM (SELECT DISTINCT step FROM $1 ORDER BY step)"
}
[ "$(steps_with "eval WHERE name = 'loss'")" = '2 3 4 6 7' ] || fail "losses at $(steps_with "eval WHERE name = 'loss'")"
[ "$(steps_with "eval WHERE name = 'wer'")" = '3 6 7' ] || fail "decoded at $(steps_with "eval WHERE name = 'wer'")"
[ "$(steps_with example)" = '3 6 7' ] || fail "examples at $(steps_with example)"
says out '^step 2  words/valid: [0-9]* items, loss [0-9.]*, token accuracy [0-9.]* %, 0 cut (left out)$'
says out '^step 3  words/valid: [0-9]* items, loss [0-9.]*, word error rate .* (counted wrong)$'
[ "$(cat err)" = 'switchyard: warning: reduce_lr_on_plateau of [action.slow]: there is no value of an evaluation called "chrf": it does nothing' ] ||
    fail "not the one warning: $(cat err)"
exits 0 tiny decoded --set train.steps=5 --set train.decode_every=2 --set task.words.valid=test.tsv --set decode.max_length=2
[ "$(query decoded "SELECT group_concat(step, ' ') FROM eval WHERE name = 'wer'")" = '2 4 5' ] || fail "decode_every alone"

# ---- eval ----
exits 0 "$program" eval run --quiet
[ "$(cut -d : -f 1 out | tr '\n' ' ')" = 'words/test first/test ' ] || fail "eval, all tasks: $(cat out)"
grep first/test out >both
exits 0 "$program" eval run --quiet --task first
cmp -s out both || fail "eval --task first: $(cat out) instead of $(cat both)"
exits 0 "$program" eval run --quiet --task first --file first.tsv
[ "$(cut -d : -f 2- out)" = "$(cut -d : -f 2- both)" ] || fail "eval --task first --file: $(cat out)"
exits 2 "$program" eval run --task frist
one_line_error
says err 'no such task, did you mean first?'
exits 2 "$program" eval run --set 'task.words.metrics=["blue"]'
one_line_error
says err 'unknown blue, did you mean bleu? There are: exact_match accuracy wer'
exits 2 tiny none --set task.first.train=first.tsv
one_line_error
says err '\[task.words\] and \[task.first\]: training on several tasks needs a .mixture'

# ---- score ----
sort -u test.tsv | awk -F '\t' '!seen[$1]++' >pairs
"$program" score run <pairs >scores 2>err || fail "score: $(cat err)"
[ ! -s err ] || fail "score writes on stderr: $(cat err)"
[ "$(wc -l <scores)" -eq "$(wc -l <pairs)" ] || fail "not one score a line"
exits 0 "$program" eval run --quiet --set task.words.eval_examples=0 --file pairs
loss=$(query run "SELECT printf('%.9g', value) FROM eval_latest WHERE task = 'pairs' AND name = 'loss'")
paste pairs scores | awk -F '\t' -v loss="$loss" '{ sum += $3; n += length($2) + 1 }
    END { d = -sum / n - loss; exit !(d < 1e-5 && d > -1e-5) }' || fail "scores do not add up to the loss of $loss"
for way in '--set decode.batch_size=5' '--set decode.batch_size=2 --threads 1' '--comm thread --ranks 2 --set mesh.data=2' \
    '--comm thread --ranks 2 --set mesh.expert=2' '--comm thread --ranks 2 --set mesh.model=2' '--file pairs'; do
    "$program" score run $way <pairs >other 2>err || fail "score $way: $(cat err)"
    cmp -s other scores || fail "score $way: $(diff other scores | grep -c '^<') scores differ"
done
sort -r pairs >reversed
"$program" score run <reversed 2>err | paste reversed - | sort >other
paste pairs scores | sort | cmp -s - other || fail "the order of lines matters"
"$program" score run --per-token <pairs | paste pairs scores - |
    awk -F '\t' '{ d = $3 / (length($2) + 1) - $4; if (d > 1e-6 || d < -1e-6) exit 1 }' || fail "--per-token"
# <pad> in a text is no token of it: the mean is over A and the end.
printf 'a\tA<pad><pad><pad>\n' >padded
whole=$("$program" score run --set vocabulary.special_tokens=huggingface <padded)
mean=$("$program" score run --set vocabulary.special_tokens=huggingface --per-token <padded)
awk -v whole="$whole" -v mean="$mean" 'BEGIN { d = whole / 2 - mean; exit !(whole < 0 && d < 1e-6 && d > -1e-6) }' ||
    fail "--per-token of a target of one letter with <pad>: $mean of $whole"
{
    sed -n 1p pairs
    echo untabbed
    printf 'a\tA\tB\n'
    printf 'abcdefghabcdefghabcdefgh\tA\n'
    printf 'a\tA B C D E F G H A B C D E F G\n'
    sed -n 2p pairs
} >odd
"$program" score run <odd >other 2>err
got=$?
[ $got -eq 1 ] || fail "exit $got instead of 1 after lines without a score"
[ "$(sed -n '2,5p' other | sort -u)" = nan ] || fail "odd lines have scores: $(cat other)"
[ "$(sed -n '1p;6p' other)" = "$(head -n 2 scores)" ] || fail "lines around odd ones have other scores"
[ "$(wc -l <err)" -eq 4 ] || fail "four odd lines, but: $(cat err)"
says err '^switchyard: score: input line 2 has no tab'
says err '^switchyard: score: input line 3 has more than one tab'
says err '^switchyard: score: input line 4 is over the limit of data.max_input_length=16 or data.max_target_length=24'
printf 'a\t' | "$program" score run >other 2>err || fail "an empty target: $(cat err)"
[ "$(wc -l <other)" -eq 1 ] && ! grep -q nan other || fail "an empty target has the score '$(cat other)'"
exits 1 "$program" score run --file none.tsv
one_line_error
says err 'score: cannot open none.tsv: No such file'

# Who waits for an answer gets it.
mkfifo in
"$program" score run <in >waiting 2>err &
owner=$!
exec 3>in
sed -n 1p pairs >&3
eventually [ -s waiting ] && [ "$(cat waiting)" = "$(sed -n 1p scores)" ] || fail "no answer while the input is open"
exec 3>&-
ended || fail "score of a pipe: $(cat err)"
exits 0 "$program" explain --program score "$top/bench/tiny.run"
says out 'token_loss'
finish
