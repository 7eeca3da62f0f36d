// Library: libfabric opened at run time, and owners for what it makes.
//
// Invariants: the environment was prepared before the library's first call. The library is never
//             unloaded: it has threads and exit handlers of its own.
// Threads:    immutable after open().
// Errors:     unsupported (missing, or a version outside the rule).
#pragma once

#include "core/base/result.h"
#include "core/fabric/ofi/ofi.h"

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <memory>
#include <string>

namespace farlift::fabric::ofi {

class Library {
 public:
  static Result<std::shared_ptr<const Library>> open(const std::string& name,
                                                     const VersionRule& rule, std::string* why);

  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;
  decltype(&fi_fabric) fabric = nullptr;
  decltype(&fi_strerror) strerror = nullptr;
  std::uint32_t version = 0;  // FI_MAJOR(), FI_MINOR()

  std::string version_text() const;
};

struct InfoDeleter {
  const Library* library = nullptr;
  void operator()(fi_info* info) const noexcept { library->freeinfo(info); }
};
using UniqueInfo = std::unique_ptr<fi_info, InfoDeleter>;

// fi_close(); a failure is logged and counted, and stops a debug build: it means that something of
// ours is still open.
int close_fid(fid* object) noexcept;
std::uint64_t failed_closes() noexcept;

struct FidCloser {
  template <class F>
  void operator()(F* object) const noexcept {
    close_fid(&object->fid);
  }
};
template <class F>
using UniqueFid = std::unique_ptr<F, FidCloser>;

// `rc` is what libfabric returned (negative).
Error fabric_error(long rc, const char* where) noexcept;

}  // namespace farlift::fabric::ofi
