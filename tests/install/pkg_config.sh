#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the quick start against the installed tree with pkg-config alone, once shared and once static, and runs it.
# Usage: pkg_config.sh COMPILER SOURCE PREFIX WORK_FOLDER
set -eu
compiler=$1 source=$2 prefix=$3 work=$4
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name hpctopk.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir hpctopk)
mkdir -p "$work"
set -x
# shellcheck disable=SC2046
"$compiler" -std=c++17 $(pkg-config --cflags hpctopk) "$source" \
  $(pkg-config --libs hpctopk) -Wl,-rpath,"$libdir" -o "$work/shared"
# shellcheck disable=SC2046
"$compiler" -std=c++17 $(pkg-config --cflags hpctopk) "$source" \
  $(pkg-config --static --libs hpctopk | sed 's/-lhpctopk/-l:libhpctopk.a/') -o "$work/static"
ldd "$work/shared" | grep -q libhpctopk
if ldd "$work/static" | grep libhpctopk; then exit 1; fi
for kind in shared static; do
  test "$("$work/$kind")" = "$(printf 'row 0: 1 4 6\nrow 1: -1 0 1')"
done
