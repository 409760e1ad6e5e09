# SPDX-License-Identifier: Apache-2.0
# SY_CHECK_CXX17: whether CXX compiles and links C++17, for the emulation of CUDA that tests run its kernels on. Sets
# sy_cxx17 (yes or no) and the conditional CXX17.
AC_DEFUN([SY_CHECK_CXX17], [
AC_LANG_PUSH([C++])
sy_save_CXXFLAGS=$CXXFLAGS
CXXFLAGS="$CXXFLAGS -std=c++17"
AC_MSG_CHECKING([whether $CXX links C++17])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <functional>
#include <tuple>]], [[std::function<int(int)> f = [](int x) { return x; }; return std::apply(f, std::tuple<int>(0));]])],
  [sy_cxx17=yes], [sy_cxx17=no])
AC_MSG_RESULT([$sy_cxx17])
CXXFLAGS=$sy_save_CXXFLAGS
AC_LANG_POP([C++])
AM_CONDITIONAL([CXX17], [test "x$sy_cxx17" = xyes])
])
