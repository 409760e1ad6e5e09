#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model learns a small task; eval's error rates are those of predict's answers, and no answer depends on the order of the
# lines, the size of a batch or the number of ranks.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
short='length($1) <= 5'
data all.tsv 12000 1
awk -F '\t' "$short" all.tsv >train.tsv
data all.tsv 400 2
awk -F '\t' "$short" all.tsv >test.tsv

exits 0 tiny learned --set data.max_input_length=8 --set data.max_target_length=12 --set 'data.length_buckets=[]' \
    --set data.batch_size=64 --set train.steps=400 --set train.learning_rate=6e-3 --set train.warmup_steps=30 \
    --set train.microbatches=1 --set train.checkpoint_every=200 --set train.log_every=100 --set model.dropout_rate=0 \
    --set model.head_dim=16 --set moe.num_selected_experts=1 --set task.words.test=test.tsv
cat out

# ---- eval ----
exits 0 "$program" eval learned
[ ! -s err ] || fail "eval writes on stderr: $(cat err)"
mv out eval.out
says eval.out '^words/test: [0-9]* items, loss [0-9.]*, word error rate [0-9.]* %, phoneme error rate [0-9.]* %, 0 cut'
result=$(sed -n 's,^words/test: ,,p' eval.out)
echo "learned: $result"
error=$(sed -n 's,^words/test: .*word error rate \([0-9]*\).*,\1,p' eval.out)
[ "$error" -lt 20 ] || fail "after 400 steps the word error rate is still $error %"

cut -f 1 test.tsv >words
"$program" predict learned <words >answers 2>err || fail "predict: $(cat err)"
[ ! -s err ] || fail "predict writes on stderr: $(cat err)"
[ "$(wc -l <answers)" -eq "$(wc -l <words)" ] || fail "not one answer a line"

# rates NAME: the error rates of answers to the words of a file, each word once, with the digits that eval prints.
rates() {
    paste test.tsv "$1" | awk -F '\t' '
        function least(a, b) { return a < b ? a : b }
        function distance(x, y, nx, ny, i, j) {
            nx = split(x, a, " "); ny = split(y, b, " ")
            for (i = 0; i <= nx; i++) d[i, 0] = i
            for (j = 0; j <= ny; j++) d[0, j] = j
            for (i = 1; i <= nx; i++) for (j = 1; j <= ny; j++)
                d[i, j] = least(least(d[i-1, j], d[i, j-1]) + 1, d[i-1, j-1] + (a[i] != b[j]))
            return d[nx, ny]
        }
        !seen[$1]++ { n++; wrong += $2 != $3; errors += distance($2, $3); length_ += split($2, a, " ") }
        END { printf "%d items %.2f %.2f\n", n, 100 * wrong / n, 100 * errors / length_ }'
}
got=$(echo "$result" | sed 's/^\([0-9]* items\).*word error rate \([0-9.]*\) %, phoneme error rate \([0-9.]*\) %.*/\1 \2 \3/')
[ "$(rates answers)" = "$got" ] || fail "eval says '$got', predict's answers give '$(rates answers)'"

wer=$(query learned "SELECT printf('%.2f', 100 * value) FROM eval_latest WHERE task = 'words/test' AND name = 'wer' AND step = 400")
[ "$wer" = "$(echo "$got" | cut -d ' ' -f 3)" ] || fail "the database has a word error rate of '$wer', eval printed '$got'"
for name in items cut loss per; do
    [ "$(query learned "SELECT count(*) FROM eval_latest WHERE task = 'words/test' AND name = '$name'")" = 1 ] ||
        fail "$name of the evaluation is not in the database"
done

