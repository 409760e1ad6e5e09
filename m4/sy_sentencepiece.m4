# SPDX-License-Identifier: Apache-2.0
# SY_CHECK_SENTENCEPIECE: finds libsentencepiece and whether CXX can use it. Nothing but the plugin is compiled and
# linked with it. Sets sy_sentencepiece (yes or no), sy_sentencepiece_text (for the summary), SENTENCEPIECE_CFLAGS,
# SENTENCEPIECE_LIBS, SENTENCEPIECE_VERSION. Shared libraries needed: enable_shared is known.
AC_DEFUN([SY_CHECK_SENTENCEPIECE], [
AC_ARG_WITH([sentencepiece],
  [AS_HELP_STRING([--with-sentencepiece@<:@=auto|yes|no@:>@], [SentencePiece vocabularies, a plugin (default auto: where the library is found)])],
  [], [with_sentencepiece=auto])
sy_sentencepiece=no sy_sentencepiece_text="not built (--without-sentencepiece)" SENTENCEPIECE_VERSION=
AS_CASE([$with_sentencepiece], [no], [], [yes|auto], [
  PKG_CHECK_MODULES([SENTENCEPIECE], [sentencepiece >= 0.1.96], [sy_sentencepiece=yes],
    [sy_sentencepiece_text="not built: no libsentencepiece was found (libsentencepiece-dev)"])
  AS_IF([test "x$sy_sentencepiece" = xyes], [SY_SENTENCEPIECE_PROBE])
  AS_IF([test "x$enable_shared$sy_sentencepiece" = xnoyes],
    [sy_sentencepiece=no sy_sentencepiece_text="not built: it is a plugin, and --disable-shared has none"])
  AS_IF([test "x$with_sentencepiece$sy_sentencepiece" = xyesno],
    [AC_MSG_ERROR([--with-sentencepiece: the SentencePiece plugin is $sy_sentencepiece_text])])],
  [AC_MSG_ERROR([--with-sentencepiece=$with_sentencepiece: expected auto, yes or no (a library in another place: PKG_CONFIG_PATH, or SENTENCEPIECE_CFLAGS and SENTENCEPIECE_LIBS)])])
AC_SUBST([SENTENCEPIECE_VERSION])
AM_CONDITIONAL([SENTENCEPIECE], [test "x$sy_sentencepiece" = xyes])
])

# Its training half is not needed.
AC_DEFUN([SY_SENTENCEPIECE_PROBE], [
SENTENCEPIECE_LIBS=`AS_ECHO(["$SENTENCEPIECE_LIBS"]) | $SED 's/-lsentencepiece_train//'`
SENTENCEPIECE_VERSION=`$PKG_CONFIG --modversion sentencepiece 2>/dev/null`
AC_LANG_PUSH([C++])
sy_save_CXXFLAGS=$CXXFLAGS sy_save_LIBS=$LIBS
CXXFLAGS="$CXXFLAGS -std=c++17 $SENTENCEPIECE_CFLAGS" LIBS="$SENTENCEPIECE_LIBS $LIBS"
AC_MSG_CHECKING([whether $CXX can use libsentencepiece])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <sentencepiece_processor.h>]],
    [[sentencepiece::SentencePieceProcessor p; return p.GetPieceSize();]])],
  [sy_sentencepiece_text="with libsentencepiece ${SENTENCEPIECE_VERSION:-of unknown version} ($CXX)"],
  [sy_sentencepiece=no
  sy_sentencepiece_text="not built: a program with libsentencepiece cannot be built with $CXX (config.log says why)"])
AC_MSG_RESULT([$sy_sentencepiece])
CXXFLAGS=$sy_save_CXXFLAGS LIBS=$sy_save_LIBS
AC_LANG_POP([C++])
])
