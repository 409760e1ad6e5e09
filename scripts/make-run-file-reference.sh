#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints doc/run-file.md: every key of a run file, every optimizer, transform and factor of a learning rate, from the
# tables as `switchyard config` shows them. With --check it compares the page with the one in doc/ instead (a test does
# so). After a change of a table (core/base/options.def, optimizers.def, transforms.def, schedules.def):
#   sh scripts/make-run-file-reference.sh >doc/run-file.md
# SWITCHYARD names the program when it is not the one in the current folder.
set -eu
LC_ALL=C
export LC_ALL

program=${SWITCHYARD:-./switchyard}
page=$(dirname "$0")/../doc/run-file.md

print_page() {
    cat <<'END'
<!-- Made by scripts/make-run-file-reference.sh from the tables in core/base/*.def: change those, not this page. -->
# Run file

A run file describes a run: the model, its data, how it is trained. It is the simple part of TOML: sections in
brackets, one `key = value` a line, comments after `#`. A value is an integer, a number, `true` or `false`, a
`"string"`, a size or a time with or without quotes (`4GiB`, `"4GiB"`, `3h50m`), or a list on one line: `[8, 16, 32]`,
`["*embedding*", "*bias"]`. A key that is not given has its default.
An unknown key, a value of another type or out of range is an error that names the file, the line and the nearest
known key; a key of a former version is an error that names the new one. Keys that contradict each other are an error,
too; of most that count for nothing beside another `plan` and `train` warn.

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
  left out there, in lists too: `--set 'optimizer.NAME.match=[*embedding*, *bias]'`. Of two for one key the last holds; an
  option that sets a key (`--beams`, `--decodes`, `--scores`, `--temperature`, `--threads`) holds over `--set`, wherever it stands.
- `switchyard config` prints all keys with their help; `switchyard config RUNFILE` the values in force, which is a run
  file again. A run directory keeps them as `run.conf`, and may stand in place of a run file where a command reads one
  (`config`, `plan`, `explain`, `bench`, `diff`, `tokenize`).
- Lines end in LF or CR LF, or all of them in CR.
- Paths are relative to the folder the command runs in. A run directory keeps them absolute (files of examples and of
  vocabularies, `data.cache`, `metrics.dir`), so `eval`, `predict` and `train --resume RUN_DIR` work from any folder; those in
  run directories of versions before this are relative to the folder a command runs in, until training goes on there.
  `train.init_from` is read once, when a run begins, and is kept as it was given; so are paths below a folder whose name
  has `*`, `?` or `[` in it, or which would be longer than 1,023 bytes.
- `train --resume` lists on stderr the keys that differ from the stored run file and goes on with the new values. It
  refuses a key that makes another model (sizes, layers, experts, vocabulary, optimizer) or says what its weights were at
  first (`train.init_*`), and contents of `task.NAME.train` other than those of before, unless `data.allow_changes` is
  true. Parts are compared by name; one that is new, gone or in another place differs as its options do.
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
    print_optimizers
    print_transforms
    print_factors
}

print_optimizers() {
    cat <<'END'

## Optimizers

An optimizer is a chain of transforms: the first gets the gradient of a parameter, clipped by `train.clip_norm`, each
gets what the one before it made of it, and what comes out of the last is added to the parameter. `name` is one of the
chains below:

```
[optimizer]
name = "lamb"
weight_decay = 0.01
weight_decay_mask = ["!*scale", "!*embedding", "*"]   # no norms and no embeddings
```

or `"chain"`, and `chain` has the transforms:

```
[train]
clip_norm = 0.0

[optimizer]
name = "chain"
chain = ["clip_by_global_norm(1.0)", "scale_by_adam(b2=0.98)", "masked(add_decayed_weights(0.01), mask=['*kernel'])", "scale_by_learning_rate"]
```

Refused is a chain where two transforms multiply by the learning rate (`scale_by_learning_rate`, `adafactor`,
`scale_by_fromage`; each also turns the sign), unless each is `masked` by itself, one that would divide 0 by 0, and one whose
`differentially_private_aggregate` is not first. A chain in which nothing turns the sign climbs, which a warning says; others
name keys of `[train]` that no factor of a learning rate takes, and a `reduce_lr_on_plateau` where no chain has a rate.

A section with a name updates the parameters that `match` has, in its own way and, with `lr_factors`, at its own learning
rate; `name = "none"` leaves them as they are, without state. `[optimizer]` updates all others where its `name` is written.
Where it is not, they stay as they are, as under T5X's MultiOptimizer; only beside sections that all are `none` it is adamw:

```
[optimizer]
name = "adafactor"

[optimizer.norms]
match = ["*scale"]
name = "sgd"
momentum = 0.9
lr_factors = "constant(0.01)"

[optimizer.frozen]
match = ["token_embedder/*", "encoder/*kernel"]
name = "none"
```

`switchyard plan RUNFILE --tensors` prints the names of all parameters, the chain of each section and how many parameters it
updates. Below: the keys that each optimizer takes with what stands for their `auto` or is their default, and its chain.
A key that it does not take is refused.

| optimizer | what it is | keys | chain |
|---|---|---|---|
END
    "$program" config --optimizers | awk '
        function cell(text) { gsub(/\|/, "\\|", text); return text }
        /^[a-z]/ { at = index($0, ": "); name = substr($0, 1, at - 1); help = substr($0, at + 2); keys = "" }
        /^  chain = / {
            chain = substr($0, 12, length($0) - 12) # within the brackets
            gsub(/", "/, "`, `", chain)
            gsub(/"/, "`", chain)
            printf "| `%s` | %s | %s | %s |\n", name, cell(help), cell(keys), cell(chain)
            next
        }
        /^  / { keys = keys (keys == "" ? "" : ", ") "`" substr($0, 3) "`" }'
}

print_transforms() {
    cat <<'END'

## Transforms of an optimizer

`chain` of `[optimizer]` is a list of these, in the order they are applied, each with none, some or all of its arguments
in parentheses, by name or in this order. Strings in them have single quotes: `mask=['!*scale', '*']`. Those that apply
others have them first: `masked(trace(decay=0.9), mask=['*kernel'])`, and may have several. One that looks at all
parameters together (`clip_by_global_norm`, `apply_if_finite`, `adafactor` with `global_norm_clip_threshold`) stands in
no other. A chain ends with a learning rate, or its updates are added as they are.

A step whose gradients are not finite is left out before any chain sees them, so that it changes neither weights nor state
(`train.nan_check = "before"`). `zero_nans` and `apply_if_finite` see such gradients with `train.nan_check = "after"` alone; there the
run ends at the first, or, where `terminate_on_nan` watches something else, saves no more. What `apply_if_finite` holds keeps
its state in a step that is not applied, but not its counts, which are those of the run's steps (in optax they stay behind too):
Adam's bias corrections and schedules inside it go on as if the step had been applied.

| transform | argument | what it is | default | values |
|---|---|---|---|---|
END
    "$program" config --transforms | print_terms
}

# Table rows of a list of `config`.
print_terms() {
    awk '
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
    "$program" config --factors | print_terms
}

case ${1-} in
'') print_page ;;
--check)
    print_page | cmp -s - "$page" || {
        echo "doc/run-file.md is not what the tables say: run sh scripts/make-run-file-reference.sh >doc/run-file.md" >&2
        exit 1
    }
    ;;
*)
    echo "usage: make-run-file-reference.sh [--check]" >&2
    exit 2
    ;;
esac
