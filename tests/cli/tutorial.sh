#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doc/tutorial.md: its commands, as they stand there, in an empty folder. Only the training is shorter. Outputs marked "same" must be
# those of the page, the others must be there in kind.
. "$(dirname "$0")/_common.sh"
document_blocks

# Blocks of commands as N.sh, each with the output that follows it as N.same or N.text.
awk -v folder="$here/blocks" '
    /^```sh$/ { n++; file = sprintf("%s/%02d.sh", folder, n); next }
    /^```text/ { file = sprintf("%s/%02d.%s", folder, n, $2 == "same" ? "same" : "text"); next }
    /^```/ { file = ""; next }
    file != "" { print >file }' "$top/doc/tutorial.md"
[ "$(ls "$here/blocks"/*.sh | wc -l)" -ge 12 ] || fail "blocks of commands are missing in doc/tutorial.md"

for block in "$here"/blocks/*.sh; do
    sed 's/^steps = 1500$/steps = 120/; s/^\(.*_every\) = 300$/\1 = 60/; s/time_limit=15/time_limit=1/; s/step % 100/step % 10/' \
        "$block" >../short.sh
    sh -e ../short.sh >out 2>&1 </dev/null || fail "exit $?: $(cat "$block"): $(cat out)"
    same=${block%.sh}.same text=${block%.sh}.text
    if [ -e "$same" ]; then
        cmp -s out "$same" || fail "$(cat "$block"): not what the page says: $(cat out)"
    elif [ -e "$text" ]; then
        [ -s out ] || fail "no output: $(cat "$block")"
    elif [ -s out ]; then
        fail "an output that the page has not: $(cat "$block"): $(cat out)"
    fi
    cp out "$here/blocks/$(basename "${block%.sh}").out"
done

# saw TEXT: some block printed it, and the page says that one does.
saw() {
    grep -q -e "$1" "$here"/blocks/*.out || fail "no command of the tutorial printed '$1'"
    grep -q -e "$1" "$here"/blocks/*.text || fail "the page does not show '$1'"
}
saw '^model: 554464 parameters in 39 tensors$'
saw 'numbers/valid: 100 items, loss [0-9.]*, word error rate [0-9.]* %, exact match [0-9.]* %'
saw 'numbers/test: 100 items, loss '
saw '^exit status 3$'
saw '^going on from the checkpoint of step [0-9]*$'
saw '^done after [0-9]* steps$'
saw '^step  *loss  *learning_rate$'
saw '^last event: '
grep -qi '^<!doctype html' numbers.html || fail "numbers.html is no page"
finish
