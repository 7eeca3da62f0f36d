# Installs the client component into a fresh prefix, builds the consumer against it in three ways, runs it.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGN}\n${output}")
  endif()
endfunction()

set(work ${BUILD}/tests/install)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${prefix} ${work}/consumer ${work}/too_new ${work}/no_component)
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()

run(${CMAKE_COMMAND} --install ${BUILD} --component client --prefix ${prefix})
foreach(file include/farlift/client.h ${LIBDIR}/libfarlift.so.0 ${LIBDIR}/pkgconfig/farlift.pc)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()

set(configure ${CMAKE_COMMAND} -S ${SOURCE} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_PREFIX_PATH=${prefix} "-DCMAKE_CXX_FLAGS=${flags}")
run(${configure} -B ${work}/consumer -DWANTED_VERSION=${VERSION} -DWANTED_COMPONENT=client)
run(${CMAKE_COMMAND} --build ${work}/consumer)
run(${work}/consumer/consumer)

# Refused: a version that is not there, and a component that does not exist.
foreach(case too_new no_component)
  set(version ${VERSION})
  set(component client)
  if(case STREQUAL too_new)
    set(version 99.0)
  else()
    set(component nonsense)
  endif()
  execute_process(COMMAND ${configure} -B ${work}/${case} -DWANTED_VERSION=${version} -DWANTED_COMPONENT=${component}
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  if(result EQUAL 0)
    message(FATAL_ERROR "find_package accepted what is not there: ${case}")
  endif()
endforeach()

find_program(PKG_CONFIG pkg-config REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs farlift OUTPUT_VARIABLE words COMMAND_ERROR_IS_FATAL ANY
  OUTPUT_STRIP_TRAILING_WHITESPACE)
separate_arguments(words UNIX_COMMAND "${words} ${flags}")
run(${CXX} -std=c++20 ${SOURCE}/main.cc ${words} -Wl,-rpath,${prefix}/${LIBDIR} -o ${work}/consumer/by_pkg_config)
run(${work}/consumer/by_pkg_config)
