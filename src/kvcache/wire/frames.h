// Frames of the control protocol between client and node (spec kv 5), "OKR1". Grammar and a worked
// example: docs/formats/okr1.md.
//
//   u32 magic, u16 type, u16 flags, u32 body_len, u64 req_id, u32 CRC-32C(body), body
//
// Invariants: decode(encode(x)) == x; a body longer than kFrameBodyBytesMax, a wrong CRC, unknown
//             type or flag, and bytes left over are refused; no allocation on the word of a length.
// Threads:    pure. Errors: protocol (the link must end), invalid_argument (a body that is not its
//             type's: answer bad_arg and go on).
#pragma once

#include "core/base/result.h"
#include "kvcache/wire/layout.h"
#include "kvcache/wire/types.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace farlift::kv {

enum class FrameType : std::uint16_t {
  hello = 1,
  hello2 = 2,
  put_pull = 3,
  alloc = 4,
  seal = 5,
  abort = 6,
  remove = 7,
  superseded = 8,
  stale_seen = 9,
  touch = 10,
  stat = 11,
  drain = 12,
  rotate = 13,
};
inline constexpr std::uint16_t kFrameReply = 1;  // flags bit 0; all other bits 0

struct Frame {
  FrameType type{};
  bool reply = false;
  std::uint64_t req_id = 0;
  Bytes body;
};
inline constexpr std::size_t kFrameHeaderBytes = 24;
Bytes encode_frame(const Frame& frame);
// nullopt: more bytes are needed. `consumed` is how many bytes the frame took. protocol: garbage.
Result<std::optional<Frame>> decode_frame(ByteView bytes, std::size_t& consumed);

struct RailAddress {
  std::string provider;
  Bytes address;  // of the endpoint, as fabric::Address has it
  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};
struct HelloRequest {
  std::string tenant;
  KeyId key_id;
  ClientId client_id{};
  Nonce nonce{};
  std::vector<RailAddress> rails;
};
enum class FenceWord : std::uint8_t { mr = 1, endpoint = 2, drain = 3 };
struct HelloReply {
  Outcome outcome = Outcome::ok;  // anything else: the rest is empty
  NodeId node;
  Incarnation incarnation;
  Nonce nonce{};
  FenceWord fence_mode = FenceWord::mr;
  bool virtual_address = false;
  Length max_read;
  std::vector<RailAddress> rails;
  Tag proof{};  // zero in development mode
};
struct Hello2Request {
  Tag proof{};
};
// HMAC(K_auth, who || nonce_c || nonce_n || node_id || incarnation || all addresses); `who` is 'n'
// or 'c'. Addresses are length-prefixed, the client's first, in rail order.
Tag hello_proof(const Subkeys& keys, char who, const HelloRequest& request,
                const HelloReply& reply);

struct OutcomeReply {
  Outcome outcome = Outcome::ok;
};  // hello2, abort, remove, superseded, stale_seen, drain, rotate

struct PutPullRequest {
  PutId put_id{};
  Bytes key;
  Length length;
  Crc32c crc;
  RemoteAddr source;
  std::vector<RKey> source_rkeys;  // rail order
  PutMode mode = PutMode::if_absent;
  Version expected;
};
struct PutReply {  // put_pull and seal
  Outcome outcome = Outcome::ok;
  Version version;  // of the value, or of the one in the way (exists, conflict)
  Bytes descriptor;
  Bytes tag;
};
struct AllocRequest {
  PutId put_id{};
  Bytes key;
  Length length;
};
struct AllocReply {
  Outcome outcome = Outcome::ok;
  std::uint64_t slot_id = 0;
  RemoteAddr payload;
  std::vector<RKey> grant_rkeys;
  std::uint32_t grant_ms = 0;
};
struct SealRequest {
  PutId put_id{};
  std::uint64_t slot_id = 0;
  Crc32c crc;
  PutMode mode = PutMode::if_absent;
  Version expected;
};
struct AbortRequest {
  std::uint64_t slot_id = 0;
};
struct RemoveRequest {
  Bytes key;
  Version version;
};  // version 0: any
struct SupersededRequest {
  Location location;
  Version version;
  Bytes key;
};
struct StaleSeenRequest {
  Bytes key;
  Location location;
};
inline constexpr std::size_t kTouchesMax = 4096;  // of one frame
struct TouchRequest {
  std::vector<KeyHash> key_hashes;
};  // no reply
struct StatRequest {};
struct StatReply {
  std::vector<std::pair<std::string, std::uint64_t>> counters;
};
struct DrainRequest {};
struct RotateRequest {
  ArenaId arena;
  bool all = false;
};  // operators; tenant's own arenas only

// One encode(x) and decode_X(body) for each of the above; the body only.
Bytes encode(const HelloRequest&);
Result<HelloRequest> decode_hello(ByteView);
Bytes encode(const HelloReply&);
Result<HelloReply> decode_hello_reply(ByteView);
Bytes encode(const Hello2Request&);
Result<Hello2Request> decode_hello2(ByteView);
Bytes encode(const OutcomeReply&);
Result<OutcomeReply> decode_outcome(ByteView);
Bytes encode(const PutPullRequest&);
Result<PutPullRequest> decode_put_pull(ByteView);
Bytes encode(const PutReply&);
Result<PutReply> decode_put_reply(ByteView);
Bytes encode(const AllocRequest&);
Result<AllocRequest> decode_alloc(ByteView);
Bytes encode(const AllocReply&);
Result<AllocReply> decode_alloc_reply(ByteView);
Bytes encode(const SealRequest&);
Result<SealRequest> decode_seal(ByteView);
Bytes encode(const AbortRequest&);
Result<AbortRequest> decode_abort(ByteView);
Bytes encode(const RemoveRequest&);
Result<RemoveRequest> decode_remove(ByteView);
Bytes encode(const SupersededRequest&);
Result<SupersededRequest> decode_superseded(ByteView);
Bytes encode(const StaleSeenRequest&);
Result<StaleSeenRequest> decode_stale_seen(ByteView);
Bytes encode(const TouchRequest&);
Result<TouchRequest> decode_touch(ByteView);
Bytes encode(const StatReply&);
Result<StatReply> decode_stat_reply(ByteView);
Bytes encode(const RotateRequest&);
Result<RotateRequest> decode_rotate(ByteView);

}  // namespace farlift::kv
