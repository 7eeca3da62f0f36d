// InitiatorLink: one connection of an Initiator to a target, and what its peer is.
//
// Threads: the Initiator's. Life: made on first use, dropped when it ended; operations refer to it
//          by pointer and are
// taken off it before it goes.
#pragma once

#include "core/base/clock.h"
#include "core/base/unique_fd.h"
#include "core/fabric/fabric.h"
#include "core/fabric/soft/address.h"
#include "core/fabric/soft/host_reader.h"
#include "core/fabric/soft/soft_wire.h"
#include "core/fabric/soft/source_announcer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace farlift::fabric::soft {

struct InitiatorPeer;

struct InitiatorLink {
  enum class State : std::uint8_t {
    connecting,  // TCP
    greeting,    // our hello is out
    proving,     // host_ready is out
    up,
    leaving,  // our side is shut down; waiting for the target's end
  };

  std::uint64_t id = 0;           // names it in the epoll set
  InitiatorPeer* peer = nullptr;  // nullptr once leaving
  UniqueFd fd;
  State state = State::connecting;
  Instant deadline{};  // of connecting to proving, and of leaving

  // Output: control bytes first (hello, host_ready), then the operations in order.
  std::vector<std::byte> control;
  std::deque<std::uint32_t> queue;  // operations not fully sent; before `up` also not routed
  std::size_t front_sent = 0;       // bytes of the front operation, header included
  std::uint64_t queued_bytes = 0;
  std::uint32_t reads_out = 0;  // reads queued or sent and not answered

  // Input.
  std::array<std::byte, 64 * kReplyBytes> buffer{};
  std::size_t have = 0;
  bool hung_up = false;          // an end was announced: read until it shows
  std::uint64_t frame_left = 0;  // payload bytes of a read frame to come
  std::uint64_t frame_id = 0;

  // Host lane, when proven.
  alignas(16) Token16 cell{};  // holds the target's challenge; read by the target's process
  Token16 challenge{};         // what we asked the target to place in its cell
  std::shared_ptr<const HostTarget> host;  // set: we may read the target
  bool can_pull = false;                   // the target may read us
  bool takes_sources = false;              // and wants to know our files
  SourceAnnouncer sources;
  std::unordered_map<RKey, EntryImage> entries;  // what the target's table said last
};

struct InitiatorPeer {
  PeerId id;
  Address address;
  SocketAddress socket;
  std::uint32_t references = 0;
  std::vector<InitiatorLink*> links;  // at most streams_per_peer
};

}  // namespace farlift::fabric::soft
