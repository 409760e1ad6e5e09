#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes sources.am, which Makefile.am includes: the files of each folder, since automake wants every one named. A list has
# the name of its folder (core/base: core_base), a part of a folder a name of its own. With --check it compares instead (a
# test does so). After a file was added, moved or removed:
#   sh scripts/make-source-lists.sh && autoreconf -fi
set -eu
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")/.."
made=$(mktemp)
trap 'rm -f "$made"' EXIT

# Files of cli that only a build with training has: its commands, and what they alone use.
training="$(sed -n 's/^CLI_TRAINING_COMMAND(\([a-z0-9_]*\),.*/cli\/cmd_\1.c/p' cli/commands.def | tr '\n' ' ')
    $(echo cli/diff_report.[ch] cli/plan_*.[ch] cli/progress.[ch] cli/replay_*.[ch])"
# Files whose place Makefile.am says itself, since only some builds have them; and one that a build makes.
elsewhere="core/api/trainer.c core/api/no_trainer.c backends/cpu/cpu64.c backends/cpu/fast_gemm_amx.c
    backends/cpu/fast_gemm_direct.c backends/cpu/fast_gemm_tokens.c metrics/schema_sql.h"
# Files of these lists are not in that of their folder.
listed=$elsewhere

# list NAME FILE...: those that are there and in no earlier list.
list() {
    name=$1 separator=
    shift
    printf '\n%s =' "$name"
    for file in "$@"; do
        case " $(echo $listed) " in *" $file "*) continue ;; esac
        [ ! -f "$file" ] || printf ' \\\n\t%s' "$file"
    done
    echo
}

# folder FOLDER: its sources. (A build in the source tree makes hidden folders beside them.)
folder() {
    list "$(echo "$1" | tr / _)" "$1"/*.[ch] "$1"/*.def "$1"/*.cu
}

lists() {
    echo '# SPDX-License-Identifier: Apache-2.0'
    echo '# The files of each folder. Made by scripts/make-source-lists.sh: run that, do not edit this.'
    list public_headers include/switchyard/*.h include/switchyard/*.def
    for place in $(find core -type d ! -name '.*' | sort) metrics verify; do
        set -- "$place"/*.c
        [ ! -f "$1" ] || folder "$place"
    done

    list cli_training $training
    listed="$listed $training"
    for place in $(find cli -type d ! -name '.*' | sort); do folder "$place"; done

    list cpu_reference backends/cpu/ref_*.c
    list cpu_fast backends/cpu/fast_*.c
    listed="$listed $(echo backends/cpu/ref_*.c backends/cpu/fast_*.c)"
    for place in $(find backends/* -type d ! -name '.*' | sort); do folder "$place"; done

    list unit_tests tests/unit/*.[ch]
    list cuda_emulated tests/cuda/*.cc tests/cuda/*.h
    for kind in cli mpi big; do list "${kind}_tests" tests/$kind/[!_]*.sh; done
    list fault_tests tests/crash/*.sh tests/faults/[!_]*.sh
    list installed_goldens tests/golden/layer/* tests/golden/loss/*
    list goldens $(find tests/golden tests/vectors -type f | sort)
    list fuzz_files $(find tests/fuzz/seeds -type f | sort) tests/fuzz/*.[ch] tests/fuzz/*.sh
    list script_files scripts/*.sh scripts/*.py scripts/*.txt
    list command_pages doc/man/*.1
    list doc_pages doc/*.md doc/*.svg
}

lists >"$made"
if [ "${1-}" = --check ]; then
    diff sources.am "$made"
else
    cat "$made" >sources.am
fi
