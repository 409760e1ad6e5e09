#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Dependencies point down only. Checks every #include between folders against the list below, then, where nm and the
# objects of the build are at hand, every call: no folder uses a symbol of a folder that it may not include. No files
# include or call each other in a circle.
set -u
export LC_ALL=C
top=${abs_top_srcdir:?set abs_top_srcdir to the source tree}
build=${abs_top_builddir:?set abs_top_builddir to the build tree}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# FOLDER: folders it may include. Its own is always allowed; tests and bench may include anything. The families of ops,
# core/program/ops, are a part of core/program.
cat >"$work/allowed" <<'END'
include/switchyard:
core/base: include/switchyard
core/program: include/switchyard core/base
core/parallel: include/switchyard core/base core/program
core/passes: include/switchyard core/base core/program core/parallel
core/model: include/switchyard core/base core/program
core/optim: include/switchyard core/base core/program core/model
core/comm: include/switchyard core/base
core/runtime: include/switchyard core/base core/program core/parallel core/passes core/comm
core/data: include/switchyard core/base
core/text_metrics: core/base core/data
core/train/launch: core/base core/parallel core/comm core/runtime core/data
core/train/decode: core/base
core/train/engine: core/base core/program core/parallel core/passes core/model core/optim core/comm core/runtime core/data core/train/launch core/train/decode
core/train/checkpoint: core/base core/program core/parallel core/comm core/runtime core/data
core/train/init: core/base core/model core/runtime core/train/launch core/train/engine core/train/checkpoint
core/train/compare: core/base core/program core/parallel core/optim core/runtime core/data core/train/launch core/train/engine core/train/init
core/train/replay: core/base core/program core/parallel core/optim core/comm core/runtime core/data core/text_metrics core/train/launch core/train/engine core/train/checkpoint core/train/trainer
core/import: core/base core/program core/model core/data core/train/launch core/train/engine core/train/checkpoint
core/train/trainer: include/switchyard core/base core/parallel core/optim core/comm core/runtime core/data core/text_metrics core/train/launch core/train/engine core/train/checkpoint core/train/init
core/train/predict: core/base core/parallel core/comm core/runtime core/data core/train/launch core/train/engine core/train/checkpoint
core/api: include/switchyard core/base core/optim core/comm core/runtime core/data core/train/launch core/train/engine core/train/checkpoint core/train/init core/train/predict core/train/trainer
backends/cpu: include/switchyard core/base
backends/cuda: include/switchyard core/base
backends/mpi: include/switchyard core/base
backends/null: include/switchyard core/base
metrics: core/base core/train/trainer
verify: core/base core/program core/parallel core/passes core/model core/optim core/comm core/runtime core/data core/train/launch core/train/decode core/train/engine core/train/trainer core/import
cli/bench: core/base core/program core/parallel core/passes core/model core/optim core/comm core/runtime core/data core/train/launch core/train/engine cli
cli: include/switchyard core/base core/program core/parallel core/passes core/model core/optim core/comm core/runtime core/data core/text_metrics core/train/launch core/train/engine core/train/checkpoint core/train/compare core/train/trainer core/train/predict core/train/replay core/import metrics verify cli/bench cli/ckpt cli/doctor cli/top cli/report
cli/ckpt: core/base core/train/launch core/train/checkpoint cli
cli/doctor: include/switchyard core/base core/runtime core/data core/train/launch metrics cli
cli/top: core/base core/train/launch metrics
cli/report: core/base core/train/launch metrics
END

# ---- includes: lines "FILE INCLUDED-FILE" of the source tree ----
cd "$top" || exit 99
find include core backends metrics verify cli -name '*.[ch]' -o -name '*.def' | sort >"$work/files"
xargs grep -n '^ *# *include "' <"$work/files" /dev/null | sed 's/^\([^:]*\):\([0-9]*\):.*include "\([^"]*\)".*/\1 \2 \3/' |
    awk -v files="$work/files" '
        BEGIN { while ((getline line < files) > 0) there[line] = 1 }
        {   folder = $1; sub(/\/[^\/]*$/, "", folder); found = ""
            n = split("core/" $3 " " $3 " include/" $3 " " folder "/" $3, place, " ")
            for (i = 1; i <= n && found == ""; i++) if (place[i] in there) found = place[i]
            if (found != "") print $1, $2, found }' >"$work/includes"
[ -s "$work/includes" ] || { echo "FAIL: no include was found below $top" >&2; exit 1; }

# ---- calls: lines "FILE 0 FILE-THAT-DEFINES-THE-SYMBOL", from the objects of one build ----
: >"$work/calls"
if command -v nm >/dev/null && [ -d "$build/core" ]; then
    # An object's name ends with its source's: core/base/libswitchyard_core_la-error.o. Kernels are compiled once a
    # variant from the same source, with symbols of their own. One call runs up: a kernel between conversions asks the
    # list, in which it stands itself, for the kernel of float32.
    (cd "$build" && find core metrics verify cli backends/mpi backends/cpu -name '*.o' -exec nm -P -A {} +) 2>/dev/null |
        sed -n 's,/\.libs/,/,; s,/lib[a-z0-9_]*_la-,/,; s,/switchyard[a-z_]*-,/,; s/^\([^:]*\)\.o: /\1.c /p' |
        awk '$3 == "U" || $3 ~ /^[TDBRC]$/ { print $1, $2, $3 }' >"$work/symbols"
    awk 'NR == FNR { if ($3 != "U") home[$2] = $1; next }
         $3 == "U" && ($2 in home) && home[$2] != $1 { print $1, 0, home[$2] }' \
        "$work/symbols" "$work/symbols" | sort -u | grep -vx 'backends/cpu/bf16.c 0 backends/cpu/cpu.c' >"$work/calls"
    [ -s "$work/calls" ] || { echo "FAIL: no call was found in the objects below $build" >&2; exit 1; }
fi

# ---- against the list ----
cat "$work/includes" "$work/calls" | awk -v allowed="$work/allowed" '
    BEGIN { while ((getline line < allowed) > 0) {
                from = line; sub(/:.*/, "", from); known[from] = 1
                sub(/^[^:]*: */, "", line); n = split(line, list, " ")
                for (i = 1; i <= n; i++) ok[from, list[i]] = 1 } }
    function folder(file) { sub(/\/[^\/]*$/, "", file); sub(/^core\/program\/ops$/, "core/program", file); return file }
    {   from = folder($1); to = folder($3)
        if (from == to || (from, to) in ok) next
        why = from in known ? "may not use" : "is not in the list of tests/arrows.sh and uses"
        printf "FAIL: %s%s %s %s (%s)\n", $1, $2 ? ":" $2 : "", why, $3, $2 ? "include" : "call" }' | sort -u >"$work/wrong"

# ---- circles: files that include or call themselves through others ----
for kind in includes calls; do
    awk '{ print $1, $3 }' "$work/$kind" | tsort >/dev/null 2>"$work/tsort"
    sed -n 's/^tsort: \(-: \)*//p' "$work/tsort" | grep -v 'input contains a loop' | sort -u >"$work/circle"
    [ ! -s "$work/circle" ] || { echo "FAIL: these files make a circle of $kind:"; sed 's/^/    /' "$work/circle"; } >>"$work/wrong"
done

if [ -s "$work/wrong" ]; then
    cat "$work/wrong" >&2
    exit 1
fi
echo "ok: arrows.sh ($(wc -l <"$work/includes") includes, $(wc -l <"$work/calls") calls)"
