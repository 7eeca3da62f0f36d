# The installed client: one shared library that exports include/farlift/ and nothing else, its headers, a CMake
# package and a pkg-config file. Included by src/blob/client, which defines what goes into the library.
include(CMakePackageConfigHelpers)

set(FARLIFT_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/farlift")

add_library(farlift_shared SHARED $<TARGET_OBJECTS:farlift_blob_client>)
add_library(farlift::client ALIAS farlift_shared)
set_target_properties(farlift_shared PROPERTIES
  OUTPUT_NAME farlift EXPORT_NAME client
  LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
target_include_directories(farlift_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(farlift_shared INTERFACE cxx_std_20)
# For what farlift_blob_client needs; farlift.map keeps it inside.
target_link_libraries(farlift_shared PRIVATE farlift_blob_client farlift_flags)
target_link_options(farlift_shared PRIVATE
  -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/farlift.map)
if(NOT FARLIFT_SANITIZE)  # a sanitizer's own symbols come from the program
  target_link_options(farlift_shared PRIVATE -Wl,-z,defs)
endif()
set_target_properties(farlift_shared PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/farlift.map)

install(TARGETS farlift_shared EXPORT farlift_client LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/farlift DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT client
  FILES_MATCHING PATTERN "*.h")
install(EXPORT farlift_client FILE farlift-client-targets.cmake NAMESPACE farlift::
  DESTINATION ${FARLIFT_CMAKE_DIR} COMPONENT client)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/FarliftConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/farlift-config.cmake INSTALL_DESTINATION ${FARLIFT_CMAKE_DIR}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/farlift-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farlift-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/farlift-config-version.cmake
  DESTINATION ${FARLIFT_CMAKE_DIR} COMPONENT client)

configure_file(${PROJECT_SOURCE_DIR}/cmake/farlift.pc.in ${CMAKE_CURRENT_BINARY_DIR}/farlift.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farlift.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT client)
