#include "core/digest/hash.h"

#include "core/base/assert.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

namespace farlift::digest {
namespace internal {

struct HashContext {
  EVP_MD_CTX* evp;
};

void HashContextFree::operator()(HashContext* context) const noexcept {
  EVP_MD_CTX_free(context->evp);
  delete context;
}

}  // namespace internal

namespace {

using internal::HashContext;
using internal::HashContextPtr;

// Fetched once: EVP_sha256() would look the implementation up again at every init. Never freed, so
// that statics that hash during exit find them.
const EVP_MD* fetched_sha256() {
  static EVP_MD* const kSha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  ASSERT(kSha256 != nullptr);
  return kSha256;
}

const EVP_MD* fetched_md5() {
  static EVP_MD* const kMd5 = EVP_MD_fetch(nullptr, "MD5", nullptr);
  return kMd5;
}

const EVP_MD* fetched_sha1() {
  static EVP_MD* const kSha1 = EVP_MD_fetch(nullptr, "SHA1", nullptr);
  ASSERT(kSha1 != nullptr);
  return kSha1;
}

void start(HashContext& context, const EVP_MD* md) noexcept {
  ASSERT(EVP_DigestInit_ex2(context.evp, md, nullptr) == 1);
}

HashContextPtr make_context(const EVP_MD* md) {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ASSERT(evp != nullptr && md != nullptr);
  HashContextPtr context(new HashContext{evp});
  start(*context, md);
  return context;
}

void feed(HashContext& context, std::span<const std::byte> bytes) noexcept {
  ASSERT(EVP_DigestUpdate(context.evp, bytes.data(), bytes.size()) == 1);
}

template <class Digest>
Digest take(HashContext& context) noexcept {
  Digest digest{};
  unsigned length = 0;
  ASSERT(EVP_DigestFinal_ex(context.evp, reinterpret_cast<unsigned char*>(digest.data()),
                            &length) == 1);
  ASSERT(length == digest.size());
  return digest;
}

HashContextPtr clone(const HashContext& from) {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ASSERT(evp != nullptr);
  ASSERT(EVP_MD_CTX_copy_ex(evp, from.evp) == 1);
  return HashContextPtr(new HashContext{evp});
}

constexpr std::size_t kHmacBlock = 64;

}  // namespace

Sha256::Sha256() : context_(make_context(fetched_sha256())) {}
void Sha256::update(std::span<const std::byte> bytes) noexcept { feed(*context_, bytes); }
Sha256Digest Sha256::finish() noexcept {
  const auto digest = take<Sha256Digest>(*context_);
  start(*context_, fetched_sha256());
  return digest;
}

bool Md5::available() noexcept { return fetched_md5() != nullptr; }
Md5::Md5() : context_(make_context(fetched_md5())) {}
void Md5::update(std::span<const std::byte> bytes) noexcept { feed(*context_, bytes); }
Md5Digest Md5::finish() noexcept {
  const auto digest = take<Md5Digest>(*context_);
  start(*context_, fetched_md5());
  return digest;
}

Sha1::Sha1() : context_(make_context(fetched_sha1())) {}
void Sha1::update(std::span<const std::byte> bytes) noexcept { feed(*context_, bytes); }
Sha1Digest Sha1::finish() noexcept {
  const auto digest = take<Sha1Digest>(*context_);
  start(*context_, fetched_sha1());
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Md5Digest md5(std::span<const std::byte> bytes) {
  Md5 hash;
  hash.update(bytes);
  return hash.finish();
}

HmacKey::HmacKey(std::span<const std::byte> key) {
  std::array<std::byte, kHmacBlock> block{};
  if (key.size() > kHmacBlock) {
    const Sha256Digest shorter = sha256(key);
    for (std::size_t i = 0; i < shorter.size(); ++i) block[i] = shorter[i];
  } else {
    for (std::size_t i = 0; i < key.size(); ++i) block[i] = key[i];
  }
  for (std::byte& b : block) b ^= std::byte{0x36};
  inner_.update(block);
  for (std::byte& b : block) b ^= std::byte{0x36 ^ 0x5c};
  outer_.update(block);
  OPENSSL_cleanse(block.data(), block.size());
}

Sha256Digest HmacKey::tag(std::span<const std::byte> message) const {
  return tag(std::span<const std::span<const std::byte>>(&message, 1));
}

Sha256Digest HmacKey::tag(std::span<const std::span<const std::byte>> pieces) const {
  const HashContextPtr inner = clone(*inner_.context_);
  for (const std::span<const std::byte> piece : pieces) feed(*inner, piece);
  const auto inner_digest = take<Sha256Digest>(*inner);
  const HashContextPtr outer = clone(*outer_.context_);
  feed(*outer, inner_digest);
  return take<Sha256Digest>(*outer);
}

Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  return HmacKey(key).tag(message);
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && (a.empty() || CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace farlift::digest
