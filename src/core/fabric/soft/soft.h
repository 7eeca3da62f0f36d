// The software provider (design.md 3.1): the semantics of a good card on any host, over TCP between hosts and by
// process_vm_readv on one host. docs/formats/soft.md has the wire format, docs/decisions/0001 says who copies and why.
//
// Threads and errors: as core/fabric/fabric.h.
#pragma once

#include <memory>
#include <string>

#include "core/fabric/fabric.h"

namespace farlift::fabric::soft {

struct SoftOptions {
  std::string listen_ip = "127.0.0.1";  // numeric IPv4 or IPv6; what endpoints bind unless TargetOptions says otherwise
  bool virtual_addressing = false;      // remote addresses are virtual addresses, else offsets
  bool host_lane = true;                // use process_vm_readv when both ends allow it
  bool key32 = false;                   // 32-bit keys (under a DC key), else 64-bit
  std::uint32_t spin_us = 0;            // longest spin before a blocking wait; 0: none
};

// invalid_argument: listen_ip is not a numeric address.
Result<std::unique_ptr<Domain>> open_domain(const SoftOptions& options, const Clock& clock);

}  // namespace farlift::fabric::soft
