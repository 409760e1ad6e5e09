#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the table of doc/migrate-t5x.md, between its two marks, from core/import/gin_keys.def; with --check compares
# instead (a test does so). After a change of gin_keys.def:
#   sh scripts/make-gin-table.sh
set -eu
top=$(dirname "$0")/..
. "$top/scripts/_table.sh"
page=$top/doc/migrate-t5x.md
made=$(mktemp)
trap 'rm -f "$made"' EXIT

# A row of gin_keys.def, its strings joined, as a row of the table: binding, key, what is said of it.
rows() {
    awk '
    /^GIN_KEY/ { row = ""; open = 1 }
    open { row = row $0 }
    open && /\)$/ {
        open = 0
        gsub(/"  *"/, "", row)
        gsub(/\\"/, "\001", row)
        sub(/^GIN_KEY\(/, "", row); sub(/\)$/, "", row)
        split(row, part, /, */)
        scope = part[1]; name = part[2]; how = part[3]; key = part[4]
        extra = row; for (i = 1; i <= 4; i++) sub(/^[^,]*, */, "", extra)
        gsub(/"/, "", scope); gsub(/"/, "", name); gsub(/"/, "", key); gsub(/"/, "", extra)
        gsub(/\001/, "\"", extra); sub(/ *$/, "", extra)
        if (how == "WIRING" || how == "PARTS") next
        if (how == "OFF") extra = "False: " extra
        if (how == "LENGTHS") key = "data.max_input_length`, `data.max_target_length"
        if (how == "FACTOR") { split(key, f, "."); split(extra, g, "."); extra = "argument " f[2] (extra == "NULL" ? " of the factor " f[1] : " of the factors " f[1] " and " g[1]); key = "train.lr_factors" }
        if (how == "TASK") { key = "NULL"; extra = "tasks of seqio are Python: write their examples into files ([data.md](data.md))" }
        if (how == "VALUE") extra = extra == "NULL" ? "" : "None: " extra
        if (how == "CHOICE") { if (extra == "NULL") extra = ""; sub(/= ?$/, "_by_hand", extra); gsub(/ +/, ", ", extra); gsub(/=/, " is ", extra); gsub(/_by_hand/, " by hand", extra) }
        if (how == "ACTIVATIONS") extra = ""
        printf "| `%s%s` | %s | %s |\n", scope == "" ? "" : scope "/", name, key == "NULL" ? "" : "`" key "`", extra
    }' "$top/core/import/gin_keys.def"
}

rows >"$made.rows"
trap 'rm -f "$made" "$made.rows"' EXIT
put_table "$page" '| binding | key | |' "$made.rows" "$made" "${1-}"
