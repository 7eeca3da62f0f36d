// SimLinks: the network between the clients and nodes of one simulated world; SimTransports are
// opened from it, one for each party.
//
//   ManualClock clock;
//   SimLinks links(clock, {.seed = 7});
//   auto node = links.open_transport("n1");
//   auto client = links.open_transport("c1");
//   links.partition("c1", "n1");   ... links.heal("c1", "n1");
//   clock.advance(links.next_due() - clock.now());   // the world moves the clock, nothing else
//   does
//
// Invariants: the same seed, options and calls give the same deliveries. The contract of
//             control/link.h holds: frames arrive whole, in order, at most once, or the link is
//             lost. Nothing is delivered before its time or across a partition; frames sent into a
//             partition wait, as bytes do in TCP.
// Threads:    one for everything made from it. Ownership: links and listeners may outlive their
//             transport and SimLinks; they are lost then.
// Errors:     as control/link.h. listen: already_exists.
#pragma once

#include "core/base/clock.h"
#include "kvcache/control/link.h"

#include <cstdint>
#include <memory>
#include <string>

namespace farlift::kv::sim {

// Chances out of 1000.
struct SimLinkFaults {
  std::uint32_t lost_on_send = 0;  // per frame: the link is lost; the frame itself arrives or not
  std::uint32_t slow = 0;          // per frame: it takes up to slow_max
  Duration slow_max = std::chrono::seconds(2);
};

struct SimLinksOptions {
  std::uint64_t seed = 1;
  Duration delay_min = std::chrono::microseconds(20);  // one way
  Duration delay_max = std::chrono::microseconds(500);
  Duration connect_timeout = std::chrono::seconds(2);
  Duration silence_max = std::chrono::seconds(30);  // until keepalive gives a dead peer up
  SimLinkFaults faults;
};

class SimLinks {
 public:
  class World;

  SimLinks(const Clock& clock, const SimLinksOptions& options);
  ~SimLinks();
  SimLinks(const SimLinks&) = delete;
  SimLinks& operator=(const SimLinks&) = delete;

  std::unique_ptr<Transport> open_transport(std::string party);

  void set_faults(const SimLinkFaults& faults);
  void partition(const std::string& a, const std::string& b);
  void heal(const std::string& a, const std::string& b);
  void heal_all();
  // A paused party receives and accepts nothing; what is sent to it waits.
  void pause(const std::string& party, bool paused);
  // Every link between the two is lost; frames under way arrive or not.
  void lose_links(const std::string& a, const std::string& b);
  // The process ended: its links and listeners are gone and its peers learn it (or, `silent`, as
  // when a machine loses its power, only by silence_max). A new transport may be opened at once.
  void crash(const std::string& party, bool silent = false);

  // When the next thing arrives; Instant::max(): nothing is under way.
  Instant next_due() const;

  struct Counters {
    std::uint64_t links = 0;
    std::uint64_t frames_sent = 0;
    std::uint64_t frames_received = 0;
    std::uint64_t links_lost = 0;  // not counting those closed by an end
  };
  Counters counters() const;

 private:
  std::shared_ptr<World> world_;
};

}  // namespace farlift::kv::sim
