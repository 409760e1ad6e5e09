#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what a build, the quickstart and `make check` need and this machine lacks.
exec sh "$(dirname "$0")/install-build-deps.sh" --tests
