// Descriptor, tag and header of the one-sided cache. First byte: how the rest becomes a pair. The
// bytes are tried as they are (nothing may be accepted) and signed with the right key, as a faulty
// node would (whatever is accepted must be harmless).
#include "core/base/assert.h"
#include "kvcache/wire/layout.h"
#include "kvcache/wire/sink.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace {

using namespace farlift;
using namespace farlift::kv;

const Keyring& ring() {
  static const Keyring one = [] {
    Keyring made;
    ASSERT(made.add(KeyId(1), Bytes(kSecretBytes, std::byte{0x5a})).ok());
    return made;
  }();
  return one;
}

void check(const Descriptor& d, ByteView bytes) {
  ASSERT(!d.rkeys.empty() && d.rkeys.size() <= kRailsMax);
  ASSERT(d.location.addr.raw() <= UINT64_MAX - kHeaderBytes);
  ASSERT(d.length.raw() <= UINT64_MAX - kHeaderBytes - d.location.addr.raw());
  const Bytes again = encode_descriptor(d);
  ASSERT(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView all = std::as_bytes(std::span<const std::uint8_t>(data, size));
  if (all.empty()) return 0;
  const ByteView rest = all.subspan(1);
  const Bytes key{std::byte{'k'}};

  // As a stranger: the last 32 bytes are the tag.
  const std::size_t tag_bytes = std::min<std::size_t>(rest.size(), sizeof(Tag));
  const Bytes body(rest.begin(), rest.end() - static_cast<std::ptrdiff_t>(tag_bytes));
  const Bytes tag(rest.end() - static_cast<std::ptrdiff_t>(tag_bytes), rest.end());
  ASSERT(verify_pair(ring(), "t1", key, body, tag).outcome != Outcome::ok);
  ASSERT(verify_pair(ring(), "t1", key, body, std::nullopt).outcome != Outcome::ok);

  // As a faulty node: key id and key hash are made right, and the whole is signed.
  Bytes signed_bytes(rest.begin(), rest.end());
  if (signed_bytes.size() >= Descriptor::kFixedBytes) {
    Sink hash, id;
    hash.u64(ring().signing().key_hash(key).raw());
    id.u32(1);
    std::copy(hash.bytes().begin(), hash.bytes().end(), signed_bytes.begin() + 56);
    std::copy(id.bytes().begin(), id.bytes().end(), signed_bytes.begin() + 68);
  }
  const Tag right = make_tag(ring().signing(), "t1", key, signed_bytes);
  const Verified verified =
      verify_pair(ring(), "t1", key, signed_bytes, Bytes(right.begin(), right.end()));
  if (verified.outcome == Outcome::ok) check(verified.descriptor, signed_bytes);

  if (rest.size() >= kHeaderBytes) {
    const auto header = decode_header(rest.first<kHeaderBytes>());
    if (header) {
      const auto again = encode_header(*header);
      ASSERT(std::equal(again.begin(), again.end(), rest.begin()));
    }
  }
  return 0;
}
