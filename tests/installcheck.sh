#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make installcheck` does to an installation: it starts, refuses none of its own plugins, computes the installed
# goldens, and trains and answers on every backend that computes and works here. INSTALLED: the program, GOLDENS: their folder.
SWITCHYARD=${INSTALLED:?set INSTALLED to the installed program}
. "$(dirname "$0")/cli/_common.sh"
: "${GOLDENS:?set GOLDENS to the installed folder}"
unset SWITCHYARD_BACKEND_PATH SWITCHYARD_CPU_VARIANT
cd "$here" || exit 99
data train.tsv 100 1

exits 0 "$program" backends
cat out
# Those that are hidden are of another installation, which one in a staging folder (DESTDIR) finds besides.
! grep refused out | grep -v 'refused: hidden' >refused || fail "the installation refuses plugins of its own: $(cat refused)"
backends=$(sed -n '/^null /d; /would not work here/d; s/^\([a-z0-9_]*\) .*compute, .*/\1/p' out)
[ -n "$backends" ] || fail "no backend computes"
exits 0 "$program" verify "$GOLDENS"
tail -n 1 out
for backend in $backends; do
    exits 0 tiny "$backend" --backend "$backend" --quiet --set train.steps=4
    [ -n "$(hash_in out)" ] || fail "$backend: training prints no hash of its weights: $(cat out)"
    echo abc | "$program" predict "$backend" --backend "$backend" >answer 2>err || fail "$backend: predict: $(cat err)"
    [ "$(wc -l <answer)" -eq 1 ] || fail "$backend: predict answers $(cat answer)"
    echo "$backend trains and answers"
done
finish
