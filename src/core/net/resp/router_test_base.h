// What the tests of the router share: options for real and for scripted servers, replies as text.
//
// Threads: as used by one test. Errors: gtest failures.
#pragma once

#include "core/net/resp/fake_server.h"
#include "core/net/resp/router.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/valkey_server.h"

namespace farlift::resp {

inline const SystemClock kClock;

inline std::unique_ptr<Router> open(RouterOptions options) {
  std::string reason;
  auto router = Router::open(std::move(options), kClock, &reason);
  EXPECT_TRUE(router.ok()) << reason;
  return router.ok() ? std::move(router).value() : nullptr;
}

inline RouterOptions options_for(const testing::ServerProcess& server, bool cluster) {
  RouterOptions options;
  options.connection = server.connection_options();
  options.cluster = cluster;
  return options;
}

inline RouterOptions options_for(const FakeServer& server, bool cluster) {
  RouterOptions options;
  options.connection.port = server.port();
  options.connection.connect_timeout = std::chrono::seconds(20);
  options.connection.request_timeout = std::chrono::seconds(30);
  options.cluster = cluster;
  options.backoff_first = std::chrono::milliseconds(1);
  options.backoff_max = std::chrono::milliseconds(5);
  return options;
}

inline std::string text(const Result<Value>& reply) {
  if (!reply.ok()) return "failed: " + reply.error().describe();
  return reply->is_text() ? std::string(reply->text())
                          : "a " + std::string(type_name(reply->type()));
}

}  // namespace farlift::resp
