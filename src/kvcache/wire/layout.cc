#include "kvcache/wire/layout.h"

#include "core/base/assert.h"
#include "core/codec/bytes.h"
#include "kvcache/wire/sink.h"

#include <algorithm>

namespace farlift::kv {
namespace {

constexpr std::string_view kDescriptorMagic = "OKD1";
constexpr std::uint8_t kFormatVersion = 1;
constexpr std::uint8_t kFlagVirtualAddress = 1;
constexpr std::uint8_t kCrcCastagnoli = 1;
constexpr std::size_t kAtRails = 7;
constexpr std::size_t kAtLocation = 8;
constexpr std::size_t kAtVersion = 48;
constexpr std::size_t kAtKeyId = 68;
constexpr std::string_view kTagDomain{"okv/1/desc\0", 11};

static_assert(kAtLocation + kLocationBytes == 40 && kAtVersion == kAtLocation + kLocationBytes + 8);

Error malformed() noexcept { return Error::make(Errc::invalid_argument, "descriptor"); }

void put(Sink& sink, const Location& location) {
  sink.u64(location.node.raw())
      .u64(location.incarnation.raw())
      .u32(location.arena.raw())
      .u32(location.gen.raw())
      .u64(location.addr.raw());
}

template <std::size_t N>
std::array<std::byte, N> fixed(const Bytes& bytes) noexcept {
  ASSERT(bytes.size() == N);
  std::array<std::byte, N> out;
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

// Magic, format, R and length: all that is looked at before the tag is verified.
bool has_shape(ByteView bytes) noexcept {
  if (bytes.size() < Descriptor::kFixedBytes || text_of(bytes.first(4)) != kDescriptorMagic)
    return false;
  if (std::to_integer<std::uint8_t>(bytes[4]) != kFormatVersion) return false;
  const auto rails = std::to_integer<std::size_t>(bytes[kAtRails]);
  return rails >= 1 && rails <= kRailsMax && bytes.size() == Descriptor::kFixedBytes + 8 * rails;
}

}  // namespace

std::array<std::byte, kHeaderBytes> encode_header(const ValueHeader& header) noexcept {
  std::array<std::byte, kHeaderBytes> bytes{};
  codec::Writer w(bytes);
  const bool fits = w.u32_le(kHeaderMagic).ok() && w.u32_le(header.crc.raw()).ok() &&
                    w.u64_le(header.key_hash.raw()).ok() && w.u64_le(header.version.raw()).ok() &&
                    w.u64_le(header.length.raw()).ok();
  ASSERT(fits && w.left() == 0);
  return bytes;
}

std::optional<ValueHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes) noexcept {
  codec::Reader r(bytes);
  if (r.u32_le().value() != kHeaderMagic) return std::nullopt;
  ValueHeader header;
  header.crc = Crc32c(r.u32_le().value());
  header.key_hash = KeyHash(r.u64_le().value());
  header.version = Version(r.u64_le().value());
  header.length = Length(r.u64_le().value());
  return header;
}

std::array<std::byte, kLocationBytes> encode_location(const Location& location) noexcept {
  Sink sink;
  put(sink, location);
  return fixed<kLocationBytes>(sink.bytes());
}

Result<Location> decode_location(ByteView bytes) noexcept {
  if (bytes.size() != kLocationBytes) return Error::make(Errc::invalid_argument, "location");
  codec::Reader r(bytes);
  Location location;
  location.node = NodeId(r.u64_le().value());
  location.incarnation = Incarnation(r.u64_le().value());
  location.arena = ArenaId(r.u32_le().value());
  location.gen = ArenaGen(r.u32_le().value());
  location.addr = RemoteAddr(r.u64_le().value());
  return location;
}

Bytes encode_descriptor(const Descriptor& d) {
  ASSERT(!d.rkeys.empty() && d.rkeys.size() <= kRailsMax);
  Sink sink;
  sink.raw(bytes_of(kDescriptorMagic))
      .u8(kFormatVersion)
      .u8(d.virtual_address ? kFlagVirtualAddress : 0)
      .u8(kCrcCastagnoli)
      .u8(static_cast<std::uint8_t>(d.rkeys.size()));
  put(sink, d.location);
  sink.u64(d.length.raw())
      .u64(d.version.raw())
      .u64(d.key_hash.raw())
      .u32(d.crc.raw())
      .u32(d.key_id.raw());
  for (const RKey key : d.rkeys) sink.u64(key.raw());
  return std::move(sink).take();
}

Result<Descriptor> decode_descriptor(ByteView bytes) {
  if (!has_shape(bytes)) return malformed();
  codec::Reader r(bytes);
  TRY(r.skip(5));
  TRY_ASSIGN(const std::uint8_t flags, r.u8());
  TRY_ASSIGN(const std::uint8_t algorithm, r.u8());
  TRY_ASSIGN(const std::uint8_t rails, r.u8());
  if ((flags & ~kFlagVirtualAddress) != 0 || algorithm != kCrcCastagnoli) return malformed();
  Descriptor d;
  d.virtual_address = (flags & kFlagVirtualAddress) != 0;
  TRY_ASSIGN(const ByteView location, r.take(kLocationBytes));
  TRY_ASSIGN(d.location, decode_location(location));
  d.length = Length(r.u64_le().value());
  d.version = Version(r.u64_le().value());
  d.key_hash = KeyHash(r.u64_le().value());
  d.crc = Crc32c(r.u32_le().value());
  d.key_id = KeyId(r.u32_le().value());
  for (std::uint8_t i = 0; i < rails; ++i) d.rkeys.emplace_back(r.u64_le().value());
  ASSERT(r.at_end());
  // addr + 32 + length must stay below 2^64 (spec kv 4.2); nothing is added before it is compared.
  const std::uint64_t addr = d.location.addr.raw();
  if (addr > UINT64_MAX - kHeaderBytes || d.length.raw() > UINT64_MAX - kHeaderBytes - addr)
    return malformed();
  return d;
}

Result<KeyId> peek_key_id(ByteView descriptor) noexcept {
  if (!has_shape(descriptor)) return malformed();
  return KeyId(codec::Reader(descriptor.subspan(kAtKeyId)).u32_le().value());
}

Tag make_tag(const Subkeys& keys, std::string_view tenant, ByteView key, ByteView descriptor) {
  Sink sink;
  sink.raw(bytes_of(kTagDomain)).lp(tenant).lp(key).lp(descriptor);
  return keys.sig().tag(sink.bytes());
}

bool verify_tag(const Subkeys& keys, std::string_view tenant, ByteView key, ByteView descriptor,
                ByteView tag) {
  return digest::equal(make_tag(keys, tenant, key, descriptor), tag);
}

Verified verify_pair(const Keyring& ring, std::string_view tenant, ByteView key,
                     const std::optional<Bytes>& descriptor, const std::optional<Bytes>& tag,
                     std::uint32_t min_rev) {
  const auto ends = [](Outcome outcome) { return Verified{outcome, {}}; };
  if (!descriptor) return ends(Outcome::miss);  // a tag alone is nothing to read from
  if (!ring.is_development() && !tag) return ends(Outcome::reject_nosig);
  const Result<KeyId> key_id = peek_key_id(*descriptor);
  if (!key_id.ok()) return ends(Outcome::reject_format);
  const Subkeys* const keys = ring.find(*key_id);
  if (keys == nullptr) return ends(Outcome::reject_sig);
  if (!ring.is_development() && !verify_tag(*keys, tenant, key, *descriptor, *tag))
    return ends(Outcome::reject_sig);
  Result<Descriptor> decoded = decode_descriptor(*descriptor);
  if (!decoded.ok()) return ends(Outcome::reject_format);
  if (decoded->key_hash != keys->key_hash(key)) return ends(Outcome::reject_sig);
  if (decoded->version.rev() < min_rev) return ends(Outcome::miss);
  return Verified{Outcome::ok, std::move(decoded).value()};
}

}  // namespace farlift::kv
