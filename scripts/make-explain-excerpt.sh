#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the ops that doc/architecture.md shows, as `switchyard explain` prints them, between the page's two comments. With
# --check it compares the page with what it would write instead. After a change of what programs record:
#   sh scripts/make-explain-excerpt.sh
# SWITCHYARD names the program when it is not the one in the current folder.
set -eu
LC_ALL=C
export LC_ALL

program=${SWITCHYARD:-./switchyard}
top=$(dirname "$0")/..
page=$top/doc/architecture.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Columns are two blanks or more apart: number and layer, op, operands; what follows is left out. Long names lose their
# beginning. Ops 0 to 3, then from the layer with experts.
"$program" explain --backend null --program grad_first --after record "$top/bench/quickstart.run" | awk '
    /^ *[0-9]+ q/ && ($1 <= 3 || ($1 >= 20 && $1 <= 22) || $4 == "dispatch") {
        number = $1; layer = $3; op = $4
        sub(/^.*  t/, "t"); sub(/  .*/, "")
        gsub(/\([a-z_0-9\/]*\/[a-z_0-9]+\/layers_[0-9]+\//, "(.../"); gsub(/\((encoder|decoder)\/layers_[0-9]+\//, "(.../")
        if (number > last + 1) print "     ..."
        printf "   %3d %-43s %-8s %s\n", number, layer, op, $0
        last = number
    }' >"$work/ops"
[ -s "$work/ops" ] || { echo "make-explain-excerpt.sh: explain prints no ops" >&2; exit 1; }
awk -v ops="$work/ops" '
    /<!-- end of the excerpt -->/ { inside = 0 }
    !inside
    /<!-- made by scripts\/make-explain-excerpt.sh -->/ {
        inside = found = 1
        print "   ```"
        while ((getline line <ops) > 0) print line
        print "   ```"
    }
    END { exit !found }' "$page" >"$work/page" || { echo "make-explain-excerpt.sh: $page has no place for the ops" >&2; exit 1; }

case ${1-} in
'') cmp -s "$work/page" "$page" || cp "$work/page" "$page" ;;
--check) diff "$page" "$work/page" >&2 || { echo "doc/architecture.md does not show what explain prints: run sh scripts/make-explain-excerpt.sh" >&2; exit 1; } ;;
*)
    echo "usage: make-explain-excerpt.sh [--check]" >&2
    exit 2
    ;;
esac
