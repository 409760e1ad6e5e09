#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# switchyard in another program: what the library exports and what it leaves alone, the examples against the command, and
# an installation that a compiler finds by pkg-config.
. "$(dirname "$0")/_common.sh"
build=${abs_top_builddir:?set abs_top_builddir to the build tree}
data "$here/pairs" 24 1
cut -f 1 "$here/pairs" >"$here/words"
cd "$here" || exit 99

# ---- symbols: those of the list, and nothing that prints, ends the process or takes signals ----
library=$build/.libs/libswitchyard.so
if [ -f "$library" ] && command -v nm >/dev/null; then
    nm -D --defined-only "$library" | sed -n 's/^[0-9a-f]* [TDBR] //p' | grep -v '^__' | sort >exported
    LC_ALL=C sort "$top/core/api/symbols.txt" | diff - exported >difference || fail "other symbols: $(cat difference)"
    sed -n 's/^SY_API .*[ *]\(sy_[a-z_]*\)(.*/\1/p' "$top/include/switchyard/switchyard.h" | sort >declared
    diff declared exported >difference || fail "the header and the library differ: $(cat difference)"
    nm -D --undefined-only "$library" | awk '{ print $2 }' | sed 's/@.*//' >used
    ! grep -E '^(__)?(printf|puts|putchar|perror|exit|_exit|abort|signal|sigaction|raise|stdout|stderr)(_chk)?$' used >forbidden ||
        fail "the library uses $(cat forbidden)"
    readelf -d "$library" 2>/dev/null | grep -q 'SONAME.*\[libswitchyard\.so\.[0-9]' || fail "the library has no soname"
else
    echo "not tested: symbols; this build has no shared library, or there is no nm"
fi

# ---- hardening, where configure found it and no sanitizer is in its place ----
if command -v readelf >/dev/null && [ -f "$build/config.status" ]; then
    "$build/config.status" --file=- >settings <<'END'
cflags='@HARDENING_CFLAGS@'
ldflags='@HARDENING_LDFLAGS@'
END
    . ./settings
    command=$build/.libs/switchyard
    [ -f "$command" ] || command=$build/switchyard
    for file in "$command" "$library"; do
        [ -f "$file" ] || continue
        readelf -W -l -d --dyn-syms "$file" >elf 2>/dev/null
        case $ldflags in
        *relro*) grep -q GNU_RELRO elf && grep -q 'BIND_NOW\|FLAGS.* NOW' elf || fail "$file: addresses are not read-only" ;;
        esac
        case $cflags in
        *stack-protector*) grep -q __stack_chk_fail elf || fail "$file: no stack protector" ;;
        esac
    done
else
    echo "not tested: hardening; there is no readelf, or no config.status"
fi

# ---- the examples, against the command ----
"$build/examples/train_step" "$top/bench/tiny.run" 40 run <pairs >steps 2>err || fail "train_step: $(cat err)"
[ "$(wc -l <steps)" -eq 40 ] || fail "train_step: $(wc -l <steps) lines for 40 steps"
awk 'NR == 1 { first = $4 } { last = $4 } END { exit !(last < first / 1.5) }' steps || fail "the loss does not fall: $(tail -n 1 steps)"
# shellcheck disable=SC2046
"$build/examples/pronounce" run $(cat words) >answers 2>err || fail "pronounce: $(cat err)"
"$program" predict run --beams 4 --decodes 3 --scores --quiet <words >predicted 2>err || fail "predict: $(cat err)"
cut -f 2- answers | diff - predicted >difference || fail "pronounce and predict differ: $(head -n 4 difference)"
[ "$(sort -u predicted | wc -l)" -gt 10 ] || fail "answers are too much alike to tell words apart"
"$build/examples/train_step" run 5 run <pairs >steps 2>err || fail "train_step does not go on: $(cat err)"
exits 0 "$program" train "$top/bench/tiny.run" --run-dir run --resume --quiet --set task.words.train=pairs --set train.steps=50
[ "$(cat run/status)" = done ] || fail "a run that the library began does not go on: $(cat run/status)"
"$build/examples/train_step" "$top/bench/tiny.run" 1 run <pairs >out 2>err && fail "train_step writes over a run"
says err 'holds another run'
awk 'BEGIN { for (i = 0; i < 33; i++) print "a\tb" }' | "$build/examples/train_step" "$top/bench/tiny.run" 1 other >out 2>err &&
    fail "train_step leaves pairs out"
