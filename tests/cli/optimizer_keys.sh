#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Keys of [optimizer]: what does not fit is refused, with the key and what to write; what a resume is refused for leaves the
# run as it was.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 100 1
cd "$here" || exit 99
tiny_run=$top/bench/tiny.run
small='--quiet --threads 1 --set train.steps=2 --set train.checkpoint_every=2 --set data.batch_size=8
    --set data.length_buckets=[24]'

# ---- resume ----
# shellcheck disable=SC2086
exits 0 tiny run $small --set optimizer.name=sgd --set optimizer.a.name=sgd --set optimizer.a.momentum=0.9 \
    --set 'optimizer.a.match=["encoder/*"]'
cp run/run.conf before.conf
exits 1 "$program" train --resume run --quiet --threads 1 --set train.steps=4 --set optimizer.a.momentum=0
says err 'state/param_states/'
cmp -s run/run.conf before.conf || fail "a refused resume changed run.conf: $(diff before.conf run/run.conf)"
exits 0 "$program" train --resume run --quiet --threads 1
exits 0 "$program" train --resume run --quiet --threads 1 --set train.steps=4 --set optimizer.a.momentum=0.5
grep -q '^momentum = 0.5$' run/run.conf || fail "run.conf does not say what the run goes on with"
# Arguments of a chain change as those of a named optimizer do; what its state is does not.
chain='optimizer.chain=["trace(0.9)", "scale_by_learning_rate"]'
# shellcheck disable=SC2086
exits 0 tiny chain $small --set optimizer.name=chain --set "$chain"
exits 0 "$program" train --resume chain --quiet --threads 1 --set train.steps=4 \
    --set 'optimizer.chain=["trace(0.5)", "scale_by_learning_rate"]'
says err 'optimizer.chain changes from .*0.9.* to .*0.5'
cp chain/run.conf before.conf
exits 1 "$program" train --resume chain --quiet --threads 1 --set train.steps=6 \
    --set 'optimizer.chain=["ema(0.5)", "scale_by_learning_rate"]'
says err 'state/param_states/0/'
cmp -s chain/run.conf before.conf || fail "another chain that was refused changed run.conf"

# ---- a part whose rate would have the name of another metric ----
current='--set optimizer.current.match=["encoder/*"] --set optimizer.current.lr_factors=constant(value=0.1)'
exits 2 "$program" plan "$tiny_run" $current
one_line_error
says err 'learning_rate/current is the rate of \[optimizer\]: take another name'

# ---- patterns that take away from nothing ----
exits 0 "$program" plan "$tiny_run" --set 'optimizer.a.match=["!encoder/*"]'
says err 'optimizer.a.match: a pattern with ! leaves names out of those that follow, and none follows'
exits 0 "$program" plan "$tiny_run" --set 'optimizer.a.match=["!encoder/*","*"]'
[ ! -s err ] || fail "a warning of good patterns: $(cat err)"

# ---- what no optimizer claims ----
claimed='--set optimizer.a.match=["encoder/*"]'
exits 0 "$program" plan "$tiny_run" $claimed
says out '^  optimizer of [0-9]* parameters, [0-9]* elements: none, they stay as they are$'
exits 0 "$program" plan "$tiny_run" $claimed --set optimizer.name=adamw
says out '^  optimizer of [0-9]* parameters, [0-9]* elements: \["scale_by_adam('
# shellcheck disable=SC2086
exits 0 tiny frozen $small $claimed
exits 0 "$program" config frozen
says out '^name = "none"$'

# ---- learning rates of their own ----
own='--set optimizer.name=adamw --set optimizer.lr_factors=constant(0.25) --set optimizer.a.match=["encoder/*"]
    --set optimizer.a.lr_factors=constant(0.5) --set optimizer.b.match=["decoder/*"]'
# shellcheck disable=SC2086
exits 0 tiny rates $small $own --set metrics.every=1 --set train.learning_rate=0.125 --set train.schedule=constant \
    --set train.warmup_steps=0
[ "$(query rates "SELECT value FROM valid_metric WHERE name = 'learning_rate' AND step = 2")" = 0.25 ] ||
    fail "the rate of [optimizer] is not stored: $(query rates "SELECT value FROM valid_metric WHERE name = 'learning_rate'")"
[ "$(query rates "SELECT value FROM valid_metric WHERE name = 'learning_rate/a' AND step = 2")" = 0.5 ] ||
    fail "the rate of [optimizer.a] is not stored"
[ "$(query rates "SELECT count(*) FROM valid_metric WHERE name = 'learning_rate/b'")" = 0 ] ||
    fail "a rate that is the run's is stored twice"
# shellcheck disable=SC2086
exits 0 "$program" plan "$tiny_run" --schedule $own
[ "$(grep '^learning rate by ' out | cut -d' ' -f4 | tr '\n' ' ')" = 'optimizer.lr_factors optimizer.a.lr_factors train.schedule ' ] ||
    fail "the curves are $(grep '^learning' out)"
