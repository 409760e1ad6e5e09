#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/quickstart.sh in a tree that is built, with a small model and a dictionary of another edition: a short try is a
# run of its own, an interrupted trial leaves nothing, an interrupted training says how to go on.
. "$(dirname "$0")/_common.sh"
tree=$here/tree
mkdir "$tree" "$tree/bench" "$here/bin" "$here/tmp"
cp -R "$top/scripts" "$tree"
cd "$tree" || exit 99
: >config.status
echo 'all:' >Makefile
sed -e 's/^d_model = .*/d_model = 32/; s/^d_ff = .*/d_ff = 32/; s/^head_dim = .*/head_dim = 8/' \
    -e 's/^length_buckets = .*//; s/^batch_size = 64/batch_size = 8/; s/^steps = .*/steps = 1100/' "$top/bench/quickstart.run" >bench/quickstart.run
# Upper case, stress and comments.
awk 'BEGIN {
    print ";;; a comment"
    srand(1)
    for (i = 0; i < 400; i++) {
        word = ""; spelled = ""
        for (j = 0; j < 3 + int(rand() * 3); j++) { c = 1 + int(rand() * 8); word = word substr("ABCDEFGH", c, 1); spelled = spelled " " substr("ABCDEFGH", c, 1) (c % 2 ? "" : 1) }
        print word " " spelled (i % 9 ? "" : " # a name")
    } }' >"$here/other.dict"
printf '#!/bin/sh\n[ "$LC_ALL" = C ] || { echo "awk: a locale of its own" >&2; exit 2; }\nexec %s "$@"\n' "$(command -v awk)" >"$here/bin/awk"
# Does what it is asked to, unless $interrupt has the number of steps at which Control-C comes.
printf '#!/bin/sh\ncase "${interrupt:+$*}" in *train.steps=${interrupt:-0}*) kill -INT "$PPID"; sleep 0.1; exit 3 ;; esac\nexec "%s" "$@"\n' \
    "$program" >switchyard
chmod +x "$here/bin/awk" switchyard
PATH=$here/bin:$PATH TMPDIR=$here/tmp
export PATH TMPDIR interrupt
unset LC_ALL QUICKSTART_SET QUICKSTART_RUN

# ---- what is missing ----
# No pkg-config, and an SQLite that the compiler does not find by itself but configure took.
mkdir "$here/few"
for tool in dirname cat id; do ln -s "$(command -v $tool)" "$here/few/$tool"; done
printf '#!/bin/sh\nexit 0\n' >"$here/few/make"
printf '#!/bin/sh\nread -r line\ncase "$line$*" in *sqlite3.h*-Iown*) ;; *sqlite3.h*) exit 1 ;; esac\n' >"$here/few/cc"
chmod +x "$here/few/make" "$here/few/cc"
exits 0 env -u CC PATH="$here/few" /bin/sh scripts/install-build-deps.sh --no-dictionary
rm config.status
exits 1 env -u CC PATH="$here/few" /bin/sh scripts/install-build-deps.sh --no-dictionary
says err '^Missing here .*: libsqlite3-dev$'
exits 0 env -u CC PATH="$here/few" CPPFLAGS=-Iown /bin/sh scripts/install-build-deps.sh --no-dictionary
: >config.status

quick() {
    sh scripts/quickstart.sh --dictionary "$here/other.dict"
}

exits 2 sh scripts/quickstart.sh --dictionary nowhere
says err 'cannot read the dictionary .*/nowhere'
exits 2 sh scripts/quickstart.sh --dictionarry x
says err '^usage: quickstart.sh'

QUICKSTART_SET='--set train.steps=3 --set decode.max_length=8' exits 0 quick
unset QUICKSTART_SET
says out '^g2p/test: '
says out '^== done: the run is in runs/g2p-quickstart-try'
[ "$(ls runs)" = g2p-quickstart-try ] || fail "a short try makes $(ls runs)"
! cut -f 2 data/g2p/train.tsv | grep -q '[a-z0-9;#]' || fail "stress or comments are in the data"
! cut -f 1 data/g2p/train.tsv | grep -q '[A-Z]' || fail "upper case is in the data"

if env --default-signal=INT true 2>/dev/null; then # a script that was started with SIGINT ignored cannot be interrupted
    interrupt=120 exits 130 env --default-signal=INT sh scripts/quickstart.sh --dictionary "$here/other.dict"
    [ -z "$(ls "$here/tmp")" ] || fail "an interrupted trial leaves $(ls "$here/tmp")"
    interrupt=1100 exits 3 env --default-signal=INT sh scripts/quickstart.sh --dictionary "$here/other.dict"
    says err '^stopped; the same command goes on from here'
else
    echo "skipped: Control-C (env has no --default-signal)"
fi

# A run that was begun keeps its steps, and says so.
mkdir -p runs/g2p-quickstart
QUICKSTART_RUN=runs/g2p-quickstart-try exits 0 quick
says out 'runs/g2p-quickstart-try was begun with train.steps = 3 and keeps it. For another run: QUICKSTART_RUN=DIR'
finish
