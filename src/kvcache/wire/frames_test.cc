#include "kvcache/wire/frames.h"

#include "kvcache/wire/sink.h"

#include <gtest/gtest.h>

#include <functional>

namespace farlift::kv {
namespace {

Bytes to_bytes(std::string_view text) { return {bytes_of(text).begin(), bytes_of(text).end()}; }

Frame some_frame() { return {FrameType::alloc, true, 0x1122334455667788, to_bytes("a body")}; }

TEST(KvFrames, a_frame_comes_back_as_it_was_and_says_how_long_it_is) {
  Bytes bytes = encode_frame(some_frame());
  const std::size_t length = bytes.size();
  bytes.insert(bytes.end(), 100, std::byte{9});  // the next one
  std::size_t consumed = 0;
  const auto frame = decode_frame(bytes, consumed);
  ASSERT_TRUE(frame.ok() && frame->has_value());
  EXPECT_EQ(consumed, length);
  EXPECT_EQ((*frame)->type, FrameType::alloc);
  EXPECT_TRUE((*frame)->reply);
  EXPECT_EQ((*frame)->req_id, 0x1122334455667788u);
  EXPECT_EQ((*frame)->body, to_bytes("a body"));
}

TEST(KvFrames, every_cut_waits_for_more) {
  const Bytes bytes = encode_frame(some_frame());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    std::size_t consumed = 1;
    const auto frame = decode_frame(ByteView(bytes).first(n), consumed);
    ASSERT_TRUE(frame.ok()) << n;
    EXPECT_FALSE(frame->has_value()) << n;
    EXPECT_EQ(consumed, 0u);
  }
}

TEST(KvFrames, every_flip_is_refused_or_waits) {
  const Bytes bytes = encode_frame(some_frame());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    if (bit / 8 >= 12 && bit / 8 < 20) continue;  // req_id is the sender's own
    Bytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    std::size_t consumed = 0;
    const auto frame = decode_frame(flipped, consumed);
    // Another known type, or no reply: valid, but another frame. A longer body: more is awaited.
    if (frame.ok() && frame->has_value()) {
      EXPECT_TRUE((*frame)->type != FrameType::alloc || !(*frame)->reply) << bit;
    }
  }
}

TEST(KvFrames, a_body_over_the_limit_is_refused_before_it_comes) {
  Sink sink;
  sink.raw(bytes_of("OKR1")).u16(3).u16(0).u32(kFrameBodyBytesMax + 1).u64(1).u32(0);
  std::size_t consumed = 0;
  EXPECT_EQ(decode_frame(sink.bytes(), consumed).code(), Errc::protocol);
  Frame largest = some_frame();
  largest.body.resize(kFrameBodyBytesMax);
  EXPECT_TRUE(decode_frame(encode_frame(largest), consumed).value().has_value());
}

// Encodes, decodes, encodes again; refuses every cut and every byte too many.
template <class M, class Decode>
void round_trip(const M& message, Decode decode) {
  const Bytes body = encode(message);
  const auto back = decode(body);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(encode(*back), body);
  for (std::size_t n = 0; n < body.size(); ++n)
    EXPECT_EQ(decode(ByteView(body).first(n)).code(), Errc::invalid_argument) << n;
  Bytes longer = body;
  longer.push_back(std::byte{});
  EXPECT_EQ(decode(longer).code(), Errc::invalid_argument);
  for (std::size_t bit = 0; bit < body.size() * 8; ++bit) {
    Bytes flipped = body;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const auto other = decode(flipped);
    if (other.ok()) {
      EXPECT_EQ(encode(*other), flipped);  // one spelling of each message
    }
  }
}

TEST(KvMessages, come_back_as_they_were) {
  const std::vector<RailAddress> rails{{"soft", to_bytes("0123456789abcdef")}, {"efa", Bytes(32)}};
  HelloRequest hello{"tenant", KeyId(4), {}, {}, rails};
  hello.nonce.fill(std::byte{3});
  round_trip(hello, decode_hello);
  HelloReply reply;
  reply.node = NodeId(1);
  reply.incarnation = Incarnation(2);
  reply.fence_mode = FenceWord::endpoint;
  reply.max_read = Length(1 << 20);
  reply.rails = rails;
  round_trip(reply, decode_hello_reply);
  HelloReply refusal;
  refusal.outcome = Outcome::bad_arg;
  round_trip(refusal, decode_hello_reply);
  round_trip(Hello2Request{}, decode_hello2);
  round_trip(OutcomeReply{Outcome::conflict}, decode_outcome);
  round_trip(PutPullRequest{{},
                            to_bytes("k"),
                            Length(9),
                            Crc32c(8),
                            RemoteAddr(7),
                            {RKey(1), RKey(2)},
                            PutMode::replace,
                            Version(3, 4)},
             decode_put_pull);
  round_trip(PutReply{Outcome::ok, Version(1, 2), Bytes(80), Bytes(32)}, decode_put_reply);
  round_trip(AllocRequest{{}, to_bytes("k"), Length(1)}, decode_alloc);
  round_trip(AllocReply{Outcome::ok, 5, RemoteAddr(6), {RKey(7)}, 8}, decode_alloc_reply);
  round_trip(SealRequest{{}, 5, Crc32c(6), PutMode::if_version, Version(7)}, decode_seal);
  round_trip(AbortRequest{5}, decode_abort);
  round_trip(RemoveRequest{to_bytes("k"), Version(0)}, decode_remove);
  const Location location{NodeId(1), Incarnation(2), ArenaId(3), ArenaGen(4), RemoteAddr(5)};
  round_trip(SupersededRequest{location, Version(6), to_bytes("k")}, decode_superseded);
  round_trip(StaleSeenRequest{to_bytes("k"), location}, decode_stale_seen);
  round_trip(TouchRequest{{KeyHash(1), KeyHash(2)}}, decode_touch);
  round_trip(StatReply{{{"puts", 1}, {"gets", 2}}}, decode_stat_reply);
  round_trip(RotateRequest{ArenaId(3), true}, decode_rotate);
}

