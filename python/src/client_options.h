// From the Python configuration to ClientOptions.
//
// Threads: under the GIL. Errors: throws pybind11's TypeError/KeyError for a field that is missing
// or of the wrong type; the Python side has checked ranges.
#pragma once

#include <pybind11/pybind11.h>

#include "farlift/options.h"

namespace farlift::python {

// `fields` is ClientConfiguration._options(). The result's on_wait says once per transfer, on
// stderr, that an interrupt waits for its end.
ClientOptions to_options(const pybind11::dict& fields);

// Call before and after a transfer on the calling thread: forgets whether an interrupt was
// announced.
void begin_transfer_wait() noexcept;

}  // namespace farlift::python
