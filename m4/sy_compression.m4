# SPDX-License-Identifier: Apache-2.0
# SY_CHECK_COMPRESSION(NAME, MODULE, FLAG, PACKAGE, HEADER, CALL, FORMAT): the library NAME, which reads and writes files of
# FORMAT; MODULE is what pkg-config calls it, FLAG links it without pkg-config, PACKAGE is Debian's, CALL an expression.
# Sets sy_NAME (yes or no), sy_NAME_text (for the summary); adds to COMPRESSION_CFLAGS and COMPRESSION_LIBS. After
# SY_CROSS_PKG_CONFIG.
AC_DEFUN([SY_CHECK_COMPRESSION], [
AC_ARG_WITH([$1],
  [AS_HELP_STRING([--with-$1@<:@=auto|yes|no@:>@], [files compressed with $7 (default auto: where $1 is found)])],
  [], [with_$1=auto])
sy_$1=no sy_$1_text="no (--without-$1)"
AS_CASE([$with_$1], [no], [], [yes|auto], [
  sy_$1_text="no: no $1 was found ($4)"
  PKG_CHECK_MODULES(m4_toupper([$1]), [$2], [], [:])
  AS_IF([test "x$m4_toupper([$1])_LIBS" = x], [m4_toupper([$1])_LIBS=$3])
  sy_save_CFLAGS=$CFLAGS sy_save_LIBS=$LIBS
  CFLAGS="$CFLAGS $m4_toupper([$1])_CFLAGS" LIBS="$m4_toupper([$1])_LIBS $LIBS"
  AC_MSG_CHECKING([whether programs link with $1])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$5>]], [[return (int)($6);]])],
    [sy_$1=yes sy_$1_text=$m4_toupper([$1])_LIBS
    COMPRESSION_CFLAGS="$COMPRESSION_CFLAGS $m4_toupper([$1])_CFLAGS"
    COMPRESSION_LIBS="$COMPRESSION_LIBS $m4_toupper([$1])_LIBS"])
  AC_MSG_RESULT([$sy_$1])
  CFLAGS=$sy_save_CFLAGS LIBS=$sy_save_LIBS
  AS_IF([test "x$with_$1$sy_$1" = xyesno],
    [AC_MSG_ERROR([--with-$1: no program with $5 can be compiled and linked (config.log says why): install $4, or name the library with m4_toupper([$1])_CFLAGS and m4_toupper([$1])_LIBS])])],
  [AC_MSG_ERROR([--with-$1=$with_$1: expected auto, yes or no (a library in another place: PKG_CONFIG_PATH, or m4_toupper([$1])_CFLAGS and m4_toupper([$1])_LIBS)])])
AS_IF([test "x$sy_$1" = xyes], [sy_define=1], [sy_define=0])
AC_DEFINE_UNQUOTED([SYI_HAS_]m4_toupper([$1]), [$sy_define], [1: files compressed with $7 can be read, 0: not])
AC_SUBST([COMPRESSION_CFLAGS])
AC_SUBST([COMPRESSION_LIBS])
])