TEST(KvMessages, refuse_what_no_peer_would_send) {
  const auto code = [](auto result) { return result.ok() ? Errc{} : result.code(); };
  HelloRequest hello{"t", KeyId(1), {}, {}, {{"soft", Bytes(16)}}};
  hello.rails.clear();
  EXPECT_EQ(code(decode_hello(encode(hello))), Errc::invalid_argument);  // no rail
  hello.rails.assign(17, {"soft", Bytes(16)});
  EXPECT_EQ(code(decode_hello(encode(hello))), Errc::invalid_argument);  // seventeen
  hello.rails.assign(1, {"soft", Bytes(65)});
  EXPECT_EQ(code(decode_hello(encode(hello))), Errc::invalid_argument);  // no such address
  hello.rails.assign(1, {"soft", Bytes(16)});
  hello.tenant = "a tenant";
  EXPECT_EQ(code(decode_hello(encode(hello))), Errc::invalid_argument);
  EXPECT_EQ(code(decode_alloc(encode(AllocRequest{{}, Bytes(), Length(1)}))),
            Errc::invalid_argument);  // K013: an empty key
  EXPECT_EQ(code(decode_alloc(encode(AllocRequest{{}, Bytes(1025), Length(1)}))),
            Errc::invalid_argument);
  PutPullRequest put{{},        to_bytes("k"),    Length(9), Crc32c(8), RemoteAddr(UINT64_MAX - 9),
                     {RKey(1)}, PutMode::replace, Version()};
  EXPECT_TRUE(decode_put_pull(encode(put)).ok());
  put.source = RemoteAddr(UINT64_MAX - 8);
  EXPECT_EQ(code(decode_put_pull(encode(put))), Errc::invalid_argument);  // it wraps
}

TEST(KvMessages, a_count_of_four_billion_allocates_nothing) {
  Sink sink;
  sink.u32(UINT32_MAX);
  EXPECT_EQ(decode_touch(sink.bytes()).code(), Errc::invalid_argument);
  EXPECT_EQ(decode_stat_reply(sink.bytes()).code(), Errc::invalid_argument);
}

TEST(KvMessages, the_hello_proofs_bind_everything_both_sides_said) {
  const Subkeys keys(Bytes(kSecretBytes, std::byte{1}));
  const HelloRequest request{"t", KeyId(1), {}, {}, {{"soft", Bytes(16)}}};
  HelloReply reply;
  reply.node = NodeId(1);
  reply.incarnation = Incarnation(2);
  reply.rails = {{"soft", Bytes(16)}};
  const Tag proof = hello_proof(keys, 'n', request, reply);
  EXPECT_EQ(proof, hello_proof(keys, 'n', request, reply));
  EXPECT_NE(proof, hello_proof(keys, 'c', request, reply));
  EXPECT_NE(proof, hello_proof(Subkeys(Bytes(kSecretBytes, std::byte{2})), 'n', request, reply));
  const auto differs = [&](const std::function<void(HelloRequest&, HelloReply&)>& change) {
    HelloRequest q = request;
    HelloReply r = reply;
    change(q, r);
    return hello_proof(keys, 'n', q, r) != proof;
  };
  EXPECT_TRUE(differs([](auto& q, auto&) { q.nonce[15] = std::byte{1}; }));
  EXPECT_TRUE(differs([](auto&, auto& r) { r.nonce[0] = std::byte{1}; }));
  EXPECT_TRUE(differs([](auto&, auto& r) { r.node = NodeId(9); }));
  EXPECT_TRUE(differs([](auto&, auto& r) { r.incarnation = Incarnation(9); }));
  EXPECT_TRUE(differs([](auto& q, auto&) { q.rails[0].address[3] = std::byte{1}; }));
  EXPECT_TRUE(differs([](auto&, auto& r) { r.rails[0].address[3] = std::byte{1}; }));
}

}  // namespace
}  // namespace farlift::kv
