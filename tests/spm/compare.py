#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `switchyard tokenize` with the Python package sentencepiece, line by line, ids and text.

    compare.py PROGRAM MODEL [LINES-FILE]     compares; without a file on 10,000 lines that it makes up
    compare.py --lines MODEL N                prints N made-up lines
    compare.py --ids MODEL <LINES             prints their ids by the package

A development tool: the program itself needs no Python.
"""
import random
import subprocess
import sys

import sentencepiece

EXTRA = 100


def load(path):
    """The model with 100 extra ids, as seqio adds them."""
    pieces = b""
    for k in reversed(range(EXTRA)):
        name = f"\u2581<extra_id_{k}>".encode()
        piece = b"\x0a" + bytes([len(name)]) + name + b"\x15\0\0\0\0\x18\x04"
        pieces += b"\x0a" + bytes([len(piece)]) + piece
    with open(path, "rb") as file:
        model = file.read() + pieces
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return processor


def make_lines(processor, n):
    """Pieces of the model joined at random, with what a normaliser has to change and what has no piece between them."""
    rng = random.Random(n)
    pieces = [processor.IdToPiece(i) for i in range(3, processor.GetPieceSize())]
    odd = ["  ", "\t", "\u00a0", "\ufb01", "\u2460", "\uff21\uff42", "e\u0301", "\u00c5", "\u200b", "\u3000", "\u2026",
           "\u0130", "\u65e5\u672c", "\U0001f600", "\u00ad", "0", "1984", "...", "(", ")", "\u2581", "\u2047", "\x7f", "\x01"]
    lines = []
    while len(lines) < n:
        parts = [rng.choice(odd) if rng.random() < 0.15 else rng.choice(pieces) for _ in range(rng.randrange(0, 25))]
        if rng.random() < 0.8:
            parts = [part.replace("\u2581", " ") for part in parts]
        line = "".join(parts)
        lines.append(line.upper() if rng.random() < 0.05 else line)
    return [line for line in lines if "\n" not in line and "\r" not in line]


def run(program, model, text, *options):
    command = [program, "tokenize", "--set", "vocabulary.kind=sentencepiece", "--set", f"vocabulary.file={model}",
               "--set", f"vocabulary.extra_ids={EXTRA}", *options]
    return subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")[:-1]


def compare(program, model, lines):
    processor = load(model)
    wrong = 0
    ours = run(program, model, "".join(line + "\n" for line in lines))
    ids = [[int(word) for word in row.split("\t")[0].split()] for row in ours]
    texts = run(program, model, "".join(row + "\n" for row in ours), "--decode")
    if not len(lines) == len(ids) == len(texts):
        sys.exit(f"{len(lines)} lines, {len(ids)} lines of ids, {len(texts)} lines of text")
    for i, line in enumerate(lines):
        want = processor.EncodeAsIds(line)
        if ids[i] != want or texts[i] != processor.DecodeIds(want):
            wrong += 1
            print(f"line {i + 1}: {line!r}\n  ours   {ids[i]} {texts[i]!r}\n  theirs {want} {processor.DecodeIds(want)!r}")
    print(f"{len(lines)} lines, {sum(map(len, ids))} ids, {wrong} lines differ (sentencepiece {sentencepiece.__version__})")
    return wrong != 0


def main(arguments):
    if arguments[:1] == ["--lines"]:
        print("\n".join(make_lines(load(arguments[1]), int(arguments[2]))))
        return 0
    if arguments[:1] == ["--ids"]:
        processor = load(arguments[1])
        for line in sys.stdin.buffer.read().decode().split("\n")[:-1]:
            print(" ".join(map(str, processor.EncodeAsIds(line))))
        return 0
    program, model = arguments[:2]
    if len(arguments) > 2:
        with open(arguments[2], encoding="utf-8", newline="\n") as file:
            lines = file.read().split("\n")[:-1]
    else:
        lines = make_lines(load(model), 10000)
    return compare(program, model, lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
