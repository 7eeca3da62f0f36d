// BorrowedBuffer: a Python object's memory, held through the buffer protocol so that it can neither
// move nor go away.
//
// Invariants: the memory is C-contiguous; bytes() spans all of it, whatever the element type.
// Threads:    made and destroyed under the GIL (the destructor takes it); bytes() from anywhere.
// Errors:     throws pybind11::error_already_set (TypeError) for an object without such a buffer.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <span>

namespace farlift::python {

class BorrowedBuffer {
 public:
  BorrowedBuffer(const pybind11::handle& object, bool writable) {
    const int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw refusal(object, writable);
  }
  BorrowedBuffer(const BorrowedBuffer&) = delete;
  BorrowedBuffer& operator=(const BorrowedBuffer&) = delete;
  ~BorrowedBuffer() {
    if (Py_IsInitialized() == 0) return;
    const pybind11::gil_scoped_acquire gil;
    PyBuffer_Release(&view_);
  }

  std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  // CPython says BufferError for a strided or read-only object and TypeError for one without a
  // buffer; callers see TypeError for all three (spec blob 10.1).
  static pybind11::error_already_set refusal(const pybind11::handle& object, bool writable) {
    if (PyErr_ExceptionMatches(PyExc_BufferError) != 0 ||
        PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
        PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError, "memory must be a %sC-contiguous buffer, not %.100s",
                   writable ? "writable, " : "", Py_TYPE(object.ptr())->tp_name);
    }
    return pybind11::error_already_set();
  }

  Py_buffer view_{};
};

}  // namespace farlift::python
