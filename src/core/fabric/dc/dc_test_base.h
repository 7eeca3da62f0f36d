// DcTest: a card that exists only in this process, a domain on it, a target and an initiator.
#pragma once

#include "core/fabric/dc/fake_verbs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace farlift::fabric::dc {

class DcTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 4096;

  void SetUp() override {
    verbs_ = std::make_shared<FakeVerbs>();
    local_bytes_.assign(kBytes, std::byte{0x11});
    remote_bytes_.assign(kBytes, std::byte{0xee});
  }
  void TearDown() override {
    close();
    EXPECT_EQ(verbs_->open_objects(), 0) << "left open";
    for (const std::string& text : verbs_->violations()) ADD_FAILURE() << text;
  }

  void open(const DcOptions& options = {}, const InitiatorOptions& initiator = {}) {
    std::string why;
    auto domain = open_domain(verbs_, options, &why);
    ASSERT_TRUE(domain.ok()) << why;
    domain_ = std::move(domain).value();
    target_ = take(domain_->open_target({}));
    initiator_ = take(domain_->open_initiator(initiator));
    local_ = take(domain_->register_memory({local_bytes_}, Access::local));
    remote_ = take(domain_->register_memory({remote_bytes_}, Access::remote_read_write));
    peer_ = add(target_->address());
  }
  void close() {
    initiator_.reset();
    target_.reset();
    local_.reset();
    remote_.reset();
    domain_.reset();
  }

  template <class T>
  static T take(Result<T> result) {
    EXPECT_TRUE(result.ok()) << result.error().describe();
    return std::move(result).value();
  }
  PeerId add(const Address& address) { return take(initiator_->add_peer(address)); }

  Operation write(std::uint64_t context, std::size_t from, std::size_t length) {
    Operation operation;
    operation.kind = OpKind::write;
    operation.peer = peer_;
    operation.key = remote_->key();
    operation.addr = remote_->addr() + Offset(from);
    operation.local = std::span(local_bytes_).subspan(from, length);
    operation.local_registration = local_.get();
    operation.context = context;
    return operation;
  }
  Operation read(std::uint64_t context, std::size_t from, std::size_t length) {
    Operation operation = write(context, from, length);
    operation.kind = OpKind::read;
    return operation;
  }
  std::vector<Completion> poll() {
    std::vector<Completion> out(64);
    out.resize(initiator_->poll(out));
    return out;
  }
  // The code of one completion; `internal` when there was not exactly one.
  Errc only_error() {
    const auto completions = poll();
    EXPECT_EQ(completions.size(), 1U);
    if (completions.size() != 1 || completions[0].status.ok()) return Errc::internal;
    EXPECT_TRUE(completions[0].status.error().quiet);
    return completions[0].status.code();
  }
  bool untouched() const {
    return remote_bytes_ == std::vector<std::byte>(kBytes, std::byte{0xee});
  }

  std::shared_ptr<FakeVerbs> verbs_;
  std::vector<std::byte> local_bytes_;
  std::vector<std::byte> remote_bytes_;
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<Registration> local_;
  std::unique_ptr<Registration> remote_;
  std::unique_ptr<TargetEndpoint> target_;
  std::unique_ptr<Initiator> initiator_;
  PeerId peer_;
};

}  // namespace farlift::fabric::dc
