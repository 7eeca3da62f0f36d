// Sink: appends fixed-width little-endian integers and length-prefixed byte runs to a vector.
// codec::Reader reads them back; lp() is the protocol's u32 length prefix.
//
// Threads: a plain value. Errors: none.
#pragma once

#include "core/base/assert.h"
#include "core/codec/bytes.h"
#include "kvcache/wire/types.h"

#include <cstdint>
#include <cstring>
#include <string_view>

namespace farlift::kv {

inline ByteView bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
inline std::string_view text_of(ByteView bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Sink {
 public:
  Sink& u8(std::uint8_t v) { return integer(v, 1); }
  Sink& u16(std::uint16_t v) { return integer(v, 2); }
  Sink& u32(std::uint32_t v) { return integer(v, 4); }
  Sink& u64(std::uint64_t v) { return integer(v, 8); }
  Sink& raw(ByteView bytes) {
    // By hand: g++ 12 warns of an overflow inside vector::insert where there is none.
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    if (!bytes.empty()) std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
    return *this;
  }
  Sink& lp(ByteView bytes) {
    ASSERT(bytes.size() <= UINT32_MAX);
    return u32(static_cast<std::uint32_t>(bytes.size())).raw(bytes);
  }
  Sink& lp(std::string_view text) { return lp(bytes_of(text)); }

  const Bytes& bytes() const& noexcept { return bytes_; }
  Bytes take() && noexcept { return std::move(bytes_); }

 private:
  Sink& integer(std::uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<std::byte>(v >> (8 * i)));
    return *this;
  }
  Bytes bytes_;
};

}  // namespace farlift::kv
