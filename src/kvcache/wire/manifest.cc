#include "core/codec/bytes.h"
#include "kvcache/wire/layout.h"
#include "kvcache/wire/sink.h"

#include <algorithm>

namespace farlift::kv {
namespace {

constexpr std::string_view kManifestMagic = "OKM1";
constexpr std::uint8_t kManifestFormat = 1;
constexpr std::string_view kManifestDomain{"okv/1/manifest\0", 15};
constexpr std::size_t kManifestFixedBytes = 4 + 1 + 3 + 4 + 8;
constexpr std::size_t kEntryBytesMin = 2 + 1 + 2 + Descriptor::kFixedBytes + 8 + 32;

Tag manifest_tag(const Subkeys& keys, std::string_view tenant, std::string_view group,
                 ByteView body) {
  Sink sink;
  sink.raw(bytes_of(kManifestDomain)).lp(tenant).lp(group);
  sink.u32(static_cast<std::uint32_t>(body.size()));
  const std::array<ByteView, 2> pieces{ByteView(sink.bytes()), body};
  return keys.sig().tag(pieces);
}

Error malformed() noexcept { return Error::make(Errc::invalid_argument, "manifest"); }

Result<ManifestEntry> decode_entry(codec::Reader& r) {
  ManifestEntry entry;
  TRY_ASSIGN(const std::uint16_t key_bytes, r.u16_le());
  TRY_ASSIGN(const ByteView key, r.take(key_bytes));
  if (!valid_key(key)) return malformed();
  TRY_ASSIGN(const std::uint16_t descriptor_bytes, r.u16_le());
  if (descriptor_bytes > Descriptor::kBytesMax) return malformed();
  TRY_ASSIGN(const ByteView descriptor, r.take(descriptor_bytes));
  TRY_ASSIGN(const ByteView tag, r.take(entry.tag.size()));
  entry.key.assign(key.begin(), key.end());
  entry.descriptor.assign(descriptor.begin(), descriptor.end());
  std::copy(tag.begin(), tag.end(), entry.tag.begin());
  return entry;
}

}  // namespace

Bytes encode_manifest(const Manifest& manifest, const Subkeys& keys, std::string_view tenant,
                      std::string_view group) {
  ASSERT(manifest.entries.size() <= Manifest::kEntriesMax);
  Sink sink;
  sink.raw(bytes_of(kManifestMagic)).u8(kManifestFormat).u8(0).u8(0).u8(0);
  sink.u32(static_cast<std::uint32_t>(manifest.entries.size())).u64(manifest.version);
  for (const ManifestEntry& entry : manifest.entries) {
    ASSERT(valid_key(entry.key) && entry.descriptor.size() <= Descriptor::kBytesMax);
    sink.u16(static_cast<std::uint16_t>(entry.key.size())).raw(entry.key);
    sink.u16(static_cast<std::uint16_t>(entry.descriptor.size())).raw(entry.descriptor);
    sink.raw(entry.tag);
  }
  const Tag tag = manifest_tag(keys, tenant, group, sink.bytes());
  sink.raw(tag);
  return std::move(sink).take();
}

Result<Manifest> decode_manifest(ByteView bytes, const Subkeys& keys, std::string_view tenant,
                                 std::string_view group) {
  if (bytes.size() < kManifestFixedBytes + sizeof(Tag) || bytes.size() > UINT32_MAX)
    return malformed();
  const ByteView body = bytes.first(bytes.size() - sizeof(Tag));
  if (!digest::equal(manifest_tag(keys, tenant, group, body), bytes.last(sizeof(Tag))))
    return Error::make(Errc::access, "manifest tag");
  codec::Reader r(body);
  TRY_ASSIGN(const ByteView magic, r.take(4));
  TRY_ASSIGN(const std::uint8_t format, r.u8());
  TRY_ASSIGN(const ByteView zeros, r.take(3));
  const bool zero =
      std::all_of(zeros.begin(), zeros.end(), [](std::byte b) { return b == std::byte{}; });
  if (text_of(magic) != kManifestMagic || format != kManifestFormat || !zero) return malformed();
  TRY_ASSIGN(const std::uint32_t count, r.u32_le());
  Manifest manifest;
  TRY_ASSIGN(manifest.version, r.u64_le());
  if (count > Manifest::kEntriesMax || r.left() / kEntryBytesMin < count) return malformed();
  manifest.entries.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    TRY_ASSIGN(ManifestEntry entry, decode_entry(r));
    manifest.entries.push_back(std::move(entry));
  }
  if (!r.at_end()) return malformed();
  return manifest;
}

}  // namespace farlift::kv
