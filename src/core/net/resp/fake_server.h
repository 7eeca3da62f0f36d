// FakeServer: the other end of connections in tests of this folder, doing what a real server would
// not: a script runs on each accepted connection, on a thread of its own.
//
//   FakeServer server([](FakeServer::Peer& peer) { peer.read_command(); peer.write("+OK\r\n"); });
//
// Invariants: the destructor ends every connection and joins every thread.
// Threads:    scripts run beside the test; they share nothing but what the test gives them.
#pragma once

#include "core/base/assert.h"
#include "core/base/unique_fd.h"
#include "core/net/resp/parser.h"

#include <arpa/inet.h>
#include <atomic>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace farlift::resp {

class FakeServer {
 public:
  class Peer {
   public:
    Peer(int fd, int number) : fd_(fd), number_(number) {}
    int number() const { return number_; }  // of the connection, from 0

    // The next command, its arguments in order; empty: the client has gone.
    std::vector<std::string> read_command() {
      for (;;) {
        auto value = parser_.next();
        if (!value.ok()) return {};
        if (*value) {
          std::vector<std::string> arguments;
          for (const Value& item : (*value)->items()) arguments.emplace_back(item.text());
          return arguments;
        }
        char buffer[65536];
        const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
        if (got <= 0) return {};
        parser_.feed(std::string_view(buffer, static_cast<std::size_t>(got)));
      }
    }
    bool write(std::string_view bytes) {
      while (!bytes.empty()) {
        const ssize_t put = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (put <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(put));
      }
      return true;
    }
    // Reads the greeting as a RESP3 server.
    bool greet() {
      const auto hello = read_command();
      return !hello.empty() && hello[0] == "HELLO" &&
             write("%2\r\n$5\r\nproto\r\n:3\r\n$7\r\nversion\r\n$4\r\nfake\r\n");
    }
    void wait_until_gone() {
      while (!read_command().empty()) {
      }
    }
    void wait_for_hang_up() {
      pollfd fd{fd_, POLLRDHUP, 0};
      ::poll(&fd, 1, -1);
    }

   private:
    const int fd_;
    const int number_;
    Parser parser_;
  };
  using Script = std::function<void(Peer&)>;

  explicit FakeServer(Script script)
      : script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    ASSERT(::bind(listener_.get(), generic, length) == 0);
    ASSERT(::listen(listener_.get(), 64) == 0);
    ASSERT(::getsockname(listener_.get(), generic, &length) == 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~FakeServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const UniqueFd& fd : fds_) ::shutdown(fd.get(), SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  std::uint16_t port() const { return port_; }
  int accepted() const { return accepted_; }

 private:
  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const std::lock_guard lock(mutex_);
      fds_.emplace_back(fd);
      threads_.emplace_back([this, fd, number = accepted_++] {
        Peer peer(fd, number);
        script_(peer);
        ::shutdown(fd, SHUT_RDWR);
      });
    }
  }

  const Script script_;
  const UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<int> accepted_{0};
  std::thread acceptor_;
  std::mutex mutex_;
  std::vector<UniqueFd> fds_;
  std::vector<std::thread> threads_;
};

}  // namespace farlift::resp
