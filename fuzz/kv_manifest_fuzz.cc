// Group manifests and node records of the one-sided cache. The manifest's body is signed with the
// right key, as a faulty node would sign it: past the tag, every length in it is a lie until
// proven.
#include "core/base/assert.h"
#include "kvcache/wire/layout.h"
#include "kvcache/wire/names.h"
#include "kvcache/wire/sink.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farlift::kv;
  static const Subkeys keys(Bytes(kSecretBytes, std::byte{0x5a}));
  const ByteView body = std::as_bytes(std::span<const std::uint8_t>(data, size));

  ASSERT(!decode_manifest(body, keys, "t1", "g").ok());
  Sink message;
  message.raw(bytes_of({"okv/1/manifest\0", 15})).lp("t1").lp("g").lp(body);
  const Tag tag = keys.sig().tag(message.bytes());
  Sink whole;
  whole.raw(body).raw(tag);
  const auto manifest = decode_manifest(whole.bytes(), keys, "t1", "g");
  if (manifest.ok()) {
    const bool sane = std::all_of(
        manifest->entries.begin(), manifest->entries.end(), [](const ManifestEntry& entry) {
          return valid_key(entry.key) && entry.descriptor.size() <= Descriptor::kBytesMax;
        });
    ASSERT(sane);
  }

  const auto record = decode_node_record(text_of(body));
  if (record.ok()) ASSERT(decode_node_record(encode_node_record(*record)).value() == *record);
  return 0;
}
