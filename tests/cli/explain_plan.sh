#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# explain after every stage for every program, and plan: what a run needs, at once and without taking it.
. "$(dirname "$0")/_common.sh"
tiny_run=$top/bench/tiny.run
cd "$here" || exit 99
# Eight ranks can share what has eight leaves.
eight='--ranks 8 --set reproducible.blocks=8 --set reproducible.min_leaf=2 --set mesh.expert=2 --set mesh.model=2'

# shows TEXT: as `says out`, without all of a program in the message.
shows() {
    grep -q -e "$1" out || fail "$shown: no line with '$1'"
}

# ---- keys that count for nothing beside others ----
# nothing KEYS SETTINGS...: plan warns of these keys, and of no others.
nothing() {
    keys=$1
    shift
    exits 0 "$program" plan "$tiny_run" "$@"
    [ "$(sed -n 's/.*warning: \([^ ]*\) counts for nothing: .*/\1/p' err | tr '\n' ' ')" = "$keys" ] || fail "$*: $(cat err)"
}
nothing 'train.final_learning_rate ' --set train.schedule=constant --set train.final_learning_rate=1e-4
nothing 'task.t.noise_density task.t.mean_noise_span_length ' --set task.t.train=none.tsv --set task.t.noise_density=0.5 \
    --set task.t.mean_noise_span_length=2
nothing 'task.t.too_long ' --set task.t.train=none.txt --set task.t.format=text --set task.t.objective=span_corruption \
    --set vocabulary.extra_ids=100 --set 'task.t.metrics=[]' --set task.t.too_long=trim
nothing 'mixture.m.maximum mixture.m.temperature ' --set task.t.train=none.tsv --set 'mixture.m.tasks=[t]' \
    --set 'mixture.m.rates=[1]' --set mixture.m.maximum=5 --set mixture.m.temperature=2
experts='--set moe.encoder_batch_prioritized_routing=true --set moe.decoder_batch_prioritized_routing=true'
# shellcheck disable=SC2086
nothing 'moe.num_selected_experts moe.encoder_batch_prioritized_routing moe.decoder_batch_prioritized_routing ' $experts \
    --set moe.router_type=experts_choose_masked --set run.compat=t5x
# shellcheck disable=SC2086
nothing 'moe.encoder_batch_prioritized_routing ' $experts \
    --set moe.router_type=experts_choose_masked --set moe.decoder_router_type=tokens_choose_masked
nothing 'moe.decoder_router_type moe.expert_bias_update_rate moe.max_group_size moe.replicas moe.sharded_match_fn ' \
    --set moe.num_decoder_sparse_layers=0 --set moe.decoder_router_type=tokens_choose_scatter \
    --set moe.expert_bias_update_rate=0.1 --set moe.max_group_size=256 --set moe.replicas=2 \
    --set moe.scale_expert_gradients=false --set moe.sharded_match_fn='*mlp*'
nothing '' --set run.compat=t5x --set moe.max_group_size=256 --set moe.expert_bias=true --set moe.expert_bias_update_rate=0.1
nothing '' --set moe.num_experts=0 --set moe.expert_bias_update_rate=0.1

# ---- explain ----
collectives='all_to_all\|all_reduce\|all_gather\|reduce_scatter'
for program_name in grad_first grad_next update eval encode decode_step; do
    for stage in record partition fuse plan; do
        for ranks in '' '--comm thread --ranks 4 --set mesh.data=2 --set mesh.expert=2'; do
            exits 0 "$program" explain "$tiny_run" --program $program_name --after $stage $ranks
            shown="$program_name after $stage on '$ranks'"
            [ ! -s err ] || fail "$shown: writes on stderr: $(cat err)"
            shows "^program $program_name.*: [0-9]* ops, [0-9]* tensors"
            ops=$(sed -n 's/^program .*: \([0-9]*\) ops.*/\1/p' out)
            lines=$(grep -c '^ *[0-9][0-9]* q[0-9]' out)
            [ "$lines" -eq "$ops" ] || fail "$shown: $ops ops on $lines lines"
            shows ' [^ ]*core/model/t5\.c:[0-9]*$\|core/optim/[a-z]*\.c:[0-9]*$'
            # Only what is planned has a place in memory, only what is shared out has collectives.
            case $stage in
            plan)
                shows ' scratch+0x'
                ;;
            *) grep -q 'scratch+0x' out && fail "$shown: there are places in memory" ;;
            esac
            if [ $stage = record ] || [ -z "$ranks" ]; then
                grep -q "  \($collectives\) " out && fail "$shown: there are collectives"
            else
                shows "  \($collectives\) "
            fi
        done
    done
