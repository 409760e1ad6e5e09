#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints core/text_metrics/unicode_tables.h from Python's own tables: which code points are letters or digits
(str.isalnum, what \\w of re takes besides the underscore), which have case (str.lower ends a word after them with a final sigma),
and their lower case (str.lower of one code point).

    python3 scripts/make-unicode-tables.py >core/text_metrics/unicode_tables.h
"""

import unicodedata

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges_of(belongs):
    ranges = []
    for code in CODES:
        if not belongs(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return [[f"{first:#x}", f"{last:#x}"] for first, last in ranges]


def lower_runs():
    """[first, last, stride, delta]: every stride-th code from first to last has code + delta as its lower case."""
    runs = []
    for code in CODES:
        lower = chr(code).lower()
        if lower == chr(code) or len(lower) > 1:  # the one that becomes two, U+0130, is unicode.c's
            continue
        delta = ord(lower) - code
        if runs and runs[-1][3] == delta:
            first, last, stride, _ = runs[-1]
            step = code - last
            if step == stride or (first == last and step in (1, 2)):
                runs[-1][1:3] = code, step
                continue
        runs.append([code, code, 1, delta])
    return runs


def print_table(name, row, rows):
    print(f"static const {row} {name}[] = {{")
    line = "   "
    for row in rows:
        text = " {" + ", ".join(row) + "},"
        if len(line) + len(text) > 110:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};")


def main():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print(f"/* Made by scripts/make-unicode-tables.py from Unicode {unicodedata.unidata_version}: not edited by hand. */")
    print("/* clang-format off */")
    print("struct range {\n    uint32_t first, last;\n};")
    print_table("words", "struct range", ranges_of(str.isalnum))
    print_table("cased", "struct range", ranges_of(lambda letter: (letter + "\u03a3").lower()[-1] == "\u03c2"))
    print_table("lowers", "struct {\n    uint32_t first, last, stride;\n    int32_t delta;\n}",
                [[f"{a:#x}", f"{b:#x}", str(s), str(d)] for a, b, s, d in lower_runs()])
    print("/* clang-format on */")


main()
