#include "s3/volume/access.h"

#include <span>
#include <utility>

namespace farlift::s3::volume {
namespace {

constexpr std::uint64_t kNsPerS = 1'000'000'000;
constexpr std::uint64_t kReplicaLifeS = 40;

std::shared_ptr<const digest::HmacKey> key_of(const std::string& text) {
  if (text.empty()) return nullptr;
  return std::make_shared<const digest::HmacKey>(
      std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

Access::Access(const AccessKeys& keys, bool ignore_reads, WallClock now)
    : ignore_reads_(ignore_reads),
      now_(std::move(now)),
      write_(key_of(keys.write)),
      read_(key_of(keys.read)) {}

void Access::set_keys(const AccessKeys& keys) {
  Key write = key_of(keys.write);
  Key read = key_of(keys.read);
  MutexLock lock(mutex_);
  write_ = std::move(write);
  read_ = std::move(read);
}

Access::Key Access::key(Right right) const {
  MutexLock lock(mutex_);
  return right == Right::read ? read_ : write_;
}

bool Access::required(Right right) const { return key(right) != nullptr; }

JwtVerdict Access::check(Right right, std::string_view jwt, std::string_view fid) const {
  const Key with = key(right);
  if (with == nullptr) return JwtVerdict::valid;
  return check_jwt(*with, jwt, fid, now_() / kNsPerS);
}

JwtVerdict Access::check_push(std::string_view jwt, std::string_view fid) const {
  return ignore_reads_ ? JwtVerdict::valid : check(Right::read, jwt, fid);
}

std::string Access::sign_write(std::string_view fid) const {
  const Key with = key(Right::write);
  if (with == nullptr) return {};
  return sign_jwt(*with, fid, now_() / kNsPerS + kReplicaLifeS);
}

}  // namespace farlift::s3::volume
