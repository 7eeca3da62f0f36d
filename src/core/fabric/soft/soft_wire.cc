#include "core/fabric/soft/soft_wire.h"

#include <algorithm>
#include <cstring>

namespace farlift::fabric::soft {
namespace {

constexpr std::array<std::uint8_t, kMagicBytes> kMagic{'F', 'L', 'S', 'O', 'F', 'T', '\r', '\n'};
constexpr std::uint32_t kRequestTag = 0x51544c46;  // "FLTQ"
constexpr std::uint32_t kReplyTag = 0x52544c46;    // "FLTR"
constexpr std::uint8_t kFlagHostLane = 1;
constexpr std::uint8_t kFlagTakesSources = 2;

// Field by field at a running offset; the caller's static_assert-ed sizes keep it inside.
class Writer {
 public:
  explicit Writer(std::byte* out) noexcept : out_(out) {}
  template <class T>
  void put(T value) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      *out_++ = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  }
  void put_bytes(const void* data, std::size_t size) noexcept {
    std::memcpy(out_, data, size);
    out_ += size;
  }

 private:
  std::byte* out_;
};

class Reader {
 public:
  explicit Reader(const std::byte* in) noexcept : in_(in) {}
  template <class T>
  T get() noexcept {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(
          value | static_cast<T>(static_cast<T>(static_cast<std::uint8_t>(*in_++)) << (8 * i)));
    }
    return value;
  }
  void get_bytes(void* data, std::size_t size) noexcept {
    std::memcpy(data, in_, size);
    in_ += size;
  }

 private:
  const std::byte* in_;
};

Error bad(const char* where) noexcept { return Error::make(Errc::protocol, where); }

Status check_source(const Request& r) noexcept {
  const std::uint64_t length = r.length.raw();
  if (length > kSourceBytesMax || r.source > UINT64_MAX - length) return bad("soft source range");
  if (length == 0)  // taken back
    return r.id == 0 && r.key.raw() == 0 && r.addr.raw() == 0 ? Status{}
                                                              : bad("soft source fields");
  if (r.key.raw() > INT32_MAX || r.addr.raw() > INT64_MAX - length)
    return bad("soft source fields");
  return {};
}

Status check(const Request& r) noexcept {
  if (r.kind == RequestKind::source) return check_source(r);
  const bool moves = r.kind != RequestKind::host_ready;
  const bool pulls = r.kind == RequestKind::pull || r.kind == RequestKind::pull_source;
  if (moves && (r.length.raw() == 0 || r.length.raw() > kOperationBytesMax))
    return bad("soft request length");
  if (!moves && (r.key.raw() != 0 || r.addr.raw() != 0 || r.length.raw() > 1))
    return bad("soft host_ready fields");
  if (!pulls && r.source != 0) return bad("soft request source");
  if (pulls && r.source > UINT64_MAX - r.length.raw()) return bad("soft request source");
  return {};
}

}  // namespace

bool magic_matches(std::span<const std::byte> bytes) noexcept {
  const std::size_t size = std::min(bytes.size(), kMagic.size());
  return size == 0 || std::memcmp(bytes.data(), kMagic.data(), size) == 0;
}

void encode(const Hello& hello, std::span<std::byte, kHelloBytes> out) noexcept {
  std::fill(out.begin(), out.end(), std::byte{0});
  Writer w(out.data());
  w.put_bytes(kMagic.data(), kMagic.size());
  w.put(kVersion);
  w.put(static_cast<std::uint8_t>(hello.status));
  w.put(static_cast<std::uint8_t>((hello.host_lane ? kFlagHostLane : 0) |
                                  (hello.takes_sources ? kFlagTakesSources : 0)));
  w.put(hello.pid);
  w.put_bytes(hello.boot_id.data(), hello.boot_id.size());
  w.put_bytes(hello.challenge.data(), hello.challenge.size());
  w.put(hello.cell_addr);
  w.put(hello.registry_addr);
  w.put(hello.registry_slots);
  w.put(hello.socket_fd);
}

