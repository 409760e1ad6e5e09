#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doc/metrics-cookbook.md: its commands make the runs, each of its questions is asked, and the answers are those of the page; where
# they measure time, the page has the same columns and as many rows.
. "$(dirname "$0")/_common.sh"
document_blocks

# The commands as `setup`, questions as N.sql, and what the page says after them as N.same or N.text.
awk -v folder="$here/blocks" '
    /^```sh$/ { file = folder "/setup"; next }
    /^```sql$/ { n++; file = sprintf("%s/%02d.sql", folder, n); next }
    /^```text/ { file = sprintf("%s/%02d.%s", folder, n, $2 == "same" ? "same" : "text"); next }
    /^```/ { file = ""; next }
    file != "" { print >file }' "$top/doc/metrics-cookbook.md"
sh -e "$here/blocks/setup" >out 2>&1 </dev/null || fail "exit $?: $(cat out)"

asked=0
for question in "$here"/blocks/*.sql; do
    asked=$((asked + 1))
    others=
    ! grep -q 'all_' "$question" || others=runs/b
    # shellcheck disable=SC2086
    switchyard metrics runs/a $others "$(cat "$question")" >answer 2>err || fail "$(cat "$question"): $(cat err)"
    sed 's/ *$//' answer >out
    same=${question%.sql}.same text=${question%.sql}.text
    if [ -e "$same" ]; then
        cmp -s out "$same" || fail "$(cat "$question"): not what the page says: $(cat out)"
    elif [ -e "$text" ]; then
        [ "$(head -n 1 out | tr -s ' ')" = "$(head -n 1 "$text" | tr -s ' ')" ] || fail "$(cat "$question"): other columns"
        [ "$(wc -l <out)" -ge "$(wc -l <"$text")" ] || fail "$(cat "$question"): fewer rows: $(cat out)"
    else
        fail "the page has no answer: $(cat "$question")"
    fi
done
[ "$asked" -eq 20 ] || fail "$asked questions instead of twenty"
[ "$(ls "$here"/blocks/*.same | wc -l)" -ge 18 ] || fail "too few answers are compared exactly"
finish