for way in '--set decode.batch_size=5' '--threads 1' '--comm thread --ranks 2 --set mesh.data=2' \
    '--comm thread --ranks 2 --set mesh.expert=2' '--comm thread --ranks 2 --set mesh.model=2' '--checkpoint 400' \
    '--checkpoint latest' '--quiet'; do
    exits 0 "$program" eval learned $way
    [ "$(sed -n 's,^words/test: ,,p' out)" = "$result" ] || fail "eval $way: $(tail -n 1 out) instead of $result"
    "$program" predict learned $way <words >other 2>err || fail "predict $way: $(cat err)"
    cmp -s other answers || fail "predict $way: $(diff other answers | grep -c '^<') answers differ"
done

# ---- bfloat16: other losses, the same on any threads and meshes, greedily and with beams ----
half='--set model.dtype=bfloat16'
# loss ARGUMENTS...: that of an evaluation, with all its digits.
loss() {
    exits 0 "$program" eval learned "$@"
    query learned "SELECT printf('%.17g', value) FROM eval_latest WHERE task = 'words/test' AND name = 'loss' AND step = 400"
}
bits=$(loss $half)
[ "$bits" != "$(loss)" ] || fail "eval in bfloat16 gives the loss of float32, $bits"
for search in '' '--beams 3'; do
    "$program" predict learned $half $search <words >halves 2>err || fail "predict in bfloat16: $(cat err)"
    same=$(paste words halves answers | awk -F '\t' '$2 == $3' | wc -l)
    [ "$((10 * same))" -ge "$((8 * $(wc -l <words)))" ] || fail "bfloat16 $search: only $same answers are those of float32"
    for way in '--set decode.batch_size=5' '--threads 1' '--comm thread --ranks 2 --set mesh.data=2' \
        '--comm thread --ranks 2 --set mesh.expert=2' '--comm thread --ranks 2 --set mesh.model=2'; do
        "$program" predict learned $half $search $way <words >other 2>err || fail "predict $way: $(cat err)"
        cmp -s other halves || fail "bfloat16 $search $way: $(diff other halves | grep -c '^<') answers differ"
        case $search$way in *beams* | *batch_size*) continue ;; esac # another batch adds losses up in another order
        got=$(loss $half $way)
        [ "$got" = "$bits" ] || fail "eval in bfloat16, $way: a loss of $got instead of $bits"
    done
done
exits 0 "$program" explain --program weights $half "$top/bench/tiny.run"

# ---- other checkpoints, other files ----
exits 0 "$program" eval learned --checkpoint 200
says out 'checkpoint of step 200'
[ "$(sed -n 's,^words/test: ,,p' out)" != "$result" ] || fail "eval takes the same weights for --checkpoint 200"
"$program" predict learned --checkpoint 200 <words >other 2>err || fail "predict --checkpoint 200: $(cat err)"
cmp -s other answers && fail "predict takes the same weights for --checkpoint 200"
exits 1 "$program" eval learned --checkpoint 300
one_line_error
says err 'holds no checkpoint of step 300; there are: 400, 200'
exits 1 "$program" predict learned --checkpoint 300
one_line_error
for command in eval predict; do
    exits 1 "$program" $command learned --checkpoint best
    one_line_error
    says err 'learned has no best checkpoint: its training evaluated nothing, or'
done
exits 0 "$program" eval learned --file test.tsv
[ "$(sed -n 's/^test.tsv: //p' out)" = "$result" ] || fail "eval --file: $(cat out)"

# Several references: the nearest one counts. What is cut counts as wrong.
{
    head -n 1 test.tsv | awk -F '\t' '{ print $1 "\tX X X\t" $2 }'
    printf 'abcdefghab\tA B C D E F G H A B\n'
} >special.tsv
exits 0 "$program" eval learned --file special.tsv
first=0
[ "$(head -n 1 answers)" = "$(head -n 1 test.tsv | cut -f 2)" ] || first=1
says out "^special.tsv: 2 items, loss .*, word error rate $((50 + 50 * first)).00 %, .*, 1 cut (counted wrong)"

