# SPDX-License-Identifier: Apache-2.0
# Spack: put this file into packages/switchyard of a repository of yours (spack repo create), the tarball of
# `make dist` into the current folder, and `spack install --no-checksum switchyard` (it is a tarball of yours, of which this
# file knows no sum); or `spack dev-build switchyard@0.1.0` in a clone.
import os

from spack.package import *

try:
    from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
except ImportError:  # Spack before 1.0 has it in spack.package
    pass


class Switchyard(AutotoolsPackage):
    """T5 encoder-decoder models with mixture-of-experts layers, on CPUs."""

    manual_download = True
    url = "file://{0}/switchyard-0.1.0.tar.gz".format(os.getcwd())
    license("Apache-2.0")

    version("0.1.0")

    variant("mpi", default=True, description="ranks that are processes")
    variant("zlib", default=True, description="reads files compressed by gzip")
    variant("zstd", default=True, description="reads files compressed by zstd")
    variant("sentencepiece", default=False, description="SentencePiece vocabularies")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+sentencepiece")
    depends_on("pkgconfig", type="build")
    depends_on("sqlite@3.25:")
    depends_on("mpi", when="+mpi")
    depends_on("zlib-api", when="+zlib")
    depends_on("zstd", when="+zstd")
    depends_on("sentencepiece", when="+sentencepiece")

    def configure_args(self):
        args = ["--with-sqlite={0}".format(self.spec["sqlite"].prefix), "--without-cuda"]
        for name in ("mpi", "zlib", "zstd", "sentencepiece"):
            args += self.with_or_without(name)
        if self.spec.satisfies("+mpi"):
            args.append("MPICC={0}".format(self.spec["mpi"].mpicc))
        return args

    def setup_run_environment(self, env):
        env.set("SWITCHYARD_ROOT", self.prefix)
