// NameResolver: turns host names into addresses on a thread of its own, so that a loop never waits
// for the name service. Numeric addresses are answered at once and start no thread.
//
// Invariants: an answer for every accepted question, in order, through take(); fd() is readable
//             while answers wait. At most kQuestionsMax wait.
// Threads:    ask(), take() and the destructor from one thread. The destructor waits for the
//             question being asked, as long as the system's resolver takes.
// Errors:     ask: exhausted. Answers without an address: the name is unknown.
#pragma once

#include "core/base/bounded_queue.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/unique_fd.h"

#include <cstdint>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace farlift::kv {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* raw() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* raw() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const noexcept { return storage.ss_family; }
  std::string text() const;  // host:port, [host]:port
};

// nullopt: no numeric IPv4 or IPv6 address.
std::optional<SocketAddress> numeric_address(const std::string& host, std::uint16_t port);

class NameResolver {
 public:
  static constexpr std::size_t kQuestionsMax = 1024;
  static constexpr std::size_t kAddressesMax = 8;  // of one name; more are not tried

  struct Answer {
    std::uint64_t id = 0;
    std::vector<SocketAddress> addresses;
  };

  static Result<std::unique_ptr<NameResolver>> open();
  ~NameResolver();
  Status ask(std::uint64_t id, const std::string& host, std::uint16_t port);
  std::vector<Answer> take();
  int fd() const noexcept { return event_.get(); }

 private:
  struct Question {
    std::uint64_t id = 0;
    std::string host;
    std::uint16_t port = 0;
  };
  explicit NameResolver(UniqueFd event) : event_(std::move(event)), questions_(kQuestionsMax) {}
  void serve();

  const UniqueFd event_;
  BoundedQueue<Question> questions_;
  Mutex mutex_;
  std::vector<Answer> answers_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace farlift::kv
