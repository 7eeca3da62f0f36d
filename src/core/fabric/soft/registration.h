// SoftRegistration: a registration of the software provider, and the record that its registry keeps
// of it.
//
// Threads: any. Errors: as core/fabric/fabric.h.
#pragma once

#include "core/fabric/fabric.h"
#include "core/fabric/soft/registry.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace farlift::fabric::soft {

class SoftRegistration final : public Registration {
 public:
  SoftRegistration(Registry& registry, std::shared_ptr<Registry::Record> record) noexcept
      : registry_(registry), record_(std::move(record)) {}
  ~SoftRegistration() override { registry_.close(*record_); }

  RKey key() const noexcept override { return record_->key; }
  RemoteAddr addr() const noexcept override { return record_->base; }
  Length length() const noexcept override { return Length(record_->bytes.size()); }
  Access access() const noexcept override { return record_->access; }
  Status close() override {
    registry_.close(*record_);
    return {};
  }
  void watch(bool on) noexcept override { record_->landed.watch(on); }
  std::optional<std::vector<LandedRun>> landed() override { return record_->landed.take(); }

  const std::shared_ptr<Registry::Record>& record() const noexcept { return record_; }

 private:
  Registry& registry_;
  const std::shared_ptr<Registry::Record> record_;
};

}  // namespace farlift::fabric::soft
