// SHA-256, SHA-1, MD5 and HMAC-SHA-256, over OpenSSL.
//
//   Sha256 h;  h.update(a);  h.update(b);  Sha256Digest d = h.finish();
//
// HmacKey keeps the two padded blocks hashed, so that a tag over a short message costs two
// compressions and no key schedule; one key may serve many threads.
//
// Threads: sha256(), md5(), HmacKey::tag() and equal() from any thread; a running hash belongs to
//          one thread.
// Errors:  none; OpenSSL refusing an algorithm (a FIPS policy without MD5, say) is reported by
//          available().
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

namespace farlift::digest {

using Sha256Digest = std::array<std::byte, 32>;
using Md5Digest = std::array<std::byte, 16>;
using Sha1Digest = std::array<std::byte, 20>;

namespace internal {
struct HashContext;  // one EVP_MD_CTX
struct HashContextFree {
  void operator()(HashContext* context) const noexcept;
};
using HashContextPtr = std::unique_ptr<HashContext, HashContextFree>;
}  // namespace internal

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept = default;
  Sha256& operator=(Sha256&&) noexcept = default;
  void update(std::span<const std::byte> bytes) noexcept;
  Sha256Digest finish() noexcept;  // once; the object then starts afresh

 private:
  friend class HmacKey;
  internal::HashContextPtr context_;
};

class Md5 {
 public:
  Md5();  // ASSERTs available()
  Md5(Md5&&) noexcept = default;
  Md5& operator=(Md5&&) noexcept = default;
  static bool available() noexcept;
  void update(std::span<const std::byte> bytes) noexcept;
  Md5Digest finish() noexcept;

 private:
  internal::HashContextPtr context_;
};

class Sha1 {
 public:
  Sha1();
  Sha1(Sha1&&) noexcept = default;
  Sha1& operator=(Sha1&&) noexcept = default;
  void update(std::span<const std::byte> bytes) noexcept;
  Sha1Digest finish() noexcept;

 private:
  internal::HashContextPtr context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
Md5Digest md5(std::span<const std::byte> bytes);

class HmacKey {
 public:
  explicit HmacKey(std::span<const std::byte> key);  // any length
  HmacKey(HmacKey&&) noexcept = default;
  HmacKey& operator=(HmacKey&&) noexcept = default;
  Sha256Digest tag(std::span<const std::byte> message) const;
  // Over several pieces, in order.
  Sha256Digest tag(std::span<const std::span<const std::byte>> pieces) const;

 private:
  Sha256 inner_;  // has read key ^ ipad
  Sha256 outer_;  // has read key ^ opad
};

Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// In time that depends on the lengths alone; false when they differ.
bool equal(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

}  // namespace farlift::digest
