# SPDX-License-Identifier: Apache-2.0
# SY_RELATIVE(VARIABLE, FROM, TO): substitutes VARIABLE by the path of folder TO as seen from folder FROM, both names of
# configure's variables: LIBDIR_FROM_BIN, bindir, libdir is ../lib by default. So what was installed finds its parts when the
# whole prefix was moved.
AC_DEFUN([SY_RELATIVE],
[$1=`
  test "x$prefix" = xNONE && prefix=$ac_default_prefix
  test "x$exec_prefix" = xNONE && exec_prefix=$prefix
  eval "from=\"$$2\""; eval "from=\"$from\""; eval "from=\"$from\""
  eval "to=\"$$3\""; eval "to=\"$to\""; eval "to=\"$to\""
  up=
  until case $to/ in "$from"/*) :;; *) false;; esac; do
    from=\`AS_ECHO(["$from"]) | sed 's,/[[^/]]*$,,'\`
    up=../$up
  done
  to=\`AS_ECHO(["$to/"]) | cut -c\\\`expr "x$from/" : '.*'\\\`-\`
  AS_ECHO(["$up$to"]) | sed 's,/*$,,'`
AC_SUBST([$1])])
