#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training run from start to end: what is printed, what the run directory holds, how --resume and the lock behave, and
# what the metrics database answers.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/valid.tsv" 20 2
cd "$here" || exit 99

# ---- a whole run, piped ----
exits 0 tiny whole --set train.log_every=5 --set task.words.valid=valid.tsv --set train.evaluate_every=10 \
    --set train.checkpoint_every=8 --set train.keep_checkpoints=2 --set metrics.every=1
mv out whole.out
[ ! -s err ] || fail "a good run writes on stderr: $(cat err)"
[ "$(head -n 1 whole.out)" = "run directory $here/whole" ] || fail "the run directory is not printed first"
says whole.out '^1 rank x [0-9]* threads* on [0-9]* CPUs*, backend cpu (.*), comm self, mesh data=1 expert=1 model=1$'
says whole.out '300 examples, 0 left out as too long'
for step in 5 10 15 20; do
    says whole.out "^step $step/20  loss [0-9.]*  lr [^ ]*  [0-9]* tokens/s  [0-9.]* ms/step  .* left\$"
done
[ "$(grep -c '^step [0-9]*/20 ' whole.out)" -eq 4 ] || fail "not one progress line every 5 steps"
says whole.out '^step 10  words/valid: 20 items, loss .*, word error rate .* %, phoneme error rate .* %'
says whole.out '^step 20  words/valid: '
says whole.out '^checkpoint of step 8 saved'
says whole.out '^done after 20 steps'
says whole.out '^median step [0-9.]* s$'
tr -d '\n' <whole.out | grep -q "$(printf '\r')" && fail "a carriage return in piped output"
hash=$(hash_in whole.out)
[ "${#hash}" -eq 64 ] || fail "no hash of the weights"
[ "$(cat whole/status)" = done ] || fail "status $(cat whole/status)"
[ "$(ls whole | tr '\n' ' ')" = "checkpoints log metrics.db run.conf status " ] || fail "run directory: $(ls whole)"
[ "$(ls whole/checkpoints | tr '\n' ' ')" = "16 20 " ] || fail "keep_checkpoints=2 kept: $(ls whole/checkpoints)"
[ "$(ls whole/checkpoints/20 | tr '\n' ' ')" = "meta.json params.safetensors state.safetensors " ] ||
    fail "checkpoint: $(ls whole/checkpoints/20)"
grep -q "\"params_sha256\": *\"$hash\"" whole/checkpoints/20/meta.json || fail "meta.json has another hash"
says whole/log 'checkpoint of step 20 saved'
"$program" config whole/run.conf >again || fail "run.conf does not load"
cmp -s again whole/run.conf || fail "run.conf loads to other values"

# ---- on a terminal: one line that is written over ----
if command -v script >/dev/null; then
    script -q -e -c "'$program' train '$top/bench/tiny.run' --run-dir terminal --set task.words.train=train.tsv" typescript \
        >out 2>err </dev/null || fail "on a terminal: exit $?: $(cat out)"
    tr '\r' '\n' <out | grep -q '^step 20/20  loss [0-9.]*  lr [^ ]*  [0-9]* tokens/s  [0-9.]* ms/step  0 s left' ||
        fail "no progress line on a terminal: $(cat out)"
    [ "$(grep -c 'step [0-9]*/20 ' out)" -eq 1 ] || fail "more than one progress line on a terminal: $(cat out)"
else
    echo "skipped: a terminal's progress line (there is no program script)"
fi

# ---- with standard output closed: nothing of it gets into the files ----
"$program" train "$top/bench/tiny.run" --run-dir closed --set task.words.train=train.tsv --set train.log_every=1 >&- 2>err
got=$?
[ $got -eq 1 ] || fail "exit $got instead of 1 with standard output closed"
one_line_error
grep -v '^[0-9]*-[0-9]*-[0-9]* [0-9:]* ' closed/log && fail "standard output got into the log"
exits 0 "$program" predict closed

