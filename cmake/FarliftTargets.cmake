# farlift_library(NAME fabric_soft SRCS ... HDRS ... DEPS farlift::base ... [LINK third-party...])
#   One target a folder: library farlift_NAME, alias farlift::NAME. DEPS are our own targets and mirror the layer rules;
#   LINK are packages.
# farlift_test(NAME soft_test SRCS ... DEPS ... [LINK ...] [LABELS ...] [TIMEOUT seconds])
#   A GoogleTest program, one ctest entry for the program.
# farlift_fuzz(NAME resp_fuzz SRCS ... DEPS ... CORPUS dir [RUNS number])
#   Under the fuzz preset (clang) a libFuzzer program; elsewhere a ctest entry that replays the corpus, RUNS times in all.

add_library(farlift_flags INTERFACE)
target_compile_options(farlift_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast
                       -Wnon-virtual-dtor $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
# g++ 12 with -O3 warns of overlapping copies inside std::string where there are none (GCC bug 105651).
target_compile_options(farlift_flags INTERFACE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict>)
# It also takes lengths in std::vector<std::byte> for negative, and room just made by resize() for none.
target_compile_options(farlift_flags INTERFACE
                       $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-stringop-overread>
                       $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-stringop-overflow>)
if(FARLIFT_WARNINGS_AS_ERRORS)
  target_compile_options(farlift_flags INTERFACE -Werror)
endif()
if(FARLIFT_SANITIZE)
  target_compile_options(farlift_flags INTERFACE -fsanitize=${FARLIFT_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(farlift_flags INTERFACE -fsanitize=${FARLIFT_SANITIZE})
  if(FARLIFT_SANITIZE MATCHES "thread")
    target_compile_options(farlift_flags INTERFACE -Wno-tsan)
  endif()
  if(FARLIFT_SANITIZE MATCHES "undefined")
    target_compile_options(farlift_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()

function(farlift_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;HDRS;DEPS;LINK" ${ARGN})
  add_library(farlift_${ARG_NAME} STATIC ${ARG_SRCS})
  add_library(farlift::${ARG_NAME} ALIAS farlift_${ARG_NAME})
  target_include_directories(farlift_${ARG_NAME} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                             $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(farlift_${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_LINK} $<BUILD_INTERFACE:farlift_flags>)
endfunction()

function(farlift_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LINK;LABELS" ${ARGN})
  if(NOT FARLIFT_WITH_TESTS)
    return()
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} ${ARG_LINK} GTest::gmock GTest::gtest_main farlift_flags)
  target_compile_definitions(${ARG_NAME} PRIVATE FARLIFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} --gtest_brief=1)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(FARLIFT_SANITIZE) # a guard against hanging, not against being slow
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  endif()
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "unit;${ARG_LABELS}")
endfunction()

function(farlift_fuzz)
  cmake_parse_arguments(ARG "" "NAME;CORPUS;RUNS" "SRCS;DEPS;LINK" ${ARGN})
  if(NOT FARLIFT_WITH_TESTS)
    return()
  endif()
  if(FARLIFT_SANITIZE MATCHES "fuzzer")
    add_executable(${ARG_NAME} ${ARG_SRCS})
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${ARG_NAME} ${ARG_SRCS} ${PROJECT_SOURCE_DIR}/fuzz/replay_main.cc)
    if(ARG_RUNS)
      list(PREPEND ARG_CORPUS -runs=${ARG_RUNS})
    endif()
    target_link_libraries(${ARG_NAME} PRIVATE farlift::codec)
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${ARG_CORPUS})
    set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT 240 LABELS "unit;fuzz")
  endif()
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} ${ARG_LINK} farlift_flags)
endfunction()
