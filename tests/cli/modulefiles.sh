#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The modulefiles, run by tclsh and lua with functions that print what they are asked for; the recipes of Spack and EasyBuild, run
# by Python with functions in place of theirs.
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

# The recipes: the class of Spack in a Spack of before 1.0 and in one of after it, the settings of EasyBuild; what they give to
# configure are options that it knows.
cat >recipe.py <<'END'
import re, sys, types

known = set(re.findall(r"--(?:with|enable)-([a-z0-9]+)", open("help").read()))


def check_options(options):
    assert len(options) >= 5, options
    for option in options:
        name = re.match(r"--(?:with|without|enable|disable)-([a-z0-9]+)|MPICC=", option)
        assert name and (not name[1] or name[1] in known), option


class Package:
    def with_or_without(self, name):
        return ["--%s-%s" % ("with" if name in variants else "without", name)]


class Spec(dict):
    prefix, mpicc = "/opt/it", "/opt/it/bin/mpicc"

    def __missing__(self, name):
        return self

    def satisfies(self, spec):
        return spec.lstrip("+") in variants


def spack(path, new):
    module = types.ModuleType("spack.package")
    depends = []
    for name in ("license", "version"):
        setattr(module, name, lambda *given, **more: None)
    module.variant = lambda name, default, description: variants.add(name)
    module.depends_on = lambda name, **more: depends.append(name)
    systems = types.ModuleType("spack_repo.builtin.build_systems.autotools")
    (systems if new else module).AutotoolsPackage = Package
    names = ["spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"]
    sys.modules.update({name: types.ModuleType(name) for name in names})
    sys.modules["spack.package"] = module
    sys.modules[systems.__name__] = systems if new else None
    found = {}
    exec(compile(open(path).read(), path, "exec"), found)
    package = found["Switchyard"]()
    package.spec, package.prefix = Spec(), "/opt/sy"
    check_options(package.configure_args())
    assert "sqlite@3.25:" in depends and "mpi" in depends, depends
    package.setup_run_environment(types.SimpleNamespace(set=lambda name, value: None))


variants = set()
for new in (False, True):
    spack(sys.argv[1], new)
found = {"SOURCELOWER_TAR_GZ": "switchyard-0.1.0.tar.gz", "SHLIB_EXT": "so"}
exec(compile(open(sys.argv[2]).read(), sys.argv[2], "exec"), found)
check_options(found["configopts"].split())
assert found["toolchainopts"] == {"optarch": False}, "one installation serves different machines"
assert found["name"] == "switchyard" and found["sources"] == ["switchyard-0.1.0.tar.gz"]
END
if command -v python3 >/dev/null; then
    "$top/configure" --help >help
    python3 recipe.py "$top/packaging/spack/package.py" "$top"/packaging/easybuild/*.eb 2>err || fail "recipes: $(tail -n 3 err)"
else
    echo "not tested: recipes of Spack and EasyBuild; there is no python3"
fi
finish
