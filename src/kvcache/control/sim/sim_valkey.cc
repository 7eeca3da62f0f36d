#include "kvcache/control/sim/sim_valkey.h"

#include "core/base/prng.h"
#include "kvcache/control/schema.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace farlift::kv::sim {
namespace {

// How an operation failed, from its caller's point of view.
struct Failure {
  Error error;
  bool may_have_run = false;
};

}  // namespace

// What a directory and its operations share; it goes with the directory.
struct Handle {
  std::string party;
  std::size_t pending = 0;
  std::deque<std::function<void()>> ready;  // callbacks that are due
  std::size_t* ready_of_party = nullptr;    // of all its directories

  void push(std::function<void()> callback) {
    ready.push_back(std::move(callback));
    ++*ready_of_party;
  }
};

// One operation: `apply` runs on the server and leaves its reply in `reply`'s closure.
struct Operation {
  std::weak_ptr<Handle> handle;
  std::string party;
  std::function<void()> apply;        // once, when the command arrives
  std::function<void()> succeed;      // the caller's callback with the reply
  std::function<void(Failure)> fail;  // the caller's callback without
  bool applied = false;
  bool answered = false;
};
using OperationPtr = std::shared_ptr<Operation>;

class SimValkey::World {
 public:
  World(const Clock& world_clock, const SimValkeyOptions& world_options)
      : clock(world_clock),
        options(world_options),
        prng(world_options.seed ^ 0x76616c6b6579ULL),
        state(world_clock) {}

  Duration up_to(Duration max) {
    return Duration(
        static_cast<Duration::rep>(prng.below(static_cast<std::uint64_t>(max.count()) + 1)));
  }
  Duration delay() { return options.delay_min + up_to(options.delay_max - options.delay_min); }
  bool draw(std::uint32_t chance) { return chance > 0 && prng.chance(chance, 1000); }
  void at(Instant when, std::function<void()> what) {
    events.emplace(std::pair(when, ++sequence), std::move(what));
  }
  bool is_down(const std::string& party) const { return down || down_for.contains(party); }

  void start(const std::shared_ptr<Handle>& handle, const OperationPtr& operation);
  void answer(const OperationPtr& operation);
  void fail(const OperationPtr& operation, Failure failure);
  void apply(const OperationPtr& operation);
  void break_connections(const std::function<bool(const Operation&)>& of);
  bool step();

  const Clock& clock;
  const SimValkeyOptions options;
  Prng prng;
  SimValkeyFaults faults = options.faults;
  ValkeyState state;
  bool down = false;
  std::set<std::string> down_for;
  std::map<std::pair<Instant, std::uint64_t>, std::function<void()>> events;
  std::uint64_t sequence = 0;
  std::vector<OperationPtr> under_way;
  std::map<std::string, std::size_t> ready;  // callbacks, by party
  Counters counters;
};

using World = SimValkey::World;

void World::apply(const OperationPtr& operation) {
  if (operation->applied) return;
  operation->applied = true;
  if (operation->answered) ++counters.late;
  operation->apply();
}

void World::answer(const OperationPtr& operation) {
  if (operation->answered) return;
  operation->answered = true;
  std::erase(under_way, operation);
  if (const auto handle = operation->handle.lock()) {
    handle->push([operation] { operation->succeed(); });
  }
}

void World::fail(const OperationPtr& operation, Failure failure) {
  if (operation->answered) return;
  operation->answered = true;
  std::erase(under_way, operation);
  if (failure.may_have_run) ++counters.unknown;
  if (const auto handle = operation->handle.lock()) {
    handle->push([operation, failure] { operation->fail(failure); });
  }
}

void World::start(const std::shared_ptr<Handle>& handle, const OperationPtr& operation) {
  ++counters.operations;
  operation->handle = handle;
  operation->party = handle->party;
  const bool full = handle->pending >= options.pending_max;
  ++handle->pending;
  under_way.push_back(operation);
  const Instant now = clock.now();
  if (full || draw(faults.refused))
    return fail(operation, {Error::make(Errc::busy, "directory"), false});
  if (is_down(handle->party)) {
    at(now + delay(), [this, operation] {
      fail(operation, {Error::make(Errc::unreachable, "directory"), false});
    });
    return;
  }
  const Failure lost{Error::make(Errc::connection_lost, "directory"), true};
  const Failure timeout{Error::make(Errc::timeout, "directory"), true};
  Duration there = delay();
  Duration back = delay();
  if (draw(faults.never_applied)) {
    at(now + there, [this, operation, lost] { fail(operation, lost); });
    return;
  }
  if (draw(faults.reply_lost)) {
    at(now + there, [this, operation, lost] {
      apply(operation);
      fail(operation, lost);
    });
    return;
  }
  if (draw(faults.applied_late)) {
    const bool breaks = prng.chance(1, 2);
    at(now + (breaks ? there : options.timeout),
       [this, operation, f = breaks ? lost : timeout] { fail(operation, f); });
    there = options.timeout + up_to(faults.late_max);
  } else if (draw(faults.slow)) {
    there += up_to(faults.slow_max);
    back += up_to(faults.slow_max);
  }
  at(now + there, [this, operation] { apply(operation); });
  at(now + there + back, [this, operation] { answer(operation); });
  at(now + options.timeout, [this, operation, timeout] { fail(operation, timeout); });
}

