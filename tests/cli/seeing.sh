#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Seeing a run: metrics in the formats of other programs, exports, top, report; of runs that are whole, just begun,
# empty, damaged and hostile.
. "$(dirname "$0")/_common.sh"
data "$here/train.tsv" 300 1
data "$here/valid.tsv" 20 2
cd "$here" || exit 99
exits 0 tiny run --quiet --set train.steps=12 --set train.evaluate_every=6 --set metrics.every=1 --set train.checkpoint_every=6 \
    --set task.words.valid="$here/valid.tsv" --set task.other.valid="$here/valid.tsv" --set 'task.other.metrics=[]'
python=$(command -v python3) || echo "skipped: without python3 pages, JSON and terminals are not checked" >&2

# ---- metrics ----
exits 0 "$program" metrics run --list
says out '^metric  *loss  *12  *1  *12$'
says out '^evaluation  *words/valid/wer  *2  *6  *12$'
exits 0 "$program" metrics run --name 'learning_rat?' --from 2 --to 3 --format tsv
[ "$(wc -l <out)" -eq 3 ] || fail "--from, --to: $(cat out)"
says out '^2.learning_rate.'
exits 0 "$program" metrics run --name loss --from 100 # a name that is there, at steps that are not
exits 1 "$program" metrics run --name learning_rat --format json
one_line_error
says err 'no number of run is called learning_rat, did you mean learning_rate? (--list shows all names)'
exits 1 "$program" metrics run --list --name 'zzz*'
cp -r run named
cp valid.tsv 'b\ü.tsv'
exits 0 "$program" eval named --file 'b\ü.tsv'
for format in aligned tsv csv json; do # a name that --list and JSON write another way, and ? for more than a byte
    exits 0 "$program" metrics named --name 'b\ü.tsv/loss' --format $format
    exits 0 "$program" metrics named --name 'b\ü.tsv/loss' --from 100 --format $format
    exits 0 "$program" metrics named --name 'b\?.tsv/los?' --format $format
done
exits 0 "$program" metrics run 'SELECT step, text FROM event WHERE kind = '"'done'" --format csv
printf 'step,text\r\n12,done after 12 steps\r\n' | cmp -s - out || fail "csv: $(cat out)"
exits 0 "$program" metrics run 'SELECT name, value FROM metric' --format json
if [ -n "$python" ]; then
    "$python" -c 'import json, sys; rows = json.load(sys.stdin); assert len(rows) > 50 and all(set(r) == {"name", "value"} for r in rows)' \
        <out || fail "json does not load"
fi
exits 2 "$program" metrics run --format csb
says err 'unknown format csb, did you mean csv'
exits 2 "$program" metrics run --tsv --format csv 'SELECT 1'
exits 2 "$program" metrics run --list 'SELECT 1'
says err 'for one run and without SQL'
exits 2 "$program" metrics run --from 5 --to 4
exits 2 "$program" metrics run --from -1
exits 2 "$program" metrics run --format json
says err 'several tables'

# ---- exports ----
exits 2 "$program" metrics run --export csv
says err 'takes one run and a folder'
exits 2 "$program" metrics run --export cvs files
says err 'did you mean csv'
exits 0 "$program" metrics run --export csv files
[ "$(grep -c ,loss, files/valid_metric.csv)" -eq 12 ] || fail "valid_metric.csv: $(head files/valid_metric.csv)"
exits 0 "$program" metrics run 'SELECT * FROM eval' --format csv
cmp -s out files/eval.csv || fail "eval.csv is not the table"
exits 1 "$program" metrics run --export csv files
says err 'nothing is overwritten'
for kind in csv tensorboard; do
    (trap '' XFSZ && ulimit -f 1 && exec "$program" metrics run --export $kind torn.$kind) >out 2>err && fail "$kind: written past the limit"
    says err "cannot write torn.$kind/"
    [ -z "$(find torn.$kind -type f)" ] || fail "a part of a file is left: $(find torn.$kind -type f)"
done
exits 0 "$program" metrics run --export tensorboard board
[ "$(find board/words/valid -name 'events.out.tfevents.*' | wc -l)" -eq 1 ] || fail "no sub-folder of the task"
if [ -n "$python" ] && "$python" -c 'import tensorboard' 2>/dev/null; then
    "$python" "$top/tests/cli/seeing_tensorboard.py" board run/metrics.db >board.log 2>&1 || fail "TensorBoard: $(tail -n 1 board.log)"
else
    echo "skipped: python3 has no tensorboard, which would read the event files" >&2
fi

