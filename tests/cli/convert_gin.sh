#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# switchyard convert-gin: a gin file with includes becomes a run file that config, plan and train take; what is not converted is
# said on stderr and in the file; errors name file and line; nothing is overwritten.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
seeds=$top/tests/fuzz/seeds/gin
mkdir -p checkout/t5x/models checkout/mine
cp "$seeds/model" checkout/t5x/models/model.gin
cp "$seeds/run" checkout/mine/run.gin
{
    echo "include 't5x/models/model.gin'"
    echo "include 'run.gin'"
    echo "include 'not/there.gin'"
    cat "$seeds/macros"
} >checkout/mine/mine.gin

# ---- the run file ----
exits 0 "$program" convert-gin checkout/mine/mine.gin -o mine.run
[ ! -s out ] || fail "something on standard output: $(cat out)"
says err "not converted: checkout/mine/mine.gin:[0-9]*: network.T5Config.emb_dims = 12: .*the nearest that has one: T5Config.emb_dim\$"
says err 'mine.gin:3: not/there.gin: the included file is not there'
sed 's/^switchyard: convert-gin: /# /' err >notes
grep '^# no' mine.run | cmp -s - notes || fail "the comments are not the warnings: $(cat mine.run)"
for line in 'd_model = 64  # network.T5Config.emb_dim' 'dropout_rate = 0.1  # network.T5Config.dropout_rate' \
    'steps = 20000  # ' 'batch_size = 64  # ' 'max_input_length = 32  # ' 'max_target_length = 48  # ' 'seed = 17  # ' \
    'lr_factors = "constant \* rsqrt_decay"  # ' 'name = "adafactor"  # ' 'compat = "t5x"  # of T5X'; do
    grep -q "^$line" mine.run || fail "the run file lacks '$line'"
done
exits 0 "$program" config mine.run
says out '^d_ff = 128$'
exits 0 "$program" plan mine.run
says out ' parameters in '
data words.tsv 200 1
exits 0 "$program" train mine.run --run-dir run --quiet --set train.steps=2 --set task.words.train=words.tsv
says out '^weights sha256 '

# The same to standard output, and from a folder that the file is in.
exits 0 "$program" convert-gin checkout/mine/mine.gin
cmp -s out mine.run || fail "standard output differs from -o"
(cd checkout/mine && "$program" convert-gin mine.gin 2>/dev/null) >inside || fail "convert-gin in the folder of the file"
sed 1d inside | grep -v '^# no' >inside.keys
sed 1d mine.run | grep -v '^# no' | cmp -s - inside.keys || fail "the folder it is called from changes the keys"

# ---- experts ----
exits 0 "$program" convert-gin "$seeds/experts" -o experts.run
exits 0 "$program" plan experts.run --tensors --set task.words.train=words.tsv
says out 'encoder/layers_3/mlp/expert/wi_0/kernel  *\[8, 128, 128\]'

# ---- errors ----
exits 1 "$program" convert-gin checkout/mine/mine.gin -o mine.run
one_line_error
says err 'mine.run is there already'
exits 1 "$program" convert-gin nowhere.gin
one_line_error
printf 'A = 1\nB = [1,\n' >open.gin
exits 1 "$program" convert-gin open.gin -o open.run
one_line_error
says err 'open.gin:2: a bracket that is not closed'
printf 'TRAIN_STEPS = \\\r\n    10\r\n' >joined.gin
echo mine >joined.run.tmp
exits 0 "$program" convert-gin joined.gin -o joined.run
says joined.run '^steps = 10 '
[ "$(cat joined.run.tmp)" = mine ] || fail 'convert-gin takes a file of the user for its own'
[ ! -e open.run ] || fail "a run file of a file that is no gin"
printf "include 'open.gin'\n" >outer.gin
exits 1 "$program" convert-gin outer.gin
says err 'open.gin:2: '
echo "include 'circle.gin'" >circle.gin
exits 1 "$program" convert-gin circle.gin
says err 'does a file include itself'
finish