says err 'more than 32 pairs'
awk 'BEGIN { printf "a\t"; for (i = 0; i < 254; i++) printf "b" }' | "$build/examples/train_step" "$top/bench/tiny.run" 1 other >out 2>err &&
    fail "train_step cuts a line"
says err 'more than 254 bytes'

# ---- the checkpoints that keep_best keeps are none of those that save removes ----
data valid.tsv 10 2
exits 0 "$program" train "$top/bench/tiny.run" --run-dir kept --quiet --set task.words.train=pairs --set task.words.valid=valid.tsv \
    --set train.steps=4 --set train.evaluate_every=1 --set train.keep_checkpoints=1 --set decode.max_length=2 \
    --set action.best.kind=keep_best --set action.best.n=3
"$build/examples/train_step" kept 2 kept <pairs >out 2>err || fail "train_step: $(cat err)"
for step in $(query kept "SELECT group_concat(step, ' ') FROM (SELECT step FROM valid_eval WHERE name = 'loss' ORDER BY value LIMIT 3)"); do
    [ -d "kept/checkpoints/$step" ] || fail "the library removed checkpoint $step which keep_best keeps"
done

# ---- weights without an optimizer's state, as import and ckpt make them ----
exits 0 "$program" ckpt cast run --dtype float32 --to weights
"$build/examples/train_step" weights 1 weights <pairs >out 2>err && fail "train_step goes on without an optimizer's state"
says err 'has no optimizer state.*train.init_from = "weights"'
exits 1 "$program" train weights/run.conf --run-dir weights --resume --quiet
one_line_error
says err 'has no optimizer state.*train.init_from = "weights"'

# ---- many threads on one handle, against the command ----
"$program" predict run --quiet <words | paste words - >known
"$build/tests/cli/many_calls" run known 400 4 >out 2>err || fail "many_calls: $(cat out err)"
sed '3s/\t.*/\tno output/' known >other
"$build/tests/cli/many_calls" run other 100 4 >out 2>err && fail "many_calls sees no difference"

# ---- installed: found by pkg-config, with its backend, from any folder ----
(cd "$build" && "${MAKE:-make}" -s install DESTDIR="$here/root") >out 2>&1 || fail "make install: $(tail -n 3 out)"
pc=$(find root -name switchyard.pc)
[ -n "$pc" ] || fail "no switchyard.pc is installed"
for example in predict.py pronounce.c train_step.c action_threshold.c quickstart.run slurm-train.sh; do
    [ -n "$(find root -path "*/switchyard/examples/$example")" ] || fail "the example $example is not installed"
done
documents=$(dirname "$(find root -name README.md)")
[ -f "$documents/doc/architecture.md" ] || fail "the documents are not installed: $(find root -name '*.md')"
# shellcheck disable=SC2046 # several pages
links_lead "$documents" $(cd "$documents" && find . -name '*.md')
if command -v pkg-config >/dev/null && [ -f "$library" ]; then
    lib=$here/root$(sed -n 's/^libdir=//p' "$pc" | sed "s,\${exec_prefix},$(sed -n 's/^prefix=//p' "$pc"),")
    flags=$(PKG_CONFIG_PATH=$(dirname "$pc") PKG_CONFIG_SYSROOT_DIR=$here/root pkg-config --cflags --libs switchyard) ||
        fail "pkg-config does not find switchyard"
    static=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --static --libs switchyard)
    "$build/config.status" --file=- >libraries <<'END'
@COMPRESSION_LIBS@ @BLAS_LIBS@ @LIBS@
END
    for flag in $(cat libraries); do
        case " $static " in *" $flag "*) ;; *) fail "pkg-config --static lacks $flag: $static" ;; esac
    done
    # shellcheck disable=SC2086
    ${CC:-cc} ${CFLAGS-} "$top/examples/pronounce.c" -o pronounce $flags 2>err || fail "compiling an example: $(cat err)"
    # shellcheck disable=SC2046
    (unset SWITCHYARD_BACKEND_PATH; cd / && LD_LIBRARY_PATH=$lib "$here/pronounce" "$here/run" $(cat "$here/words")) >installed 2>err ||
        fail "an example with the installed library: $(cat err)"
    "$program" predict run --beams 4 --decodes 3 --scores --quiet <words >predicted
    cut -f 2- installed | diff - predicted >difference || fail "the installed library answers otherwise: $(head -n 4 difference)"
else
    echo "not tested: compiling against the installed library; this build has no shared one, or there is no pkg-config"
fi

