# SPDX-License-Identifier: Apache-2.0
# What leaves the build: both libraries, the header, the CMake package and the pkg-config file.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

foreach(kind IN ITEMS shared static)
  target_compile_features(hpctopk_${kind} PUBLIC cxx_std_17)
endforeach()
set_target_properties(hpctopk_shared PROPERTIES EXPORT_NAME hpctopk)
add_library(hpctopk::hpctopk_static ALIAS hpctopk_static)

# Hidden visibility does not reach what comes from elsewhere: the CUDA runtime's archive and libstdc++'s templates.
target_link_options(hpctopk_shared PRIVATE "LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/hpctopk.map")
set_property(TARGET hpctopk_shared APPEND PROPERTY LINK_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/hpctopk.map")

if(NOT HPCTOPK_INSTALL)
  return()
endif()

# What a consumer of the static library has to link besides it, read off the target: as CMake packages and as flags.
get_target_property(static_links hpctopk_static LINK_LIBRARIES)
set(HPCTOPK_STATIC_PACKAGES "")
set(HPCTOPK_PC_LIBS_PRIVATE "-lstdc++ -lm")
if(static_links MATCHES "Threads::")
  list(APPEND HPCTOPK_STATIC_PACKAGES Threads)
  string(APPEND HPCTOPK_PC_LIBS_PRIVATE " -pthread")
endif()
if(static_links MATCHES "OpenMP::")
  list(APPEND HPCTOPK_STATIC_PACKAGES OpenMP)
  string(APPEND HPCTOPK_PC_LIBS_PRIVATE " ${OpenMP_CXX_FLAGS}")
endif()
if(static_links MATCHES "CUDA::")
  list(APPEND HPCTOPK_STATIC_PACKAGES CUDAToolkit)
  string(APPEND HPCTOPK_PC_LIBS_PRIVATE " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt -pthread")
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hpctopk")
install(FILES "${PROJECT_SOURCE_DIR}/include/hpctopk/topk.h"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/hpctopk" COMPONENT development)
foreach(kind IN ITEMS shared static)
  install(TARGETS hpctopk_${kind} EXPORT hpctopk-${kind}
    LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
    ARCHIVE COMPONENT development)
  install(EXPORT hpctopk-${kind} NAMESPACE hpctopk:: FILE hpctopk-${kind}-targets.cmake
    DESTINATION "${package_dir}" COMPONENT development)
endforeach()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/hpctopk-config.cmake.in" hpctopk-config.cmake
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(hpctopk-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/hpctopk-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/hpctopk-config-version.cmake"
  DESTINATION "${package_dir}" COMPONENT development)

# The prefix is taken from the place of the file, so that an installed tree can be moved.
file(RELATIVE_PATH HPCTOPK_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" HPCTOPK_PC_PREFIX "${HPCTOPK_PC_PREFIX}")
configure_file("${CMAKE_CURRENT_LIST_DIR}/hpctopk.pc.in" hpctopk.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/hpctopk.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT development)
