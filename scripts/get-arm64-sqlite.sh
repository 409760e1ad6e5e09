#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unpacks SQLite for 64-bit ARM into a folder, for tests/big/arm64.sh: get-arm64-sqlite.sh FOLDER. Debian and Ubuntu
# only; installs nothing and leaves the system's package lists alone.
set -eu
[ $# -eq 1 ] || { echo "usage: get-arm64-sqlite.sh FOLDER" >&2; exit 2; }
mkdir -p "$1/apt/lists/partial" "$1/apt/cache/archives/partial"
cd "$1"
foreign="-q -o APT::Architectures::=$(dpkg --print-architecture) -o APT::Architectures::=arm64
-o Dir::State::lists=$PWD/apt/lists -o Dir::Cache=$PWD/apt/cache"
# shellcheck disable=SC2086 # several words
{ apt-get $foreign update && apt-get $foreign download libsqlite3-dev:arm64; } >apt/log 2>&1 || {
    tail -n 5 apt/log >&2
    exit 1
}
for package in *.deb; do dpkg-deb -x "$package" .; done