# ---- predict: order, windows, odd lines ----
paste words answers | sort -u >pairs
sort -r words >reversed
"$program" predict learned <reversed 2>err | paste reversed - | sort -u | cmp -s - pairs || fail "the order of lines matters"
for n in 1 16 17 33; do
    head -n $n words | "$program" predict learned >other 2>err || fail "predict of $n lines: $(cat err)"
    head -n $n answers | cmp -s - other || fail "the answers to the first $n lines alone differ"
done
exits 0 "$program" predict learned
[ ! -s out ] && [ ! -s err ] || fail "no input, but output"
printf '%s' "$(head -n 3 words)" | "$program" predict learned >other 2>err || fail "no line feed at the end: $(cat err)"
head -n 3 answers | cmp -s - other || fail "a last line without a line feed is another input"
head -n 3 words | sed "s/\$/$(printf '\r')/" | "$program" predict learned >other 2>err
head -n 3 answers | cmp -s - other || fail "lines that end as on Windows are other inputs"

{
    sed -n 1p words
    echo abcdefgh
    echo
    sed -n 2p words
    printf '\377\376\n'
    printf 'a\377\n'
    echo abcdefghabcdefghabcdefgh
    sed -n 3p words
} >odd
for way in '' '--set decode.batch_size=2' '--comm thread --ranks 2'; do
    "$program" predict learned $way <odd >other 2>err
    got=$?
    [ $got -eq 1 ] || fail "exit $got instead of 1 after inputs over the limit"
    [ "$(wc -l <other)" -eq 8 ] || fail "$(wc -l <other) lines out for 8 lines in"
    [ -z "$(sed -n 2p other)$(sed -n 7p other)" ] || fail "an input over the limit has an output"
    [ "$(sed -n -e 1p -e 4p -e 8p other)" = "$(head -n 3 answers)" ] || fail "lines around odd ones have other answers"
    [ "$(wc -l <err)" -eq 3 ] || fail "three odd things, but: $(cat err)"
    says err '^switchyard: predict: input line 2 is over the limit of data.max_input_length=8 tokens'
    says err '^switchyard: predict: input line 7 is over the limit'
    says err '^switchyard: warning: predict: input line 5 is not valid UTF-8; the bytes are used as they are'
done

# ---- several outputs and their scores ----
# predicted NAME ARGUMENTS...: the answers to the first 40 words, in NAME.
head -n 40 words >some
predicted() {
    to=$1
    shift
    "$program" predict learned "$@" <some >"$to" 2>err || fail "predict $*: $(cat err)"
}
head -n 40 answers >greedy
predicted scored --scores
cut -f 1 scored | cmp -s - greedy || fail "--scores changes the outputs"
[ "$(awk -F '\t' 'NF != 2 || $2 > 0' scored | wc -l)" -eq 0 ] || fail "a score is missing or over 0: $(cat scored)"
predicted beams --beams 4 --scores
predicted four --decodes 4 --scores
predicted two --beams 4 --decodes 2 --scores
[ "$(wc -l <four)" -eq 160 ] || fail "--decodes 4 writes $(wc -l <four) lines for 40"
awk 'NR % 4 == 1' four | cmp -s - beams || fail "the first of four is not the best of four beams"
awk 'NR % 4 == 1 || NR % 4 == 2' four | cmp -s - two || fail "--decodes 2 is not the best two of four beams"
[ "$(awk -F '\t' 'NR % 4 != 1 && $2 > last { print } { last = $2 }' four | wc -l)" -eq 0 ] || fail "scores are not falling"
[ "$(awk -F '\t' '{ print int((NR - 1) / 4) "\t" $1 }' four | sort -u | wc -l)" -eq 160 ] || fail "beams are alike"
# Greedy decoding, beams and draws at temperature 1 agree on the log-probability of an output.
predicted drawn --temperature 1 --decodes 5 --scores
[ "$(awk -F '\t' '{ print int((NR - 1) / 5) "\t" $1 }' drawn | sort -u | wc -l)" -gt 40 ] || fail "all draws are alike"
awk -F '\t' 'function differ(a, b) { return a - b > 1e-4 || b - a > 1e-4 }
    FILENAME == "scored" { score[FNR, $1] = $2; next }
    { n = FILENAME == "four" ? 4 : 5; line = int((FNR - 1) / n) + 1 }
    !((line, $1) in score) { next }
    { value = FILENAME == "four" ? $2 * exp(0.6 * log((5 + length($1) + 1) / 6)) : $2; same[FILENAME]++ }
    differ(value, score[line, $1]) { print FILENAME ": " $0 " but " score[line, $1]; exit 1 }
    END { exit !(same["four"] > 30 && same["drawn"] > 30) }' scored four drawn || fail "scores contradict each other"
