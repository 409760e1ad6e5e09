# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share: a private folder, data, and checks that say what went wrong.
set -u
LC_ALL=C # awk and sort do the same everywhere
export LC_ALL
program=${SWITCHYARD:?set SWITCHYARD to the program under test}
top=${abs_top_srcdir:?set abs_top_srcdir to the source tree}
here=$(mktemp -d) || exit 99
owner= # a program in the background
trap '[ -z "$owner" ] || kill -KILL "$owner" 2>/dev/null; rm -rf "$here"' EXIT
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

# good_run: data of 300 and 20 rows, and bench/tiny.run trained on them into $here/good with arguments $good, its weights'
# hash in $hash; the script goes on in $here.
good_run() {
    data "$here/train.tsv" 300 1
    data "$here/valid.tsv" 20 2
    cd "$here" || exit 99
    good='--set train.steps=4 --set train.checkpoint_every=2 --set metrics.every=1'
    # shellcheck disable=SC2086
    exits 0 tiny good $good
    hash=$(hash_in out)
}

# document_blocks: for the commands of a document: switchyard is found in PATH, the script goes on in $here/work, and
# $here/blocks is for what the document says. One thread, which is as fast for models this small, and does not wait for a
# processor that others use.
document_blocks() {
    mkdir "$here/bin" "$here/blocks" "$here/work"
    cat >"$here/bin/switchyard" <<END
#!/bin/sh
case \$1 in train | eval | predict) exec "$program" "\$@" --threads 1 ;; esac
exec "$program" "\$@"
END
    chmod +x "$here/bin/switchyard"
    PATH=$here/bin:$PATH
    cd "$here/work" || exit 99
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

# tiny DIR ARGUMENTS...: trains bench/tiny.run in $here/DIR on $here/train.tsv.
tiny() {
    run=$1
    shift
    "$program" train "$top/bench/tiny.run" --run-dir "$here/$run" --set task.words.train="$here/train.tsv" "$@"
}

# hash NAME ARGUMENTS...: trains run file $hash_run on train.tsv for eight steps and prints the hash of the weights.
hash() {
    name=$1
    shift
    "$program" train "$hash_run" --run-dir "$name" --quiet --threads 1 --set task.words.train=train.tsv --set train.steps=8 "$@" \
        >"$name.out" 2>"$name.err" </dev/null || fail "$name: $(cat "$name.err")"
    sed -n 's/^weights sha256 //p' "$name.out"
}

# same WANT NAME ARGUMENTS...: it is that hash.
same() {
    expected=$1
    shift
    got=$(hash "$@")
    echo "$1  $got"
    [ -n "$got" ] && [ "$got" = "$expected" ] || fail "$1: weights differ"
}

# start DIR ARGUMENTS...: as tiny, in the background, as process $owner, with output in $here/DIR.out and DIR.err.
start() {
    run=$1
    shift
    "$program" train "$top/bench/tiny.run" --run-dir "$here/$run" --set task.words.train="$here/train.tsv" "$@" \
        >"$here/$run.out" 2>"$here/$run.err" </dev/null &
    owner=$!
}

# ended: waits for that process; its exit status.
ended() {
    wait "$owner"
    got=$?
    owner=
    return $got
}

# eventually COMMAND...: until it succeeds, for a minute at most.
eventually() {
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        if [ "$tries" -ge 1200 ]; then
            fail "a minute passed without: $*"
            return 1
        fi
        sleep 0.05
    done
}

# hash_in FILE: the hash of the weights that a training printed into $here/FILE.
hash_in() {
    sed -n 's/^weights sha256 //p' "$here/$1"
}

# ends RUN WORD STATUS GOT: the run's status file and the exit status of the program.
ends() {
    [ "$3" -eq "$4" ] || fail "$1: exit $4 instead of $3: $(cat "$here/err")"
    [ "$(cat "$here/$1/status")" = "$2" ] || fail "$1: status is $(cat "$here/$1/status") instead of $2"
}

# query RUN SQL: the one value that the SQL gives.
query() {
    "$program" metrics "$here/$1" --tsv "$2" | tail -n 1
}

# clone FOLDER: makes FOLDER with the files that a clone of the sources has, whatever was built among them.
clone() {
    "${MAKE:-make}" -s -C "${abs_top_builddir:?set abs_top_builddir to the build tree}" distdir distdir="clone-$$" >"$here/out" 2>&1 ||
        fail "make distdir: $(tail -n 3 "$here/out")"
    chmod -R u+w "$abs_top_builddir/clone-$$"
    mv "$abs_top_builddir/clone-$$" "$1" || exit 99
}

# hold RUN: another program reads RUN's database and does not come to an end, until letgo.
hold() {
    rm -f "$here/stay"
    mkfifo "$here/stay"
    "${abs_top_builddir:?set abs_top_builddir to the build tree}/tests/cli/database" hold "$here/$1/metrics.db" \
        <"$here/stay" >"$here/held" 2>&1 &
    exec 4>"$here/stay"
    eventually grep -q held "$here/held"
}
letgo() {
    exec 4>&-
}

# newest RUN: the step of its newest checkpoint.
newest() {
    ls "$here/$1/checkpoints" 2>/dev/null | grep -v '[^0-9]' | sort -n | tail -n 1
}

# bound_by_permissions: from here on $program writes only where permissions say so, also where root starts it. Fails, with
# the reason in $here/unbound, where that cannot be had.
bound_by_permissions() {
    [ "$(id -u)" -eq 0 ] || return 0
    printf '#!/bin/sh\nexec setpriv --bounding-set=-dac_override "%s" "$@"\n' "$program" >"$here/bound"
    chmod +x "$here/bound"
    "$here/bound" version >"$here/unbound" 2>&1 && program=$here/bound
}

# links_lead FOLDER PAGE...: each link of these pages to a file of FOLDER leads to one, and to a heading to one that is there.
links_lead() {
    folder=$1
    shift
    for page; do
        for link in $(sed -n 's/](\([^)#]*\))/\n](\1)\n/gp' "$folder/$page" | sed -n 's/^](\([^:]*\))$/\1/p'); do
            [ -e "$folder/$(dirname "$page")/$link" ] || fail "$page links to $link, which is not there"
        done
        # Links to a heading: FILE#slug, or #slug of the page itself.
        for link in $(sed -n 's/](\([^)]*#[^)]*\))/\n](\1)\n/gp' "$folder/$page" | sed -n 's/^](\([^:]*\))$/\1/p'); do
            file=${link%%#*}
            sed -n 's/^##* //p' "$folder/$(dirname "$page")/${file:-$(basename "$page")}" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-' |
                grep -qx -e "${link#*#}" || fail "$page links to $link, a heading that is not there"
        done
    done
}
