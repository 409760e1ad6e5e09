#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What bash, zsh and fish offer after a few beginnings of a command line. That the files are what the program's tables say is looked at
# by documents.sh.
. "$(dirname "$0")/_common.sh"
file=$top/packaging/completion/switchyard
# zsh_completes BEGINNING WHOLE: what a zsh with its completion makes of a line at the TAB key, in a terminal.
zsh_completes() {
    timeout 60 zsh -f "$here/tab.zsh" "$top/packaging/completion" "$1" "$2" || fail "zsh does not make '$2' of '$1'"
}
cat >"$here/tab.zsh" <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; unsetopt beep; print ready\$((1 + 1))"
zpty -r -m shell line '*ready2*'
zpty -w -n shell "$2"$'\t'
zpty -r -m shell line "*$3*"
status_of_it=$?
zpty -d shell
exit $status_of_it
END
if command -v zsh >/dev/null && command -v timeout >/dev/null && zsh -fc 'zmodload zsh/zpty' 2>/dev/null; then
    zsh -n "$top/packaging/completion/_switchyard" || fail "zsh cannot read _switchyard"
    zsh_completes 'switchyard doc' 'switchyard doctor'
    zsh_completes 'switchyard train --resu' 'switchyard train --resume'
    zsh_completes 'switchyard train --set moe.router_t' 'switchyard train --set moe.router_type='
    zsh_completes 'switchyard ckpt av' 'switchyard ckpt average'
else
    echo "not tested: completion in zsh; there is no zsh with its module zpty, or no timeout"
fi
# fish_offers WANT BEGINNING: without what is said of each, on one line.
fish_offers() {
    # shellcheck disable=SC2016
    got=$(fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$file.fish" "$2" 2>&1 | cut -f 1 | tr '\n' ' ')
    [ "${got% }" = "$1" ] || fail "after '$2' fish offers '$got', not '$1'"
}
if command -v fish >/dev/null; then
    fish_offers doctor 'switchyard doc'
    fish_offers '--resume' 'switchyard train --res'
    fish_offers 'average' 'switchyard ckpt av'
    fish_offers '' 'switchyard ckpt diff --back' # which the command diff has
    fish_offers 'best latest' 'switchyard eval --checkpoint '
    fish_offers 'memory.check= memory.check=false memory.check=true' 'switchyard plan --set memory.ch'
    fish_offers 'task.words.on_bad_record= task.words.on_bad_record=error task.words.on_bad_record=skip' 'switchyard train --set task.words.on_bad_record'
    fish_offers '--set=task.' 'switchyard train --set=tas'
else
    echo "not tested: completion in fish; there is no fish"
fi
if ! command -v bash >/dev/null; then
    echo "not tested: completion in bash; there is no bash"
    finish
fi
bash -n "$file" || fail "bash cannot read $file"
cd "$here" || exit 99
mkdir runs runs/one
: >runs/mine.run

# offers WANT WORD...: what is offered for the last word, sorted, on one line. bash makes a word of each = of its own.
offers() {
    want=$1
    shift
    # shellcheck disable=SC2016
    got=$(bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _switchyard; printf "%s\n" "${COMPREPLY[@]}"' "$file" "$@" 2>&1 |
        LC_ALL=C sort | tr '\n' ' ')
    [ "$got" = "$want " ] || fail "after '$*' bash offers '$got', not '$want'"
}
offers 'doctor' switchyard doc
offers 'train' switchyard tr
offers '--quiet' switchyard train --q
offers '--resume' switchyard train my.run --run-dir x --res
offers 'self' switchyard train --comm s
offers 'aligned csv json tsv' switchyard metrics --format ''
offers 'best latest' switchyard eval --checkpoint ''
offers 'best' switchyard eval --checkpoint = b
offers 'moe.router_type=' switchyard train --set moe.router_t
offers 'moe.router_type=' switchyard train --set = moe.router_t
offers 'experts_choose_masked' switchyard train --set moe.router_type = exp
offers 'experts_choose_masked' switchyard train --set = moe.router_type = exp
offers 'float32' switchyard train my.run --set model.dtype = f
offers 'false true' switchyard plan --set memory.check =
offers 'task.' switchyard train --set tas
offers 'task.words.format=' switchyard train --set task.words.form
offers 'jsonl' switchyard train --set task.words.format = j
offers 'runs/one' switchyard top runs/
offers 'runs/mine.run runs/one' switchyard train --quiet runs/
offers 'decode' switchyard bench dec
offers '--help --version' switchyard --
offers 'cast check' switchyard ckpt c
offers '' switchyard version x
offers '' switchyard train --ranks ''

# Every command and every option of it is offered.
for command in $("$program" --help | sed -n 's/^  \([a-z-]*\) .*/\1/p'); do
    offers "$(printf '%s\n--help\n' "$("$program" "$command" --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p')" | sed '/^$/d' |
        LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')" switchyard "$command" --
done
finish
