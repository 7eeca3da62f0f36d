#include "core/base/assert.h"
#include "core/codec/bytes.h"
#include "kvcache/wire/frames.h"
#include "kvcache/wire/sink.h"

#include <algorithm>
#include <optional>

namespace farlift::kv {
namespace {

constexpr std::size_t kProviderBytesMax = 64;
constexpr std::size_t kAddressBytesMax = 64;  // fabric::Address::kBytesMax
constexpr std::size_t kCountersMax = 4096;
constexpr std::size_t kCounterNameBytesMax = 128;

// A codec::Reader that remembers its first failure, so that a message is read field by field and
// judged once.
class Fields {
 public:
  explicit Fields(ByteView body) : r_(body) {}
  std::uint8_t u8() { return keep(r_.u8()); }
  std::uint32_t u32() { return keep(r_.u32_le()); }
  std::uint64_t u64() { return keep(r_.u64_le()); }
  ByteView lp(std::size_t bytes_max) {
    const std::uint32_t length = u32();
    if (length > bytes_max) fail();
    return failed_ ? ByteView() : keep(r_.take(length));
  }
  Bytes blob(std::size_t bytes_max) {
    const ByteView bytes = lp(bytes_max);
    return {bytes.begin(), bytes.end()};
  }
  template <std::size_t N>
  std::array<std::byte, N> array() {
    std::array<std::byte, N> out{};
    const ByteView bytes = keep(r_.take(N));
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return out;
  }
  // A count of items of at least `bytes_each` bytes, so that no allocation trusts it.
  std::size_t count(std::size_t count_max, std::size_t bytes_each) {
    const std::uint32_t n = u32();
    if (n > count_max || r_.left() / bytes_each < n) fail();
    return failed_ ? 0 : n;
  }
  template <class E>
  E choice(std::uint32_t raw, E last) {
    if (raw > static_cast<std::uint32_t>(last)) fail();
    return failed_ ? E{} : static_cast<E>(raw);
  }
  void require(bool truth) {
    if (!truth) fail();
  }
  void fail() { failed_ = true; }
  Status end() {
    if (failed_ || !r_.at_end()) return Error::make(Errc::invalid_argument, "frame body");
    return {};
  }

