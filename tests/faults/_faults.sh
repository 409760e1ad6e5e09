# SPDX-License-Identifier: Apache-2.0
# What the loops of this folder share: the commands that are made to fail, and what must be true after each.
# FAULTS=stacks, as in `make bigcheck`: every system call fails, and of the allocations the first of every distinct stack of
# callers. FAULTS=every: every allocation, too. Else a sample.
. "${abs_top_srcdir:?}/tests/cli/_common.sh"
export LC_ALL=C
faults=${FAULTS:-some}
case $faults in some | stacks | every) ;; *) echo "FAULTS is some, stacks or every" >&2; exit 99 ;; esac
limit="timeout -k 10 300" # what hangs ends with status 124
injected=0 # runs in which a call failed
survived=0 # of them those that ended well all the same

data "$here/train.tsv" 200 1
head -n 20 "$here/train.tsv" >"$here/valid.tsv"
cut -f 1 "$here/valid.tsv" >"$here/words"

# tiny_run DIR ARGUMENTS...: the training that is made to fail: 4 steps, a checkpoint and an evaluation after every two.
tiny_run() {
    to=$1
    shift
    set -- "$program" train "$top/bench/tiny.run" --run-dir "$to" --resume --threads 1 \
        --set task.words.train="$here/train.tsv" --set task.words.valid="$here/valid.tsv" --set train.steps=4 \
        --set train.checkpoint_every=2 --set train.evaluate_every=2 --set decode.max_length=6 \
        --set action.best.kind=keep_best --set action.nan.kind=terminate_on_nan --set action.nan.policy=rollback \
        --set action.end.kind=command --set action.end.on=end --set action.end.command=: "$@"
    # shellcheck disable=SC2086
    $inject "$@" >"$here/out" 2>"$here/err" </dev/null
}

# The run that everything is compared with, and a run that stopped half-way.
inject=
tiny_run "$here/whole" || fail "the undisturbed run failed: $(cat "$here/err")"
want=$(hash_in out)
[ -n "$want" ] || fail "the undisturbed run printed no hash"
tiny_run "$here/half" --set train.steps=2 || fail "the undisturbed half failed: $(cat "$here/err")"
"$program" predict "$here/whole" <"$here/words" >"$here/answers" 2>/dev/null || fail "predict failed undisturbed"
"$program" score "$here/whole" --file "$here/valid.tsv" >"$here/scores" 2>/dev/null || fail "score failed undisturbed"
"$program" eval "$here/whole" --file "$here/valid.tsv" --threads 1 >"$here/rates" 2>/dev/null || fail "eval failed undisturbed"
[ "$failures" -eq 0 ] || finish

# next N: the number of the call that fails next; in a sample, further and further on, and with slow=1 with larger steps.
slow=0
next() {
    case $faults$slow in
    some0) echo $(($1 + 1 + $1 / 2)) ;;
    some1) echo $(($1 * 4 + 1)) ;;
    *) echo $(($1 + 1)) ;;
    esac
}

# told WHAT STATUS: a command that failed says why in one line with the program's name, besides warnings and what a resumed
# run says of changed keys, and was not killed.
told() {
    case $2 in
    1 | 2 | 3) ;;
    127) # the dynamic linker could not read a library: nothing of ours has run
        grep -q 'error while loading shared libraries' "$here/err" || fail "$1: exit status 127: $(cat "$here/err")"
        return ;;
    *) fail "$1: exit status $2: $(tail -n 3 "$here/err")" ;;
    esac
    grep -v -e '^switchyard: warning: ' -e '^switchyard: resume: ' "$here/err" >"$here/errors"
    [ -s "$here/errors" ] || fail "$1: exit status $2 without a word: $(cat "$here/err")"
    [ "$(grep -c '^switchyard: ' "$here/errors")" -le 1 ] || fail "$1: more than one error: $(cat "$here/errors")"
    [ "$(grep -vc '^switchyard: ' "$here/err")" -eq 0 ] || fail "$1: stray lines on stderr: $(cat "$here/err")"
}

# train_fails WHAT: resumes a copy of the half run while a call fails. Whatever happens, no checkpoint is lost, and the
# same command without a fault ends with the undisturbed weights. The state of the fault is judged by $hit.
train_fails() {
    rm -rf "$here/run"
    cp -a "$here/half" "$here/run"
    tiny_run "$here/run"
    status=$?
    $hit || return 1
    injected=$((injected + 1))
    if [ "$status" -eq 0 ]; then
        survived=$((survived + 1))
        [ "$(hash_in out)" = "$want" ] || fail "$1: ended well with other weights"
    else
        told "$1" "$status"
    fi
    [ -e "$here/run/checkpoints/2/meta.json" ] || fail "$1: the checkpoint of step 2 is gone"
    kept=$inject
    inject=
    if tiny_run "$here/run"; then
        [ "$(hash_in out)" = "$want" ] || fail "$1: resumed to other weights"
    else
        fail "$1: cannot be resumed: $(tail -n 2 "$here/err")"
    fi
    inject=$kept
    return 0
}

# answers_fail WHAT FILE COMMAND...: a command that only reads a run: it gives the right answer or says why not, on stderr
# or, where $excuse is a pattern, in its answer.
excuse=
answers_fail() {
    what=$1 right=$2
    shift 2
    # shellcheck disable=SC2086
    $inject "$@" >"$here/out" 2>"$here/err" <"$here/words"
    status=$?
    $hit || return 1
    injected=$((injected + 1))
    [ "$status" -gt 2 ] || [ -z "$excuse" ] || ! grep -q "$excuse" "$here/out" || return 0
    if [ "$status" -eq 0 ]; then
        survived=$((survived + 1))
        cmp -s "$here/out" "$right" || fail "$what: ended well with another answer"
    else
        told "$what" "$status"
    fi
    return 0
}

train() { train_fails "$1"; }
predicts() { answers_fail "$1" "$here/answers" "$program" predict "$here/whole"; }
scores() { answers_fail "$1" "$here/scores" "$program" score "$here/whole" --file "$here/valid.tsv"; }
evaluates() { answers_fail "$1" "$here/rates" "$program" eval "$here/whole" --file "$here/valid.tsv" --threads 1; }

# each FUNCTION WHAT: runs it with the n-th call failing, as the script's `arm N` sets it up in $inject and calls it in
# $fault, until no call is left: arm or the function fails.
each() {
    n=1
    while arm "$n" && "$1" "$fault, $2"; do
        n=$(next "$n")
        [ "$failures" -lt 10 ] || break
    done
}
