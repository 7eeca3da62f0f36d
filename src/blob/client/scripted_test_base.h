// A client of a scripted server, with one value, one registered buffer and the checks on them.
//
// Threads: as used by one test. Errors: gtest failures.
#pragma once

#include "blob/client/client_test_base.h"
#include "blob/client/fake_server.h"

#include <optional>
#include <utility>
#include <vector>

namespace farlift::testing {

inline constexpr std::size_t kSize = 4096;

class Scripted : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.put("key", value_);
    connect(options());
  }

  ClientOptions options() const {
    ClientOptions options;
    options.addresses = {{"127.0.0.1", server_.port()}};
    options.rdma = RdmaConfiguration{};
    return options;
  }
  void connect(ClientOptions options) {
    auto made = Client::create(std::move(options));
    ASSERT_TRUE(succeeded(made));
    client_.emplace(std::move(made).value());
    region_.emplace(add_region(memory_));
  }
  RdmaRegion add_region(std::span<std::byte> memory) {
    auto region = client_->register_rdma_region(memory);
    EXPECT_TRUE(succeeded(region));
    return std::move(region).value();
  }
  RdmaWindow whole() { return *region_->window(); }
  Expected<std::optional<RdmaReadReceipt>> get() { return client_->rdma_get("key", whole()); }
  void expect_good_get() {
    auto receipt = get();
    ASSERT_TRUE(succeeded(receipt));
    ASSERT_TRUE(receipt->has_value());
    EXPECT_EQ((*receipt)->bytes_written, value_.size());
    EXPECT_EQ((*receipt)->checksum, rdma_checksum(value_));
    EXPECT_TRUE(same(std::span(memory_).first(value_.size()), value_));
  }

  const std::vector<std::byte> value_ = pattern(kSize);
  std::vector<std::byte> memory_ = std::vector<std::byte>(kSize, kSentinel);
  FakeServer server_;
  std::optional<Client> client_;
  std::optional<RdmaRegion> region_;
};

}  // namespace farlift::testing
