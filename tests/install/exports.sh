#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared library defines no dynamic symbol outside the namespace hpctopk. Usage: exports.sh NM LIBRARY
set -eu
symbols=$("$1" --dynamic --defined-only --demangle "$2" | cut -d ' ' -f 3-)
echo "$symbols"
echo "$symbols" | grep -q '^hpctopk::make_plan'
if echo "$symbols" | grep -v '^hpctopk::'; then exit 1; fi
