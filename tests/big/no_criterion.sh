#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A build whose configure finds no Criterion: `make check` runs all but the unit tests, and says that it left these out.
. "$(dirname "$0")/../cli/_common.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL # the TESTS of the make that runs this
mkdir "$here/build"
cd "$here/build" || exit 99
# As this build was configured, but for what finds Criterion.
settings=$("${abs_top_builddir:?}/config.status" --config)
eval "\"\$top/configure\" $settings PKG_CONFIG_LIBDIR=/nowhere ac_cv_header_criterion_criterion_h=no" >"$here/out" 2>&1 ||
    fail "configure: $(tail -n 3 "$here/out")"
says out "no Criterion: \`make check' leaves the unit tests out"

# all_tests BUILD: the tests of its `make check`.
all_tests() {
    printf 'include Makefile\nprint-tests:\n\t@echo $(TESTS)\n' | "${MAKE:-make}" -s -C "$1" -f - print-tests | tr ' ' '\n' | sort
}
all_tests "$abs_top_builddir" | grep -v '^tests/unit-tests' >"$here/whole"
all_tests . >"$here/rest"
says whole '^tests/fuzz/json'
diff "$here/whole" "$here/rest" >"$here/difference" || fail "other tests are left out, too: $(cat "$here/difference")"

# One of each kind.
some='tests/cli/options.sh tests/fuzz/json tests/arrows.sh'
! grep -qx tests/mpi/files.sh "$here/rest" || some="$some tests/mpi/files.sh"
"${MAKE:-make}" -s -j2 check TESTS="$some" >"$here/out" 2>&1 || fail "make check: $(tail -n 20 "$here/out")"
says out "^# TOTAL: *$(echo "$some" | wc -w)\$"
says out "^# PASS: *$(echo "$some" | wc -w)\$"
says out '^make check: the unit tests were left out: configure found no Criterion\.$'
finish
