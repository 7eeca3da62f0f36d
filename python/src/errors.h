// From the C++ clients' errors to the exceptions of farlift.errors, and calls without the GIL.
//
// Threads: under the GIL; unlocked() gives it up around its call.
// Errors:  a ClientError becomes the exception of its kind, ErrorKind::type a TypeError.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <string>
#include <utility>

#include "farlift/expected.h"

namespace farlift::python {

inline pybind11::object make_exception(ErrorKind kind, const std::string& text) {
  static const char* const kNames[] = {"RdmaError",    "ConnectionError",    "TimeoutError",
                                       "ClosingError", "ConfigurationError", nullptr,
                                       "RequestError"};
  const auto index = static_cast<std::size_t>(kind);
  if (kind == ErrorKind::type) {
    return pybind11::reinterpret_borrow<pybind11::object>(PyExc_TypeError)(text);
  }
  return pybind11::module_::import("farlift.errors").attr(kNames[index])(text);
}

[[noreturn]] inline void raise(const ClientError& error) {
  const pybind11::object exception = make_exception(error.kind, error.text);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw pybind11::error_already_set();
}

template <class T>
T take(Expected<T> result) {
  if (!result) raise(result.error());
  return std::move(result).value();
}

inline void check(const Expected<void>& result) {
  if (!result) raise(result.error());
}

// Runs `call` without the GIL; its result is looked at with it.
template <class F>
auto unlocked(F call) {
  const pybind11::gil_scoped_release nogil;
  return call();
}

}  // namespace farlift::python