# shellcheck disable=SC2086
exits 0 "$program" plan "$tiny_run" --schedule --json $own
says out '^{"schedule":\[{"step":0,"learning_rate":0.25}.*"others":\[{"key":"optimizer.a.lr_factors","schedule":\[{"step":0,"learning_rate":0.5}'
# shellcheck disable=SC2086
exits 0 "$program" plan "$tiny_run" --schedule --json $own --set train.min_learning_rate=0.75
says out '"key":"optimizer.a.lr_factors","schedule":\[{"step":0,"learning_rate":0.75}'
exits 0 "$program" plan "$tiny_run" --schedule --set 'optimizer.a.match=["encoder/*"]'
[ "$(grep -c '^learning rate by ' out)" -eq 1 ] || fail "one rate has several curves: $(grep '^learning' out)"

# ---- patterns ----
exits 0 "$program" plan "$tiny_run" --set optimizer.name=adamw --set 'optimizer.weight_decay_mask=["!*skale", "*"]'
says err 'warning: optimizer.weight_decay_mask: "\*skale" matches no parameter of the model, the nearest: .*scale.*plan --tensors'

# ---- chains that contradict themselves are mistakes of the run file ----
for command in 'train --run-dir refused' plan explain; do
    # shellcheck disable=SC2086
    exits 2 "$program" $command "$tiny_run" --set task.words.train="$here/train.tsv" \
        --set 'optimizer.a.match=["encoder/*"]' --set 'optimizer.b.match=["*kernel"]'
    says err 'is matched by optimizer.a.match ("encoder/\*") and by optimizer.b.match ("\*kernel")'
    # shellcheck disable=SC2086
    exits 2 "$program" $command "$tiny_run" --set task.words.train="$here/train.tsv" --set optimizer.name=chain \
        --set 'optimizer.chain=["masked(clip_by_global_norm(1.0))", "scale_by_learning_rate"]'
    says err 'optimizer.chain: clip_by_global_norm stands inside another transform'
done
[ ! -e refused ] || fail "a refused training left a run directory"

# ---- chains whose updates could not make sense ----
# chain_refused TEXT TRANSFORMS ARGUMENTS...: one line with the text; chain_accepted TRANSFORMS: without a word.
chain_refused() {
    text=$1 chain=$2
    shift 2
    exits 2 "$program" plan "$tiny_run" --set optimizer.name=chain --set "optimizer.chain=[$chain]" "$@"
    one_line_error
    says err "$text"
}
chain_accepted() {
    exits 0 "$program" plan "$tiny_run" --set optimizer.name=chain --set "optimizer.chain=[$1]"
    [ ! -s err ] || fail "$1: it says $(cat err)"
}
rate='"scale_by_learning_rate"'
chain_refused 'chain: scale_by_learning_rate at place 1 and scale_by_learning_rate at place 3 both multiply' "$rate,\"trace(0.9)\",$rate"
chain_refused 'adafactor at place 1 and scale_by_learning_rate at place 2 both' "\"adafactor\",$rate"
chain_refused 'scale_by_learning_rate at place 2 and scale_by_learning_rate at place 3 both' \
    '"scale_by_adam","multi_steps(scale_by_learning_rate, every_k=2)","scale_by_learning_rate"'
chain_refused 'scale_by_learning_rate at place 1 and scale_by_learning_rate at place 2 both' \
    "\"masked(scale_by_learning_rate, mask=['encoder/*'])\",$rate"
chain_accepted "\"masked(scale_by_learning_rate, mask=['encoder/*'])\",\"masked(scale_by_learning_rate, mask=['!encoder/*', '*'])\""
chain_accepted '"scale_by_adam","scale(-0.001)"'
chain_accepted '"scale_by_schedule(sign=-1)"'
chain_refused 'optimizer.chain has no learning rate that lr_factors could multiply' '"scale(-0.1)"' --set 'optimizer.lr_factors=constant(0.5)'
for climbing in '"scale_by_adam"' '"trace(0.9)","scale(0.1)"' '"schedule_free(scale_by_adam)","scale_by_learning_rate"'; do
    exits 0 "$program" plan "$tiny_run" --set optimizer.name=chain --set "optimizer.chain=[$climbing]"
    says err 'warning: optimizer.chain adds gradients to weights, so the loss climbs'
done
# A reduced rate that no optimizer takes.
plateau='--set action.slow.kind=reduce_lr_on_plateau --set action.slow.patience=2 --set action.slow.task=train'
# shellcheck disable=SC2086
exits 0 "$program" plan "$tiny_run" --set optimizer.name=chain --set 'optimizer.chain=["scale(-0.1)"]' $plateau
says err 'warning: action.slow: reduce_lr_on_plateau changes nothing: no optimizer of this run multiplies by a learning rate'
# shellcheck disable=SC2086
exits 0 "$program" plan "$tiny_run" --set optimizer.name=chain --set 'optimizer.chain=["scale(-0.1)"]' $plateau \
    --set optimizer.a.name=sgd --set 'optimizer.a.match=["*scale"]'
