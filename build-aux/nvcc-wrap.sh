#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs nvcc for libtool: hands on to the host's compiler what nvcc itself does not know. Refuses flags that change results:
# nvcc defines nothing by which a source file could do so.
set -f
n=$#
contracts=yes
while [ "$n" -gt 0 ]; do
    argument=$1
    shift
    n=$((n - 1))
    case $argument in
    -fmad=false | --fmad=false) contracts=no ;;
    -use_fast_math | --use_fast_math | -fmad* | --fmad* | -ftz* | --ftz* | -prec-div* | --prec-div* | -prec-sqrt* | --prec-sqrt*)
        echo "$argument changes results: take it out of NVCC and NVCCFLAGS" >&2
        exit 1
        ;;
    esac
    case $argument in
    -fPIC | -fpic | -fPIE | -DPIC | -fvisibility=*) set -- "$@" -Xcompiler "$argument" ;;
    *) set -- "$@" "$argument" ;;
    esac
done
if [ $contracts = yes ]; then
    echo "nvcc without -fmad=false changes results: add it to NVCCFLAGS" >&2
    exit 1
fi
exec "$@"
