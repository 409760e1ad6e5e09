# SPDX-License-Identifier: Apache-2.0
# Probes for compiler and linker flags.

# SY_CHECK_CFLAGS(FLAGS, IF-YES, IF-NO): does the compiler take all of FLAGS without a word?
AC_DEFUN([SY_CHECK_CFLAGS],
[AS_VAR_PUSHDEF([sy_cache], [sy_cv_cflags_$1])dnl
AC_CACHE_CHECK([whether $CC accepts $1], [sy_cache],
  [sy_saved_cflags=$CFLAGS
  CFLAGS="$CFLAGS -Werror $1"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [AS_VAR_SET([sy_cache], [yes])], [AS_VAR_SET([sy_cache], [no])])
  CFLAGS=$sy_saved_cflags])
AS_VAR_IF([sy_cache], [yes], [$2], [$3])
AS_VAR_POPDEF([sy_cache])])

# SY_CHECK_Z_DEFS: sets Z_DEFS to -Wl,-z,defs (a plugin with undefined symbols fails at link time, not at load)
# where a shared object can be linked so. clang's sanitizers cannot: their run-time library is in the program only.
AC_DEFUN([SY_CHECK_Z_DEFS],
[AC_CACHE_CHECK([whether shared objects link with -z defs], [sy_cv_z_defs],
  [sy_saved_cflags=$CFLAGS
  CFLAGS="$CFLAGS -fPIC -shared -Wl,-z,defs"
  AC_LINK_IFELSE([AC_LANG_SOURCE([[int sy_probe(int *p, int i) { return p[i] + i; }]])],
    [sy_cv_z_defs=yes], [sy_cv_z_defs=no])
  CFLAGS=$sy_saved_cflags])
AS_VAR_IF([sy_cv_z_defs], [yes], [Z_DEFS=-Wl,-z,defs], [Z_DEFS=])
AC_SUBST([Z_DEFS])])
