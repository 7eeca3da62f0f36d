// From the Python configuration to KvOptions.
//
// Threads: under the GIL. Errors: throws pybind11's TypeError/KeyError for a field that is missing
// or of the wrong type; the Python side has checked ranges.
#pragma once

#include <pybind11/pybind11.h>

#include "farlift/kv.h"

namespace farlift::python {

// `fields` is KvConfiguration._options().
KvOptions to_kv_options(const pybind11::dict& fields);

}  // namespace farlift::python
