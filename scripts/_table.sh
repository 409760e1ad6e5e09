# SPDX-License-Identifier: Apache-2.0
# What the scripts that write a table into a document share. They are run by sh with set -eu.
LC_ALL=C
export LC_ALL

# put_table PAGE HEAD ROWS MADE [--check]: HEAD, a row of names, and the rows of file ROWS between the two marks of PAGE; with
# --check only compares. MADE: a file for what the page becomes.
put_table() {
    awk -v head="$2" -v rows="$3" '
        /^<!-- end of the table -->/ { skip = 0 }
        !skip { print }
        /^<!-- table:/ {
            print head; print "|---|---|---|"
            while ((getline line <rows) > 0) print line
            skip = 1
        }' "$1" >"$4"
    if [ "${5-}" = --check ]; then
        cmp -s "$4" "$1"
    else
        cat "$4" >"$1"
    fi
}
