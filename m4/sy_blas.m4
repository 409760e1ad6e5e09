# SPDX-License-Identifier: Apache-2.0
# SY_CHECK_BLAS: finds a CBLAS for the variant blas of the CPU backend. It is tried with a small product, so a library
# whose integers are not those of the header is refused.
# Sets sy_blas (yes or no), sy_blas_text (for the summary), BLAS_LIBS, SYCPU_HAS_BLAS, SYCPU_BLAS_LIBS.
AC_DEFUN([SY_CHECK_BLAS], [
AC_ARG_WITH([blas],
  [AS_HELP_STRING([--with-blas@<:@=auto|yes|no|LIBS@:>@], [float32 matrix products by a CBLAS too, for cpu.variant = blas; LIBS: how to link it, as in '-L/path -lopenblas' (default no)])],
  [], [with_blas=no])
AC_ARG_VAR([BLAS_CFLAGS], [compiler flags for the header of that CBLAS])
sy_blas=no sy_blas_text="not built (--with-blas)" BLAS_LIBS=
AS_CASE([$with_blas],
  [no], [sy_blas_try=],
  [yes|auto], [sy_blas_try="-lopenblas|-lblis|-lmkl_rt|-lcblas|-lcblas -lblas|-lblas"],
  [-*|/*], [sy_blas_try=$with_blas],
  [AC_MSG_ERROR([--with-blas=$with_blas: expected auto, yes, no or linker flags such as '-L/path -lopenblas'])])
AS_IF([test -n "$sy_blas_try"], [
  sy_saved_CPPFLAGS=$CPPFLAGS CPPFLAGS="$CPPFLAGS $BLAS_CFLAGS"
  AC_CHECK_HEADERS([cblas.h mkl_cblas.h], [break])
  CPPFLAGS=$sy_saved_CPPFLAGS
  AC_MSG_CHECKING([for a CBLAS])
  sy_saved_ifs=$IFS; IFS='|'
  for sy_word in $sy_blas_try; do
    IFS=$sy_saved_ifs
    AS_IF([test "x$sy_blas" = xno], [SY_BLAS_PROBE([$sy_word])])
  done
  IFS=$sy_saved_ifs
  AC_MSG_RESULT([${BLAS_LIBS:-none}])
  AS_IF([test "x$sy_blas" = xyes], [sy_blas_text="$BLAS_LIBS (cpu.variant = blas)"],
    [test "x$with_blas" = xauto], [sy_blas_text="none: no CBLAS with its header was found"],
    [AC_MSG_ERROR([--with-blas=$with_blas: no program with cblas.h and cblas_sgemm can be compiled, linked and run (config.log says why): name the library with --with-blas='-L/path -lNAME', its header's folder with BLAS_CFLAGS=-I/path])])])
AC_SUBST([BLAS_LIBS])
AS_IF([test "x$sy_blas" = xyes], [sy_define=1], [sy_define=0])
AC_DEFINE_UNQUOTED([SYCPU_HAS_BLAS], [$sy_define], [1: the CPU backend has a variant that calls a CBLAS, 0: not])
AC_DEFINE_UNQUOTED([SYCPU_BLAS_LIBS], ["$BLAS_LIBS"], [how that CBLAS is linked])
])

m4_define([SY_BLAS_HEADER], [[#if HAVE_CBLAS_H
#include <cblas.h>
#else
#include <mkl_cblas.h>
#endif]])

# SY_BLAS_PROBE(LIBS): where they give the right product (or it cannot be run: cross compiling), takes them.
AC_DEFUN([SY_BLAS_PROBE], [
sy_save_CFLAGS=$CFLAGS sy_save_LIBS=$LIBS
CFLAGS="$CFLAGS $BLAS_CFLAGS" LIBS="$1 $LIBS"
AC_RUN_IFELSE([AC_LANG_PROGRAM([SY_BLAS_HEADER], [[
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 2, 1, 0, 3};
    float c[4] = {9, 9, 9, 9};
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 2, 2, 3, 1, a, 3, b, 3, 0, c, 2);
    return c[0] != 7 || c[1] != 10 || c[2] != 16 || c[3] != 22;]])],
  [sy_blas=yes BLAS_LIBS="$1"], [],
  [AC_LINK_IFELSE([AC_LANG_PROGRAM([SY_BLAS_HEADER],
    [[cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1);]])],
    [sy_blas=yes BLAS_LIBS="$1"])])
CFLAGS=$sy_save_CFLAGS LIBS=$sy_save_LIBS
])
