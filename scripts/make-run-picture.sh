#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints a picture of a run as SVG: three plots of a page of `switchyard report`, in the page's light colours. doc/run.svg is that of the
# run of doc/tutorial.md:
#   sh scripts/make-run-picture.sh numbers.html >doc/run.svg
set -eu
LC_ALL=C
export LC_ALL
[ $# -eq 1 ] || { echo "usage: sh scripts/make-run-picture.sh REPORT.html" >&2; exit 2; }

awk '
    # The colours of the page by name, from :root{--name:value;...}.
    /^:root\{/ {
        text = $0; sub(/^:root\{/, "", text); sub(/\}.*/, "", text)
        n = split(text, part, ";")
        for (i = 1; i <= n; i++) if (split(part[i], pair, ":") == 2) colour[pair[1]] = pair[2]
    }
    function plain(text, name) {
        while (match(text, /var\(--[a-z0-9]*\)/)) {
            name = substr(text, RSTART + 4, RLENGTH - 5)
            text = substr(text, 1, RSTART - 1) colour[name] substr(text, RSTART + RLENGTH)
        }
        return text
    }
    /^(\.h0|\.line|\.grid)/ && /\{/ && !/^\.grid\{/ { style = style plain($0) "\n" }
    /^<svg .*aria-label=/ {
        name = $0; sub(/.*aria-label="/, "", name); sub(/".*/, "", name)
        copying = !(name in body); view[name] = $2 " " $3 " " $4 " " $5
    }
    copying && !/^<svg / && !/^<\/svg>/ { body[name] = body[name] $0 "\n" }
    /^<\/svg>/ { copying = 0 }
    function panel(name, title, x, y, width, height) {
        printf "<g class=\"w%d\" transform=\"translate(%d %d)\"><rect class=\"panel\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width, x, y, width, height + 44
        printf "<text class=\"title\" x=\"14\" y=\"24\">%s</text>\n", title
        printf "<svg x=\"10\" y=\"34\" width=\"%d\" height=\"%d\" %s>\n%s</svg></g>\n", width - 20, height, view[name], body[name]
    }
    END {
        for (i = split("Training loss|exact_match|expert load", wanted, "|"); i; i--)
            if (!(wanted[i] in body)) {
                print "make-run-picture.sh: no plot of " wanted[i] " in this page" >"/dev/stderr"
                exit 1
            }
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1320 626\" class=\"grid\" role=\"img\">"
        print "<title>A run of switchyard: loss, exact match, load of the experts</title>"
        printf "<style>\ntext{font:12px system-ui,sans-serif;fill:%s}.title{font-size:15px;font-weight:600;fill:%s}\n", colour["--soft"], colour["--ink"]
        printf ".w1300 svg text{font-size:6px}.panel{fill:%s;stroke:%s}.back{fill:%s}\n%s</style>\n", colour["--panel"], colour["--edge"], colour["--bg"], style
        print "<rect class=\"back\" width=\"1320\" height=\"626\"/>"
        panel("Training loss", "Training loss, and the mean of 50 rows", 10, 10, 640, 280)
        panel("exact_match", "Share of numbers written exactly right", 670, 10, 640, 280)
        panel("expert load", "Load of the four experts; blue: less than a fair share", 10, 344, 1300, 228)
        print "</svg>"
    }' "$1"
