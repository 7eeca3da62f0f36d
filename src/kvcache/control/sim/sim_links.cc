#include "kvcache/control/sim/sim_links.h"

#include "core/base/prng.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace farlift::kv::sim {
namespace {

using PartyId = std::uint32_t;
constexpr PartyId kNobody = UINT32_MAX;
using PartyPair = std::pair<PartyId, PartyId>;
PartyPair unordered(PartyId a, PartyId b) { return a < b ? PartyPair(a, b) : PartyPair(b, a); }

}  // namespace

// What travels from one end to the other, and how that end is doing.
struct Direction {
  struct Item {
    Instant due;
    Frame frame;
  };
  std::deque<Item> items;
  std::size_t bytes = 0;
  Instant last_due{};                // keeps the order
  Instant end_due = Instant::max();  // the receiver learns then that the link is lost
};

// One link. End 0 connected, end 1 accepts. directions[i] is what end i receives.
struct Pipe {
  std::array<PartyId, 2> party{kNobody, kNobody};
  std::array<std::string, 2> peer_name;
  std::array<Direction, 2> directions;
  std::array<bool, 2> closed{};    // by its owner
  std::array<bool, 2> lost{};      // its owner knows
  std::array<bool, 2> reported{};  // by receive()
  Instant arrives{};               // of the connection request
  Instant connect_limit{};
  bool established = false;
  bool accepted = false;
};
using PipePtr = std::shared_ptr<Pipe>;

struct ListenerState {
  PartyId party = kNobody;
  std::deque<PipePtr> backlog;
  bool open = true;
};

// What of a party is looked at in each of its steps.
struct Party {
  std::vector<PipePtr> pipes;  // in the order of connecting
  std::vector<std::shared_ptr<ListenerState>> listeners;
  bool paused = false;
};

class SimLinks::World {
 public:
  World(const Clock& world_clock, const SimLinksOptions& world_options)
      : clock(world_clock), options(world_options), prng(world_options.seed ^ 0x6c696e6b73ULL) {}

  PartyId id_of(const std::string& name) {
    const auto [at, fresh] = ids.try_emplace(name, static_cast<PartyId>(parties.size()));
    if (fresh) parties.emplace_back();
    return at->second;
  }
  bool is_paused(PartyId party) const { return party != kNobody && parties[party].paused; }
  bool cut(const Pipe& pipe) const {
    return !partitions.empty() && partitions.contains(unordered(pipe.party[0], pipe.party[1]));
  }
  Duration delay() {
    const auto spread = static_cast<std::uint64_t>((options.delay_max - options.delay_min).count());
    return options.delay_min + Duration(static_cast<Duration::rep>(prng.below(spread + 1)));
  }
  bool draw(std::uint32_t chance) { return chance > 0 && prng.chance(chance, 1000); }

  Result<PipePtr> connect(const std::string& name, const std::string& host, std::uint16_t port);
  Status send(Pipe& pipe, std::size_t end, const Frame& frame);
  Result<Frame> receive(Pipe& pipe, std::size_t end);
  void close(Pipe& pipe, std::size_t end);
  void lose(Pipe& pipe, bool drop_under_way);
  // What time has done to links; each is settled when it is looked at.
  void settle();
  void settle(Pipe& pipe);
  bool deliverable(const Pipe& pipe, std::size_t end) const;
  bool anything_for(PartyId party);
  // The next connection that is up; end(): none.
  std::deque<PipePtr>::iterator acceptable(ListenerState& listener);

  const Clock& clock;
  const SimLinksOptions options;
  Prng prng;
  SimLinkFaults faults = options.faults;
  std::set<PartyPair> partitions;
  std::map<std::string, PartyId> ids;
  std::deque<Party> parties;  // by id
  std::map<std::pair<std::string, std::uint16_t>, std::shared_ptr<ListenerState>> listeners;
  std::vector<PipePtr> pipes;  // in the order of connecting
  std::uint16_t next_port = 20000;
  Counters counters;
};

using World = SimLinks::World;

