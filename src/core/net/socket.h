// The plain Stream and its building blocks, for the files of this folder.
//
// Threads and errors: as core/net/stream.h.
#pragma once

#include "core/net/stream.h"

#include <memory>
#include <string>

namespace farlift::net {

class PlainStream final : public Stream {
 public:
  PlainStream(UniqueFd fd, std::shared_ptr<WakeSignal> own, std::shared_ptr<const WakeSignal> stop,
              const Clock& clock)
      : Stream(std::move(fd), std::move(own), std::move(stop), clock) {}
  Result<std::size_t> try_read(std::span<const iovec> into) override;
  Result<std::size_t> try_write(std::span<const iovec> from) override;
};

// A connected nonblocking socket for the options' address; TLS is not looked at.
Result<UniqueFd> connect_socket(const StreamOptions& options, const Clock& clock, Deadline deadline,
                                std::string* reason);

// "<what>: <why>" into `reason` if there is one.
void explain(std::string* reason, const std::string& what, const Error& why);

}  // namespace farlift::net
