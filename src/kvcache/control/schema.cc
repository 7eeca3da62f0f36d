#include "kvcache/control/schema.h"

#include <algorithm>

namespace farlift::kv {
namespace {

Bytes slice(ByteView bytes, std::size_t from, std::size_t length) {
  from = std::min(from, bytes.size());
  const ByteView part = bytes.subspan(from, std::min(length, bytes.size() - from));
  return {part.begin(), part.end()};
}

}  // namespace

Bytes location_slice(ByteView descriptor) {
  return slice(descriptor, kLocationOffset, kLocationBytes);
}

Bytes version_slice(ByteView descriptor) {
  return slice(descriptor, kVersionOffset, kVersionBytes);
}

Bytes version_operand(Version version) {
  Bytes out;
  if (version.none()) return out;
  for (std::size_t i = 0; i < kVersionBytes; ++i)
    out.push_back(static_cast<std::byte>(version.raw() >> (8 * i)));
  return out;
}

}  // namespace farlift::kv
