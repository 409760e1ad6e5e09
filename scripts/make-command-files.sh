#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes what is made of the tables of commands, options and keys: a man page for each command (doc/man) and what bash,
# zsh and fish complete (packaging/completion). They are committed, so that no build has to run the program, which may be of another
# machine. With --check it compares them with those in the tree instead. After a change of a command, of cli/options.c or of
# core/base/options.def:
#   sh scripts/make-command-files.sh
# SWITCHYARD names the program when it is not the one in the current folder.
set -eu
LC_ALL=C
export LC_ALL

program=${SWITCHYARD:-./switchyard}
top=$(dirname "$0")/..
made='Made by scripts/make-command-files.sh from the tables of the program: change those, not this file.'

# help [COMMAND]: what --help prints, with lines that were wrapped made whole again.
help() {
    "$program" "$@" --help | awk '
        # The third line is a paragraph, up to an empty line.
        /^               / || (n == 3 && NF) { sub(/^ */, ""); line = line " " $0; next }
        n { print line }
        { line = $0; n++ }
        END { print line }'
}

# Names of all commands: cli/commands.c. A build without training lacks some, and cannot make these files.
commands=$(help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')

# options COMMAND: NAME TAB ARGUMENT (empty: a flag) TAB HELP, a line each.
options() {
    help "$1" | awk '
        listed && match($0, /^  --[a-z0-9-]+/) {
            name = substr($0, 3, RLENGTH - 2); rest = substr($0, RLENGTH + 1); argument = ""
            if (rest ~ /^ [^ ]/) { argument = rest; sub(/^ /, "", argument); sub(/ .*/, "", argument); rest = substr(rest, length(argument) + 2) }
            sub(/^ */, "", rest)
            printf "%s\t%s\t%s\n", name, argument, rest
        }
        /^options:$/ { listed = 1 }'
}

# What follows the name of a command in its usage.
operands() {
    help "$1" | sed -n "1s/^usage: switchyard $1 *//p"
}

# keys: KEY TAB VALUES, KEY with * for the name of a part, VALUES separated by blanks or empty.
keys() {
    "$program" config | awk '
        /^# sections: / { named = 1; plain = ($0 !~ /^# sections: \[[a-z]*\.NAME\]/); next }
        /^(# )?\[/ {
            section = $0; gsub(/^(# )?\[|(\.NAME)?\]$/, "", section)
            if (!named) plain = 1
            parts = named; named = 0
            next
        }
        /^# \(.*; default .*\)$/ {
            values = ""
            if ($0 ~ /^# \(true or false/) values = "true false"
            else if ($0 ~ /^# \(one of /) { values = substr($0, 11); sub(/; default .*/, "", values); gsub(/ \| /, " ", values) }
            else if ($0 ~ /, or auto;/) values = "auto"
            next
        }
        /^(# )?[a-z_0-9]+ = / {
            key = $0; sub(/^# /, "", key); sub(/ = .*/, "", key)
            if (plain) printf "%s.%s\t%s\n", section, key, values
            if (parts) printf "%s.*.%s\t%s\n", section, key, values
        }'
}

# ---- man pages ----

man_page() {
    help "$1" | awk -v command="$1" -v made="$made" -v version="$("$program" version | sed -n 's/^switchyard //p')" '
        function plain(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); return (text ~ /^[.\x27]/ ? "\\\\&" : "") text }
        function verbatim(on) { if (on != kept) print on ? ".nf" : ".fi"; kept = on }
        NR == 1 { synopsis = $0; sub(/^usage: switchyard [a-z-]* */, "", synopsis); next }
        NR == 3 {
            printf ".\\\" SPDX-License-Identifier: Apache-2.0\n.\\\" %s\n", made
            printf ".TH SWITCHYARD\\-%s 1 \"\" \"switchyard %s\" \"User Commands\"\n", toupper(command), version
            about = tolower(substr($0, 1, 1)) substr($0, 2); sub(/\.$/, "", about)
            printf ".SH NAME\nswitchyard\\-%s \\- %s\n.SH SYNOPSIS\n.B switchyard %s\n", command, plain(about), command
            gsub(/[A-Z][A-Z_]*/, "\\fI&\\fR", synopsis)
            if (synopsis != "") print synopsis
            printf ".SH DESCRIPTION\n%s\n", plain($0)
            next
        }
        /^options:$/ { verbatim(0); print ".SH OPTIONS"; listed = 1; next }
        NR == 4 || (listed && /^$/) { next }
        listed {
            match($0, /^  --[a-z0-9-]+/); name = substr($0, 3, RLENGTH - 2); rest = substr($0, RLENGTH + 1); argument = ""
            if (rest ~ /^ [^ ]/) { argument = rest; sub(/^ /, "", argument); sub(/ .*/, "", argument); rest = substr(rest, length(argument) + 2) }
            sub(/^ */, "", rest)
            printf ".TP\n%s %s%s\n%s\n", argument == "" ? ".B" : ".BI", plain(name), argument == "" ? "" : " \" " plain(argument) "\"", plain(rest)
            next
        }
        !told && NF { print ".PP"; told = 1 }
        /^$/ { next }
        { verbatim($0 ~ /^  /); print plain($0) }
        END { verbatim(0); print ".SH SEE ALSO\n.BR switchyard (1),\nwhich describes files, variables and exit status." }'
}

# ---- bash ----

bash_completion() {
    cat <<END
# SPDX-License-Identifier: Apache-2.0
# Completion of switchyard for bash. $made
_switchyard_commands='$(echo $commands)'
_switchyard_keys='$(keys | cut -f 1 | tr '\n' ' ')'

# What a key can be.
_switchyard_values() {
    case \$1 in
$(keys | awk -F '\t' '$2 != "" { printf "    %s) echo \"%s\" ;;\n", $1, $2 }')
    esac
}

# The arguments of a command's options, each NAME=ARGUMENT or, of a flag, NAME.
_switchyard_options() {
    case \$1 in
$(for command in $commands; do
        printf '    %s) echo "%s" ;;\n' "$command" "$(options "$command" | awk -F '\t' '{ printf "%s%s", $1, $2 == "" ? " " : "=" $2 " " }')--help"
    done)
    esac
}

# Its operands.
_switchyard_operands() {
    case \$1 in
$(for command in $commands; do printf '    %s) echo "%s" ;;\n' "$command" "$(operands "$command")"; done)
    esac
}

END
    cat <<'END'
# The words in lower case of A|B|STEP.
_switchyard_words() {
    local word
    for word in ${1//[|\[\] ]/ }; do [[ $word == *[A-Z.]* ]] || printf '%s ' "$word"; done
}

# Keys that begin with $1; of sections with a name, as task.NAME.train, the name is what was typed.
_switchyard_key() {
    local key found= kind name
    set -f
    for key in $_switchyard_keys; do
        if [[ $key == *'*'* ]]; then
            kind=${key%%.*} name=${1#*.}
            if [[ $1 == "$kind".*.* ]]; then key=$kind.${name%%.*}.${key##*.}=; else key=$kind.; fi
        else
            key+='='
        fi
        found+=" $key"
    done
    set +f
    compopt -o nospace 2>/dev/null
    COMPREPLY=($(compgen -W "$found" -- "$1" | sort -u))
}

_switchyard_files() {
    compopt -o filenames 2>/dev/null
    local IFS=$'\n'
    COMPREPLY+=($(compgen "$1" -- "$2"))
}

# The value of option $1, whose argument is $2, of which $3 is typed.
_switchyard_argument() {
    case $2 in
    KEY=VALUE*) _switchyard_key "$3" ;;
    DIR) _switchyard_files -d "$3" ;;
    FILE) _switchyard_files -f "$3" ;;
    *) COMPREPLY=($(compgen -W "$(_switchyard_words "$2")" -- "$3")) ;;
    esac
}

_switchyard() {
    local command=${COMP_WORDS[1]} at=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} option argument= typed
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "$_switchyard_commands help --help --version" -- "$cur"))
        return
    fi
    # Back to the option that this may belong to. A = is a word of its own.
    while ((at > 1)) && [[ ${COMP_WORDS[at]} != --* ]]; do ((at--)); done
    if ((at == COMP_CWORD)) && [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$(_switchyard_options "$command" | tr ' ' '\n' | sed 's/=.*//')" -- "$cur"))
        return
    fi
    typed=("${COMP_WORDS[@]:at+1:COMP_CWORD-at}")
    [[ ${typed[0]-} == = ]] && typed=("${typed[@]:1}")
    for option in $(_switchyard_options "$command"); do
        [[ ${option%%=*} == "${COMP_WORDS[at]}" && $option == *=* ]] && argument=${option#*=}
    done
    if ((at > 1)) && [[ -n $argument && ${#typed[@]} -le 1 ]]; then
        _switchyard_argument "${COMP_WORDS[at]}" "$argument" "${typed[0]-}"
    elif ((at > 1)) && [[ $argument == KEY=VALUE* && ${#typed[@]} -le 3 && ${typed[1]-} == = ]]; then
        COMPREPLY=($(compgen -W "$(_switchyard_values "${typed[0]}")" -- "${typed[2]-}"))
    else
        argument=$(_switchyard_operands "$command")
        argument=${argument#'[OPTIONS]'}
        COMPREPLY=($(compgen -W "$(_switchyard_words "$argument")" -- "$cur"))
        case $argument in
        '') ;;
        ' RUN_DIR') _switchyard_files -d "$cur" ;;
        *) _switchyard_files -f "$cur" ;;
        esac
    fi
}
complete -F _switchyard switchyard
END
}

# ---- zsh ----

# An option for _arguments.
zsh_options() {
    options "$1" | awk -F '\t' -v quote="'" '
        function text(s) { gsub(/[][\\:]/, "\\\\&", s); gsub(quote, quote "\\" quote quote, s); return s }
        {
            action = ""
            if ($2 ~ /^KEY=VALUE/) action = "_switchyard_key"
            else if ($2 == "DIR") action = "_files -/"
            else if ($2 == "FILE") action = "_files"
            else if ($2 ~ /\|/) {
                n = split($2, word, "|"); action = "("
                for (i = 1; i <= n; i++) if (word[i] !~ /[A-Z]/) action = action (action == "(" ? "" : " ") word[i]
                action = action ")"
            }
            printf "            %s%s%s[%s]%s%s \\\n", quote, $2 ~ /^KEY=VALUE/ || $2 == "PATTERN" ? "*" : "", $1 ($2 == "" ? "" : "="), text($3), $2 == "" ? "" : ":" text($2) ":" action, quote
        }'
}

zsh_completion() {
    cat <<END
#compdef switchyard
# SPDX-License-Identifier: Apache-2.0
# Completion of switchyard for zsh. $made

# What a key can be.
_switchyard_value() {
    case \$1 in
$(keys | awk -F '\t' '$2 != "" { printf "    (%s) compadd - %s ;;\n", $1, $2 }')
    esac
}

# KEY=VALUE; of sections with a name, as task.NAME.train, the name is what was typed.
_switchyard_key() {
    local key typed=\$PREFIX
    local -a found
    if compset -P '*='; then
        _switchyard_value "\${\${IPREFIX%=}##*=}"
        return
    fi
    for key in $(keys | cut -f 1 | sed "s/.*/'&'/" | tr '\n' ' '); do
        if [[ \$key != *'*'* ]]; then
            found+=(\$key=)
        elif [[ \$typed == \${key%%.*}.*.* ]]; then
            found+=(\${key%%.*}.\${\${typed#*.}%%.*}.\${key##*.}=)
        else
            found+=(\${key%%.*}.)
        fi
    done
    compadd -S '' -- \${(u)found}
}

# Words and files.
_switchyard_operand() {
    compadd -- \$@
    _files
}

_switchyard() {
    local -a commands
    commands=(
$(help | sed -n "s/'/'\\\\''/g; s/:/\\\\:/g; s/^  \([a-z-]*\)  *\(.*\)/        '\1:\2'/p")
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    shift words
    ((CURRENT--))
    case \$words[1] in
END
    for command in $commands; do
        printf '    (%s)\n        _arguments \\\n' "$command"
        zsh_options "$command"
        case $(operands "$command") in
        '' | '[OPTIONS]') printf "            '--help[describes the command]' ;;\n" ;;
        '[OPTIONS] RUN_DIR') printf "            '--help[describes the command]' '*:RUN_DIR:_files -/' ;;\n" ;;
        *)
            words=$(operands "$command" | tr '| ' '\n\n' | sed -n '/^[a-z][a-z]*$/p' | tr '\n' ' ')
            printf "            '--help[describes the command]' '*:%s:%s' ;;\n" "$(operands "$command" | sed 's/^\[OPTIONS\] //; s/[][\\:]/\\&/g')" \
                "${words:+ _switchyard_operand }${words:-_files}"
            ;;
        esac
    done
    printf '    esac\n}\n\n_switchyard "$@"\n'
}

# ---- fish ----

fish_completion() {
    cat <<END
# SPDX-License-Identifier: Apache-2.0
# Completion of switchyard for fish. $made
END
    cat <<'END'

# Whether the command is $argv[1]; without it, whether there is none yet.
function __switchyard_is
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"
end

# KEY=VALUE; of sections with a name, as task.NAME.train, the name is what was typed.
function __switchyard_keys
    set -l name (commandline -ct | string replace -rf '^(?:--[a-z]*=)?[a-z]*\.([^.=]+)\..*' '$1')
    test -n "$name"; and set -l whole '$1' $name'$2'; or set -l whole '$1' ''
    string replace -r '^([^*]*)\*(.*)' (string join '' $whole) -- $__switchyard_keys
end
END
    printf 'set -g __switchyard_keys'
    keys | awk -F '\t' -v quote="'" '{ n = split("= " $2, value, " "); for (i = 1; i <= n; i++) printf " %s%s%s%s", quote, $1 "=", i == 1 ? "" : value[i], quote }'
    printf "\n\ncomplete -c switchyard -n __switchyard_is -l help -d 'describes the program'\n"
    printf "complete -c switchyard -n __switchyard_is -l version -d 'prints the version'\n"
    help | sed -n "s/'/\\\\'/g; s/^  \([a-z-]*\)  *\(.*\)/complete -c switchyard -n __switchyard_is -f -a \1 -d '\2'/p"
    for command in $commands; do
        words=$(operands "$command" | tr '| ' '\n\n' | sed -n '/^[a-z][a-z]*$/p' | tr '\n' ' ')
        { options "$command"; printf -- '--help\t\tdescribes the command\n'; } | awk -F '\t' -v command="$command" -v words="$words" -v quote="'" '
            function quoted(s) { gsub(/[\\\047]/, "\\\\&", s); return quote s quote }
            function line(rest) { print "complete -c switchyard -n " quoted("__switchyard_is " command) " " rest }
            {
                n = split($2, word, "|"); action = ""
                for (i = 1; i <= n; i++) if (word[i] !~ /[A-Z.]/) action = action word[i] " "
                action = $2 ~ /^KEY=VALUE/ ? "(__switchyard_keys)" : $2 == "DIR" ? "(__fish_complete_directories)" : action
                line("-l " substr($1, 3) ($2 == "" ? "" : $2 == "FILE" ? " -r -F" : " -x") (action == "" ? "" : " -a " quoted(action)) " -d " quoted($3))
            }
            END { if (words != "") line("-a " quoted(words)) }'
    done
}

# ---- all of them, below a folder ----

make_all() {
    mkdir -p "$1/doc/man" "$1/packaging/completion"
    for command in $commands; do man_page "$command" >"$1/doc/man/switchyard-$command.1"; done
    bash_completion >"$1/packaging/completion/switchyard"
    zsh_completion >"$1/packaging/completion/_switchyard"
    fish_completion >"$1/packaging/completion/switchyard.fish"
}

case ${1-} in
'') make_all "$top" ;;
--check)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    make_all "$folder"
    for part in doc/man packaging/completion; do
        diff -r "$top/$part" "$folder/$part" >&2 || { echo "$part is not what the tables say: run sh scripts/make-command-files.sh" >&2; exit 1; }
    done
    ;;
*)
    echo "usage: make-command-files.sh [--check]" >&2
    exit 2
    ;;
esac