Result<Hello> decode_hello(std::span<const std::byte> bytes) noexcept {
  if (!magic_matches(bytes)) return Error::make(Errc::unsupported, "soft hello magic");
  if (bytes.size() != kHelloBytes) return bad("soft hello size");
  Reader r(bytes.data() + kMagicBytes);
  if (r.get<std::uint16_t>() != kVersion)
    return Error::make(Errc::unsupported, "soft hello version");
  Hello hello;
  const auto status = r.get<std::uint8_t>();
  if (status > static_cast<std::uint8_t>(HelloStatus::full)) return bad("soft hello status");
  hello.status = static_cast<HelloStatus>(status);
  const auto flags = r.get<std::uint8_t>();
  if ((flags & ~(kFlagHostLane | kFlagTakesSources)) != 0) return bad("soft hello flags");
  hello.host_lane = (flags & kFlagHostLane) != 0;
  hello.takes_sources = (flags & kFlagTakesSources) != 0;
  hello.pid = r.get<std::uint32_t>();
  r.get_bytes(hello.boot_id.data(), hello.boot_id.size());
  r.get_bytes(hello.challenge.data(), hello.challenge.size());
  hello.cell_addr = r.get<std::uint64_t>();
  hello.registry_addr = r.get<std::uint64_t>();
  hello.registry_slots = r.get<std::uint32_t>();
  hello.socket_fd = r.get<std::uint32_t>();
  for (int i = 0; i < 3; ++i) {
    if (r.get<std::uint64_t>() != 0) return bad("soft hello reserved");
  }
  return hello;
}

void encode(const Request& request, std::span<std::byte, kRequestBytes> out) noexcept {
  Writer w(out.data());
  w.put(kRequestTag);
  w.put(static_cast<std::uint32_t>(request.kind));
  w.put(request.id);
  w.put(request.key.raw());
  w.put(request.addr.raw());
  w.put(request.length.raw());
  w.put(request.source);
}

Result<Request> decode_request(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kRequestBytes) return bad("soft request size");
  Reader r(bytes.data());
  if (r.get<std::uint32_t>() != kRequestTag) return bad("soft request tag");
  const auto kind = r.get<std::uint32_t>();
  if (kind < static_cast<std::uint32_t>(RequestKind::write) ||
      kind > static_cast<std::uint32_t>(RequestKind::pull_source)) {
    return bad("soft request kind");
  }
  Request request;
  request.kind = static_cast<RequestKind>(kind);
  request.id = r.get<std::uint64_t>();
  request.key = RKey(r.get<std::uint64_t>());
  request.addr = RemoteAddr(r.get<std::uint64_t>());
  request.length = Length(r.get<std::uint64_t>());
  request.source = r.get<std::uint64_t>();
  TRY(check(request));
  return request;
}

void encode(const Reply& reply, std::span<std::byte, kReplyBytes> out) noexcept {
  Writer w(out.data());
  w.put(kReplyTag);
  w.put(static_cast<std::uint8_t>(reply.kind));
  w.put(static_cast<std::uint8_t>(reply.status));
  w.put(std::uint16_t{0});
  w.put(reply.id);
  w.put(reply.length.raw());
}

Result<Reply> decode_reply(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kReplyBytes) return bad("soft reply size");
  Reader r(bytes.data());
  if (r.get<std::uint32_t>() != kReplyTag) return bad("soft reply tag");
  const auto kind = r.get<std::uint8_t>();
  const auto status = r.get<std::uint8_t>();
  const auto zero = r.get<std::uint16_t>();
  if (kind < static_cast<std::uint8_t>(ReplyKind::done) ||
      kind > static_cast<std::uint8_t>(ReplyKind::host_proof)) {
    return bad("soft reply kind");
  }
  if (status > static_cast<std::uint8_t>(ReplyStatus::io) || zero != 0)
    return bad("soft reply status");
  Reply reply;
  reply.kind = static_cast<ReplyKind>(kind);
  reply.status = static_cast<ReplyStatus>(status);
  reply.id = r.get<std::uint64_t>();
  reply.length = Length(r.get<std::uint64_t>());
  if (reply.kind == ReplyKind::data) {
    if (reply.length.raw() == 0 || reply.length.raw() > kReadFrameBytesMax)
      return bad("soft reply length");
    if (reply.status != ReplyStatus::ok) return bad("soft reply data status");
  } else if (reply.length.raw() != 0) {
    return bad("soft reply length");
  }
  return reply;
}

}  // namespace farlift::fabric::soft
