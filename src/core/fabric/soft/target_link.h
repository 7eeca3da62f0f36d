// TargetLink: what the target knows of one connected initiator.
//
// One thread at a time holds the link's claim: it alone receives, and it alone touches the input
// part. Threads that finish a piece of a pull, and the claim holder, send through the output part
// under `mutex`.
//
// Threads: see above. The memory lives until the last shared_ptr is gone; the descriptor too, so
//          its number is not
// reused while a thread could still use it.
#pragma once

#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
#include "core/fabric/soft/host_process.h"
#include "core/fabric/soft/soft_wire.h"
#include "core/fabric/soft/source.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace farlift::fabric::soft {

struct TargetLink {
  using Time = std::chrono::steady_clock::time_point;

  TargetLink(std::uint64_t link_id, UniqueFd socket, bool no_room, Time hello_deadline)
      : id(link_id), fd(std::move(socket)), refuse(no_room), hello_by(hello_deadline) {}

  const std::uint64_t id;  // names the link in the epoll set
  const UniqueFd fd;
  const bool refuse;  // connections_max was reached: say so and end
  const Time hello_by;

  // Decided once: by the claim holder, or by the deadline. Only a link that said hello has pulls,
  // so an expired one may be shut down at once.
  enum class Greeting : std::uint8_t { awaited, said, expired };
  std::atomic<Greeting> greeting{Greeting::awaited};

  // Input: the claim holder's.
  enum class In : std::uint8_t { hello, header, landing, draining };
  In in = In::hello;
  std::array<std::byte, kHelloBytes> buffer{};
  std::size_t have = 0;         // bytes in `buffer`
  Request write;                // being received; addr moves on with it
  std::uint64_t remaining = 0;  // of its payload
  ReplyStatus status = ReplyStatus::ok;
  Hello hello;                 // the initiator's
  Token16 challenge{};         // what we asked it to place in its cell
  alignas(16) Token16 cell{};  // what it asked us to place; read by the initiator's process
  HostProcess process;         // set once host_ready was proven; pulls read it
  bool host_ready = false;
  bool takes_sources = false;  // we said so in our hello
  AnnouncedSources sources;

  // Output and claim.
  struct Read {
    Request request;          // addr moves on with it
    std::uint64_t remaining;  // bytes not yet sent
  };
  Mutex mutex;
  bool claimed GUARDED_BY(mutex) = false;
  bool pending GUARDED_BY(mutex) = false;        // an event came while claimed
  bool ended GUARDED_BY(mutex) = false;          // nothing is sent any more
  bool want_out GUARDED_BY(mutex) = false;       // the socket was full
  std::vector<std::byte> out GUARDED_BY(mutex);  // whole headers, not yet sent from out_sent on
  std::size_t out_sent GUARDED_BY(mutex) = 0;
  std::deque<Read> reads GUARDED_BY(mutex);
  std::array<std::byte, kReplyBytes> frame_header GUARDED_BY(mutex){};
  std::size_t frame_header_left GUARDED_BY(mutex) = 0;
  std::uint64_t frame_left GUARDED_BY(mutex) = 0;  // payload bytes of the frame in progress
  bool frame_void GUARDED_BY(mutex) =
      false;  // the registration closed inside the frame: zeros complete it

  // Guarded by the endpoint's jobs mutex.
  std::uint32_t pulls = 0;   // jobs of this link
  std::uint32_t pieces = 0;  // pieces of them in progress
  bool ending = false;       // finish_link() when pieces is 0
};

}  // namespace farlift::fabric::soft
