# SPDX-License-Identifier: Apache-2.0
# SY_CHECK_CUDA: finds nvcc (NVCC=) and whether it makes objects that link with its static runtime. Nothing but the
# plugin is compiled and linked with them. Shared libraries needed: enable_shared is known.
# Sets sy_cuda (yes or no), sy_cuda_text (for the summary), NVCCFLAGS, CUDA_LIBS, and the conditional CUDA.
AC_DEFUN([SY_CHECK_CUDA], [
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda@<:@=auto|yes|no@:>@], [the CUDA backend (default auto: where nvcc is found)])],
  [], [with_cuda=auto])
AC_ARG_VAR([NVCC], [compiler of CUDA 12 or newer, nvcc by default])
AC_ARG_VAR([NVCCFLAGS], [further flags for nvcc])
AC_ARG_VAR([NVCC_ARCHITECTURES], [compute capabilities to compile kernels for, "80 90" by default; newer devices take the last])
AC_ARG_VAR([CUDA_LIBS], [linker flags for CUDA's static runtime, overriding what is found beside nvcc])
sy_cuda=no sy_cuda_text="not built (--without-cuda)"
AS_CASE([$with_cuda], [no], [], [yes|auto], [
  dnl AC_PATH_PROG would search for nvcc where NVCC is the name of another, or several words
  AS_IF([test -z "$NVCC"], [AC_PATH_PROG([NVCC], [nvcc], [none], [$PATH:/usr/local/cuda/bin:/opt/cuda/bin])])
  AS_IF([test "x$NVCC" = xnone], [sy_cuda_text="not built: no nvcc was found (name it with NVCC=)"],
    [test "x$enable_shared" = xno], [sy_cuda_text="not built: it is a plugin, and --disable-shared has none"],
    [SY_CUDA_FLAGS
    SY_CUDA_PROBE])
  AS_IF([test "x$with_cuda$sy_cuda" = xyesno], [AC_MSG_ERROR([--with-cuda: the CUDA backend is $sy_cuda_text])])],
  [AC_MSG_ERROR([--with-cuda=$with_cuda: expected auto, yes or no (a CUDA in another place: NVCC=/path/bin/nvcc)])])
AM_CONDITIONAL([CUDA], [test "x$sy_cuda" = xyes])
])

# The bits of float32 rest on -fmad=false: contraction only where fmaf is written.
AC_DEFUN([SY_CUDA_FLAGS], [
: ${NVCC_ARCHITECTURES="80 90"}
NVCCFLAGS="$NVCCFLAGS -std=c++17 -O2 -fmad=false"
for sy_arch in $NVCC_ARCHITECTURES; do
  NVCCFLAGS="$NVCCFLAGS -gencode arch=compute_$sy_arch,code=sm_$sy_arch"
done
NVCCFLAGS="$NVCCFLAGS -gencode arch=compute_$sy_arch,code=compute_$sy_arch"
AS_IF([sy_refused=`$SHELL "$srcdir/build-aux/nvcc-wrap.sh" true $NVCCFLAGS 2>&1`], [],
  [AC_MSG_ERROR([$sy_refused])])
AS_IF([test -z "$CUDA_LIBS"], [
  dnl beside the last of its words: "ccache nvcc"
  sy_nvcc=`command -v "${NVCC##* }"`
  sy_cuda_root=`AS_DIRNAME(["$sy_nvcc"])`/..
  for sy_dir in lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib; do
    AS_IF([test -z "$CUDA_LIBS" && test -e "$sy_cuda_root/$sy_dir/libcudart_static.a"],
      [CUDA_LIBS="-L$sy_cuda_root/$sy_dir -lcudart_static -lrt -lpthread -ldl -lstdc++ -lm"])
  done])
])

AC_DEFUN([SY_CUDA_PROBE], [
AC_MSG_CHECKING([whether $NVCC makes what $CC links])
cat >conftest.cu <<'EOF'
#include <cuda_runtime.h>
__global__ void one(int *x) { *x = 1; }
extern "C" int switchyard_probe(int *x) { one<<<1, 1>>>(x); return cudaGetLastError(); }
int main(void) { return 0; }
EOF
sy_cuda_text="not built: $NVCC and $CC do not make a program together (config.log says why)"
AS_IF([{ $NVCC $NVCCFLAGS -c -o conftest.$ac_objext conftest.cu && $CC $CFLAGS -o conftest$EXEEXT conftest.$ac_objext $LDFLAGS $CUDA_LIBS; } >&AS_MESSAGE_LOG_FD 2>&1],
  [sy_cuda=yes sy_cuda_text="plugin by $NVCC for compute capabilities $NVCC_ARCHITECTURES"])
rm -f conftest*
AC_MSG_RESULT([$sy_cuda])
])