// What had not arrived yet still may: it lies in a buffer somewhere, or the network drops it.
void World::break_connections(const std::function<bool(const Operation&)>& of) {
  const std::vector<OperationPtr> all = under_way;
  for (const OperationPtr& operation : all) {
    if (!of(*operation)) continue;
    if (!operation->applied && prng.chance(1, 2)) operation->applied = true;  // dropped
    fail(operation, {Error::make(Errc::connection_lost, "directory"), true});
  }
}

bool World::step() {
  bool any = false;
  while (!events.empty() && events.begin()->first.first <= clock.now()) {
    const std::function<void()> run = std::move(events.begin()->second);
    events.erase(events.begin());
    run();
    any = true;
  }
  return any;
}

namespace {

class SimDirectory final : public Directory {
 public:
  SimDirectory(std::shared_ptr<World> world, std::string party)
      : world_(std::move(world)), handle_(std::make_shared<Handle>()) {
    handle_->party = std::move(party);
    handle_->ready_of_party = &world_->ready[handle_->party];
  }
  ~SimDirectory() override {
    run_ready();
    const std::vector<OperationPtr> all = world_->under_way;
    for (const OperationPtr& operation : all) {
      if (operation->handle.lock() == handle_)
        world_->fail(operation, {Error::make(Errc::closed, "directory"), true});
    }
    run_ready();
  }

  void resolve(std::string_view tenant, std::vector<Bytes> keys, OnPairs done) override {
    world_->counters.mgets += keys.size();
    auto reply = std::make_shared<std::vector<Result<Pair>>>();
    std::optional<Duration> lag;
    if (world_->draw(world_->faults.lagging)) lag = world_->up_to(world_->faults.lag_max);
    auto fail = [done, count = keys.size()](Failure f) {
      done(std::vector<Result<Pair>>(count, Result<Pair>(f.error)));
    };
    run(
        [world = world_.get(), reply, lag, tenant = std::string(tenant), keys = std::move(keys)] {
          for (const Bytes& key : keys) {
            const auto get = [&](const std::string& name) {
              return lag ? world->state.get_as_of(name, *lag) : world->state.get(name);
            };
            reply->push_back(Pair{get(descriptor_name(tenant, key)), get(tag_name(tenant, key))});
          }
        },
        [reply, done] { done(std::move(*reply)); }, std::move(fail));
  }

  void publish(PublishRequest request, OnPublish done) override {
    ++world_->counters.publishes;
    auto reply = std::make_shared<PublishReply>();
    run(
        [world = world_.get(), reply, request = std::move(request)] {
          auto published = world->state.publish(request);
          reply->kind = published.kind;
          reply->current = std::move(published.current);
        },
        [reply, done] { done(std::move(*reply)); },
        [done](Failure f) {
          done({f.may_have_run ? PublishReply::Kind::unknown : PublishReply::Kind::not_done,
                std::nullopt, f.error});
        });
  }

  void unpublish(UnpublishRequest request, OnUnpublish done) override {
    ++world_->counters.unpublishes;
    auto reply = std::make_shared<UnpublishReply>();
    run([world = world_.get(), reply,
         request = std::move(request)] { reply->kind = world->state.unpublish(request); },
        [reply, done] { done(*reply); },
        [done](Failure f) {
          done({f.may_have_run ? UnpublishReply::Kind::unknown : UnpublishReply::Kind::not_done,
                f.error});
        });
  }

  void announce(const NodeRecord& record, OnStatus done) override {
    run(
        [world = world_.get(), record] {
          world->state.set(node_name(record.node), to_bytes(encode_node_record(record)),
                           kNodeLease);
          world->state.set_add(std::string(kNodesName), std::to_string(record.node.raw()));
        },
        [done] { done({}); }, [done](Failure f) { done(f.error); });
  }
  void retract(NodeId node, OnStatus done) override {
    run(
        [world = world_.get(), node] {
          world->state.del(node_name(node));
          world->state.set_remove(std::string(kNodesName), std::to_string(node.raw()));
        },
        [done] { done({}); }, [done](Failure f) { done(f.error); });
  }
  void list_nodes(OnNodes done) override {
    auto reply = std::make_shared<std::vector<NodeRecord>>();
    run(
        [world = world_.get(), reply] {
          for (const std::string& member : world->state.members(std::string(kNodesName))) {
            const auto value = world->state.get("okv:n:{" + member + "}");
            if (!value) continue;
            auto record = decode_node_record(text_of(*value));
            if (record.ok()) reply->push_back(std::move(record).value());
          }
        },
        [reply, done] { done(std::move(*reply)); }, [done](Failure f) { done(f.error); });
  }
  void find_node(NodeId node, OnNode done) override {
    auto reply = std::make_shared<std::optional<NodeRecord>>();
    run(
        [world = world_.get(), reply, node] {
          const auto value = world->state.get(node_name(node));
          if (!value) return;
          auto record = decode_node_record(text_of(*value));
          if (record.ok()) *reply = std::move(record).value();
        },
        [reply, done] { done(std::move(*reply)); }, [done](Failure f) { done(f.error); });
  }

