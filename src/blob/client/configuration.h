// What ClientOptions may say together (spec blob 10.4).
//
// Threads: pure function. Errors: configuration, naming both options where two exclude each other.
#pragma once

#include <farlift/expected.h>
#include <farlift/options.h>

namespace farlift::client {

// More connections than this one host will not serve usefully.
inline constexpr unsigned kTransferConnectionsMax = 64;

Expected<void> check_options(const ClientOptions& options);

}  // namespace farlift::client