# ---- top ----
exits 0 env LC_ALL=C COLUMNS=70 "$program" top run
says out '^tiny  run  *done$'
says out 'step 12/12$'
says out 'words/valid  step 12'
says out 'encoder/layers_1/mlp .*dropped'
awk 'length > 70 { exit 1 }' out || fail "a line is too wide"
LC_ALL=C grep -q '[^ -~]' out && fail "not ASCII in the locale C: $(cat out)"
exits 0 env LC_ALL=C.UTF-8 "$program" top run --once
says out '█'
if locale -a 2>/dev/null | grep -qi '^c\.utf-*8$'; then
    ln -s run 漢漢漢漢漢漢漢漢漢
    exits 0 env LC_ALL=C.UTF-8 COLUMNS=21 "$program" top 漢漢漢漢漢漢漢漢漢
    says out '^tiny  漢漢漢漢漢漢漢$'
fi
# A run that ends at a step without a loss of its own, as early stopping does it: the newest that there is. Names are whole.
exits 0 tiny early --quiet --set train.steps=20 --set metrics.every=4 --set train.evaluate_every=5 --set action.stop.kind=early_stopping \
    --set action.stop.metric=loss --set action.stop.patience=1 --set action.stop.atol=1000 --set task.words.valid="$here/valid.tsv"
exits 0 "$program" top early --once
says out 'step 10/20$'
says out '^loss  *[0-9]'
says out '^learning rate [0-9].*gradient norm [0-9].*tokens/s [0-9]'
says out 'experts/fraction_tokens_left_behind [0-9]'
# A run that goes on where nothing is left to do: the attempt has no loss, the numbers are those of the one before.
cp -R run again
exits 0 "$program" train again --resume --quiet
exits 0 "$program" top run --once
grep -v -e '^tiny ' -e '^last event' out >once
exits 0 "$program" top again --once
grep -v -e '^tiny ' -e '^last event' out | cmp -s once - || fail "top of a run that went on at its end: $(cat out)"
# Rows of experts that an attempt left behind, more often than those of the one that went on, hide none of its.
exits 0 tiny often --quiet --set train.steps=14 --set metrics.every=1 --set metrics.routing_every=1
"$abs_top_builddir/tests/cli/database" change often/metrics.db \
    "INSERT INTO run SELECT attempt + 1, time, 2, version, host, config, 0 FROM run;
    INSERT INTO metric SELECT attempt + 1, step, time, task, name, value FROM metric WHERE step = 14" || fail "cannot change often/metrics.db"
exits 0 "$program" top often --once
says out 'encoder/layers_1/mlp .*dropped'
exits 2 "$program" top run --every 0
exits 2 "$program" top run --every 0.01
says err 'at least 0.1 s'
[ -z "$python" ] || for how in q ctrl-c resize gone forever stopped SIGTERM SIGHUP; do
    "$python" "$top/tests/cli/seeing_terminal.py" "$program" run "$how" 2>err || fail "top, $how: $(tail -n 1 err)"
done

# ---- report ----
# page FILE: well-formed, asks for nothing, says what it should.
page() {
    if grep -n -i -e '<script' -e '<link' -e 'https\{0,1\}:' -e '@import' -e 'url(' -e ' on[a-z]*="' "$1" | grep -v '&lt;' >bad; then
        fail "$1 asks for something or runs something: $(head -n 1 bad)"
    fi
    [ -z "$python" ] || "$python" - "$1" <<'END' || fail "$1 is not well-formed"
import html.parser, sys
class Page(html.parser.HTMLParser):
    open = []
    def handle_starttag(self, tag, attributes):
        if tag != "meta": self.open.append(tag)
    def handle_startendtag(self, tag, attributes): pass
    def handle_endtag(self, tag): assert self.open.pop() == tag, (tag, self.getpos())
page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
page.close()
assert not page.open
END
}
# shows FILE TEXT: like says, for files that are too long for a message.
shows() {
    grep -q -e "$2" "$1" || fail "$1 lacks '$2'"
}
exits 2 "$program" report run
says err 'where to'
exits 0 "$program" report run -o page.html
page page.html
for words in 'Training loss' 'Parts of the loss' 'Cross entropy' 'Z-loss' 'Gradient norm' 'Experts by task' 'up to 0.0 %' 'encoder/layers_1/mlp' 'words/valid' 'done after 12 steps' 'num_experts = 4'; do
    shows page.html "$words"