# ---- where runs go ----
exits 0 "$program" train "$top/bench/tiny.run" --set task.words.train=train.tsv --set train.steps=0
made=$(sed -n '1s/^run directory //p' out)
expr "$made" : 'runs/tiny-[0-9]\{8\}-[0-9]\{6\}$' >/dev/null || fail "a run without --run-dir goes to '$made'"
[ -f "$made/run.conf" ] || fail "$made holds no run"
exits 0 tiny quiet --quiet --set train.steps=1
[ "$(grep -c 'step 1/' out)" -eq 0 ] || fail "--quiet shows progress"
[ ! -s err ] || fail "--quiet writes on stderr: $(cat err)"
# Nothing of a run may be changed by everybody, whatever the shell allows.
(
    umask 0
    exits 0 tiny open --set train.steps=1 --set log.ranks=all
    exit "$failures"
) || failures=$((failures + 1))
[ -z "$(find open -perm -o+w)" ] || fail "everybody may write $(find open -perm -o+w | tr '\n' ' ')"

# ---- what is refused ----
cp -R whole before
exits 2 tiny whole
one_line_error
says err 'holds a run already: add --resume'
exits 2 "$program" train "$top/bench/tiny.run" --resume --set task.words.train=train.tsv
one_line_error
says err '--resume needs --run-dir'
exits 2 tiny whole --resume --set model.d_model=64
one_line_error
says err 'model.d_model is 32 in the run directory and 64 now: this changes the model'
exits 2 tiny whole --resume --set moe.num_experts=2
says err 'moe.num_experts is 4 in the run directory and 2 now'
exits 2 tiny whole --resume --set 'optimizer.slow.match=[*embedding*]'
says err '\[optimizer.\*\] is \[optimizer\] in the run directory and \[optimizer\] \[optimizer.slow\] now: this changes'
diff -r whole before >/dev/null || fail "a refused command changed the run directory: $(diff -r whole before)"

# ---- --resume ----
same='--set train.log_every=5 --set task.words.valid=valid.tsv --set train.evaluate_every=10 --set train.checkpoint_every=8
    --set train.keep_checkpoints=2 --set metrics.every=1'
exits 0 tiny whole --resume $same
[ ! -s err ] || fail "nothing differs, but: $(cat err)"
says out 'all 20 steps of train.steps are done: nothing is left to train'
[ "$(hash_in out)" = "$hash" ] || fail "--resume of a finished run changed the weights"
[ "$(cat whole/status)" = done ] || fail "status $(cat whole/status)"
exits 0 tiny fresh --resume $same
says out "no checkpoint in $here/fresh: starting fresh"
[ "$(hash_in out)" = "$hash" ] || fail "a run started by --resume has other weights"
exits 0 tiny whole --resume $same --set train.steps=22 --set optimizer.weight_decay=0.1
[ "$(wc -l <err)" -eq 2 ] || fail "two keys differ, but: $(cat err)"
says err '^switchyard: resume: train.steps changes from 20 to 22$'
says err '^switchyard: resume: optimizer.weight_decay changes from "auto" to 0.1$'
says out 'going on from the checkpoint of step 20'
exits 0 "$program" metrics whole --tsv "SELECT step || ' ' || text FROM event WHERE kind = 'setting'"
says out '20 train.steps changes from 20 to 22'
says out '20 optimizer.weight_decay changes from "auto" to 0.1'
grep -q '^steps = 22$' whole/run.conf || fail "run.conf keeps the old number of steps"
exits 0 tiny whole --resume $same --set train.steps=20
says out 'train.steps = 20 is less than the 22 steps that are done: nothing is trained, run.conf stays as it was'
grep -q '^steps = 22$' whole/run.conf || fail "a resume with fewer steps than are done changes run.conf"

# ---- the lock ----
export SWITCHYARD_LOCK_WAIT=0
start long --set train.steps=1000000 --set train.log_every=1
eventually grep -q '^step 2/' long.out
[ "$(cat long/status)" = running ] || fail "status of a live run: $(cat long/status)"
[ "$(cut -d ' ' -f 2 long/lock)" = "$owner" ] || fail "the lock holds another process: $(cat long/lock)"
exits 1 tiny long --resume --set train.steps=1000000 --set train.log_every=1
one_line_error
says err "in use by process $owner on this host ($(cut -d ' ' -f 1 long/lock))"
[ "$(cat long/status)" = running ] || fail "a refused start changed the status to $(cat long/status)"
pid=$owner
kill -KILL "$pid"
ended 2>/dev/null
[ -f long/lock ] || fail "no lock is left behind by a killed run"
exits 0 tiny long --resume --set train.steps=2
says err "took over the lock of process $pid, which runs no more"
[ ! -f long/lock ] || fail "the lock stays after the end"
printf 'elsewhere 12345 1\n' >long/lock
exits 1 tiny long --resume --set train.steps=2
one_line_error
says err 'locked by process 12345 on host elsewhere'
rm long/lock