[ ! -s err ] || fail "a rate that is reduced: it says $(cat err)"

# ---- a learning rate and a warm-up that no factor takes ----
# Of bench/tiny.run, which has both.
untaken() {
    exits 0 "$program" plan "$tiny_run" --set "train.lr_factors=$1" --set optimizer.name=chain --set "optimizer.chain=[$2]"
    [ "$(sed -n 's/.*warning: train.\([a-z_]*\) counts for nothing: no factor.*/\1/p' err | tr '\n' ' ')" = "$3" ] ||
        fail "$1 and $2: $(cat err)"
}
untaken 'constant(0.1) * cosine' "$rate" 'warmup_steps learning_rate '
untaken 'constant * linear_warmup(10)' "$rate" 'warmup_steps '
untaken 'constant * rsqrt_decay' "$rate" ''
untaken 'cosine' "\"scale_by_schedule('linear_decay')\",$rate" ''
untaken '' "$rate" ''
exits 0 "$program" plan "$tiny_run" --set optimizer.name=none
[ ! -s err ] || fail "a run in which nothing moves: $(cat err)"

# ---- 0 / 0 where a gradient has always been 0 ----
chain_refused 'chain: scale_by_adam with eps = 0, eps_root = 0 divides 0 by 0' "\"scale_by_adam(eps=0)\",$rate"
chain_refused 'chain: scale_by_rms with eps = 0 divides 0 by 0' "\"multi_steps(scale_by_rms(eps=1e-60))\",$rate"
chain_refused 'chain: adafactor with epsilon1 = 0 divides 0 by 0 .*: set epsilon1 to 1e-37 or more' '"adafactor(epsilon1=1e-50)"'
chain_accepted "\"scale_by_adam(eps=0, eps_root=1e-12)\",$rate"
chain_accepted "\"scale_by_rss(eps=0)\",$rate"
for name in adamw radam rmsprop muon lamb; do
    for eps in 0 1e-60; do
        exits 2 "$program" plan "$tiny_run" --set optimizer.name=$name --set optimizer.eps=$eps
        one_line_error
        says err "optimizer: $name with eps = 0.* divides 0 by 0 .*: set eps to 1e-37 or more\|optimizer.eps of $name: 0.0 is not accepted"
    done
done
exits 2 "$program" plan "$tiny_run" --set optimizer.name=adafactor --set optimizer.epsilon1=1e-50
one_line_error
says err 'optimizer: adafactor with epsilon1 = 0 divides 0 by 0 .*: set epsilon1 to 1e-37 or more'
# These are not: their first means are above 0, or what is 0 stays so.
for zero in 'adagrad eps' 'sm3 eps' 'yogi eps'; do
    # shellcheck disable=SC2086
    exits 0 tiny zero-${zero% *} $small --set optimizer.name=${zero% *} --set optimizer.${zero#* }=0
    says out 'done after 2 steps'
done
exits 2 "$program" plan "$tiny_run" --set optimizer.name=lars --set optimizer.trust_coefficient=0
says err 'optimizer.trust_coefficient of lars: 0.0 is not accepted'

# ---- state that does not begin at 0 ----
for key in 'adagrad initial_accumulator_value' 'rmsprop initial_scale'; do
    for value in 0 0.5; do
        # shellcheck disable=SC2086
        exits 0 tiny began-${key% *}-$value $small --set optimizer.name=${key% *} --set optimizer.${key#* }=$value
        hash_in out >began.$value
    done
    ! cmp -s began.0 began.0.5 || fail "optimizer.${key#* } of ${key% *} changes nothing"
done

# ---- what clips each example says at once all that it takes ----
# shellcheck disable=SC2086
exits 2 tiny refused $small --set optimizer.name=dpsgd
one_line_error
for setting in 'train.microbatches = data.batch_size' 'train.clip_norm = 0' 'train.microbatch_normalizer = "microbatch"' \
    'moe.scale_expert_gradients = false'; do
    says err "set .*$setting"
done
grep -q gradient_dtype err && fail "what is so already is asked for: $(cat err)"

# ---- what clips each example has rows of one example, that no ranks divide ----
one_row='--set optimizer.name=dpsgd --set train.microbatches=8 --set train.microbatch_normalizer=microbatch
    --set train.clip_norm=0 --set moe.scale_expert_gradients=false'
# shellcheck disable=SC2086
exits 1 "$program" plan "$tiny_run" --set data.batch_size=8 $one_row --set data.pack=true --set 'data.length_buckets=[]'
says err 'optimizer clips the gradient of each example, and a packed row has several: set data.pack = false$'
for axis in data expert; do
    # shellcheck disable=SC2086
    exits 2 tiny refused $small $one_row --comm thread --ranks 2 --set mesh.$axis=2
    says err 'optimizer clips the gradient of each example, so a microbatch has one row'
done
finish
