# SPDX-License-Identifier: Apache-2.0
# Options and the flags every target of this project is compiled with.

option(HPCTOPK_BUILD_TESTS "Build the tests (GoogleTest from the system)" ${PROJECT_IS_TOP_LEVEL})
option(HPCTOPK_BUILD_PYTHON "Build the Python extension modules" OFF)
option(HPCTOPK_BUILD_BENCHMARKS "Build the native module of `hpc bench` (needs HPCTOPK_BUILD_PYTHON and CUDA)" OFF)
option(HPCTOPK_INSTALL "Install the libraries, the header and the package files" ${PROJECT_IS_TOP_LEVEL})
option(HPCTOPK_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" ${PROJECT_IS_TOP_LEVEL})
option(HPCTOPK_SANITIZE "Build host code with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
set(HPCTOPK_CUDA "AUTO" CACHE STRING "Build the GPU kernels: ON, OFF, or AUTO (where nvcc is found)")
set_property(CACHE HPCTOPK_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT HPCTOPK_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "HPCTOPK_CUDA is ${HPCTOPK_CUDA}: must be ON, OFF or AUTO")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(HPCTOPK_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(HPCTOPK_HAS_CUDA ON)
  else()
    set(HPCTOPK_HAS_CUDA OFF)
  endif()
else()
  set(HPCTOPK_HAS_CUDA ${HPCTOPK_CUDA})
endif()

if(HPCTOPK_HAS_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90a-real;100-real;120" CACHE STRING "GPU architectures")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit 12.0 REQUIRED)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
endif()

# Flags for this project's own targets only: never exported to a consumer.
add_library(hpctopk_flags INTERFACE)
target_compile_options(hpctopk_flags INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow;-Wundef>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;--expt-relaxed-constexpr;-lineinfo>)
if(HPCTOPK_WARNINGS_AS_ERRORS)
  target_compile_options(hpctopk_flags INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(HPCTOPK_SANITIZE)
  target_compile_options(hpctopk_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(hpctopk_flags INTERFACE -fsanitize=address,undefined)
endif()
