// What the tests of ValkeyDirectory share: requests, and a loop that waits on wait_fd() alone.
//
// Threads: one.
#pragma once

#include "core/net/deadline.h"
#include "kvcache/control/directory.h"
#include "kvcache/control/schema.h"
#include "kvcache/control/valkey_directory.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "tests/support/valkey_server.h"

namespace farlift::kv {

inline const SystemClock kClock;

inline Bytes descriptor_of(Version version, std::uint64_t addr = 4096) {
  Descriptor descriptor;
  descriptor.location = {NodeId(1), Incarnation(77), ArenaId(2), ArenaGen(3), RemoteAddr(addr)};
  descriptor.version = version;
  descriptor.length = Length(10);
  descriptor.rkeys = {RKey(5)};
  return encode_descriptor(descriptor);
}

inline PublishRequest publish_of(std::string_view key, PutMode mode, Version expected,
                                 Version version, std::uint64_t addr = 4096) {
  PublishRequest request;
  request.tenant = "t1";
  request.key = to_bytes(key);
  request.mode = mode;
  request.expected = expected;
  request.descriptor = descriptor_of(version, addr);
  request.tag = Bytes(32, static_cast<std::byte>(version.raw()));
  return request;
}

inline UnpublishRequest unpublish_of(std::string_view key, UnpublishRequest::How how,
                                     Version version, std::uint64_t addr) {
  UnpublishRequest request;
  request.tenant = "t1";
  request.key = to_bytes(key);
  request.how = how;
  request.version = version;
  request.location = {NodeId(1), Incarnation(77), ArenaId(2), ArenaGen(3), RemoteAddr(addr)};
  return request;
}

// A directory and its loop.
struct Driven {
  std::unique_ptr<ValkeyDirectory> directory;

  explicit Driven(ValkeyOptions options) {
    std::string reason;
    auto opened = ValkeyDirectory::open(kClock, std::move(options), &reason);
    EXPECT_TRUE(opened.ok()) << reason;
    directory = std::move(opened).value();
  }

  bool until(const std::function<bool()>& done, Duration within = std::chrono::seconds(30)) {
    const net::Deadline deadline = net::Deadline::after(kClock, within);
    while (!done()) {
      if (deadline.expired(kClock)) return false;
      if (directory->step()) continue;
      pollfd fd{directory->wait_fd(), POLLIN, 0};
      ::poll(&fd, 1, std::min(deadline.poll_ms(kClock), 5000));
    }
    return true;
  }
  PublishReply publish(PublishRequest request) {
    std::optional<PublishReply> reply;
    directory->publish(std::move(request), [&](PublishReply r) { reply = std::move(r); });
    EXPECT_FALSE(reply.has_value()) << "never from inside the call";
    EXPECT_TRUE(until([&] { return reply.has_value(); }));
    return reply.value_or(PublishReply{});
  }
  UnpublishReply unpublish(UnpublishRequest request) {
    std::optional<UnpublishReply> reply;
    directory->unpublish(std::move(request), [&](UnpublishReply r) { reply = r; });
    EXPECT_TRUE(until([&] { return reply.has_value(); }));
    return reply.value_or(UnpublishReply{});
  }
  std::vector<Result<Pair>> resolve(std::vector<Bytes> keys) {
    std::optional<std::vector<Result<Pair>>> reply;
    directory->resolve("t1", std::move(keys), [&](auto all) { reply = std::move(all); });
    EXPECT_TRUE(until([&] { return reply.has_value(); }));
    return reply ? *std::move(reply) : std::vector<Result<Pair>>{};
  }
  Result<Pair> resolve(std::string_view key) { return resolve({to_bytes(key)}).at(0); }
  // Whatever takes one callback with one argument.
  template <class T, class Start>
  T get(Start start) {
    std::optional<T> reply;
    start([&](T r) { reply = std::move(r); });
    EXPECT_TRUE(until([&] { return reply.has_value(); }));
    return reply ? *std::move(reply) : T(Error::make(Errc::timeout, "test"));
  }
  // Publishes until it is known to be there, as a node that goes on trying does.
  bool publish_at_last(std::string_view key, Version version, Duration within) {
    const net::Deadline deadline = net::Deadline::after(kClock, within);
    while (!deadline.expired(kClock)) {
      const auto reply = publish(publish_of(key, PutMode::if_absent, {}, version));
      if (reply.kind == PublishReply::Kind::ok || reply.kind == PublishReply::Kind::exists)
        return true;
    }
    return false;
  }
};

// Generous: the operations' own time is not what most tests are about.
inline ValkeyOptions options_for(const testing::ServerProcess& server,
                                 Duration timeout = std::chrono::seconds(10)) {
  ValkeyOptions options;
  options.connection = server.connection_options();
  options.timeout = timeout;
  return options;
}

inline std::string command(const testing::ServerProcess& server,
                           std::vector<std::string_view> words) {
  auto connection = resp::Connection::connect(server.connection_options(), kClock);
  if (!connection.ok()) return "no connection";
  const auto reply = (*connection)->request(words);
  if (!reply.ok()) return reply.error().describe();
  if (reply->type() == resp::Type::integer) return std::to_string(reply->integer());
  return reply->is_text() ? std::string(reply->text()) : std::string(type_name(reply->type()));
}

// Calls of a command since the start, from INFO commandstats.
inline std::uint64_t calls_of(const testing::ServerProcess& server, const std::string& name) {
  const std::string stats = command(server, {"INFO", "commandstats"});
  const std::string mark = "cmdstat_" + name + ":calls=";
  const std::size_t at = stats.find(mark);
  return at == std::string::npos ? 0 : std::stoull(stats.substr(at + mark.size()));
}

}  // namespace farlift::kv
