#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the library and the Python package for Hopper and runs both GPU suites, without the CPU's longest test. Exit
# code 0: everything passed.
#
#   tests/gpu/run_all.sh LOG_DIR [BUILD_DIR]     logs and JUnit files go to LOG_DIR; BUILD_DIR is build/gpu-suite if absent
#
# Needs an NVIDIA GPU of compute capability 9.0, nvcc, CMake, ninja, GoogleTest (where it is not in a system folder, set
# GTest_ROOT), and a python3 with torch, pybind11, numpy and pytest. Downloads nothing.
set -uo pipefail

if [[ $# -lt 1 || $# -gt 2 ]]; then
  echo "usage: $0 LOG_DIR [BUILD_DIR]" >&2
  exit 2
fi
cd "$(dirname "$0")/../.." || exit 2
logs=$(realpath -m "$1")
build=$(realpath -m "${2:-build/gpu-suite}")
jobs=$(nproc)
mkdir -p "$logs" || exit 2

if ! nvidia-smi --list-gpus >"$logs/gpus.log" 2>&1 || ! grep -q '^GPU' "$logs/gpus.log"; then
  echo "needs an NVIDIA GPU: nvidia-smi lists none" >&2
  exit 2
fi
cat "$logs/gpus.log"

# step NAME COMMAND...: runs it with its output in LOG_DIR/NAME.log, shows its summary, remembers a failure.
failed=()
step() {
  local name=$1 begin=$SECONDS
  shift
  if "$@" >"$logs/$name.log" 2>&1; then
    echo "== $name: passed in $((SECONDS - begin)) s"
    grep -E 'tests passed|Total Test time|[0-9]+ passed' "$logs/$name.log"
    return 0
  fi
  echo "== $name: FAILED after $((SECONDS - begin)) s, see $logs/$name.log"
  grep -A 4 -E 'Failure$|error:|^E  |\*\*\*(Failed|Timeout|Exception)' "$logs/$name.log" | head -n 60
  tail -n 20 "$logs/$name.log"
  failed+=("$name")
  return 1
}

export PYTHONPATH="$build/python"

step configure cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHPCTOPK_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES=90a -DHPCTOPK_BUILD_PYTHON=ON -DHPCTOPK_TORCH=ON -DHPCTOPK_BUILD_TESTS=ON \
  -DPython_EXECUTABLE="$(command -v python3)" &&
  step build ninja -C "$build" -j"$jobs" &&
  {
    step cpp python3 tests/gpu/run_shards.py "$build" "$logs/cpp"
    # The tests skip where the package cannot use the GPU; here that is a failure.
    step python-gpu python3 -c "import hpc; import torch; print(hpc.plan(64, 131072, 2048, device='cuda'))
torch.ops.hpc.topk(torch.zeros(1, 1, device='cuda'), None, 1)" &&
      step python python3 -m pytest tests/python/test_gpu_ops.py tests/python/test_torch.py -q --durations=5 \
        --deselect "tests/python/test_torch.py::test_compiled_without_a_graph_break[cpu]" \
        -p no:cacheprovider --junitxml "$logs/python.xml"
  }

if ((${#failed[@]} > 0)); then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all passed"