# ---- from Python ----
case ${CFLAGS-} in
*-fsanitize*) python= ;; # the interpreter has not loaded the sanitizer
*) python=$(command -v python3) ;;
esac
if [ -n "$python" ] && [ -f "$library" ]; then
    # shellcheck disable=SC2046
    "$python" "$top/examples/predict.py" "$library" run $(cat words) >answers 2>err || fail "predict.py: $(cat err)"
    "$program" predict run --quiet <words >predicted
    cut -f 2- answers | diff - predicted >difference || fail "predict.py and predict differ: $(head -n 4 difference)"
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$top/examples "$python" -c 'import ctypes, predict
text = ctypes.create_string_buffer(b"a\0b")
assert str(predict.Answer(ctypes.addressof(text), 3)) == "a\0b"' 2>err || fail "predict.py cuts an answer: $(tail -n 1 err)"
else
    echo "not tested: predict.py; there is no python3 that can load the library of this build"
fi
# ---- what is installed works, and goes again without leaving a folder ----
"${MAKE:-make}" -s -C "$build" installcheck DESTDIR="$here/root" >out 2>&1 || fail "make installcheck: $(tail -n 5 out)"
says out '^cpu trains and answers'
# By whatever name: each of its plugins is listed once, and none is refused as hidden by itself.
unset SWITCHYARD_BACKEND_PATH # to the end
installed=$(find "$here/root" -name switchyard -type f -perm -100)
bin=${installed#"$here/root"}
plugins=$(dirname "$(find "$here/root" -name 'switchyard-null.so')")
lib=${plugins#"$here/root"}
"$installed" backends | sed -n 's/^\([a-z0-9_]*\)  .*/\1/p' >names
[ -s names ] && [ -z "$(uniq -d <names)" ] || fail "the installation lists $(cat names)"
# lists WHAT COMMAND...: the same plugins.
lists() {
    what=$1
    shift
    "$@" backends >listed 2>&1 || fail "an installation by $what: $(cat listed)"
    ! grep refused listed >refused || fail "an installation by $what refuses plugins of its own: $(cat refused)"
    sed -n 's/^\([a-z0-9_]*\)  .*/\1/p' listed | cmp -s - names || fail "an installation by $what lists others: $(cat listed)"
}
ln -s root link
lists 'a symbolic link' "link$bin"
lists 'a path with //' "$here//root/.//$bin"
lists 'a relative path' "../$(basename "$here")/root$bin"
lists PATH env PATH="$here/link$(dirname "$bin"):$PATH" switchyard
if command -v bash >/dev/null; then # `exec -a` is bash's
    # shellcheck disable=SC2016 # of the inner shell
    lists 'a name that is no path' bash -c 'exec -a some/thing "$0" "$@"' "$installed"
fi
# As root of a user namespace, which sees the host's root as nobody.
chmod 711 "$here"
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 1234 --regid 1234 --clear-groups unshare -r test -x "$installed" 2>err; then
    lists 'root of a container' setpriv --reuid 1234 --regid 1234 --clear-groups unshare -r "$installed"
else
    echo "not tested: root of a user namespace: $(cat err)"
fi
if [ -n "$lib" ]; then # plugins of one folder by many names
    many=$plugins:$here/link$lib:$here//root/./$lib/:$here/link/../root$lib
    lists 'many names of its plugins' env SWITCHYARD_BACKEND_PATH="$many" "$installed"
    mkdir bound
    if unshare --mount true 2>err; then
        # shellcheck disable=SC2016 # of the inner shell
        lists 'a bind mount' unshare --mount sh -c 'mount --bind "$0/root" "$0/bound" || exit 99
            SWITCHYARD_BACKEND_PATH=$0/root$1:$0/bound$1 "$0/bound$2" "$3"' "$here" "$lib" "$bin"
    else
        echo "not tested: an installation by a bind mount: $(cat err)"
    fi
fi
rm link
mv root 'moved away' && "$(find "$here/moved away" -name switchyard -type f -perm -100)" backends >out 2>&1 ||
    fail "an installation that was moved: $(cat out)"
says out '^cpu .*compute'
mv 'moved away' root
"${MAKE:-make}" -s -C "$build" uninstall DESTDIR="$here/root" >out 2>&1 || fail "make uninstall: $(tail -n 3 out)"
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile")
find "root$prefix" ! -type d >left 2>/dev/null
find root -depth -name 'switchyard*' -print | while read -r folder; do
    case root$prefix/ in "$folder"/*) ;; *) echo "$folder" ;; esac # the prefix and those above are the user's
done >>left
[ ! -s left ] || fail "make uninstall leaves $(cat left)"
finish
