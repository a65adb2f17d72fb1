#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the compact GPU suite under the four tools of compute-sanitizer. Exit code 0: all are clean.
#
#   tests/gpu/sanitize.sh BUILD_DIR LOG_DIR [TOOL...]     TOOL: memcheck, racecheck, initcheck, synccheck; all if absent
set -uo pipefail

if [[ $# -lt 2 ]]; then
  echo "usage: $0 BUILD_DIR LOG_DIR [TOOL...]" >&2
  exit 2
fi
binary=$1/tests/gpu/hpctopk_gpu_tests
logs=$2
shift 2
tools=("$@")
((${#tools[@]} > 0)) || tools=(memcheck racecheck initcheck synccheck)
mkdir -p "$logs" || exit 2

status=0
for tool in "${tools[@]}"; do
  begin=$SECONDS
  options=()
  # By itself it expects as many barriers as a kernel initialises; other CTAs of a cluster are told of more.
  [[ $tool == synccheck ]] && options=(--num-cuda-barriers 4096)
  if compute-sanitizer --tool "$tool" "${options[@]}" --error-exitcode 9 --print-limit 20 "$binary" --gtest_filter='*CompactTest*' \
    >"$logs/$tool.log" 2>&1; then
    echo "== $tool: clean in $((SECONDS - begin)) s"
  else
    echo "== $tool: errors or failures after $((SECONDS - begin)) s, see $logs/$tool.log"
    grep -m 20 -E '=========|FAILED' "$logs/$tool.log"
    status=1
  fi
done
exit "$status"