Result<PipePtr> World::connect(const std::string& name, const std::string& host,
                               std::uint16_t port) {
  auto pipe = std::make_shared<Pipe>();
  const Instant now = clock.now();
  pipe->party[0] = id_of(name);
  pipe->peer_name = {host + ":" + std::to_string(port), name + ":" + std::to_string(next_port)};
  pipe->arrives = now + delay();
  pipe->connect_limit = now + options.connect_timeout;
  const auto found = listeners.find({host, port});
  if (found == listeners.end()) {
    pipe->directions[0].end_due = pipe->arrives + delay();  // refused
  } else {
    pipe->party[1] = found->second->party;
    found->second->backlog.push_back(pipe);
  }
  const auto add_to = [&pipe](std::vector<PipePtr>& list) {
    std::erase_if(list, [](const PipePtr& p) { return p->closed[0] && p->closed[1]; });
    list.push_back(pipe);
  };
  add_to(pipes);
  add_to(parties[pipe->party[0]].pipes);
  if (pipe->party[1] != kNobody && pipe->party[1] != pipe->party[0]) {
    add_to(parties[pipe->party[1]].pipes);
  }
  ++counters.links;
  return pipe;
}

Status World::send(Pipe& pipe, std::size_t end, const Frame& frame) {
  settle(pipe);
  if (pipe.closed[end]) return Error::make(Errc::closed, "link");
  if (pipe.lost[end]) return Error::make(Errc::connection_lost, "link");
  if (frame.body.size() > kFrameBodyBytesMax) return Error::make(Errc::too_large, "frame body");
  Direction& out = pipe.directions[1 - end];
  const std::size_t size = kFrameHeaderBytes + frame.body.size();
  if (size > Link::kQueuedBytesMax - out.bytes) return Error::make(Errc::exhausted, "link queue");
  const bool lose_now = draw(faults.lost_on_send);
  ++counters.frames_sent;
  // What is sent to an end that is gone goes nowhere; the sender learns of it by end_due.
  if (!pipe.closed[1 - end] && (!lose_now || prng.chance(1, 2))) {
    Duration takes = delay();
    if (draw(faults.slow)) {
      takes += Duration(static_cast<Duration::rep>(
          prng.below(static_cast<std::uint64_t>(faults.slow_max.count()) + 1)));
    }
    // A frame sent before the connection is up waits for it.
    out.last_due = std::max({out.last_due, pipe.arrives, clock.now() + takes});
    out.items.push_back({out.last_due, frame});
    out.bytes += size;
  }
  if (lose_now) lose(pipe, false);
  return {};  // a sender never learns at once
}

bool World::deliverable(const Pipe& pipe, std::size_t end) const {
  const Direction& in = pipe.directions[end];
  return !pipe.closed[end] && !pipe.reported[end] && !in.items.empty() &&
         in.items.front().due <= clock.now() && !cut(pipe) && !is_paused(pipe.party[end]);
}

Result<Frame> World::receive(Pipe& pipe, std::size_t end) {
  if (pipe.closed[end]) return Error::make(Errc::closed, "link");
  if (is_paused(pipe.party[end])) return Error::make(Errc::again, "link");
  settle(pipe);
  if (deliverable(pipe, end)) {
    Direction& in = pipe.directions[end];
    Frame frame = std::move(in.items.front().frame);
    in.items.pop_front();
    in.bytes -= kFrameHeaderBytes + frame.body.size();
    ++counters.frames_received;
    return frame;
  }
  if (!pipe.lost[end]) return Error::make(Errc::again, "link");
  pipe.reported[end] = true;
  return Error::make(Errc::connection_lost, "link");
}

// The peer gets what was sent before, then the end; unless bytes of its own were not read: then TCP
// resets, and what was under way may be gone.
void World::close(Pipe& pipe, std::size_t end) {
  if (pipe.closed[end]) return;
  pipe.closed[end] = true;
  Direction& out = pipe.directions[1 - end];
  if (!pipe.directions[end].items.empty() && prng.chance(1, 2)) {
    out.items.clear();
    out.bytes = 0;
  }
  pipe.directions[end].items.clear();
  pipe.directions[end].bytes = 0;
  out.end_due = std::min(out.end_due, std::max(out.last_due, clock.now() + delay()));
}

