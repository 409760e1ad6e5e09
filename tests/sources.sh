#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sources.am, from which the build is made, names every file of the folders and no other.
set -u
sh "${abs_top_srcdir:?set abs_top_srcdir to the source tree}/scripts/make-source-lists.sh" --check || {
    echo "FAIL: sources.am is out of date: sh scripts/make-source-lists.sh && autoreconf -fi" >&2
    exit 1
}
echo "ok: sources.sh"
