# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. All they make goes to build/, .venv/ and demo/.
PYTHON ?= python3
export PYTHON
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet install --no-compile --constraint requirements-dev.txt

CPP_FILES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cuh' '*.inc' '*.cpp' '*.cu')
LIBRARY_FILES := CMakeLists.txt $(shell find cmake include kernels src -type f)
PACKAGE_FILES := $(LIBRARY_FILES) pyproject.toml bench/CMakeLists.txt $(wildcard bench/native/*) \
  $(shell find python -type f -not -path '*/__pycache__/*')

# The Python package gets the kernels, and what times them, where there is a GPU to run them.
CUDA := $(if $(shell command -v nvcc >/dev/null && nvidia-smi --list-gpus 2>/dev/null),ON,OFF)

.NOTPARALLEL:
.PHONY: help demo test bench test-host test-sanitize test-cuda test-python format lint check-format check-tidy check-python \
        clean require-demo require-test

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.package  ## select on the committed sample, print the summary, write demo/text.png; no torch, no CUDA
	@mkdir -p demo
	$(BIN)/hpc select bench/workloads/text/sample.npy --lengths bench/workloads/text/sample_lengths.npy --k 2048 \
	  --verify --plot demo/text.png --out demo/text.npy

test: lint test-host test-sanitize test-cuda test-python  ## every test that this machine can run

test-host: | require-test  ## C++ tests without CUDA, the installed tree included
	cmake --preset host
	cmake --build --preset host
	ctest --preset host

test-sanitize: | require-test  ## C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --preset sanitize
	cmake --build --preset sanitize
	ctest --preset sanitize

ifneq ($(shell command -v nvcc),)
test-cuda: | require-test  ## C++ tests with the kernels for sm_90a; those of the GPU skip where there is none
	cmake --preset dev
	cmake --build --preset dev
	ctest --preset dev
	@nvidia-smi --list-gpus 2>/dev/null || echo "no NVIDIA GPU on this machine: the GPU tests are compiled and skipped"
else
test-cuda:
	@echo "no nvcc on PATH: the kernels are not compiled and no GPU test is run"
endif

test-python: .venv/.package-torch  ## Python tests, torch's included, the README's quick starts and the include rules
	$(BIN)/pytest tests/python tests/layering tests/quickstart

bench: .venv/.package-torch  ## time the CPU back end against torch.topk and numpy.argpartition
	$(BIN)/python bench/cpu_topk.py --check

format: .venv/.dev  ## rewrite C++ and Python in the project's format
	$(BIN)/clang-format -i $(CPP_FILES)
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

lint: check-format check-tidy check-python  ## the checks of CI that run nothing: format, clang-tidy, ruff, mypy

check-format: .venv/.dev
	$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	$(BIN)/ruff format --check

check-tidy: build/.tidy

build/.tidy: .clang-tidy $(LIBRARY_FILES) .venv/.dev
	cmake --preset host
	find src -name '*.cpp' -print0 | xargs -0 -n 1 -P $$(nproc) $(BIN)/clang-tidy -p build/host --quiet
	@touch $@

check-python: .venv/.package-torch
	$(BIN)/ruff check
	$(BIN)/mypy

clean:  ## remove what these targets made
	rm -rf build .venv demo

# ----------------------------------------------------------------------------------------------------------------------

require-demo require-test: require-%:
	@tools/require.sh $*

$(BIN)/python: | require-demo
	$(PYTHON) -m venv .venv

.venv/.package: $(PACKAGE_FILES) requirements-dev.txt | $(BIN)/python
	@echo "building the package, $(if $(filter ON,$(CUDA)),the kernels too: some minutes,about a minute)"
	$(PIP) scikit-build-core pybind11
	$(PIP) --no-build-isolation '.[cli]' \
	  --config-settings=cmake.define.HPCTOPK_CUDA=$(CUDA) \
	  --config-settings=cmake.define.HPCTOPK_BUILD_BENCHMARKS=$(CUDA) \
	  --config-settings=cmake.define.HPCTOPK_TORCH=$(if $(wildcard .venv/.dev),ON,OFF)
	@touch $@

.venv/.dev: requirements-dev.txt | require-test $(BIN)/python
	$(PIP) --requirement requirements-dev.txt
	@touch $@

.venv/.package-torch: .venv/.dev $(PACKAGE_FILES)
	@rm -f .venv/.package
	@$(MAKE) --no-print-directory .venv/.package
	@touch $@
