#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Documents against the program: the run-file page, the commands' man pages and completion are what the tables say, the man page knows every command and
# option, and the files that pages link to are there.
. "$(dirname "$0")/_common.sh"

SWITCHYARD=$program sh "$top/scripts/make-run-file-reference.sh" --check || fail "doc/run-file.md is out of date"

SWITCHYARD=$program sh "$top/scripts/make-command-files.sh" --check || fail "man pages or completion are out of date"
if command -v groff >/dev/null; then
    for page in "$top"/doc/switchyard.1 "$top"/doc/man/*.1; do
        groff -ww -man -Tutf8 "$page" 2>&1 >/dev/null | grep . && fail "$page: groff warns"
    done
else
    echo "not tested: man pages as groff reads them; there is no groff"
fi
SWITCHYARD=$program sh "$top/scripts/make-explain-excerpt.sh" --check || fail "the ops of doc/architecture.md are out of date"
sh "$top/scripts/make-cuda-table.sh" --check || fail "the table of doc/cuda.md is out of date"
sh "$top/scripts/make-gin-table.sh" --check || fail "the table of doc/migrate-t5x.md is out of date"
# An argument of Hugging Face's that is a key here, typed as a key, is answered by one of those that the page names.
sed -n 's/^| \(`[^|]*\) | \(.*\) |$/\1|\2/p' "$top/doc/migrate-huggingface.md" >"$here/rows"
[ "$(wc -l <"$here/rows")" -gt 50 ] || fail "doc/migrate-huggingface.md has few rows: $(cat "$here/rows")"
while IFS='|' read -r arguments answer; do
    echo "$answer" | grep -o '`[a-z]*\.[A-Za-z_.0-9]*' | tr -d '`' >"$here/keys"
    [ -s "$here/keys" ] || continue
    echo "$answer" | grep -o '`[a-z0-9_]*`' | tr -d '`' >>"$here/keys"
    for argument in $(echo "$arguments" | grep -o '`[a-z_0-9]*`' | tr -d '`'); do
        "$program" plan "$top/bench/tiny.run" --set "$argument=1" 2>&1 | sed -n 's/.* did you mean \([^?]*\)?.*/\1/p' >"$here/meant"
        sed 'p; s/.*\.//' "$here/meant" | grep -qxF -f "$here/keys" || fail "$argument: did you mean $(cat "$here/meant")? The page says $(cat "$here/keys")"
    done
done <"$here/rows"

sed 's/\\-/-/g' "$top/doc/switchyard.1" >"$here/man"
commands=$("$program" --help | sed -n 's/^  \([a-z-]*\)  *.*/\1/p')
[ -n "$commands" ] || fail "no commands in --help"
for command in $commands; do
    says man "^.B switchyard $command\$"
    says man "^.B $command\$"
    for option in $("$program" "$command" --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p'); do
        says man "^.BI* --$option\\>"
    done
done

for name in $(sed -n 's/^CREATE TABLE IF NOT EXISTS \([a-z_]*\).*/\1/p; s/^CREATE VIEW \([a-z_]*\) .*/\1/p' "$top/metrics/schema.sql"); do
    case $name in valid_*) continue ;; esac
    says man "\(^\|[ :]\)$name[,.]"
done

# shellcheck disable=SC2046 # several pages
links_lead "$top" $(cd "$top" && ls README.md CONTRIBUTING.md doc/*.md)

finish