predicted colder --temperature 0.5 --decodes 5 --scores
predicted colder-model --temperature 0.5 --decodes 5 --scores --set decode.rescale_log_probs=false
cmp -s colder colder-model && fail "decode.rescale_log_probs changes nothing"
predicted only --temperature 0.5 --set decode.topk=1 --scores --set decode.rescale_log_probs=false
cmp -s only scored || fail "draws from the largest logit alone are not greedy decoding"
predicted cold --set decode.temperature=1 --temperature 0 --beams 4 --set decode.beams=2 --scores
cmp -s cold beams || fail "--temperature 0 and --beams 4 do not hold over --set"
for way in '--set decode.batch_size=3' '--comm thread --ranks 2 --set mesh.data=2' \
    '--comm thread --ranks 2 --set mesh.expert=2' '--comm thread --ranks 2 --set mesh.model=2'; do
    predicted other $way --decodes 4 --scores
    cmp -s other four || fail "four beams differ with $way"
    predicted other $way --temperature 1 --decodes 5 --scores
    cmp -s other drawn || fail "draws differ with $way"
done
exits 0 "$program" eval learned --set decode.num_decodes=4
mv out num.out
exits 0 "$program" eval learned --beams 4
[ "$(sed -n 's,^words/test: ,,p' num.out)" = "$(sed -n 's,^words/test: ,,p' out)" ] || fail "eval does not take the best of four"
"$program" predict learned --decodes 3 --scores <odd >other 2>err
got=$?
[ $got -eq 1 ] || fail "exit $got instead of 1 after inputs over the limit"
[ "$(wc -l <other)" -eq 24 ] || fail "$(wc -l <other) lines out for 8 lines in, three outputs each"
[ "$(sed -n '4,6p;19,21p' other | sort -u)" = "$(printf '\t-inf')" ] || fail "outputs of inputs over the limit"
[ "$(wc -l <err)" -eq 3 ] || fail "three odd things, but: $(cat err)"
for option in 'beams beams' 'decodes num_decodes'; do
    for value in 0 300; do
        exits 2 "$program" predict learned --"${option% *}" $value
        one_line_error
        says err "decode.${option#* }: $value is not accepted: it takes an integer in 1..256"
    done
done
exits 2 "$program" predict learned --beams 2 --decodes 4
one_line_error
says err '--beams 2 and --decodes 4: a search gives as many outputs as it has beams at most'
predicted other --beams 1 --decodes 2 --temperature 1 # draws, which need no beams
predicted other --decodes 100 --scores --set decode.max_length=2
[ "$(wc -l <other)" -eq 4000 ] && [ "$(grep -c 'inf$' other)" -gt 1000 ] || fail "100 outputs of a token from 8"
grep 'inf$' other | sort -u >none
[ "$(cat none)" = "$(printf '\t-inf')" ] || fail "outputs that were not found: $(cat none)"
exits 2 "$program" eval learned --decodes 2

if [ -w /dev/full ]; then
    "$program" predict learned <words >/dev/full 2>err
    got=$?
    [ $got -eq 1 ] || fail "exit $got instead of 1 on a full disk"
    one_line_error
fi
finish
