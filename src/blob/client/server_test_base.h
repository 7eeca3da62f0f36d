// A real valkey-server with the module, and clients of it over the soft provider.
//
// Threads: as used by one test. Errors: gtest failures.
#pragma once

#include "blob/client/client_test_base.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/valkey_server.h"

namespace farlift::testing {

inline constexpr std::size_t kSize = 4096;

inline std::vector<std::string> module_arguments() {
  const char* path = std::getenv("FARLIFT_MODULE");
  return {"--loadmodule",
          path != nullptr ? path : FARLIFT_MODULE_PATH,
          "--largeobj.segment-size",
          "64mb",
          "--largeobj.max-object-size",
          "48mb",
          "--enable-debug-command",
          "yes"};
}

inline std::unique_ptr<ServerProcess> start_server(ServerOptions options = {}) {
  std::vector<std::string> arguments = module_arguments();
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  options.arguments = arguments;
  std::string reason;
  auto server = ServerProcess::start(options, &reason);
  EXPECT_NE(server, nullptr) << reason;
  return server;
}

inline ClientOptions options_for(const ServerProcess& server) {
  ClientOptions options;
  options.addresses = {{"127.0.0.1", server.port()}};
  options.request_timeout = std::chrono::seconds(20);
  options.rdma = RdmaConfiguration{};
  return options;
}

inline Client connect(ClientOptions options) {
  auto client = Client::create(std::move(options));
  EXPECT_TRUE(succeeded(client));
  return std::move(client).value();
}

inline RdmaRegion add_region(Client& client, std::span<std::byte> memory) {
  auto region = client.register_rdma_region(memory);
  EXPECT_TRUE(succeeded(region));
  return std::move(region).value();
}

// How often the server ran a command, from INFO commandstats.
inline int calls(Client& client, const std::string& command) {
  auto info = client.command({"INFO", "commandstats"});
  EXPECT_TRUE(succeeded(info));
  const std::string head = "cmdstat_" + command + ":calls=";
  const std::size_t at = info->text.find(head);
  return at == std::string::npos ? 0 : std::atoi(info->text.c_str() + at + head.size());  // NOLINT
}

inline void expect_round_trip(Client& client, const std::string& key, std::size_t size,
                              unsigned seed) {
  std::vector<std::byte> memory = pattern(size, seed);
  const std::vector<std::byte> sent = memory;
  RdmaRegion region = add_region(client, memory);
  ASSERT_TRUE(succeeded(client.rdma_set(key, *region.window())));
  std::fill(memory.begin(), memory.end(), kSentinel);
  auto receipt = client.rdma_get(key, *region.window());
  ASSERT_TRUE(succeeded(receipt));
  ASSERT_TRUE(receipt->has_value());
  EXPECT_EQ((*receipt)->bytes_written, size);
  EXPECT_EQ((*receipt)->checksum, rdma_checksum(sent));
  EXPECT_TRUE(same(memory, sent));
}

}  // namespace farlift::testing
