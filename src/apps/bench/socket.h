// Socket: a blocking TCP connection on loopback, with whole reads and writes.
//
// Threads: one owner. Errors: Failure with the system's words.
#pragma once

#include "apps/outcome.h"
#include "core/base/unique_fd.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace farlift::apps {

class Socket {
 public:
  static Outcome<Socket> connect(std::uint16_t port);
  static Outcome<Socket> accept(const UniqueFd& listener);
  Outcome<void> send_all(std::span<const std::byte> bytes);
  Outcome<void> send_all(std::string_view text);
  Outcome<void> receive_all(std::span<std::byte> bytes);
  // Some bytes, at least one.
  Outcome<std::size_t> receive_some(std::span<std::byte> bytes);

 private:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// On 127.0.0.1, any port.
Outcome<UniqueFd> listen_on_loopback(std::uint16_t* port);

}  // namespace farlift::apps
