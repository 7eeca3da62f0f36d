#include "kvcache/wire/frames.h"

#include "core/base/assert.h"
#include "core/codec/bytes.h"
#include "core/digest/crc32c.h"
#include "kvcache/wire/sink.h"

namespace farlift::kv {
namespace {

constexpr std::string_view kFrameMagic = "OKR1";

bool known(std::uint16_t type) noexcept {
  return type >= static_cast<std::uint16_t>(FrameType::hello) &&
         type <= static_cast<std::uint16_t>(FrameType::rotate);
}

Error garbage(const char* what) noexcept { return Error::make(Errc::protocol, what); }

}  // namespace

Bytes encode_frame(const Frame& frame) {
  ASSERT(frame.body.size() <= kFrameBodyBytesMax);
  Sink sink;
  sink.raw(bytes_of(kFrameMagic))
      .u16(static_cast<std::uint16_t>(frame.type))
      .u16(frame.reply ? kFrameReply : std::uint16_t{0})
      .u32(static_cast<std::uint32_t>(frame.body.size()))
      .u64(frame.req_id)
      .u32(digest::crc32c(frame.body).raw());
  ASSERT(sink.bytes().size() == kFrameHeaderBytes);
  sink.raw(frame.body);
  return std::move(sink).take();
}

Result<std::optional<Frame>> decode_frame(ByteView bytes, std::size_t& consumed) {
  consumed = 0;
  // Garbage is refused at its first wrong byte, not when a header's worth of it has come.
  const std::size_t seen = std::min(bytes.size(), kFrameMagic.size());
  if (text_of(bytes.first(seen)) != kFrameMagic.substr(0, seen)) return garbage("frame magic");
  if (bytes.size() < kFrameHeaderBytes) return std::optional<Frame>();
  codec::Reader r(bytes);
  TRY(r.skip(kFrameMagic.size()));
  const std::uint16_t type = r.u16_le().value();
  const std::uint16_t flags = r.u16_le().value();
  const std::uint32_t body_bytes = r.u32_le().value();
  const std::uint64_t req_id = r.u64_le().value();
  const Crc32c crc(r.u32_le().value());
  if (!known(type)) return garbage("frame type");
  if ((flags & ~kFrameReply) != 0) return garbage("frame flags");
  if (body_bytes > kFrameBodyBytesMax) return garbage("frame length");
  if (r.left() < body_bytes) return std::optional<Frame>();
  const ByteView body = r.take(body_bytes).value();
  if (digest::crc32c(body) != crc) return garbage("frame checksum");
  Frame frame;
  frame.type = static_cast<FrameType>(type);
  frame.reply = (flags & kFrameReply) != 0;
  frame.req_id = req_id;
  frame.body.assign(body.begin(), body.end());
  consumed = kFrameHeaderBytes + body_bytes;
  return std::optional<Frame>(std::move(frame));
}

}  // namespace farlift::kv