  void take_lease(NodeId node, Incarnation incarnation, ArenaId arena, const ClientId& client,
                  Duration time, OnStatus done) override {
    run([world = world_.get(), name = lease_name(node, incarnation, arena, client),
         time] { world->state.set(name, to_bytes("1"), time); },
        [done] { done({}); }, [done](Failure f) { done(f.error); });
  }
  void count_leases(NodeId node, Incarnation incarnation, ArenaId arena, OnCount done) override {
    auto reply = std::make_shared<std::uint64_t>(0);
    // The pattern ends in the wildcard for the client.
    std::string prefix = lease_pattern(node, incarnation, arena);
    prefix.erase(std::min(prefix.find('*'), prefix.size()));
    run([world = world_.get(), reply, prefix] { *reply = world->state.count_with_prefix(prefix); },
        [reply, done] { done(*reply); }, [done](Failure f) { done(f.error); });
  }

  void put_manifest(std::string_view tenant, std::string_view group, Bytes manifest,
                    OnStatus done) override {
    run([world = world_.get(), name = manifest_name(tenant, group),
         manifest = std::move(manifest)] { world->state.set(name, manifest, kDescriptorTtl); },
        [done] { done({}); }, [done](Failure f) { done(f.error); });
  }
  void get_manifest(std::string_view tenant, std::string_view group, OnManifest done) override {
    auto reply = std::make_shared<std::optional<Bytes>>();
    run([world = world_.get(), reply,
         name = manifest_name(tenant, group)] { *reply = world->state.get(name); },
        [reply, done] { done(std::move(*reply)); }, [done](Failure f) { done(f.error); });
  }

  bool step() override {
    world_->step();
    return run_ready();
  }
  int wait_fd() const noexcept override { return -1; }
  std::size_t pending() const noexcept override { return handle_->pending; }

 private:
  void run(std::function<void()> apply, std::function<void()> succeed,
           std::function<void(Failure)> fail) {
    auto operation = std::make_shared<Operation>();
    operation->apply = std::move(apply);
    operation->succeed = std::move(succeed);
    operation->fail = std::move(fail);
    world_->start(handle_, std::move(operation));
  }

  // Only what is due now: a callback may start another operation.
  bool run_ready() {
    if (handle_->ready.empty()) return false;
    std::deque<std::function<void()>> due = std::exchange(handle_->ready, {});
    *handle_->ready_of_party -= due.size();
    for (const auto& callback : due) {
      --handle_->pending;
      callback();
    }
    return !due.empty();
  }

  const std::shared_ptr<World> world_;
  const std::shared_ptr<Handle> handle_;
};

}  // namespace

SimValkey::SimValkey(const Clock& clock, const SimValkeyOptions& options)
    : world_(std::make_shared<World>(clock, options)) {}
SimValkey::~SimValkey() {
  world_->down = true;
  world_->break_connections([](const Operation&) { return true; });
  world_->events.clear();
}

std::unique_ptr<Directory> SimValkey::open_directory(std::string party) {
  return std::make_unique<SimDirectory>(world_, std::move(party));
}

void SimValkey::set_faults(const SimValkeyFaults& faults) { world_->faults = faults; }

void SimValkey::set_down(bool down) {
  world_->step();
  world_->down = down;
  if (down) world_->break_connections([](const Operation&) { return true; });
}
void SimValkey::set_down(const std::string& party, bool down) {
  world_->step();
  if (!down) {
    world_->down_for.erase(party);
    return;
  }
  world_->down_for.insert(party);
  world_->break_connections([&](const Operation& o) { return o.party == party; });
}

void SimValkey::fail_over(Duration back) {
  world_->step();
  world_->break_connections([](const Operation&) { return true; });
  world_->state.rewind(back);
}
void SimValkey::flush_all() {
  world_->step();
  world_->state.flush_all();
}
void SimValkey::evict(const std::string& name) {
  world_->step();
  world_->state.del(name);
}
void SimValkey::evict_some(std::uint32_t chance) {
  world_->step();
  for (const std::string& name : world_->state.names()) {
    if (world_->draw(chance)) world_->state.del(name);
  }
}
void SimValkey::write(const std::string& name, Bytes value, Duration px) {
  world_->step();
  world_->state.set(name, std::move(value), px);
}
ValkeyState& SimValkey::state() { return world_->state; }

bool SimValkey::step() { return world_->step(); }
bool SimValkey::ready(const std::string& party) {
  world_->step();
  return world_->ready[party] > 0;
}

Instant SimValkey::next_due() const {
  return world_->events.empty() ? Instant::max() : world_->events.begin()->first.first;
}

SimValkey::Counters SimValkey::counters() const { return world_->counters; }

}  // namespace farlift::kv::sim
