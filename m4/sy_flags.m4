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

# SY_CHECK_AMX([IF-YES]): the assembler knows the instructions of tiles and the system has a call that asks for them.
AC_DEFUN([SY_CHECK_AMX],
[AC_CACHE_CHECK([whether $CC assembles AMX instructions], [sy_cv_amx],
  [AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>]], [[__asm__ volatile("tdpbf16ps %%tmm7, %%tmm6, %%tmm0" : :);
return (int)syscall(SYS_arch_prctl, 0x1023, 18);]])], [sy_cv_amx=yes], [sy_cv_amx=no])])
AS_VAR_IF([sy_cv_amx], [yes], [$1])])

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

# SY_HARDENING: sets HARDENING_CFLAGS and HARDENING_LDFLAGS to what makes an overrun end the program instead of being
# used, where compiler and linker know it: checked string functions (they need optimisation), stack protector, tables
# of addresses that are read-only after start. Sanitizers check more and do not go together with the first.
AC_DEFUN([SY_HARDENING],
[AC_ARG_ENABLE([hardening],
  [AS_HELP_STRING([--disable-hardening], [without _FORTIFY_SOURCE, stack protector and full RELRO])],
  [], [enable_hardening=yes])
HARDENING_CFLAGS= HARDENING_LDFLAGS=
AS_IF([test "x$enable_hardening" = xyes], [
  AC_CACHE_CHECK([whether $CC accepts -D_FORTIFY_SOURCE=2], [sy_cv_fortify],
    [sy_saved_cflags=$CFLAGS
    CFLAGS="$CFLAGS -Werror -D_FORTIFY_SOURCE=2"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>]])], [sy_cv_fortify=yes], [sy_cv_fortify=no])
    CFLAGS=$sy_saved_cflags
    AS_CASE([$CFLAGS], [*-fsanitize=*], [sy_cv_fortify=no])])
  AS_IF([test "x$sy_cv_fortify" = xyes], [HARDENING_CFLAGS="-D_FORTIFY_SOURCE=2"])
  SY_CHECK_CFLAGS([-fstack-protector-strong], [HARDENING_CFLAGS="$HARDENING_CFLAGS -fstack-protector-strong"])
  AC_CACHE_CHECK([whether programs link with -z relro -z now], [sy_cv_relro],
    [sy_saved_ldflags=$LDFLAGS
    LDFLAGS="$LDFLAGS -Wl,-z,relro -Wl,-z,now"
    AC_LINK_IFELSE([AC_LANG_PROGRAM()], [sy_cv_relro=yes], [sy_cv_relro=no])
    LDFLAGS=$sy_saved_ldflags])
  AS_IF([test "x$sy_cv_relro" = xyes], [HARDENING_LDFLAGS="-Wl,-z,relro -Wl,-z,now"])])
AC_SUBST([HARDENING_CFLAGS])
AC_SUBST([HARDENING_LDFLAGS])])

# SY_CROSS_PKG_CONFIG: before the first library. The build machine's pkg-config would find the build machine's libraries.
AC_DEFUN([SY_CROSS_PKG_CONFIG], [
AS_IF([test "x$cross_compiling$PKG_CONFIG_LIBDIR$PKG_CONFIG_SYSROOT_DIR" = xyes],
  [AS_CASE([$PKG_CONFIG],
    [*"$host_alias-"*], [],
    [AC_MSG_NOTICE([cross build: pkg-config of this machine is left aside (PKG_CONFIG_LIBDIR names the other one's files)])
    PKG_CONFIG=])])
])
