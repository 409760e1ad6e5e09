#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints tests/vectors/text_metrics.json: what well-known packages say of tricky pairs of texts, each pair alone and all
as one corpus. tests/unit/test_text_metrics.c compares.

    python3 -m venv venv
    venv/bin/pip install sacrebleu==2.6.0 rouge-score==0.1.2 jiwer==4.0.0
    venv/bin/python scripts/make-text-metrics-vector.py evaluate-v1.1.py >tests/vectors/text_metrics.json

evaluate-v1.1.py is the evaluation script of SQuAD 1.1, of its site https://rajpurkar.github.io/SQuAD-explorer.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import math
import platform
import sys

import jiwer
import sacrebleu
from rouge_score import rouge_scorer

# (output, references)
PAIRS = [
    ("the cat sat on the mat", ["the cat sat on the mat"]),
    ("the cat sat on the mat", ["the cat is on the mat", "there is a cat on the mat"]),
    ("the the the the the the the", ["the cat is on the mat", "there is a cat on the mat"]),
    ("", ["the cat sat on the mat"]),
    ("a", ["a"]),
    ("a", ["b"]),
    ("   ", ["x y z"]),
    ("one two three", ["one two three four five six seven eight nine ten"]),
    ("one two three four five six seven eight nine ten", ["one two three"]),
    ("It's 3.14, isn't it?", ["It is 3.14, isn't it?"]),
    ("Prices rose 1,000.5 % -- from $5-7 to 10-12.", ["Prices rose by 1,000.5%, from $5-7 to $10-12."]),
    ("&quot;Quoted&quot; &amp;lt; &amp; &lt;b&gt;", ['"Quoted" &lt; & <b>']),
    ("a<skipped>b c<skipped>", ["ab c"]),
    ("well-known state-of-the-art e-mail", ["well known state of the art email"]),
    ("U.S.A. vs. U.K., etc...", ["USA vs UK etc.", "U.S.A. vs. U.K. etc"]),
    ("Ünïcödé Straße naïve café", ["ünïcödé strasse naive café", "Ünïcödé Straße naïve cafe"]),
    ("ÉCOLE À LYON", ["école à lyon"]),
    ("ΟΔΥΣΣΕΥΣ ΣΑΣ", ["οδυσσευς σας"]),
    ("İstanbul ve Izmir", ["istanbul ve ızmir"]),
    ("\u212aelvin 300 \u212a", ["kelvin 300 k"]),
    ("今天天气很好。我们去公园。", ["今天天气真好,我们去公园吧。"]),
    ("日本語 の テスト", ["日本語のテスト"]),
    ("Привет, мир! Как дела?", ["Привет мир, как дела?"]),
    ("emoji \U0001f600\U0001f44d\U0001f3fd ok", ["emoji \U0001f600\U0001f44d ok"]),
    ("cafe\u0301 combining", ["caf\u00e9 combining"]),
    ("no\u00a0break\u2003space\u3000wide", ["no break space wide"]),
    ("tab\there  double  blanks ", [" tab here double blanks"]),
    ("The “quoted” answer, a—b and an apple", ["“the” quoted answer b apple", "an answer"]),
    ("the", ["a"]),
    ("The Eiffel Tower!", ["eiffel tower", "Tower of Eiffel, the"]),
    ("in the year 1999", ["1999", "year of 1999", "the 1999 year in"]),
    ("A an the", ["the an A"]),
    ("b a n a n a b a n a n a", ["b a n a n a", "a n a b a n a n a b"]),
    ("x x x y y z", ["z y x x y", "x y z x y z x"]),
    ("she sells sea shells by the sea shore", ["by the sea shore she sells sea shells", "sea shells"]),
    ("under_score and sym|bols ~{}[]^`", ["under score and symbols ~ { } [ ] ^ `"]),
    ("1.2.3,4 .5 6, 7. -8 9-", ["1.2.3 , 4 .5 6 , 7 . - 8 9 -"]),
    ("Running runners ran quickly", ["running runner runs quick"]),
    ("K AE T", ["K AE T", "K AH T"]),
    ("K AH T S", ["K AE T"]),
    ("abcdefg", ["abcdefgh"]),
    ("abc", ["abcdefghij", "abd"]),
]


def load_squad(path):
    spec = importlib.util.spec_from_file_location("squad", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(output, references):
    """Whether jiwer takes the pair as switchyard does: one reference, words apart by blanks."""
    texts = [output, *references]
    return len(references) == 1 and not any(c.isspace() and c != " " for text in texts for c in text)


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values)


def metrics(pairs, squad):
    outputs = [output for output, _ in pairs]
    most = max(len(references) for _, references in pairs)
    streams = [[r[i] if i < len(r) else None for _, r in pairs] for i in range(most)]
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    rouge = [scorer.score_multi(references, output) for output, references in pairs]
    exact = mean(output in references for output, references in pairs)
    single = [(output, r[0]) for output, r in pairs if plain(output, r)]
    return {
        "exact_match": exact,
        "accuracy": mean(output.strip() in [r.strip() for r in references] for output, references in pairs),
        "wer": 1 - exact,
        "per": jiwer.wer([r for _, r in single], [o for o, _ in single]) if len(single) == len(pairs) else None,
        "bleu": sacrebleu.metrics.BLEU().corpus_score(outputs, streams).score,
        "chrf": sacrebleu.metrics.CHRF().corpus_score(outputs, streams).score,
        "rouge1": mean(r["rouge1"].fmeasure for r in rouge),
        "rouge2": mean(r["rouge2"].fmeasure for r in rouge),
        "rougeL": mean(r["rougeL"].fmeasure for r in rouge),
        "f1": mean(squad.metric_max_over_ground_truths(squad.f1_score, output, r) for output, r in pairs),
    }


def main():
    squad_path = sys.argv[1]
    squad = load_squad(squad_path)
    with open(squad_path, "rb") as file:
        squad_hash = hashlib.sha256(file.read()).hexdigest()
    single = [pair for pair in PAIRS if plain(*pair)]
    document = {
        "made_by": "scripts/make-text-metrics-vector.py",
        "python": platform.python_version(),
        "sacrebleu": importlib.metadata.version("sacrebleu"),
        "rouge_score": importlib.metadata.version("rouge-score"),
        "jiwer": importlib.metadata.version("jiwer"),
        "squad_sha256": squad_hash,
        "pairs": [{"output": o, "references": r, **metrics([(o, r)], squad)} for o, r in PAIRS],
        "corpus": metrics(PAIRS, squad),
        "single_reference_corpus": metrics(single, squad),
    }
    print(json.dumps(document, ensure_ascii=False, indent=1))


main()
