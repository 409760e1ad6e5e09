#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs nvcc for libtool: hands on to the host's compiler what nvcc itself does not know.
set -f
n=$#
while [ "$n" -gt 0 ]; do
    argument=$1
    shift
    n=$((n - 1))
    case $argument in
    -fPIC | -fpic | -fPIE | -DPIC | -fvisibility=*) set -- "$@" -Xcompiler "$argument" ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec "$@"
