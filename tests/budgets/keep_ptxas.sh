#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a compile command and keeps what `ptxas -v` says of its kernels in OBJECT.ptxas, out of the build's output.
# Usage: keep_ptxas.sh OBJECT COMMAND...
object=$1
shift
info='^ptxas info|^ +[0-9]+ bytes stack frame'
"$@" >"$object.log" 2>&1
status=$?
grep -E "$info" "$object.log" >"$object.ptxas"
grep -vE "$info" "$object.log" >&2
rm -f "$object.log"
exit $status
