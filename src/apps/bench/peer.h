// The words that the raw contenders and their peer process exchange. Never leaves this machine.
//
// A worker connects and sends one PeerRequest; the peer answers with one PeerOffer. Then each byte
// the worker sends is one transfer: a stream of `size` bytes (stream), or one byte once the
// transfer is complete (push). The others need no more talk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farlift::apps {

enum class PeerKind : std::uint8_t { stream, memory, mapping, push, read };

struct PeerRequest {
  PeerKind kind = PeerKind::stream;
  std::uint8_t address_size = 0;
  std::array<std::byte, 64> address{};  // push: the worker's endpoint
  std::int32_t core = -1;               // stream: the one the peer serves it on; -1: any
  std::uint64_t size = 0;
  std::uint64_t rkey = 0;
  std::uint64_t remote_addr = 0;
};

struct PeerOffer {
  std::uint64_t ok = 0;
  std::uint64_t address = 0;  // memory: where the value lies in the peer
  std::uint64_t fd = 0;       // mapping: the peer's descriptor of it
  std::uint64_t rkey = 0;     // read: of the value, registered with a soft endpoint
  std::uint64_t remote_addr = 0;
  std::array<std::byte, 64> endpoint{};
  std::uint64_t endpoint_size = 0;
};

inline constexpr std::uint64_t kPushPiece = 1u << 20;

}  // namespace farlift::apps
