// The link's headers: bytes pinned for ever, and every one-byte cut and flip of each.
#include "core/fabric/soft/soft_wire.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace farlift::fabric::soft {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  char digits[3];
  for (const std::byte b : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(b));
    out += digits;
  }
  return out;
}

Hello sample_hello() {
  Hello h;
  h.host_lane = true;
  h.pid = 0x01020304;
  for (std::size_t i = 0; i < 16; ++i) {
    h.boot_id[i] = static_cast<std::byte>(0x10 + i);
    h.challenge[i] = static_cast<std::byte>(0xa0 + i);
  }
  h.cell_addr = 0x1122334455667788;
  h.registry_addr = 0x99aabbccddeeff00;
  h.registry_slots = 65536;
  h.socket_fd = 7;
  return h;
}

template <std::size_t N, class T>
std::vector<std::byte> encoded(const T& value) {
  std::vector<std::byte> out(N);
  encode(value, std::span<std::byte, N>(out.data(), N));
  return out;
}

// A flip is refused, or is another value that has exactly these bytes; a cut is refused.
template <std::size_t N, class Decode>
void cuts_and_flips(const std::vector<std::byte>& good, Decode decode) {
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_FALSE(decode(std::span(good).first(cut)).ok()) << cut;
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(std::span<const std::byte>(longer)).ok());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::vector<std::byte> flipped = good;
      flipped[at] = static_cast<std::byte>(value);
      const auto decoded = decode(std::span<const std::byte>(flipped));
      if (!decoded.ok()) {
        EXPECT_TRUE(decoded.code() == Errc::protocol || decoded.code() == Errc::unsupported);
        continue;
      }
      EXPECT_EQ(encoded<N>(*decoded), flipped) << at << " " << value;
    }
  }
}

TEST(SoftWire, HelloBytesArePinned) {
  const auto bytes = encoded<kHelloBytes>(sample_hello());
  EXPECT_EQ(hex(bytes),
            "464c534f46540d0a"  // magic
            "0100"
            "00"
            "01"                                // version, status, flags
            "04030201"                          // pid
            "101112131415161718191a1b1c1d1e1f"  // boot id
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"  // challenge
            "8877665544332211"                  // cell
            "00ffeeddccbbaa99"                  // registry
            "00000100"                          // slots
            "07000000"                          // descriptor
            "000000000000000000000000000000000000000000000000");
  const auto back = decode_hello(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, sample_hello());
}

TEST(SoftWire, RequestBytesArePinned) {
  const Request pull{RequestKind::pull,        0x0102030405060708,
                     RKey(0x1112131415161718), RemoteAddr(0x2122232425262728),
                     Length(0x100000),         0x7f0000001000};
  const auto bytes = encoded<kRequestBytes>(pull);
  EXPECT_EQ(hex(bytes),
            "464c5451"
            "03000000"
            "0807060504030201"
            "1817161514131211"
            "2827262524232221"
            "0000100000000000"
            "001000"
            "00007f0000");
  const auto back = decode_request(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, pull);
}

TEST(SoftWire, SourceBytesArePinned) {
  const Request source{RequestKind::source, 0x7c8a,          RKey(21),
                       RemoteAddr(0x1000),  Length(1 << 30), 0x7f0000002000};
  const auto bytes = encoded<kRequestBytes>(source);
  EXPECT_EQ(hex(bytes),
            "464c5451"
            "05000000"
            "8a7c000000000000"  // file number
            "1500000000000000"  // descriptor
            "0010000000000000"  // from here in the file
            "0000004000000000"  // length
            "0020000000"
            "7f0000");
  EXPECT_EQ(*decode_request(bytes), source);
  Request gone;
  gone.kind = RequestKind::source;
  gone.source = 0x7f0000002000;
  EXPECT_EQ(*decode_request(encoded<kRequestBytes>(gone)), gone);
  gone.id = 1;
  EXPECT_FALSE(decode_request(encoded<kRequestBytes>(gone)).ok());
  Hello hello = sample_hello();
  hello.takes_sources = true;
  const auto said = encoded<kHelloBytes>(hello);
  EXPECT_EQ(said[11], std::byte{3});
  EXPECT_EQ(*decode_hello(said), hello);
}

