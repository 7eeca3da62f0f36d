// Peers by hand: raw connections to a target, and a listener that is none.
//
// Threads: a Stranger serves its guest on a thread of its own. Errors: gtest failures.
#pragma once

#include "core/base/unique_fd.h"
#include "core/fabric/soft/address.h"
#include "core/fabric/soft/soft.h"
#include "core/fabric/soft/soft_wire.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace farlift::fabric::soft {

inline constexpr int kLongMs = 40000;

inline UniqueFd connect_to(const Address& address) {
  const auto socket_address = SocketAddress::decode(address);
  UniqueFd fd(::socket(socket_address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), socket_address->get(), socket_address->size()), 0);
  return fd;
}

inline bool send_all(int fd, std::span<const std::byte> bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// What the other side sent until it ended the connection.
inline std::vector<std::byte> read_to_end(int fd) {
  std::vector<std::byte> out;
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, kLongMs) != 1) {
      ADD_FAILURE() << "the connection was not ended";
      return out;
    }
    std::byte piece[4096];
    const ssize_t n = ::recv(fd, piece, sizeof piece, 0);
    if (n <= 0) return out;
    out.insert(out.end(), piece, piece + n);
  }
}

template <std::size_t N, class T>
inline std::vector<std::byte> encoded(const T& value) {
  std::vector<std::byte> out(N);
  encode(value, std::span<std::byte, N>(out.data(), N));
  return out;
}

inline std::unique_ptr<Domain> open(bool host_lane = true) {
  static const SystemClock clock;
  SoftOptions options;
  options.host_lane = host_lane;
  auto domain = open_domain(options, clock);
  EXPECT_TRUE(domain.ok());
  return *std::move(domain);
}

inline Status run(Initiator& initiator, const Operation& operation) {
  Status posted = initiator.post(operation);
  if (!posted.ok()) return posted;
  Completion done;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLongMs);
  while (initiator.poll({&done, 1}) == 0) {
    if (std::chrono::steady_clock::now() > limit) return Error::make(Errc::timeout, "test");
    initiator.wait(1000);
  }
  return done.status;
}

// A listener that treats its one guest as `serve` says.
class Stranger {
 public:
  explicit Stranger(std::function<void(int)> serve)
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto any = SocketAddress::parse("127.0.0.1", 0);
    EXPECT_EQ(::bind(listener_.get(), any->get(), any->size()), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    address_ = SocketAddress::of_socket(listener_.get())->encode();
    thread_ = std::thread([this, serve = std::move(serve)] {
      const UniqueFd guest(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (guest) serve(guest.get());
    });
  }
  ~Stranger() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const Address& address() const { return address_; }

 private:
  UniqueFd listener_;
  Address address_;
  std::thread thread_;
};

inline Status write_to(const Address& address, Duration deadline = std::chrono::seconds(2)) {
  const auto domain = open();
  InitiatorOptions options;
  options.connect_deadline = deadline;
  const auto initiator = *domain->open_initiator(options);
  const auto peer = initiator->add_peer(address);
  EXPECT_TRUE(peer.ok());
  std::vector<std::byte> local(70000);
  return run(*initiator, {OpKind::write, *peer, RKey(1), RemoteAddr(), local, nullptr, 1});
}

}  // namespace farlift::fabric::soft
