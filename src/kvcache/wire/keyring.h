// Keyring: one tenant's secrets and the subkeys drawn from them (spec kv 2).
//
//   Keyring ring = Keyring::development();                 // nothing is signed, nothing is checked
//   TRY(ring.add(KeyId(1), secret));                       // from now on everything is
//   const Subkeys* keys = ring.find(KeyId(1));
//
// Invariants: a ring that ever had a key is never in development mode again; secrets are not
//             printable and are wiped when dropped.
// Threads:    a const Keyring may be read from any thread; changes are the owner's to serialise.
// Errors:     invalid_argument: key id 0, a secret that is not kSecretBytes long, already there.
#pragma once

#include "core/base/result.h"
#include "core/digest/hash.h"
#include "kvcache/wire/types.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::kv {

class Subkeys {
 public:
  explicit Subkeys(ByteView secret);
  KeyHash key_hash(ByteView key) const;  // first 8 bytes of HMAC(K_kh, key), little-endian
  const digest::HmacKey& sig() const noexcept { return sig_; }
  const digest::HmacKey& auth() const noexcept { return auth_; }

 private:
  digest::HmacKey sig_;
  digest::HmacKey key_hash_;
  digest::HmacKey auth_;
};

class Keyring {
 public:
  static Keyring development();
  Keyring() = default;
  Keyring(Keyring&&) noexcept = default;
  Keyring& operator=(Keyring&&) noexcept = default;

  Status add(KeyId id, ByteView secret);
  Status drop(KeyId id);
  // Which key signs new descriptors: the one added last, unless chosen.
  Status sign_with(KeyId id);

  bool is_development() const noexcept { return development_; }
  KeyId signing_id() const noexcept { return signing_; }
  const Subkeys* find(KeyId id) const noexcept;  // nullptr: unknown. Development: id 0 only
  const Subkeys& signing() const noexcept;       // ASSERTs that there is one
  std::vector<KeyId> ids() const;  // for what does not say which key signed it (manifests)

  // Lines "<key_id> <64 hex digits>", '#' comments; the last line signs. `why`: one sentence that
  // names the line and never the secret.
  static Result<Keyring> parse(std::string_view text, std::string* why = nullptr);
  static Result<Keyring> load(const std::string& path, std::string* why = nullptr);

 private:
  std::map<KeyId, Subkeys> keys_;
  KeyId signing_{};
  bool development_ = false;
};

// Tenant names: [A-Za-z0-9_.-]{1,64}.
bool valid_tenant(std::string_view tenant) noexcept;
bool valid_key(ByteView key) noexcept;  // 1..kKeyBytesMax bytes

}  // namespace farlift::kv
