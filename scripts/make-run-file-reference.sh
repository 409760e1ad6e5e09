#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints doc/run-file.md: every key of a run file and every factor of a learning rate, from the tables as `switchyard
# config` shows them. With --check it compares the page with the one in doc/ instead (a test does so). After a change of
# core/base/options.def or core/base/schedules.def:
#   sh scripts/make-run-file-reference.sh >doc/run-file.md
# SWITCHYARD names the program when it is not the one in the current folder.
set -eu
LC_ALL=C
export LC_ALL

program=${SWITCHYARD:-./switchyard}
page=$(dirname "$0")/../doc/run-file.md

print_page() {
    cat <<'END'
<!-- Made by scripts/make-run-file-reference.sh from core/base/options.def and schedules.def: change those, not this page. -->
# Run file

A run file describes a run: the model, its data, how it is trained. It is the simple part of TOML: sections in
brackets, one `key = value` a line, comments after `#`. A value is an integer, a number, `true` or `false`, a
`"string"`, or a list on one line: `[8, 16, 32]`, `["*embedding*", "*bias"]`. A key that is not given has its default.
An unknown key, a value of another type or out of range is an error that names the file, the line and the nearest
known key; a key of a former version is an error that names the new one.

A section is a part of the run. Most are there once, as `[model]`. Of some kinds there may be several, each with a
name of 1 to 63 letters, digits, `_` or `-`: `[optimizer.NAME]`. There are at most 16 of a kind, in the
order of the file.

```
[run]
name = "g2p"

[train]
steps = 14000          # comments may stand here
learning_rate = 1e-3
```

- `--set SECTION.KEY=VALUE` overrides a key for one command and may be repeated: `--set train.steps=20`,
  `--set optimizer.NAME.b1=0.8`, which makes the part where there is none of that name. Quotes around a string may be
  left out there, in lists too: `--set 'optimizer.NAME.match=[*embedding*, *bias]'`.
- `switchyard config` prints all keys with their help; `switchyard config RUNFILE` the values in force, which is a run
  file again. A run directory keeps them as `run.conf`.
- Lines end in LF or CR LF, or all of them in CR.
- Paths are relative to the folder the command runs in.
- `train --resume` lists on stderr the keys that differ from the stored run file and goes on with the new values. It
  refuses a key that makes another model (sizes, layers, experts, vocabulary, optimizer), and contents of
  `task.NAME.train` other than those of before, unless `data.allow_changes` is true. Parts are compared by name; one that
  is new, gone or in another place differs as its options do.
END
    "$program" config | awk '
        # Text of a table cell.
        function cell(text) { gsub(/\|/, "\\|", text); return text }
        /^# ---- .* ----$/ { title = $0; sub(/^# ---- /, "", title); sub(/ ----$/, "", title); next }
        /^# sections: / { written = substr($0, 13); sub(/; up to .*/, "", written); next }
        /^(# )?\[/ {
            if (written == "") written = $0
            printf "\n## %s: %s\n\n| key | what it is | default | values |\n|---|---|---|---|\n", written, title
            written = ""
            next
        }
        /^# \(.*; default .*\)$/ {
            at = match($0, /; default .*\)$/)
            values = substr($0, 4, at - 4)
            start = substr($0, at + 10, length($0) - at - 10)
            next
        }
        /^# [a-z_0-9]+ = / { $0 = substr($0, 3) } # of a kind that has no part by default
        /^# / { help = substr($0, 3); next }
        / = / { printf "| `%s` | %s | `%s` | %s |\n", $1, cell(help), start, cell(values) }'
    print_factors
}

print_factors() {
    cat <<'END'

## Factors of a learning rate

`train.lr_factors` is a product of these, each with none, some or all of its arguments in parentheses, by name or in
this order:

```
[train]
learning_rate = 1e-3
warmup_steps = 1000
lr_factors = "constant * linear_warmup * piecewise_constant(boundaries=[8000, 9000], scales=[0.3, 0.3])"
```

A string in it has single quotes: `shape='cosine'`. `switchyard plan RUNFILE --schedule` shows what becomes of it; the
formulas are in core/optim/schedule.h.

| factor | argument | what it is | default | values |
|---|---|---|---|---|
END
    "$program" config --factors | awk '
        function cell(text) { gsub(/\|/, "\\|", text); return text }
        { at = index($0, ": "); name = substr($0, 1, at - 1); gsub(/ /, "", name) }
        /^[a-z]/ { printf "| `%s` | | %s | | |\n", name, cell(substr($0, at + 2)) }
        /^  [a-z]/ { argument = name; help = substr($0, at + 2) }
        /^    \(/ {
            at = match($0, /; default .*\)$/)
            printf "| | `%s` | %s | `%s` | %s |\n", argument, cell(help), substr($0, at + 10, length($0) - at - 10),
                cell(substr($0, 6, at - 6))
        }'
}

case ${1-} in
'') print_page ;;
--check)
    print_page | cmp -s - "$page" || {
        echo "doc/run-file.md is not what the option table says: run sh scripts/make-run-file-reference.sh >doc/run-file.md" >&2
        exit 1
    }
    ;;
*)
    echo "usage: make-run-file-reference.sh [--check]" >&2
    exit 2
    ;;
esac
