// Sweep: deletes the needles that no object owns, by the catalog's ledger.
//
// Invariants: only what the ledger calls garbage is deleted, which readers that hold a lease keep
// from it. Threads:    one of its own; sweep_now() from any. Errors: logged; tried again later.
#pragma once

#include "s3/gateway/services.h"

#include <memory>

namespace farlift::s3::gateway {

class Sweep {
 public:
  virtual ~Sweep() = default;  // ends the thread
  // Until nothing more can be deleted now.
  virtual void sweep_now() = 0;
  // `every`: how often by itself.
  static std::unique_ptr<Sweep> start(Services& services, Duration every);
};

}  // namespace farlift::s3::gateway
