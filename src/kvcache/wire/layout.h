// The byte layouts of values and their capabilities: value header, descriptor, tag, group manifest
// (spec kv 4). Pure functions over spans.
//
// Invariants: decode(encode(x)) == x; decoders never read outside the span, accept exactly one
//             length, and refuse unknown flags, formats and algorithms. Arithmetic on
//             addr + 32 + length never wraps in what decode accepts.
// Threads:    pure. Errors: Outcome::reject_format or reject_sig, as each says.
#pragma once

#include "core/base/result.h"
#include "kvcache/wire/keyring.h"
#include "kvcache/wire/types.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::kv {

struct ValueHeader {  // 4.1
  Crc32c crc;
  KeyHash key_hash;
  Version version;
  Length length;
  friend bool operator==(const ValueHeader&, const ValueHeader&) noexcept = default;
};
inline constexpr std::uint32_t kHeaderMagic = 0x31564B4F;
std::array<std::byte, kHeaderBytes> encode_header(const ValueHeader& header) noexcept;
// nullopt: the magic is wrong (BAD_MAGIC); every other field is the caller's to compare.
std::optional<ValueHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes) noexcept;

// Where a value lies: bytes 8..39 of a descriptor. Compared as a whole by unpublish L.
struct Location {
  NodeId node;
  Incarnation incarnation;
  ArenaId arena;
  ArenaGen gen;
  RemoteAddr addr;  // of the header
  friend auto operator<=>(const Location&, const Location&) noexcept = default;
};
inline constexpr std::size_t kLocationBytes = 32;
std::array<std::byte, kLocationBytes> encode_location(const Location& location) noexcept;
Result<Location> decode_location(ByteView bytes) noexcept;  // invalid_argument: not 32 bytes

struct Descriptor {  // 4.2
  static constexpr std::size_t kFixedBytes = 72;
  static constexpr std::size_t kBytesMax = kFixedBytes + 8 * kRailsMax;
  bool virtual_address = false;
  Location location;
  Length length;  // of the payload
  Version version;
  KeyHash key_hash;
  Crc32c crc;
  KeyId key_id;
  std::vector<RKey> rkeys;  // 1..kRailsMax, rail order of the node record
  friend bool operator==(const Descriptor&, const Descriptor&) noexcept = default;
};
Bytes encode_descriptor(const Descriptor& descriptor);  // ASSERTs 1..kRailsMax rkeys
// Shape, flags, algorithm, and that addr + 32 + length does not wrap; no authentication. To be
// called after verify_tag() wherever there is a key ring (spec kv 4.2, last paragraph).
// invalid_argument.
Result<Descriptor> decode_descriptor(ByteView bytes);
// The key id of what has the shape of a descriptor: magic, format, R and length alone are looked
// at.
Result<KeyId> peek_key_id(ByteView descriptor) noexcept;

Tag make_tag(const Subkeys& keys, std::string_view tenant, ByteView key, ByteView descriptor);
bool verify_tag(const Subkeys& keys, std::string_view tenant, ByteView key, ByteView descriptor,
                ByteView tag);

// Steps 9.2 and 9.3 of a read, as one function: what a client makes of the two halves it found.
//   ok: `descriptor` is authentic for (tenant, key). miss, reject_nosig, reject_sig, reject_format.
// min_rev above the version's: miss.
struct Verified {
  Outcome outcome = Outcome::miss;
  Descriptor descriptor;  // when ok
};
Verified verify_pair(const Keyring& ring, std::string_view tenant, ByteView key,
                     const std::optional<Bytes>& descriptor, const std::optional<Bytes>& tag,
                     std::uint32_t min_rev = 0);

struct ManifestEntry {  // 4.4
  Bytes key;
  Bytes descriptor;
  Tag tag{};
};
struct Manifest {
  static constexpr std::size_t kEntriesMax = 65536;
  std::uint64_t version = 0;
  std::vector<ManifestEntry> entries;
};
Bytes encode_manifest(const Manifest& manifest, const Subkeys& keys, std::string_view tenant,
                      std::string_view group);
// The tag over the whole is checked before anything is parsed; entries' own tags are the caller's
// to verify one by one (verify_pair). access: a wrong tag; invalid_argument: shape.
Result<Manifest> decode_manifest(ByteView bytes, const Subkeys& keys, std::string_view tenant,
                                 std::string_view group);

}  // namespace farlift::kv
