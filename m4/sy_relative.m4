# SPDX-License-Identifier: Apache-2.0
# SY_RELATIVE_LIBDIR: sets LIBDIR_FROM_BIN to the path of libdir as seen from bindir (../lib by default), so that the
# program finds its plugins when the whole prefix was moved.
AC_DEFUN([SY_RELATIVE_LIBDIR],
[LIBDIR_FROM_BIN=`
  test "x$prefix" = xNONE && prefix=$ac_default_prefix
  test "x$exec_prefix" = xNONE && exec_prefix=$prefix
  eval "bin=\"$bindir\""; eval "bin=\"$bin\""
  eval "lib=\"$libdir\""; eval "lib=\"$lib\""
  up=
  until case $lib/ in "$bin"/*) :;; *) false;; esac; do
    bin=\`AS_ECHO(["$bin"]) | sed 's,/[[^/]]*$,,'\`
    up=../$up
  done
  AS_ECHO(["$up$lib"]) | sed "s,^$up$bin/*,$up,"`
AC_SUBST([LIBDIR_FROM_BIN])])
