// Hooks: fault injection for tests of the client; not installed, and empty in ordinary use.
//
// Threads: install() before other threads use the client; hooks run on the transferring thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace farlift {
class Client;
namespace resp {
class Connection;
}
}  // namespace farlift

namespace farlift::client {

struct Hooks {
  // After the last check, with the connection to be used; the command is sent next.
  std::function<void(resp::Connection&)> before_send;
  // The bytes of one window after the reply. When set, checksums reported by the fabric are not
  // used: the memory is read, so that what the hook changed is seen.
  std::function<void(std::span<std::byte>)> before_verify;
  // The client was found open; its regions are looked at next.
  std::function<void()> before_regions{};

  static void install(Client& client, Hooks hooks);
};

}  // namespace farlift::client
