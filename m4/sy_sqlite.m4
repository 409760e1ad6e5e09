# SPDX-License-Identifier: Apache-2.0
# SY_CHECK_SQLITE: SQLITE_CFLAGS and SQLITE_LIBS of an SQLite that is new enough and, natively, runs. --with-sqlite=DIR
# names one installation; else those two variables, then pkg-config, then what the compiler finds by itself.
AC_DEFUN([SY_CHECK_SQLITE], [
AC_ARG_WITH([sqlite],
  [AS_HELP_STRING([--with-sqlite=DIR], [SQLite installed in DIR: DIR/include, DIR/lib, and the run path to it])],
  [], [with_sqlite=])
sy_sqlite_how="install libsqlite3-dev (Debian, Ubuntu: sh scripts/install-build-deps.sh) or sqlite-devel (Fedora, SUSE), or name an installation with --with-sqlite=DIR"
AS_CASE([$with_sqlite],
  [''], [],
  [no], [AC_MSG_ERROR([--without-sqlite: training keeps its records in SQLite; without it there is --disable-training])],
  [yes], [AC_MSG_ERROR([--with-sqlite needs the folder of an installation, as in --with-sqlite=\$HOME/sqlite])],
  [dnl the run path is of the program, wherever it is started
  AS_IF([test ! -d "$with_sqlite"],
    [AC_MSG_ERROR([--with-sqlite=$with_sqlite: there is no such folder])])
  with_sqlite=`cd "$with_sqlite" && pwd`
  sy_sqlite_lib=$with_sqlite/lib
  AS_IF([test ! -e "$with_sqlite/include/sqlite3.h"],
    [AC_MSG_ERROR([--with-sqlite=$with_sqlite: there is no $with_sqlite/include/sqlite3.h])])
  AS_IF([ls "$with_sqlite"/lib64/libsqlite3.* >/dev/null 2>&1], [sy_sqlite_lib=$with_sqlite/lib64])
  SQLITE_CFLAGS="-I$with_sqlite/include"
  SQLITE_LIBS="-L$sy_sqlite_lib -Wl,-rpath,$sy_sqlite_lib -lsqlite3"])
PKG_CHECK_MODULES([SQLITE], [sqlite3 >= 3.25], [],
  [sy_cppflags=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $SQLITE_CFLAGS"
  AC_CHECK_HEADER([sqlite3.h], [],
    [AC_MSG_ERROR([SQLite's header sqlite3.h is missing: $sy_sqlite_how])])
  CPPFLAGS=$sy_cppflags
  AS_IF([test "x$SQLITE_LIBS" = x], [SQLITE_LIBS=-lsqlite3])])
sy_cflags=$CFLAGS sy_libs=$LIBS
CFLAGS="$CFLAGS $SQLITE_CFLAGS" LIBS="$SQLITE_LIBS $LIBS"
AC_MSG_CHECKING([for SQLite 3.25 or newer])
AC_RUN_IFELSE([AC_LANG_PROGRAM([[#include <sqlite3.h>
#if SQLITE_VERSION_NUMBER < 3025000
#error too old
#endif
]], [[return sqlite3_libversion_number() < 3025000;]])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
  AC_MSG_FAILURE([a program with SQLite ($SQLITE_CFLAGS $SQLITE_LIBS) does not compile, link, start or is older than 3.25: $sy_sqlite_how])],
  [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <sqlite3.h>
#if SQLITE_VERSION_NUMBER < 3025000
#error too old
#endif
]], [[return sqlite3_libversion_number() < 3025000;]])],
    [AC_MSG_RESULT([yes (not run: cross build)])],
    [AC_MSG_RESULT([no])
    AC_MSG_FAILURE([a program with SQLite ($SQLITE_CFLAGS $SQLITE_LIBS) does not compile or link: name the one of the host with --with-sqlite=DIR])])])
CFLAGS=$sy_cflags LIBS=$sy_libs
])
