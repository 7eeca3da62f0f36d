// The fields of an options dictionary that the Python side has made and checked.
//
// Threads: under the GIL. Errors: throws pybind11's KeyError or TypeError for a field that is
// missing or of the wrong type.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "farlift/options.h"

namespace farlift::python {

template <class T>
T field(const pybind11::dict& fields, const char* name) {
  if (!fields.contains(name)) throw pybind11::key_error(name);
  return fields[name].cast<T>();
}

// "soft", "tcp", "efa_direct" or "verbs"; ValueError otherwise.
RdmaProvider to_provider(const std::string& name);

// The fields prefix, prefix_ca_file, prefix_certificate_file, ... of e.g. the prefix "tls".
TlsOptions to_tls(const pybind11::dict& fields, const std::string& prefix);

}  // namespace farlift::python