# ---- which gradients count as many times as there are experts ----
few='--set train.steps=3 --set optimizer.name=adafactor --set train.clip_norm=1'
exits 0 tiny scaled $few
scaled=$(hash_in out)
exits 0 tiny unscaled $few --set moe.scale_expert_gradients=false
unscaled=$(hash_in out)
exits 0 tiny nothing $few --set moe.sharded_match_fn=nothing
[ "$(hash_in out)" = "$unscaled" ] || fail "a pattern that matches nothing scales gradients"
exits 0 tiny wi $few --set 'moe.sharded_match_fn=*/expert/wi*'
[ "$(hash_in out)" != "$unscaled" ] && [ "$(hash_in out)" != "$scaled" ] && [ "$scaled" != "$unscaled" ] ||
    fail "moe.sharded_match_fn changes nothing"

# ---- metrics ----
exits 0 "$program" metrics whole
says out 'loss'
says out 'decoder/layers_1/mlp'
[ "$(query whole 'SELECT count(*) FROM loss_curve')" = 22 ] || fail "loss_curve has not one row a step"
[ "$(query whole 'SELECT min(step), max(step) FROM loss_curve')" = "1	22" ] || fail "loss_curve has other steps"
[ "$(query whole 'SELECT count(*) FROM loss_curve WHERE loss > 0 AND learning_rate >= 0 AND grad_norm > 0')" = 22 ] ||
    fail "loss_curve has empty cells"
[ "$(query whole "SELECT count(*) FROM event WHERE kind = 'checkpoint'")" = 5 ] || fail "checkpoints are not in event"
[ "$(query whole "SELECT count(*) FROM eval_latest WHERE task = 'words/valid' AND name = 'wer'")" = 1 ] || fail "no wer in eval"
# Words of 5 letters: a step's 32 rows have 6 tokens in and 10 out, and each goes to 2 experts of a layer.
awk -F '\t' 'length($1) == 5' train.tsv >five.tsv
tokens=$((32 * 6 * 2)) outputs=$((32 * 10 * 2))
for run in one parts ranks; do
    case $run in
    one) set -- --set train.microbatches=1 ;;
    parts) set -- --set train.microbatches=2 ;;
    ranks) set -- --comm thread --ranks 2 --set mesh.data=2 ;;
    esac
    exits 0 tiny $run "$@" --set task.words.train=five.tsv --set train.steps=3 --set metrics.every=1 --set metrics.routing_every=1
    for step in 1 2 3; do
        got=$(query $run "SELECT sum(tokens + dropped) FROM expert_load WHERE step = $step AND layer LIKE 'encoder%'")
        [ "$got" = "$tokens" ] || fail "$run: step $step: $got tokens to the encoder's experts instead of $tokens"
        got=$(query $run "SELECT sum(tokens + dropped) FROM expert_load WHERE step = $step AND layer LIKE 'decoder%'")
        [ "$got" = "$outputs" ] || fail "$run: step $step: $got tokens to the decoder's experts instead of $outputs"
    done
    [ "$(query $run 'SELECT abs(sum(share) - 2) < 1e-9 FROM expert_load WHERE step = 3')" = 1 ] || fail "$run: shares"
done

# names RUN: those of its training metrics, sorted.
names() {
    "$program" metrics $1 --tsv "SELECT DISTINCT name FROM metric WHERE name NOT LIKE 'timing/%' ORDER BY name" |
        sed 1d | tr '\n' ' '
}
# holds RUN SQL: the condition on the metrics of step 3 is true; v("NAME") is a value.
holds() {
    sql=$(echo "$2" | sed "s|v(\([^)]*\))|(SELECT value FROM valid_metric WHERE step = 3 AND name = '\1')|g")
    [ "$(query $1 "SELECT $sql")" = 1 ] || fail "$1: not true of step 3: $2"
}
common='experts/auxiliary_loss experts/expert_usage experts/fraction_tokens_left_behind experts/router_confidence '
common="accuracy cross_ent_loss cross_entropy ${common}experts/router_z_loss learning_rate learning_rate/current loss"
[ "$(names one)" = "$common non_padding_fraction/loss_weights step_seconds tokens_per_second weight_gradient_norm z_loss " ] ||
    fail "metrics of a run with experts: $(names one)"
