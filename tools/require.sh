#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes sure that the system has what a make target needs. What is missing is installed with apt where this user may,
# else the one line to run is printed. Usage: require.sh demo|test
set -eu
python=${PYTHON:-python3}

missing=
need() {  # need DEBIAN_PACKAGE COMMAND...: the package is missing where the command fails
  package=$1
  shift
  "$@" >/dev/null 2>&1 || missing="$missing $package"
}
includes() { echo "#include <$1>" | g++ -fsyntax-only -x c++ -; }

need g++ g++ --version
need cmake cmake --version
need ninja-build ninja --version
need python3-venv "$python" -c 'import ensurepip, venv'
need python3-dev "$python" -c \
  'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))'
if [ "$1" = test ]; then
  need git git --version
  need pkg-config pkg-config --version
  need libgtest-dev includes gtest/gtest.h
fi
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
  sudo=
elif sudo -n true 2>/dev/null; then
  sudo=sudo
else
  echo "missing packages; run: sudo apt-get update && sudo $install" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null; then
  echo "no apt-get here; install what these Debian packages hold:$missing" >&2
  exit 1
fi
echo "installing$missing"
$sudo apt-get update -qq </dev/null
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive $install -qq </dev/null
