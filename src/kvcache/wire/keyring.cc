#include "kvcache/wire/keyring.h"

#include "core/base/assert.h"
#include "core/codec/bytes.h"
#include "core/codec/text.h"
#include "kvcache/wire/sink.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

namespace farlift::kv {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;

digest::HmacKey subkey(ByteView secret, std::string_view label) {
  digest::Sha256Digest key = digest::hmac_sha256(secret, bytes_of(label));
  digest::HmacKey made(key);
  OPENSSL_cleanse(key.data(), key.size());
  return made;
}

Error refuse(std::string* why, std::string text) {
  if (why != nullptr) *why = std::move(text);
  return Error::make(Errc::invalid_argument, "key ring");
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

Subkeys::Subkeys(ByteView secret)
    : sig_(subkey(secret, "okv/1/sig")),
      key_hash_(subkey(secret, "okv/1/keyhash")),
      auth_(subkey(secret, "okv/1/auth")) {}

KeyHash Subkeys::key_hash(ByteView key) const {
  const digest::Sha256Digest digest = key_hash_.tag(key);
  return KeyHash(codec::Reader(digest).u64_le().value());
}

Keyring Keyring::development() {
  Keyring ring;
  const std::array<std::byte, kSecretBytes> zero{};
  ring.keys_.emplace(KeyId(0), Subkeys(zero));
  ring.development_ = true;
  return ring;
}

Status Keyring::add(KeyId id, ByteView secret) {
  if (id == KeyId(0) || secret.size() != kSecretBytes)
    return Error::make(Errc::invalid_argument, "add key");
  if (development_) {
    keys_.clear();
    development_ = false;
  }
  if (!keys_.emplace(id, Subkeys(secret)).second)
    return Error::make(Errc::already_exists, "add key");
  signing_ = id;
  return {};
}

Status Keyring::drop(KeyId id) {
  if (development_ || keys_.erase(id) == 0) return Error::make(Errc::not_found, "drop key");
  if (signing_ == id) signing_ = keys_.empty() ? KeyId(0) : keys_.rbegin()->first;
  return {};
}

std::vector<KeyId> Keyring::ids() const {
  std::vector<KeyId> ids;
  for (const auto& [id, keys] : keys_) ids.push_back(id);
  return ids;
}

Status Keyring::sign_with(KeyId id) {
  if (!keys_.contains(id)) return Error::make(Errc::not_found, "sign with");
  signing_ = id;
  return {};
}

const Subkeys* Keyring::find(KeyId id) const noexcept {
  const auto found = keys_.find(id);
  return found == keys_.end() ? nullptr : &found->second;
}

const Subkeys& Keyring::signing() const noexcept {
  const Subkeys* const keys = find(signing_);
  ASSERT(keys != nullptr);
  return *keys;
}

Result<Keyring> Keyring::parse(std::string_view text, std::string* why) {
  Keyring ring;
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t end = text.find('\n');
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    const std::string at = "line " + std::to_string(line_number);
    const std::size_t blank = line.find_first_of(" \t");
    if (blank == std::string_view::npos)
      return refuse(why, at + ": expected '<key id> <64 hex digits>'");
    const auto id = codec::parse_u32(line.substr(0, blank));
    auto secret = codec::hex_decode(trimmed(line.substr(blank)));
    if (!id.ok() || *id == 0) return refuse(why, at + ": the key id must be 1 to 4294967295");
    if (!secret.ok() || secret->size() != kSecretBytes)
      return refuse(why, at + ": the secret must be 64 hex digits (32 bytes)");
    const Status added = ring.add(KeyId(*id), *secret);
    OPENSSL_cleanse(secret->data(), secret->size());
    if (!added.ok())
      return refuse(why, at + ": key id " + std::to_string(*id) + " is there already");
  }
  if (ring.keys_.empty()) return refuse(why, "it holds no key: '<key id> <64 hex digits>' a line");
  return ring;
}

Result<Keyring> Keyring::load(const std::string& path, std::string* why) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (why != nullptr) *why = "cannot open " + path;
    return Error::make(Errc::not_found, "key ring");
  }
  std::string text;
  text.resize(kFileBytesMax + 1);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kFileBytesMax) return refuse(why, path + " is longer than 1 MiB");
  std::string reason;
  Result<Keyring> ring = parse(text, &reason);
  OPENSSL_cleanse(text.data(), text.size());
  if (!ring.ok() && why != nullptr) *why = path + ", " + reason;
  return ring;
}

bool valid_tenant(std::string_view tenant) noexcept {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  return !tenant.empty() && tenant.size() <= kTenantBytesMax &&
         std::all_of(tenant.begin(), tenant.end(), good);
}

bool valid_key(ByteView key) noexcept { return !key.empty() && key.size() <= kKeyBytesMax; }

}  // namespace farlift::kv