parts='v(cross_ent_loss) + v(z_loss) + v(experts/auxiliary_loss) + v(experts/router_z_loss)'
for run in one parts ranks; do
    holds $run "abs($parts - v(loss)) < 1e-6"
    holds $run 'v(experts/auxiliary_loss) > 0 AND v(experts/router_z_loss) > 0 AND v(z_loss) > 0'
    holds $run 'v(experts/expert_usage) > 0.5 AND v(experts/expert_usage) <= 1'
    holds $run 'v(experts/fraction_tokens_left_behind) >= 0 AND v(experts/fraction_tokens_left_behind) < 0.2'
    holds $run 'v(experts/router_confidence) > 0.25 AND v(experts/router_confidence) < 1'
done
holds one 'v(learning_rate) = (SELECT learning_rate FROM loss_curve WHERE step = 3)'
holds one 'v(weight_gradient_norm) = (SELECT grad_norm FROM loss_curve WHERE step = 3)'
for name in seconds steps_per_second seqs seqs_per_second seqs_per_second_per_core target_tokens_per_second \
    target_tokens_per_second_per_core uptime; do
    holds one "v(timing/$name) > 0"
done
holds one 'abs(v(timing/target_tokens_per_second) * v(timing/seconds) - 320) < 1e-6'
holds ranks 'abs(v(timing/seqs_per_second_per_core) * v(timing/seconds) * 2 - v(timing/seqs)) < 1e-6'
for name in checkpoint compilation first_step init_or_restore set_up; do
    [ "$(query one "SELECT count(*) FROM metric WHERE value > 0 AND name = 'timing/${name}_seconds'")" = 1 ] ||
        fail "timing/${name}_seconds"
done
exits 0 tiny weighed --set train.microbatches=1 --set task.words.train=five.tsv --set train.steps=3 --set metrics.weights_every=3
[ "$(hash_in out)" = "$(sed -n 's/.*"params_sha256": *"\([0-9a-f]*\)".*/\1/p' one/checkpoints/3/meta.json)" ] ||
    fail "metrics.weights_every changes the weights"
for name in weight_rms weight_max weight_gradient_rms weight_update_rms weight_update_divided_by_weight_rms; do
    holds weighed "v($name) > 0"
done
holds one 'v(experts/expert_usage) = (SELECT expert_usage FROM expert_curve WHERE step = 3)'
# As T5X divides: padding counts, and microbatches are added. 320 targets a step.
exits 0 tiny padded --set task.words.train=five.tsv --set train.steps=3 --set metrics.every=1 --set metrics.divide_by=all
[ "$(hash_in out)" = "$(sed -n 's/.*"params_sha256": *"\([0-9a-f]*\)".*/\1/p' parts/checkpoints/3/meta.json)" ] ||
    fail "metrics.divide_by changes the weights"
for name in '' z_ cross_ent_; do
    holds padded "abs(v(${name}loss_per_all_target_tokens) * 320 / v(${name}loss) / v(non_padding_fraction/loss_weights) - 1) < 1e-9"
done
holds padded 'abs(v(loss_per_nonpadding_target_token) * 320 / v(loss) - 1) < 1e-9'
holds padded "abs(v(experts/expert_usage) / 2 - $(query parts "SELECT value FROM metric WHERE step = 3 AND name = 'experts/expert_usage'")) < 1e-9"
exits 0 tiny sums --set task.words.train=five.tsv --set train.steps=1 --set metrics.every=1 --set loss.loss_normalizing_factor=none
sums=$(query sums "SELECT value FROM metric WHERE name = 'cross_ent_loss_per_nonpadding_target_token'")
[ "$(query parts "SELECT abs(value - $sums) < 1e-5 FROM metric WHERE step = 1 AND name = 'cross_ent_loss'")" = 1 ] ||
    fail "cross_ent_loss_per_nonpadding_target_token of a sum is $sums"
