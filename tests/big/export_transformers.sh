#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Exported folders in Hugging Face transformers: the folders of tests/golden/import give the very logits there that they gave
# before they went through import and export, and a run trained here the scores and outputs that it has here. Not a part of
# `make check`: it installs transformers and torch (1 GiB) into a folder of its own. PYTHON names an interpreter that has
# them already.
set -u
program=${SWITCHYARD:?set SWITCHYARD to the program under test}
top=${abs_top_srcdir:?set abs_top_srcdir to the source tree}
here=$(mktemp -d) || exit 99
trap 'rm -rf "$here"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
    python3 -m venv "$here/venv" 2>"$here/log" || { echo "skipped: no venv: $(tail -n 1 "$here/log")"; exit 77; }
    python=$here/venv/bin/python
    "$python" -m pip install -q torch transformers 2>"$here/log" ||
        { echo "skipped: pip cannot install transformers: $(tail -n 1 "$here/log")"; exit 77; }
fi
cd "$here" || exit 99

for name in t5-1.0-bin t5-1.0-bin-legacy t5-1.1-sharded; do
    "$program" import --quiet "$top/tests/golden/import/$name" --to "$name" &&
        "$program" export --quiet "$name" --format hf --to "$name-hf" || exit 1
done

# Words and their letters, apart; dense runs and ones with experts, each with a head of its own and with the embedding as its head,
# and with the decoder's output scaled before it or not.
awk 'BEGIN { srand(1); for (i = 0; i < 200; i++) { w = s = ""; for (j = 0; j < 2 + rand() * 6; j++) {
    c = substr("abcdefgh", 1 + int(rand() * 8), 1); w = w c; s = s (j ? " " : "") toupper(c) } print w "\t" s } }' >train.tsv
head -n 8 train.tsv >pairs.tsv
cut -f 1 pairs.tsv >inputs
train() {
    run=$1
    shift
    "$program" train --quiet "$top/bench/tiny.run" --run-dir "$run" --set task.words.train=train.tsv --set train.steps=150 \
        --set train.microbatches=1 --set train.warmup_steps=10 --set train.learning_rate=1e-2 \
        --set moe.num_selected_experts=1 "$@" >/dev/null || exit 1
    "$program" export --quiet "$run" --format hf --to "$run-hf" || exit 1
    "$program" score "$run" --file pairs.tsv >"$run.scores" || exit 1
    "$program" predict "$run" <inputs >"$run.outputs" || exit 1
}
umt5='--set moe.num_experts=0 --set model.relpos_per_layer=true'
# shellcheck disable=SC2086
{
    train dense --set moe.num_experts=0
    train dense-scaled --set moe.num_experts=0 --set model.scale_decoder_outputs=true
    train umt5 $umt5
    train umt5-scaled $umt5 --set model.scale_decoder_outputs=true
    train umt5-tied $umt5 --set model.logits_via_embedding=true
    train umt5-tied-unscaled $umt5 --set model.logits_via_embedding=true --set model.scale_decoder_outputs=false
}
train experts --set model.mlp_activations=relu
train experts-tied --set model.mlp_activations=relu --set model.logits_via_embedding=true

cat >compare.py <<'END'
import sys
import torch
import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

golden, failed = sys.argv[1], 0


def check(name, error, bound):
    global failed
    failed |= not error <= bound
    print("%-5s %8.1e  %s" % ("ok" if error <= bound else "FAIL", error, name))


def load(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager").eval()


torch.manual_seed(1)
for name in ["t5-1.0-bin", "t5-1.0-bin-legacy", "t5-1.1-sharded"]:
    before, after = load(golden + "/" + name), load(name + "-hf")
    ids = torch.randint(2, before.config.vocab_size, (3, 17))
    with torch.no_grad():
        logits = [m(input_ids=ids, decoder_input_ids=ids[:, :9]).logits for m in (before, after)]
    check(name, (logits[0] - logits[1]).abs().max().item(), 0)

# Version 4 scales no output before a head of its own, the first ones of version 5 that of any UMT5.
version = tuple(int(number) for number in transformers.__version__.split(".")[:2])
runs = ["dense", "umt5-tied", "experts", "experts-tied"]
runs += ["dense-scaled", "umt5-scaled"] if version[0] >= 5 else []
runs += ["umt5", "umt5-tied-unscaled"] if version[0] < 5 or version >= (5, 24) else []
tokenizer = AutoTokenizer.from_pretrained("dense-hf")
for run in runs:
    model = load(run + "-hf")
    pairs = [line.rstrip("\n").split("\t") for line in open("pairs.tsv")]
    scores = [float(line.split("\t")[0]) for line in open(run + ".scores")]
    outputs = [line.rstrip("\n") for line in open(run + ".outputs")]
    for (source, target), score, output in zip(pairs, scores, outputs):
        ids, labels = (tokenizer(text, return_tensors="pt").input_ids for text in (source, target))
        with torch.no_grad():
            logits = model(input_ids=ids, labels=labels).logits
            written = model.generate(ids, num_beams=1, do_sample=False, max_new_tokens=24)
        there = torch.log_softmax(logits, -1).gather(-1, labels[..., None]).sum().item()
        check(run + " " + source, abs(there - score) / abs(score), 1e-4)
        same = tokenizer.decode(written[0], skip_special_tokens=True) == output
        check(run + " " + source + " -> " + output, 0 if same else 1, 0)
sys.exit(failed)
END
"$python" compare.py "$top/tests/golden/import"
