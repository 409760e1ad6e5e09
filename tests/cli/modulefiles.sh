#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The modulefiles, run by tclsh and lua with functions that print what they are asked for; and that the recipes of Spack and
# EasyBuild are Python.
. "$(dirname "$0")/_common.sh"
cd "$here" || exit 99
folder=${abs_top_builddir:?}/packaging
for kind in tcl lua; do
    sed 's/^\(set mpi *\){.*}/\1{openmpi\/4}/; s/^local mpi = .*/local mpi = "openmpi\/4"/' "$folder/modulefile.$kind" >"with_mpi.$kind"
    ! grep -n '@[A-Z_a-z]*@' "$folder/modulefile.$kind" || fail "modulefile.$kind has places that configure did not fill"
done

cat >stubs.tcl <<'END'
foreach name {module-whatis conflict prereq setenv prepend-path} { proc $name args "puts \"$name \$args\"" }
source [lindex $argv 0]
END
cat >stubs.lua <<'END'
for name, shown in pairs({help = "help", whatis = "module-whatis", conflict = "conflict", depends_on = "prereq", setenv = "setenv",
                          prepend_path = "prepend-path"}) do
    _G[name] = function(...) print(shown .. " " .. table.concat({...}, " ")) end
end
dofile(arg[1])
END

# check RUN...: the command that runs stubs on a modulefile.
check() {
    kind=$1
    shift
    prefix=$(sed -n 's/^prefix = //p' "$folder/../Makefile")
    (unset MANPATH; "$@" "$folder/modulefile.$kind") >out 2>err || fail "modulefile.$kind: $(cat err)"
    says out "^prepend-path PATH $prefix/bin$"
    says out "^setenv SWITCHYARD_ROOT $prefix$"
    says out '^conflict switchyard$'
    ! grep -q MANPATH out || fail "modulefile.$kind sets a MANPATH where there is none"
    ! grep -q prereq out || [ -n "$(sed -n 's/^MPI_MODULE = //p' "$folder/../Makefile")" ] || fail "modulefile.$kind wants an MPI"
    MANPATH=/usr/share/man "$@" "$folder/modulefile.$kind" >out
    says out "^prepend-path MANPATH $prefix/share/man$"
    "$@" "with_mpi.$kind" >out
    says out '^prereq openmpi/4$'
}
lua=$(command -v lua || command -v lua5.4 || command -v lua5.3 || true)
if command -v tclsh >/dev/null; then check tcl tclsh stubs.tcl; else echo "not tested: modulefile.tcl; there is no tclsh"; fi
if [ -n "$lua" ]; then check lua "$lua" stubs.lua; else echo "not tested: modulefile.lua; there is no lua"; fi

if command -v python3 >/dev/null; then
    for recipe in "$top/packaging/spack/package.py" "$top"/packaging/easybuild/*.eb; do
        python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$recipe" 2>err || fail "$recipe: $(tail -n 1 err)"
    done
else
    echo "not tested: recipes of Spack and EasyBuild; there is no python3"
fi
finish
