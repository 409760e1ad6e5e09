#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the table of ops in doc/cuda.md, between its two marks, from include/switchyard/ops.def and
# backends/cuda/kernels.def; with --check compares instead (a test does so). After a change of either:
#   sh scripts/make-cuda-table.sh
set -eu
top=$(dirname "$0")/..
. "$top/scripts/_table.sh"
page=$top/doc/cuda.md
made=$(mktemp)
trap 'rm -f "$made" "$made.rows"' EXIT

# An op of backends as a row of the table: its name, the dtypes of its floating-point operands, who computes it.
awk '
    FILENAME ~ /kernels.def$/ {
        if (/^SYCUDA_[A-Z]*\(/) { split($0, part, /[(,]/); by[part[2]] = part[1] }
        next
    }
    /^SY_(GRAD_)?OP\(/ {
        split($0, part, / *, */)
        name = part[2]
        match($0, /"[^"]*", "[^"]*", "[^"]*", SY_/)
        split(substr($0, RSTART, RLENGTH), text, /"/)
        types = text[6]
        dtypes = types == "" || types ~ /f/ ? "float32, bfloat16" : types ~ /s/ ? "float32" : "integers"
        how = by[name] == "SYCUDA_PRODUCT" ? "cuBLASLt, own kernel" : by[name] ? "own kernel" : ""
        if (!how) how = types ~ /p/ ? "not there: panels, a layout of CPU kernels" : "not there"
        if (types ~ /q/) dtypes = dtypes ", int8 weights"
        printf "| %s | %s | %s |\n", part[3], by[name] ? dtypes : "", how
    }' "$top/backends/cuda/kernels.def" "$top/include/switchyard/ops.def" >"$made.rows"
put_table "$page" '| op | in and out | computed by |' "$made.rows" "$made" "${1-}"
