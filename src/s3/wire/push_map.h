// PushMap: which control address serves a volume's HTTP endpoint: "H:P=D:Q[;...]" (spec s3 5).
//
// Invariants: endpoints are compared as they are spelled; no key occurs twice; hosts are not empty,
//             ports are 1 to 65535. Blanks around ';' are skipped; "[v6]:port" is allowed.
// Threads:    immutable after parse(). Errors: invalid_argument, with a reason in words.
#pragma once

#include "core/base/result.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace farlift::s3 {

struct HostPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;

  static Result<HostPort> parse(std::string_view text);
  std::string format() const;  // with brackets where the host has a colon
  friend bool operator==(const HostPort&, const HostPort&) noexcept = default;
};

class PushMap {
 public:
  static Result<PushMap> parse(std::string_view text, std::string* reason = nullptr);
  // nullptr: not mapped.
  const HostPort* find(std::string_view volume_endpoint) const;
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  std::map<std::string, HostPort, std::less<>> entries_;
};

}  // namespace farlift::s3