done
echo mine >page.html.tmp
exits 0 "$program" report run --output=page.html
[ "$(cat page.html.tmp)" = mine ] || fail "a file beside the page was written over"
echo mine >mine.html
exits 1 "$program" report run -o mine.html
says err 'is no report'
[ "$(cat mine.html)" = mine ] || fail "a file was written over"
ln -s loop.html loop.html # a file that cannot be read, for root too
exits 1 "$program" report run -o loop.html
says err 'loop.html is there already and cannot be read'
[ -L loop.html ] || fail "what cannot be read was written over"
# A link stays one: what it leads to is the page, or must be there.
ln -s page.html link.html
exits 0 "$program" report run -o link.html
[ "$(readlink link.html)" = page.html ] || fail "a link was replaced by the page"
ln -s nothing.html dangling.html
exits 1 "$program" report run -o dangling.html
one_line_error
says err 'dangling.html is a link that leads to no file'
[ "$(readlink dangling.html)" = nothing.html ] || fail "a link that leads to nothing was replaced"
mkfifo pipe
exits 1 "$program" report run -o pipe
one_line_error
says err 'pipe is no file'
rm pipe
cp -r run second
exits 0 "$program" report run second -o both.html
page both.html
shows both.html 'Comparison'
# Numbers of a run that diverged are not those from before: "newest" is the newest, a mean of 50 rows that of all 50.
cp -R run diverged
"$abs_top_builddir/tests/cli/database" change diverged/metrics.db \
    "UPDATE metric SET value = NULL WHERE name = 'loss' AND step > 9; UPDATE eval SET value = NULL WHERE name = 'wer' AND step = 12" ||
    fail "cannot change diverged/metrics.db"
exits 0 "$program" report diverged -o diverged.html
for words in 'not finite</b><span>loss, mean of the last 50 rows' 'not finite</b><span>words/valid wer, newest' '<strong>3 values are no finite'; do
    shows diverged.html "$words"
done
exits 0 "$program" report run diverged -o both.html
for name in 'loss, mean of the last 50 rows' 'words/valid wer'; do
    shows both.html "<td>$name</td><td class=\"n\">[0-9.]*</td><td class=\"n\">not finite</td>"
done
# What was decoded in two ways is two evaluations.
exits 0 "$program" eval second --file valid.tsv --beams 2
exits 0 "$program" report second -o ways.html
grep -q 'valid.tsv (' ways.html && fail "one way of decoding is told apart from itself"
exits 0 "$program" eval second --file valid.tsv
exits 0 "$program" report run second -o ways.html
shows ways.html '<td>valid.tsv (2 beams, [^<]*) wer</td><td class="n">–</td><td class="n">[0-9.]*</td>'
shows ways.html '<td>valid.tsv (greedy, [^<]*) wer</td><td class="n">–</td><td class="n">[0-9.]*</td>'
shows ways.html '<td>valid.tsv loss</td>'
shows ways.html '<td>valid.tsv</td><td>wer</td><td class="n">12</td><td class="n">[0-9.]*</td><td>2 beams, '
exits 2 "$program" report run run run run run run run run run -o many.html
for browser in chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null || continue
    timeout 60 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$here/profile" --window-size=1000,1200 \
        --screenshot="$here/page.png" "file://$here/page.html" >browser.log 2>&1
    [ "$(wc -c <page.png)" -gt 20000 ] || fail "$browser shows nothing of the page: $(tail -n 1 browser.log)"
    break
done
[ -s page.png ] || echo "skipped: no browser that draws the page" >&2

# ---- runs that have little, or ill will ----
mkdir empty damaged
exits 0 "$program" train "$top/bench/tiny.run" --run-dir empty --set task.words.train="$here/train.tsv" --set train.steps=0 --quiet
{ head -c 8192 run/metrics.db; head -c 8192 "$program"; } >damaged/metrics.db
exits 0 "$program" top empty --once
exits 0 "$program" report empty -o empty.html
page empty.html
shows empty.html 'There are no numbers'
exits 0 "$program" metrics empty --list
exits 1 "$program" metrics empty --name zzz
exits 0 "$program" metrics empty --export tensorboard empty.board
for run in damaged none; do
    for command in "top $run --once" "report $run -o none.html" "metrics $run --list" "metrics $run --export csv none.csv" \
        "metrics $run --export tensorboard none.board"; do
        # shellcheck disable=SC2086
        exits 1 "$program" $command
        one_line_error
        says err "$run/metrics.db"
    done
done
exits 0 tiny '<script>alert(1)<|script>' --quiet --set train.steps=2 --set metrics.every=1 --set 'run.name=<b onload="x">'
exits 0 "$program" report '<script>alert(1)<|script>' -o hostile.html
page hostile.html
shows hostile.html '&lt;b onload=&quot;x&quot;&gt;'
finish
