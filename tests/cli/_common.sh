# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share: a private folder, data, and checks that say what went wrong.
set -u
program=${SWITCHYARD:?set SWITCHYARD to the program under test}
top=${abs_top_srcdir:?set abs_top_srcdir to the source tree}
here=$(mktemp -d) || exit 99
trap 'rm -rf "$here"' EXIT
failures=0

fail() {
    echo "FAIL: $*" >&2
    failures=$((failures + 1))
}

finish() {
    [ "$failures" -eq 0 ] || exit 1
    echo "ok: $(basename "$0")"
    exit 0
}

# data FILE ROWS SEED: words and their letters in upper case, apart: a small task that can be learned.
data() {
    awk -v rows="$2" -v seed="$3" 'BEGIN {
        srand(seed)
        for (i = 0; i < rows; i++) {
            n = 2 + int(rand() * 7); word = ""; spelled = ""
            for (j = 0; j < n; j++) {
                c = int(rand() * 8)
                word = word substr("abcdefgh", c + 1, 1)
                spelled = spelled (j ? " " : "") substr("ABCDEFGH", c + 1, 1)
            }
            print word "\t" spelled
        } }' >"$1"
}

# exits STATUS COMMAND...: runs it with output in $here/out and $here/err.
exits() {
    want=$1
    shift
    "$@" >"$here/out" 2>"$here/err" </dev/null
    got=$?
    [ "$got" -eq "$want" ] || fail "exit $got instead of $want: $* ($(tail -n 1 "$here/err"))"
}

# says FILE TEXT: the text is in $here/FILE.
says() {
    grep -q -e "$2" "$here/$1" || fail "$1 lacks '$2': $(cat "$here/$1")"
}

# one_line_error: exactly one line on stderr, with the program's name.
one_line_error() {
    [ "$(wc -l <"$here/err")" -eq 1 ] || fail "not one line on stderr: $(cat "$here/err")"
    says err '^switchyard: '
}
