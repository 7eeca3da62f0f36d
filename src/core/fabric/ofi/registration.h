// OfiRegistration: owns one fid_mr.
//
// Invariants: ends before its domain. Threads: any. Errors: close() reports what the provider said.
#pragma once

#include "core/base/mutex.h"
#include "core/fabric/ofi/library.h"

#include <rdma/fi_domain.h>

#include <span>

namespace farlift::fabric::ofi {

class OfiDomain;

class OfiRegistration final : public Registration {
 public:
  OfiRegistration(const OfiDomain& domain, fid_mr* region, std::span<std::byte> bytes,
                  RemoteAddr addr, Access access)
      : domain_(domain),
        key_(fi_mr_key(region)),
        addr_(addr),
        bytes_(bytes),
        access_(access),
        descriptor_(fi_mr_desc(region)),
        region_(region) {}
  ~OfiRegistration() override { close().ignore(); }  // close_fid() logged and counted it

  RKey key() const noexcept override { return key_; }
  RemoteAddr addr() const noexcept override { return addr_; }
  Length length() const noexcept override { return Length(bytes_.size()); }
  Access access() const noexcept override { return access_; }
  Status close() override;

  void* descriptor() const noexcept { return descriptor_; }
  bool covers(std::span<const std::byte> part) const noexcept;

 private:
  const OfiDomain& domain_;
  const RKey key_;
  const RemoteAddr addr_;
  const std::span<std::byte> bytes_;
  const Access access_;
  void* const descriptor_;
  Mutex mutex_;
  fid_mr* region_ GUARDED_BY(mutex_);
};

}  // namespace farlift::fabric::ofi