exits 0 tiny dense --set task.words.train=five.tsv --set train.steps=3 --set metrics.every=1 --set moe.num_experts=0
sides='encoder_input_tokens non_padding_fraction/loss_weights non_padding_fraction/overall'
[ "$(names dense)" = "accuracy cross_ent_loss cross_entropy effective_batch_size/decoder_target_tokens \
effective_batch_size/encoder_input_tokens learning_rate learning_rate/current loss non_padding_fraction/decoder_target_tokens \
non_padding_fraction/$sides step_seconds tokens_per_second weight_gradient_norm z_loss " ] ||
    fail "metrics of a dense run: $(names dense)"
holds dense 'v(effective_batch_size/encoder_input_tokens) = 32'
holds dense 'v(non_padding_fraction/loss_weights) = v(non_padding_fraction/decoder_target_tokens)'
# Rows of several steps: mean/NAME is of all of them, through a resume between two rows and on two ranks.
tiny_rows() {
    rows=$1
    shift
    exits 0 tiny "$rows" --set train.schedule=constant --set train.steps=12 "$@"
}
tiny_rows each --set metrics.every=1
tiny_rows rows --set metrics.every=5
tiny_rows went-on --set metrics.every=5 --set train.steps=8
tiny_rows went-on --set metrics.every=5 --resume --comm thread --ranks 2 --set mesh.data=2
[ "$(query each "SELECT count(*) FROM metric WHERE name LIKE 'mean/%'")" = 0 ] || fail "means of rows of one step"
[ "$(query rows "SELECT group_concat(DISTINCT step) FROM metric WHERE name = 'mean/loss'")" = 5,10,12 ] || fail "steps of means"
for name in loss cross_entropy experts/auxiliary_loss experts/expert_usage weight_gradient_norm; do
    for run in rows went-on; do
        same=$("$program" metrics each $run --tsv "SELECT count(*), max(abs(m.value - e.value)) < 1e-12 FROM
            (SELECT (step + 4) / 5 AS row, avg(value) AS value FROM all_metric WHERE run = 'each' AND name = '$name' GROUP BY 1) e
            JOIN (SELECT (step + 4) / 5 AS row, value FROM all_metric WHERE run = '$run' AND name = 'mean/$name' AND step <> 8) m USING (row)" |
            tail -n 1)
        [ "$same" = "3	1" ] || fail "$run: mean/$name is not the mean of each step: $same"
    done
done
exits 1 "$program" metrics whole 'SELEC 1'
one_line_error
exits 1 "$program" metrics whole 'DELETE FROM metric'
one_line_error
[ "$(query whole 'SELECT count(*) FROM loss_curve')" = 22 ] || fail "a query changed the database"

# ---- a log of each rank, where it is asked for ----
exits 0 tiny every --quiet --comm thread --ranks 2 --threads 1 --set mesh.expert=2 --set log.ranks=all \
    --set train.log_every=10
for rank in 0 1; do
    says every/ranks/rank-$rank.log \
        "^[-0-9]* [:0-9]* rank $rank of 2 on host $(uname -n), process [0-9]*, 1 thread, CPUs [-,0-9]*, mesh position data=0 expert=$rank model=0\$"
    says every/ranks/rank-$rank.log ' memory: [0-9.]* MiB$'
    line=' step [12]0/20  [0-9.]* ms/step, [0-9.]* ms of it waiting for other ranks$'
    [ "$(grep -c "$line" every/ranks/rank-$rank.log)" -eq 2 ] ||
        fail "rank $rank: not one line every 10 steps: $(cat every/ranks/rank-$rank.log)"
    grep -q 'step 10/20 .* 0[.]00 ms of it waiting' every/ranks/rank-$rank.log && fail "rank $rank never waits"
    says every/ranks/rank-$rank.log ' done after 20 steps$'
done
exits 0 env SWITCHYARD_LOG_RANKS=first "$program" train "$top/bench/tiny.run" --quiet --run-dir every --resume \
    --set task.words.train=train.tsv --set log.ranks=all --set train.steps=21
grep -q ' done after 21 steps$' every/ranks/rank-0.log && fail "SWITCHYARD_LOG_RANKS=first writes a log of the rank"
exits 1 env SWITCHYARD_LOG_RANKS=some "$program" train "$top/bench/tiny.run" --quiet --run-dir some \
    --set task.words.train=train.tsv
one_line_error
says err 'SWITCHYARD_LOG_RANKS=some: one of first, all, nodes'

finish
