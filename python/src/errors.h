// From the C++ clients' errors to the exceptions of farlift.errors, and calls without the GIL.
//
// Threads: under the GIL; unlocked() gives it up around its call. The interpreter ends a thread
// that
//          asks for the GIL while it finalizes (a daemon thread at exit). Before Python 3.14 it
//          does so by unwinding the stack through ours, which would end in std::terminate; such a
//          thread stays where it is instead, as it does from 3.14 on, until the process is gone.
// Errors:  a ClientError becomes the exception of its kind, ErrorKind::type a TypeError.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cxxabi.h>
#include <string>
#include <unistd.h>
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

// Runs `step`, which asks for the GIL or runs Python.
template <class F>
auto until_finalized(F step) {
  try {
    return step();
  } catch (abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

// Without the GIL while it lives.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    until_finalized([this] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* const state_;
};

// Runs `call` without the GIL; its result is looked at with it.
template <class F>
auto unlocked(F call) {
  const Unlocked nogil;
  return call();
}

// Runs `call` with the GIL, in a thread that has given it up.
template <class F>
void locked(F call) {
  until_finalized([&] {
    const PyGILState_STATE state = PyGILState_Ensure();
    call();  // throws nothing
    PyGILState_Release(state);
  });
}

}  // namespace farlift::python