TEST(SoftWire, ReplyBytesArePinned) {
  const Reply refused{ReplyKind::done, ReplyStatus::access, 0x0102030405060708, Length()};
  EXPECT_EQ(hex(encoded<kReplyBytes>(refused)),
            "464c5452"
            "01"
            "01"
            "0000"
            "0807060504030201"
            "0000000000000000");
  const Reply data{ReplyKind::data, ReplyStatus::ok, 9, Length(0x10000)};
  EXPECT_EQ(hex(encoded<kReplyBytes>(data)),
            "464c5452"
            "02"
            "00"
            "0000"
            "0900000000000000"
            "0000010000000000");
  EXPECT_EQ(*decode_reply(encoded<kReplyBytes>(data)), data);
}

TEST(SoftWire, EveryCutAndFlip) {
  cuts_and_flips<kHelloBytes>(encoded<kHelloBytes>(sample_hello()), decode_hello);
  for (const RequestKind kind : {RequestKind::write, RequestKind::read, RequestKind::pull,
                                 RequestKind::source, RequestKind::pull_source}) {
    const bool named = kind != RequestKind::write && kind != RequestKind::read;
    const Request request{kind, 5, RKey(6), RemoteAddr(7), Length(8), named ? 9u : 0u};
    cuts_and_flips<kRequestBytes>(encoded<kRequestBytes>(request), decode_request);
  }
  cuts_and_flips<kRequestBytes>(encoded<kRequestBytes>(Request{RequestKind::host_ready, 0, RKey(),
                                                               RemoteAddr(), Length(1), 0}),
                                decode_request);
  for (const Reply& reply : {Reply{ReplyKind::done, ReplyStatus::io, 3, Length()},
                             Reply{ReplyKind::data, ReplyStatus::ok, 3, Length(4)},
                             Reply{ReplyKind::host_proof, ReplyStatus::access, 0, Length()}}) {
    cuts_and_flips<kReplyBytes>(encoded<kReplyBytes>(reply), decode_reply);
  }
}

TEST(SoftWire, LengthsAreBounded) {
  for (const std::uint64_t length : {std::uint64_t{0}, kOperationBytesMax + 1, UINT64_MAX}) {
    EXPECT_FALSE(decode_request(encoded<kRequestBytes>(Request{RequestKind::write, 1, RKey(1),
                                                               RemoteAddr(), Length(length), 0}))
                     .ok());
  }
  EXPECT_TRUE(
      decode_request(encoded<kRequestBytes>(Request{RequestKind::read, 1, RKey(1), RemoteAddr(),
                                                    Length(kOperationBytesMax), 0}))
          .ok());
  // A pull whose source wraps around.
  EXPECT_FALSE(
      decode_request(encoded<kRequestBytes>(Request{RequestKind::pull, 1, RKey(1), RemoteAddr(),
                                                    Length(16), UINT64_MAX - 8}))
          .ok());
  EXPECT_FALSE(decode_reply(encoded<kReplyBytes>(Reply{ReplyKind::data, ReplyStatus::ok, 1,
                                                       Length(kReadFrameBytesMax + 1)}))
                   .ok());
}

TEST(SoftWire, StrangersAreToldApartByTheirFirstByte) {
  const auto good = encoded<kHelloBytes>(sample_hello());
  for (std::size_t n = 0; n <= kMagicBytes; ++n)
    EXPECT_TRUE(magic_matches(std::span(good).first(n)));
  for (std::size_t n = 1; n <= kMagicBytes; ++n) {
    auto bad = good;
    bad[n - 1] ^= std::byte{0x20};
    EXPECT_FALSE(magic_matches(std::span(bad).first(n)));
  }
}

}  // namespace
}  // namespace farlift::fabric::soft