 private:
  template <class T>
  T keep(Result<T> result) {
    if (!result.ok()) {
      fail();
      return T{};
    }
    return failed_ ? T{} : std::move(result).value();
  }
  codec::Reader r_;
  bool failed_ = false;
};

void put(Sink& sink, const std::vector<RailAddress>& rails) {
  sink.u32(static_cast<std::uint32_t>(rails.size()));
  for (const RailAddress& rail : rails) sink.lp(rail.provider).lp(rail.address);
}

std::vector<RailAddress> get_rails(Fields& f) {
  std::vector<RailAddress> rails(f.count(kRailsMax, 8));
  for (RailAddress& rail : rails) {
    rail.provider = std::string(text_of(f.lp(kProviderBytesMax)));
    rail.address = f.blob(kAddressBytesMax);
  }
  return rails;
}

void put(Sink& sink, const std::vector<RKey>& keys) {
  sink.u32(static_cast<std::uint32_t>(keys.size()));
  for (const RKey key : keys) sink.u64(key.raw());
}

std::vector<RKey> get_rkeys(Fields& f) {
  std::vector<RKey> keys(f.count(kRailsMax, 8));
  for (RKey& key : keys) key = RKey(f.u64());
  return keys;
}

void put(Sink& sink, Outcome outcome) { sink.u32(static_cast<std::uint32_t>(outcome)); }
Outcome get_outcome(Fields& f) { return f.choice(f.u32(), Outcome::control_down); }

Bytes get_key(Fields& f) {
  Bytes key = f.blob(kKeyBytesMax);
  f.require(!key.empty());
  return key;
}

Location get_location(Fields& f) { return decode_location(f.array<kLocationBytes>()).value(); }

template <class T>
Result<T> judged(Fields& f, T message) {
  TRY(f.end());
  return message;
}

}  // namespace

Tag hello_proof(const Subkeys& keys, char who, const HelloRequest& request,
                const HelloReply& reply) {
  ASSERT(who == 'n' || who == 'c');
  Sink sink;
  sink.u8(static_cast<std::uint8_t>(who)).raw(request.nonce).raw(reply.nonce);
  sink.u64(reply.node.raw()).u64(reply.incarnation.raw());
  put(sink, request.rails);
  put(sink, reply.rails);
  return keys.auth().tag(sink.bytes());
}

Bytes encode(const HelloRequest& m) {
  Sink sink;
  sink.lp(m.tenant).u32(m.key_id.raw()).raw(m.client_id).raw(m.nonce);
  put(sink, m.rails);
  return std::move(sink).take();
}

Result<HelloRequest> decode_hello(ByteView body) {
  Fields f(body);
  HelloRequest m;
  m.tenant = std::string(text_of(f.lp(kTenantBytesMax)));
  f.require(valid_tenant(m.tenant));
  m.key_id = KeyId(f.u32());
  m.client_id = f.array<16>();
  m.nonce = f.array<16>();
  m.rails = get_rails(f);
  f.require(!m.rails.empty());
  return judged(f, std::move(m));
}

Bytes encode(const HelloReply& m) {
  Sink sink;
  put(sink, m.outcome);
  sink.u64(m.node.raw()).u64(m.incarnation.raw()).raw(m.nonce);
  sink.u8(static_cast<std::uint8_t>(m.fence_mode)).u8(m.virtual_address ? 1 : 0);
  sink.u64(m.max_read.raw());
  put(sink, m.rails);
  sink.raw(m.proof);
  return std::move(sink).take();
}

Result<HelloReply> decode_hello_reply(ByteView body) {
  Fields f(body);
  HelloReply m;
  m.outcome = get_outcome(f);
  m.node = NodeId(f.u64());
  m.incarnation = Incarnation(f.u64());
  m.nonce = f.array<16>();
  m.fence_mode = f.choice(f.u8(), FenceWord::drain);
  f.require(m.fence_mode >= FenceWord::mr);
  const std::uint8_t virtual_address = f.u8();
  f.require(virtual_address <= 1);
  m.virtual_address = virtual_address == 1;
  m.max_read = Length(f.u64());
  m.rails = get_rails(f);
  m.proof = f.array<32>();
  f.require(m.outcome != Outcome::ok || (!m.rails.empty() && m.max_read.raw() > 0));
  return judged(f, std::move(m));
}

Bytes encode(const Hello2Request& m) {
  Sink sink;
  sink.raw(m.proof);
  return std::move(sink).take();
}

Result<Hello2Request> decode_hello2(ByteView body) {
  Fields f(body);
  Hello2Request m;
  m.proof = f.array<32>();
  return judged(f, m);
}

Bytes encode(const OutcomeReply& m) {
  Sink sink;
  put(sink, m.outcome);
  return std::move(sink).take();
}

Result<OutcomeReply> decode_outcome(ByteView body) {
  Fields f(body);
  OutcomeReply m;
  m.outcome = get_outcome(f);
  return judged(f, m);
}

Bytes encode(const PutPullRequest& m) {
  Sink sink;
  sink.raw(m.put_id).lp(m.key).u64(m.length.raw()).u32(m.crc.raw()).u64(m.source.raw());
  put(sink, m.source_rkeys);
  sink.u32(static_cast<std::uint32_t>(m.mode)).u64(m.expected.raw());
  return std::move(sink).take();
}

Result<PutPullRequest> decode_put_pull(ByteView body) {
  Fields f(body);
  PutPullRequest m;
  m.put_id = f.array<16>();
  m.key = get_key(f);
  m.length = Length(f.u64());
  m.crc = Crc32c(f.u32());
  m.source = RemoteAddr(f.u64());
  m.source_rkeys = get_rkeys(f);
  m.mode = f.choice(f.u32(), PutMode::replace);
  m.expected = Version(f.u64());
  f.require(!m.source_rkeys.empty() || m.length.raw() == 0);
  f.require(m.length.raw() <= UINT64_MAX - m.source.raw());
  return judged(f, std::move(m));
}

Bytes encode(const PutReply& m) {
  Sink sink;
  put(sink, m.outcome);
  sink.u64(m.version.raw()).lp(m.descriptor).lp(m.tag);
  return std::move(sink).take();
}

Result<PutReply> decode_put_reply(ByteView body) {
  Fields f(body);
  PutReply m;
  m.outcome = get_outcome(f);
  m.version = Version(f.u64());
  m.descriptor = f.blob(Descriptor::kBytesMax);
  m.tag = f.blob(sizeof(Tag));
  return judged(f, std::move(m));
}

Bytes encode(const AllocRequest& m) {
  Sink sink;
  sink.raw(m.put_id).lp(m.key).u64(m.length.raw());
  return std::move(sink).take();
}

Result<AllocRequest> decode_alloc(ByteView body) {
  Fields f(body);
  AllocRequest m;
  m.put_id = f.array<16>();
  m.key = get_key(f);
  m.length = Length(f.u64());
  return judged(f, std::move(m));
}

Bytes encode(const AllocReply& m) {
  Sink sink;
  put(sink, m.outcome);
  sink.u64(m.slot_id).u64(m.payload.raw());
  put(sink, m.grant_rkeys);
  sink.u32(m.grant_ms);
  return std::move(sink).take();
}

Result<AllocReply> decode_alloc_reply(ByteView body) {
  Fields f(body);
  AllocReply m;
  m.outcome = get_outcome(f);
  m.slot_id = f.u64();
  m.payload = RemoteAddr(f.u64());
  m.grant_rkeys = get_rkeys(f);
  m.grant_ms = f.u32();
  return judged(f, std::move(m));
}

Bytes encode(const SealRequest& m) {
  Sink sink;
  sink.raw(m.put_id).u64(m.slot_id).u32(m.crc.raw());
  sink.u32(static_cast<std::uint32_t>(m.mode)).u64(m.expected.raw());
  return std::move(sink).take();
}

Result<SealRequest> decode_seal(ByteView body) {
  Fields f(body);
  SealRequest m;
  m.put_id = f.array<16>();
  m.slot_id = f.u64();
  m.crc = Crc32c(f.u32());
  m.mode = f.choice(f.u32(), PutMode::replace);
  m.expected = Version(f.u64());
  return judged(f, m);
}

Bytes encode(const AbortRequest& m) {
  Sink sink;
  sink.u64(m.slot_id);
  return std::move(sink).take();
}

Result<AbortRequest> decode_abort(ByteView body) {
  Fields f(body);
  AbortRequest m;
  m.slot_id = f.u64();
  return judged(f, m);
}

Bytes encode(const RemoveRequest& m) {
  Sink sink;
  sink.lp(m.key).u64(m.version.raw());
  return std::move(sink).take();
}

Result<RemoveRequest> decode_remove(ByteView body) {
  Fields f(body);
  RemoveRequest m;
  m.key = get_key(f);
  m.version = Version(f.u64());
  return judged(f, std::move(m));
}

Bytes encode(const SupersededRequest& m) {
  Sink sink;
  sink.raw(encode_location(m.location)).u64(m.version.raw()).lp(m.key);
  return std::move(sink).take();
}

Result<SupersededRequest> decode_superseded(ByteView body) {
  Fields f(body);
  SupersededRequest m;
  m.location = get_location(f);
  m.version = Version(f.u64());
  m.key = get_key(f);
  return judged(f, std::move(m));
}

Bytes encode(const StaleSeenRequest& m) {
  Sink sink;
  sink.lp(m.key).raw(encode_location(m.location));
  return std::move(sink).take();
}

Result<StaleSeenRequest> decode_stale_seen(ByteView body) {
  Fields f(body);
  StaleSeenRequest m;
  m.key = get_key(f);
  m.location = get_location(f);
  return judged(f, std::move(m));
}

Bytes encode(const TouchRequest& m) {
  ASSERT(m.key_hashes.size() <= kTouchesMax);
  Sink sink;
  sink.u32(static_cast<std::uint32_t>(m.key_hashes.size()));
  for (const KeyHash hash : m.key_hashes) sink.u64(hash.raw());
  return std::move(sink).take();
}

Result<TouchRequest> decode_touch(ByteView body) {
  Fields f(body);
  TouchRequest m;
  m.key_hashes.resize(f.count(kTouchesMax, 8));
  for (KeyHash& hash : m.key_hashes) hash = KeyHash(f.u64());
  return judged(f, std::move(m));
}

Bytes encode(const StatReply& m) {
  ASSERT(m.counters.size() <= kCountersMax);
  Sink sink;
  sink.u32(static_cast<std::uint32_t>(m.counters.size()));
  for (const auto& [name, value] : m.counters) sink.lp(name).u64(value);
  return std::move(sink).take();
}

Result<StatReply> decode_stat_reply(ByteView body) {
  Fields f(body);
  StatReply m;
  m.counters.resize(f.count(kCountersMax, 12));
  for (auto& [name, value] : m.counters) {
    name = std::string(text_of(f.lp(kCounterNameBytesMax)));
    value = f.u64();
  }
  return judged(f, std::move(m));
}

Bytes encode(const RotateRequest& m) {
  Sink sink;
  sink.u32(m.arena.raw()).u8(m.all ? 1 : 0);
  return std::move(sink).take();
}

Result<RotateRequest> decode_rotate(ByteView body) {
  Fields f(body);
  RotateRequest m;
  m.arena = ArenaId(f.u32());
  const std::uint8_t all = f.u8();
  f.require(all <= 1);
  m.all = all == 1;
  return judged(f, m);
}

}  // namespace farlift::kv
