// NodeImpl: the parts of a node, joined. See node.h.
//
// Threads and errors: as node.h. Members are declared so that what refers goes before what is
// referred to.
#pragma once

#include "kvcache/node/drain.h"
#include "kvcache/node/evictor.h"
#include "kvcache/node/node_probe.h"
#include "kvcache/node/reconcile.h"
#include "kvcache/node/sessions.h"

namespace farlift::kv::node {

class NodeImpl final : public Node, public NodeProbe {
 public:
  NodeImpl(const Environment& environment, NodeOptions options);
  ~NodeImpl() override;

  Status open(std::string* why);

  bool step() override;
  std::vector<int> wait_fds() const override;
  Instant next_deadline() const override;
  NodeId id() const noexcept override { return core_.options.id; }
  Incarnation incarnation() const noexcept override { return core_.incarnation; }
  std::uint16_t port() const noexcept override { return sessions_.port(); }
  void drain() override { drain_.begin(); }
  bool drained() const noexcept override { return drain_.done(); }
  bool rotate(ArenaId arena) override;
  void rotate_all() override;
  std::vector<std::pair<std::string, std::uint64_t>> stats() const override;

  std::size_t arena_count() const override { return core_.arenas.size(); }
  void look(ArenaId arena, ArenaView& into) const override;
  void look(ArenaId arena, std::vector<SlotView>& into) const override;
  std::pair<ArenaGen, ArenaState> phase(ArenaId arena) const override;
  std::span<std::byte> memory(ArenaId arena) const override;
  std::byte* at(const Location& location) const override;
  bool hand_over(ArenaId arena, const std::string& tenant) override;
  std::uint64_t counter(std::string_view name) const override;
  void reconcile_now() override { reconcile_.soon(); }
  std::size_t open_grants() const override { return grants_.live(); }

 private:
  Status open_tenants(std::string* why);
  Status check_rails(std::string* why);
  Status test_rails(std::string* why);
  Status first_arena(std::string* why);
  Status listen(std::uint16_t port, std::string* why);
  Outcome rotate_for(Tenant& tenant, const RotateRequest& request);
  StatReply stat_for(const Tenant& tenant) const;
  void add_gauges(std::vector<std::pair<std::string, std::uint64_t>>& out,
                  const Tenant* only) const;

  Core core_;
  Outcomes outcomes_;
  Peers peers_;
  Publisher publisher_;
  Pulls pulls_;
  Grants grants_;
  Remover remover_;
  Rotation rotation_;
  Sessions sessions_;
  Reconcile reconcile_;
  Evictor evictor_;
  Announcer announcer_;
  Drain drain_;
};

// Why these options cannot be, or empty.
std::string wrong_options(const Environment& environment, const NodeOptions& options);

}  // namespace farlift::kv::node
