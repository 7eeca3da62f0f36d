// Identities: who may do what, from a JSON file that can be read again while we serve.
//
//   {"identities": [{"name": "alice",
//                    "credentials": [{"accessKey": "AK", "secretKey": "SK"}],
//                    "policies": [{"effect": "allow", "actions": ["s3:*"], "resources": ["*"]}]}],
//    "anonymous": {"policies": [{"effect": "allow", "actions": ["s3:GetObject"],
//                                "resources": ["public/*"]}]}}
//
// Actions are S3's names; resources are "BUCKET" or "BUCKET/KEY"; '*' stands for any run of
// characters in both. What is denied anywhere is denied; what is not allowed is denied.
//
// Invariants: access keys are unique. A secret never leaves this class but to sign with.
// Threads:    Identities is immutable; IdentitySource from any.
// Errors:     a sentence; a file that is wrong changes nothing.
#pragma once

#include "core/base/mutex.h"
#include "s3/gateway/sigv4.h"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace farlift::s3::gateway {

struct Policy {
  bool allow = true;
  std::vector<std::string> actions;
  std::vector<std::string> resources;
};

struct Identity {
  std::string name;
  std::vector<Policy> policies;
  bool may(std::string_view action, std::string_view resource) const noexcept;
};

class Identities {
 public:
  struct Credential {
    std::string secret;
    std::shared_ptr<const Identity> identity;
  };
  // The error is a sentence.
  static std::variant<std::shared_ptr<const Identities>, std::string> parse(std::string_view json);
  // One identity that may do everything.
  static std::shared_ptr<const Identities> single(std::string access_key, std::string secret_key);

  // Nobody is asked, everybody may do everything; for trying things out.
  static std::shared_ptr<const Identities> open_to_all();

  const Credential* find(std::string_view access_key) const;
  const Identity& anonymous() const noexcept { return anonymous_; }

 private:
  std::map<std::string, Credential, std::less<>> by_key_;
  Identity anonymous_{"anonymous", {}};
};

// True when `pattern`, in which '*' is any run of characters and '?' any one, covers `text`.
bool matches(std::string_view pattern, std::string_view text) noexcept;

class IdentitySource {
 public:
  explicit IdentitySource(std::shared_ptr<const Identities> now) : now_(std::move(now)) {}
  std::shared_ptr<const Identities> now() const {
    const MutexLock lock(mutex_);
    return now_;
  }
  void replace(std::shared_ptr<const Identities> by) {
    const MutexLock lock(mutex_);
    now_ = std::move(by);
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const Identities> now_ GUARDED_BY(mutex_);
};

}  // namespace farlift::s3::gateway