done
exits 0 "$program" explain "$tiny_run"
mv out default
exits 0 "$program" explain "$tiny_run" --program grad_first --after plan
cmp -s out default || fail "explain without options is not grad_first after plan"
exits 0 "$program" explain "$tiny_run" --program update --backend null $eight
exits 1 "$program" explain "$tiny_run" --program grad_next --set train.microbatches=1
one_line_error
says err 'no program grad_next'
for stage in record partition fuse fold; do
    exits 1 "$program" explain "$tiny_run" --program grad_next --set train.microbatches=1 --after $stage
    one_line_error
    says err 'no program grad_next (train.microbatches is 1)'
done
exits 0 "$program" explain "$tiny_run" --set moe.num_experts=0
grep -q ' route ' out && fail "a dense model routes"

# ---- plan ----
exits 0 "$program" plan "$tiny_run" --tensors
[ ! -s err ] || fail "plan writes on stderr: $(cat err)"
says out 'token_embedder/embedding  *\[384, 32\] (vocab, embed)'
exits 0 "$program" plan "$tiny_run"
grep -q 'token_embedder' out && fail "plan prints tensors unasked"
# The summary: ten lines. Two of four experts of two layers (3 * 4 * 32 * 64 elements) are not active.
says out '^1 rank x '
says out "^111488 parameters in 54 tensors, $((111488 - 3 * 4 * 32 * 64)) active for a token\$"
sed -n 3p out | grep -q '^memory of a rank:$' || fail "plan's third line is $(sed -n 3p out)"
sed -n 10p out | grep -q '^the longest step: [0-9.e-]* s or more at [1-9][0-9]* GFLOP/s, [1-9][0-9]* GB/s;' ||
    fail "plan's tenth line is $(sed -n 10p out)"
[ "$(head -n 10 out | awk 'NR > 1 && length($0) > 79')" = '' ] || fail "a line of the summary is wide: $(head -n 10 out)"
# Experts that choose take all tokens where their capacity has no factor.
exits 0 "$program" plan "$tiny_run" --set moe.num_decoder_sparse_layers=0 --set moe.router_type=experts_choose_masked \
    --set moe.train_capacity_factor=0
says out '^\([0-9]*\) parameters in [0-9]* tensors, \1 active for a token$'
# Ops of a step, as its collectives: each microbatch after the first has as many.
steps_ops=
for n in 2 4 8; do
    exits 0 "$program" plan "$tiny_run" --set reproducible.min_leaf=1 --set train.microbatches=$n
    steps_ops="$steps_ops $(sed -n 's/^a step at the longest bucket: \([0-9]*\) ops.*/\1/p' out)"
done
echo "$steps_ops" | awk '{ exit !($2 > $1 && $3 - $2 == 2 * ($2 - $1)) }' || fail "ops of 2, 4 and 8 microbatches:$steps_ops"
exits 0 "$program" plan "$tiny_run"
shown='plan, optimizers'
shows '^  optimizer of 54 parameters, 111488 elements: \["scale_by_adam(b1=0.9, b2=0.98, eps=1e-08, eps_root=0.0)", '
slow='--set optimizer.name=adamw --set optimizer.slow.match=[*embedding] --set optimizer.slow.b1=0.5 --set optimizer.slow.lr_factors=constant(0.1)'
still='--set optimizer.still.match=[*scale] --set optimizer.still.name=none'
exits 0 "$program" plan "$tiny_run" $slow $still
shows '^  optimizer of 39 parameters, 98560 elements: \["scale_by_adam(b1=0.9,'
shows '^  optimizer.slow of 3 parameters, 12544 elements: \["scale_by_adam(b1=0.5,.*, learning rate constant(0.1)$'
shows '^  optimizer.still of 12 parameters, 384 elements: none, they stay as they are$'
exits 0 "$program" plan "$tiny_run" --json $slow $still
shows '"part":"optimizer.slow","name":"adamw","chain":\["scale_by_adam(b1=0.5, [^"]*","add_decayed_weights([^"]*","scale_by_learning_rate"\],"lr_factors":"constant(0.1)","tensors":3,"elements":12544'
shows '"part":"optimizer.still","name":"none","chain":\[\],"lr_factors":"","tensors":12,'
# Biases of experts are parameters that no optimizer has.
exits 0 "$program" plan "$tiny_run" --set moe.expert_bias=true --tensors
shows '^  optimizer of 54 parameters, '
says out 'wi_0/kernel  *\[4, 32, 64\] (expert, embed, '
sum=0
for segment in persist io carry scratch snapshot; do
    bytes=$(sed -n "s/^  $segment  *\([0-9]*\) bytes .* MiB  .*/\1/p" out)
    [ "${bytes:-0}" -gt 0 ] || fail "plan says nothing of $segment"
    sum=$((sum + ${bytes:-0}))
done
says out "^  all  *$sum bytes"
[ "$(uname)" != Linux ] || says out '^  all .* MiB  of [0-9.]* MiB free here$'
says out '^a step at the longest bucket: [0-9]* ops, 0 collectives, 0.0 MiB received'
says out '^its arithmetic: [0-9.]* GFLOP, [0-9.]* MiB read and written$'
one=$sum