void World::lose(Pipe& pipe, bool drop_under_way) {
  if (pipe.lost[0] && pipe.lost[1]) return;
  ++counters.links_lost;
  for (Direction& direction : pipe.directions) {
    if (drop_under_way && !direction.items.empty()) {
      // A prefix arrives: the rest died with the connection.
      const auto keep = static_cast<std::ptrdiff_t>(prng.below(direction.items.size() + 1));
      direction.items.erase(direction.items.begin() + keep, direction.items.end());
      direction.bytes = 0;
      for (const auto& item : direction.items)
        direction.bytes += kFrameHeaderBytes + item.frame.body.size();
    }
    const Instant last = direction.items.empty() ? clock.now() : direction.items.back().due;
    direction.end_due = std::min(direction.end_due, std::max(last, clock.now() + delay()));
  }
}

void World::settle(Pipe& pipe) {
  const Instant now = clock.now();
  if (!pipe.established && now >= pipe.arrives && !cut(pipe)) pipe.established = true;
  if (!pipe.established && now >= pipe.connect_limit) pipe.lost[0] = true;
  for (std::size_t end = 0; end < 2; ++end) {
    const Direction& in = pipe.directions[end];
    if (!pipe.lost[end] && in.items.empty() && now >= in.end_due) pipe.lost[end] = true;
  }
}

void World::settle() {
  for (const PipePtr& pipe : pipes) settle(*pipe);
}

std::deque<PipePtr>::iterator World::acceptable(ListenerState& listener) {
  return std::ranges::find_if(listener.backlog, [this](const PipePtr& p) {
    settle(*p);
    return p->established;
  });
}

bool World::anything_for(PartyId party) {
  const Party& own = parties[party];
  for (const PipePtr& pipe : own.pipes) {
    settle(*pipe);
    for (std::size_t end = 0; end < 2; ++end) {
      if (pipe->party[end] != party || (end == 1 && !pipe->accepted)) continue;
      if (deliverable(*pipe, end)) return true;
      if (pipe->lost[end] && !pipe->reported[end] && !pipe->closed[end] && !own.paused) return true;
    }
  }
  return !own.paused && std::ranges::any_of(own.listeners, [this](const auto& listener) {
    return acceptable(*listener) != listener->backlog.end();
  });
}

namespace {

class SimLink final : public Link {
 public:
  SimLink(std::shared_ptr<World> world, PipePtr pipe, std::size_t end)
      : world_(std::move(world)), pipe_(std::move(pipe)), end_(end) {}
  ~SimLink() override { world_->close(*pipe_, end_); }
  Status send(const Frame& frame) override { return world_->send(*pipe_, end_, frame); }
  Result<Frame> receive() override { return world_->receive(*pipe_, end_); }
  void close() noexcept override { world_->close(*pipe_, end_); }
  bool lost() const noexcept override {
    world_->settle(*pipe_);
    return pipe_->lost[end_] || pipe_->closed[end_];
  }
  const std::string& peer() const noexcept override { return pipe_->peer_name[end_]; }

 private:
  const std::shared_ptr<World> world_;
  const PipePtr pipe_;
  const std::size_t end_;
};

class SimListener final : public LinkListener {
 public:
  SimListener(std::shared_ptr<World> world, std::shared_ptr<ListenerState> state,
              std::pair<std::string, std::uint16_t> address)
      : world_(std::move(world)), state_(std::move(state)), address_(std::move(address)) {}
  ~SimListener() override {
    for (const PipePtr& pipe : state_->backlog) world_->close(*pipe, 1);
    const auto found = world_->listeners.find(address_);
    if (found != world_->listeners.end() && found->second == state_) world_->listeners.erase(found);
    std::erase(world_->parties[state_->party].listeners, state_);
  }

  std::unique_ptr<Link> accept() override {
    if (!state_->open || world_->is_paused(state_->party)) return nullptr;
    const auto found = world_->acceptable(*state_);
    if (found == state_->backlog.end()) return nullptr;
    PipePtr pipe = *found;
    state_->backlog.erase(found);
    pipe->accepted = true;
    return std::make_unique<SimLink>(world_, std::move(pipe), 1);
  }
  std::uint16_t port() const noexcept override { return address_.second; }

 private:
  const std::shared_ptr<World> world_;
  const std::shared_ptr<ListenerState> state_;
  const std::pair<std::string, std::uint16_t> address_;
};

class SimTransport final : public Transport {
 public:
  SimTransport(std::shared_ptr<World> world, std::string party)
      : world_(std::move(world)), party_(std::move(party)), id_(world_->id_of(party_)) {}

