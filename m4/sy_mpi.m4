# SPDX-License-Identifier: Apache-2.0
# SY_CHECK_MPI: finds mpicc (MPICC=), the flags it adds, and what the library of this MPI calls itself. Nothing but
# the plugin is compiled and linked with them.
# Sets sy_mpi (yes or no), sy_mpi_text (for the summary), MPI_CFLAGS, MPI_LIBS, SYMPI_LIBRARY.
AC_DEFUN([SY_CHECK_MPI], [
AC_ARG_WITH([mpi],
  [AS_HELP_STRING([--with-mpi@<:@=auto|yes|no@:>@], [the MPI backend, for the MPI of MPICC (default auto: where mpicc is found)])],
  [], [with_mpi=auto])
AC_ARG_VAR([MPICC], [compiler command of the MPI to build the MPI backend for, mpicc by default])
AC_ARG_VAR([MPI_CFLAGS], [compiler flags for MPI, overriding what MPICC -show says])
AC_ARG_VAR([MPI_LIBS], [linker flags for MPI, overriding what MPICC -show says])
sy_mpi=no sy_mpi_text="not built (--without-mpi)" sy_mpi_library=
AS_CASE([$with_mpi], [no], [], [yes|auto], [
  AC_CHECK_PROGS([MPICC], [mpicc], [none])
  AS_IF([test "x$MPICC" = xnone],
    [sy_mpi_text="not built: no mpicc was found (install an MPI, or name its compiler with MPICC=)"],
    [AC_ARG_VAR([MPIEXEC], [launcher of that MPI, for make check])
    AS_IF([test -z "$MPIEXEC"], [sy_mpiexec=`AS_ECHO(["$MPICC"]) | $SED 's/mpi@<:@a-z@:>@*c@<:@cx@:>@$/mpiexec/;s/mpicc/mpiexec/'`
      dnl a compiler of another name, as Cray's cc, tells of no launcher
      AS_IF([test "x$sy_mpiexec" = "x$MPICC"], [sy_mpiexec=mpiexec])
      AS_IF([test -x "$sy_mpiexec"], [MPIEXEC=$sy_mpiexec], [AC_CHECK_PROGS([MPIEXEC], [$sy_mpiexec mpirun mpiexec], [mpirun])])])
    SY_MPI_FLAGS
    SY_MPI_PROBE])
  AS_IF([test "x$with_mpi$sy_mpi" = xyesno], [AC_MSG_ERROR([--with-mpi: the MPI backend is $sy_mpi_text])])],
  [AC_MSG_ERROR([--with-mpi=$with_mpi: expected auto, yes or no (another MPI: MPICC=/path/bin/mpicc)])])
AC_DEFINE_UNQUOTED([SYMPI_LIBRARY], ["$sy_mpi_library"], [what the MPI library says it is, name and version; empty: unknown])
AC_DEFINE_UNQUOTED([SYMPI_BUILD], ["$MPICC: $sy_mpi_library"], [what the MPI backend was built with])
])

# Of what the compiler command would run only what concerns MPI is taken.
AC_DEFUN([SY_MPI_FLAGS], [
AC_MSG_CHECKING([flags of $MPICC])
sy_mpi_c= sy_mpi_l=
dnl Intel MPI quotes its folders and says -Xlinker -rpath -Xlinker DIR
for sy_word in `$MPICC -show 2>/dev/null | $SED "s/[[\"']]//g; s/-Xlinker  *\([[^ ]]*\)/-Wl,\1/g"`; do
  AS_CASE([$sy_word],
    [-I*|-D*], [sy_mpi_c="$sy_mpi_c $sy_word"],
    [-L*|-l*|-Wl,-rpath*|-Wl,--enable-new-dtags|-Wl,/*], [sy_mpi_l="$sy_mpi_l $sy_word"])
done
: ${MPI_CFLAGS="$sy_mpi_c"} ${MPI_LIBS="$sy_mpi_l"}
AC_MSG_RESULT([$MPI_CFLAGS $MPI_LIBS])
])

# A program that only asks the library for its name; where it cannot be run (cross compiling) the name is not checked
# at run time.
AC_DEFUN([SY_MPI_PROBE], [
sy_save_CFLAGS=$CFLAGS sy_save_LIBS=$LIBS
CFLAGS="$CFLAGS $MPI_CFLAGS" LIBS="$MPI_LIBS $LIBS"
AC_MSG_CHECKING([which MPI that is])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Request r; return MPI_Ibarrier(MPI_COMM_WORLD, &r);]])],
  [sy_mpi=yes], [sy_mpi_text="not built: a program with mpi.h cannot be linked with $MPICC (config.log says why)"])
AS_IF([test "x$sy_mpi" = xyes], [
  AC_RUN_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#include <stdio.h>
#include <string.h>]], [[char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int bytes;
    FILE *f = fopen("conftest.mpi", "w");
    MPI_Get_library_version(text, &bytes);
    text[strcspn(text, ",\n\"")] = '\0';
    for (char *c = text; *c; c++) if (*c == '\t') *c = ' ';
    return !f || fputs(text, f) < 0 || fclose(f);]])],
    [sy_mpi_library=`cat conftest.mpi`], [], [:])
  rm -f conftest.mpi
  sy_mpi_text="for ${sy_mpi_library:-an MPI of unknown name} ($MPICC)"])
AC_MSG_RESULT([${sy_mpi_library:-$sy_mpi_text}])
CFLAGS=$sy_save_CFLAGS LIBS=$sy_save_LIBS
])
