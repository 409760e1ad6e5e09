#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.compat = t5x through the command line: it trains, with the same weights for any threads, instruction set and ranks;
# stops and goes on; evaluates and predicts; `config --compat-diff` shows what is in force.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
data train.tsv 300 1
set -- --set run.compat=t5x --set task.words.test="$here/train.tsv" --set train.steps=8

for router in tokens_choose_masked experts_choose_masked; do
    rm -rf reference other
    exits 0 tiny reference --quiet --threads 1 "$@" --set moe.router_type=$router
    hash=$(hash_in out)
    [ "${#hash}" -eq 64 ] || fail "$router: no hash of the weights"
    echo "$router  $hash"
    for way in '--threads 2' '--threads 3 --set cpu.variant=portable' '--comm thread --ranks 2 --set mesh.data=2' \
        '--comm thread --ranks 4 --set mesh.expert=2 --set mesh.model=2'; do
        rm -rf other
        exits 0 tiny other --quiet $way "$@" --set moe.router_type=$router
        [ "$(hash_in out)" = "$hash" ] || fail "$router, $way: the weights differ"
    done
done
exits 0 tiny plain --quiet --threads 1 --set train.steps=8
[ "$(hash_in out)" != "$hash" ] || fail "the weights are those without compat"
[ "$(query reference 'SELECT count(*) FROM loss_curve WHERE loss > 0')" -ge 1 ] || fail "no losses in the database"

# ---- stopping and going on ----
exits 0 tiny halves --quiet "$@" --set train.schedule=constant --set train.steps=4
exits 0 tiny halves --quiet "$@" --set train.schedule=constant --resume
resumed=$(hash_in out)
exits 0 tiny straight --quiet "$@" --set train.schedule=constant
[ "$(hash_in out)" = "$resumed" ] || fail "a run that went on has other weights"

# ---- evaluation and prediction ----
exits 0 "$program" eval straight
says out '^words/test: [0-9]* items, loss [0-9.]*,'
head -n 5 train.tsv | cut -f 1 | "$program" predict straight >answers 2>err || fail "predict: $(cat err)"
[ "$(wc -l <answers)" -eq 5 ] || fail "predict: not one answer a line"

# ---- the table ----
exits 0 "$program" config --compat-diff
for key in model.masked_row model.padding_mask moe.group_by moe.ignore_padding_tokens moe.capacity_tokens \
    moe.router_loss_tokens loss.padding_targets train.microbatch_normalizer; do
    says out "^$key\$"
done
[ "$(grep -c '^  none: ' out)" -eq "$(grep -c '^  t5x:  ' out)" ] || fail "a key lacks one of its behaviours"
exits 0 "$program" config --compat-diff straight/run.conf --set action.stop.patience=0
[ "$(grep -c '^  here: \(stop: \)*"auto" (run.compat = t5x)$' out)" -eq "$(grep -c '^  none: ' out)" ] || fail "what is in force: $(cat out)"
exits 0 "$program" config --compat-diff straight/run.conf --set run.compat=none --set 'moe.group_by="tokens"'
says out '^  here: "tokens" (run.compat = none)$'
says out '^  here: there is no \[action.NAME\] (run.compat = none)$'
finish
