// Rogue: a client of its tenant that breaks every rule a client can: it reads by descriptors of any
// age without asking, looks at no checksum, and goes on writing after SEAL. What it reads must be
// right all the same: the fence alone stands in its way (G3).
//
// Threads: one. Errors: Ledger::fail().
#pragma once

#include "kvcache/wire/frames.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tests/sim/world.h"

namespace farlift::kv::simulation {

class Rogue {
 public:
  Rogue(World& world, std::string name, std::string tenant);
  ~Rogue();
  bool step();
  void stop() { stopped_ = true; }

 private:
  struct Read {
    const Record* record = nullptr;
    std::vector<std::byte> into;
  };
  struct Push {
    PutId id{};
    Bytes key;
    Bytes value;
    Bytes junk;
    std::uint64_t write = 0;
    AllocReply slot;
  };
  struct Contact {  // with one node
    std::unique_ptr<Link> link;
    HelloRequest hello;
    HelloReply welcome;
    bool ready = false;
    Instant again{};
    std::uint64_t life = 0;
    std::map<std::uint64_t, Push> allocs;
    std::vector<std::optional<fabric::PeerId>> peers;
  };
  void greet(NodeParty& node, Contact& contact);
  bool receive(NodeParty& node, Contact& contact);
  void answer(Contact& contact, const Frame& frame);
  void act(NodeParty& node, Contact& contact);
  void read(NodeParty& node, Contact& contact);
  void push(Contact& contact);
  void write(Contact& contact, Push& push, Bytes& from, std::uint64_t context);
  bool stuck(const Record& record) const;
  bool poll();

  World& world_;
  const std::string name_;
  const std::string tenant_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<fabric::Domain>> domains_;
  std::vector<std::unique_ptr<fabric::TargetEndpoint>> targets_;
  // What operations use outlives the initiators.
  std::map<std::uint64_t, Read> reads_;
  std::map<std::uint64_t, std::shared_ptr<Push>> writes_;
  std::vector<std::shared_ptr<Push>> pushes_;
  std::vector<std::unique_ptr<fabric::Initiator>> initiators_;
  std::map<NodeId, Contact> contacts_;
  std::uint64_t next_ = 1;
  std::uint64_t request_ = 1;
  Instant due_{};
  bool stopped_ = false;
};

}  // namespace farlift::kv::simulation
