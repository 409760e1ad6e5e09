# SPDX-License-Identifier: Apache-2.0
# What the scripts that make data share. They are run by sh with set -eu.
LC_ALL=C # awk, sort and tr do the same everywhere
export LC_ALL

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# get NAME: a file of $folder, or where that is empty of $address, on standard output. $repository is where else it is.
get() {
  if [ -n "$folder" ]; then
    cat "$folder/$1"
  elif command -v curl >/dev/null 2>&1; then
    curl -fsSL "$address/$1"
  else
    wget -qO- "$address/$1"
  fi || fail "cannot get $1: clone $repository and name the folder"
}

# sum: the SHA-256 of standard input.
sum() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1
}

# expect SUM RUNFILE FILE...: warns where the files, one after the other, are not those that the run file was tried on.
expect() {
  known=$1 run_file=$2
  shift 2
  [ "$(cat "$@" | sum)" = "$known" ] || echo "${0##*/}: these are other data than $run_file was written for" >&2
}