# Sharing out makes a rank's part smaller; null and the CPU agree on what all of them keep.
for backend in cpu null; do
    before=$(date +%s)
    exits 0 "$program" plan "$tiny_run" --comm thread $eight --backend $backend --tensors
    [ $(($(date +%s) - before)) -le 5 ] || fail "plan for eight ranks takes seconds"
    says out '^8 ranks x '
    says out "backend $backend "
    says out 'mesh data=2 expert=2 model=2$'
    says out 'wi_0/kernel  *\[4/e, 32, 64/m\] (expert, embed, '
    sum=$(sed -n 's/^  all  *\([0-9]*\) bytes.*/\1/p' out)
    [ "$sum" -lt "$one" ] || fail "$backend: a rank of eight needs $sum bytes, one alone $one"
    grep -q ' 0 collectives' out && fail "$backend: eight ranks without collectives"
    grep '^  persist' out >persist.$backend
done
cmp -s persist.cpu persist.null || fail "persist differs: $(cat persist.cpu persist.null)"

# A model far larger than this machine.
exits 0 "$program" plan "$tiny_run" --backend null --set model.d_model=4096 --set model.d_ff=65536 \
    --set moe.num_experts=64 --set model.num_heads=64 --set model.head_dim=128 --set model.num_encoder_layers=24 \
    --set model.num_decoder_layers=24 --set moe.num_encoder_sparse_layers=12 --set moe.num_decoder_sparse_layers=12
says out '^[0-9]\{13\} parameters'
[ "$(uname)" != Linux ] || says out '  of [0-9.]* MiB free here: too little$'
# ---- the learning rate ----
exits 0 "$program" plan "$tiny_run" --schedule
[ ! -s err ] || fail "plan --schedule writes on stderr: $(cat err)"
says out '^learning rate by train.schedule = "linear", train.steps = 20$'
says out '^             0  0$'
says out '^             2  0.0012         ################$'
says out '^             5  0.003          ########################################$' # the highest, between two round steps
says out '^            19  0.0002         ###$'                                      # the last
exits 0 "$program" plan "$tiny_run" --schedule --set train.steps=14000 --set train.warmup_steps=1234 \
    --set 'train.lr_factors=constant * linear_warmup * piecewise_constant(boundaries=[5000], scales=[0.1])'
says out '^learning rate by train.lr_factors = "constant \* linear_warmup .*scales=\[0.1\])", train.steps = 14000$'
says out '^             0  1e-08$'
says out '^          1234  0.003          ########################################$'
says out '^          5000  0.0003         ####$'
says out '^         13999  0.0003 '
[ "$(wc -l <out)" -le 18 ] || fail "plan --schedule prints $(wc -l <out) lines"
[ "$(awk '{ if (length($0) > n && NR > 1) n = length($0) } END { print n }' out)" -le 72 ] || fail "its lines are long"
exits 0 "$program" plan "$tiny_run" --schedule --set train.steps=0
says out '^             0  0$'
exits 0 "$program" plan "$tiny_run" --schedule --json --set train.steps=4 --set train.warmup_steps=2
[ "$(cat out)" = '{"schedule":[{"step":0,"learning_rate":0},{"step":1,"learning_rate":0.0015},{"step":2,"learning_rate":0.003},{"step":3,"learning_rate":0.0015}]}' ] ||
    fail "plan --schedule --json prints $(cat out)"
exits 2 "$program" plan "$tiny_run" --schedule --set 'train.lr_factors=constant * linear_warmpu'
one_line_error
says err 'train.lr_factors: there is no linear_warmpu, did you mean linear_warmup?$'
exits 1 "$program" plan "$tiny_run" --schedule --set 'train.lr_factors=exponential(decay_rate=1000, transition_steps=1)'
one_line_error
says err 'train.lr_factors: the product is .* at step 20, more than a float32 holds'
exits 2 "$program" plan "$tiny_run" --schedule --devices 8
one_line_error
says err 'leave out --devices'
exits 2 "$program" plan "$tiny_run" --schedule --tensors
one_line_error
says err 'leave out .* and --tensors'
[ "$(ls)" = "$(printf 'default\nerr\nout\npersist.cpu\npersist.null')" ] || fail "explain or plan leave files: $(ls)"

# ---- a run directory in place of a run file, wherever its vocabulary was ----
data "$here/train.tsv" 20 1
printf 'a\nb\n' >letters
exits 0 tiny run --quiet --comm thread --ranks 2 --set mesh.expert=2 --threads 1 --set train.steps=0 \
    --set vocabulary.kind=characters --set vocabulary.file=letters
rm letters
for shown in 'config' 'explain' 'plan --schedule' 'plan --tensors' 'plan --devices 2' 'bench --steps 1'; do
    exits 0 "$program" $shown run
done
shown='config of a run directory'
exits 0 "$program" config run
shows '^file = "run/vocabulary"$'
mkdir empty
exits 2 "$program" plan empty
one_line_error
says err 'empty holds no run'
finish