  Result<std::unique_ptr<Link>> connect(const std::string& host, std::uint16_t port) override {
    TRY_ASSIGN(PipePtr pipe, world_->connect(party_, host, port));
    return std::unique_ptr<Link>(std::make_unique<SimLink>(world_, std::move(pipe), 0));
  }

  Result<std::unique_ptr<LinkListener>> listen(const std::string& ip, std::uint16_t port) override {
    // Ports chosen here never come back, as little as those of one boot of a busy machine do.
    std::pair<std::string, std::uint16_t> address(ip, port != 0 ? port : world_->next_port++);
    if (world_->listeners.contains(address)) return Error::make(Errc::already_exists, "listen");
    auto state = std::make_shared<ListenerState>();
    state->party = id_;
    world_->listeners.emplace(address, state);
    world_->parties[id_].listeners.push_back(state);
    return std::unique_ptr<LinkListener>(
        std::make_unique<SimListener>(world_, std::move(state), std::move(address)));
  }

  bool step() override { return world_->anything_for(id_); }
  int wait_fd() const noexcept override { return -1; }

 private:
  const std::shared_ptr<World> world_;
  const std::string party_;
  const PartyId id_;
};

}  // namespace

SimLinks::SimLinks(const Clock& clock, const SimLinksOptions& options)
    : world_(std::make_shared<World>(clock, options)) {}
SimLinks::~SimLinks() {
  for (const PipePtr& pipe : world_->pipes) world_->lose(*pipe, true);
}

std::unique_ptr<Transport> SimLinks::open_transport(std::string party) {
  return std::make_unique<SimTransport>(world_, std::move(party));
}

void SimLinks::set_faults(const SimLinkFaults& faults) { world_->faults = faults; }

void SimLinks::partition(const std::string& a, const std::string& b) {
  world_->settle();
  world_->partitions.insert(unordered(world_->id_of(a), world_->id_of(b)));
}
void SimLinks::heal(const std::string& a, const std::string& b) {
  world_->settle();
  world_->partitions.erase(unordered(world_->id_of(a), world_->id_of(b)));
}
void SimLinks::heal_all() {
  world_->settle();
  world_->partitions.clear();
}

void SimLinks::pause(const std::string& party, bool paused) {
  world_->parties[world_->id_of(party)].paused = paused;
}

void SimLinks::lose_links(const std::string& a, const std::string& b) {
  world_->settle();
  const PartyPair both = unordered(world_->id_of(a), world_->id_of(b));
  for (const PipePtr& pipe : world_->pipes) {
    if (unordered(pipe->party[0], pipe->party[1]) == both) world_->lose(*pipe, true);
  }
}

void SimLinks::crash(const std::string& name, bool silent) {
  world_->settle();
  const PartyId party = world_->id_of(name);
  for (const PipePtr& pipe : world_->pipes) {
    for (std::size_t end = 0; end < 2; ++end) {
      if (pipe->party[end] != party || pipe->closed[end]) continue;
      Direction& to_peer = pipe->directions[1 - end];
      if (silent) {
        pipe->closed[end] = true;
        pipe->directions[end] = {};
        to_peer.end_due =
            std::min(to_peer.end_due, world_->clock.now() + world_->options.silence_max);
      } else {
        world_->close(*pipe, end);
      }
    }
  }
  std::erase_if(world_->listeners, [&](auto& entry) {
    if (entry.second->party != party) return false;
    entry.second->open = false;
    entry.second->backlog.clear();
    return true;
  });
  world_->parties[party].listeners.clear();
  world_->parties[party].paused = false;
}

Instant SimLinks::next_due() const {
  const Instant now = world_->clock.now();
  Instant next = Instant::max();
  const auto consider = [&](Instant at) {
    if (at > now) next = std::min(next, at);
  };
  for (const PipePtr& pipe : world_->pipes) {
    if (!pipe->established) consider(pipe->arrives);
    if (!pipe->established) consider(pipe->connect_limit);
    const bool reachable = !world_->cut(*pipe);
    for (std::size_t end = 0; end < 2; ++end) {
      const Direction& in = pipe->directions[end];
      if (pipe->closed[end]) continue;
      if (reachable && !in.items.empty()) consider(in.items.front().due);
      if (in.end_due != Instant::max()) consider(in.end_due);
    }
  }
  return next;
}

SimLinks::Counters SimLinks::counters() const { return world_->counters; }

}  // namespace farlift::kv::sim
