#include "kvcache/client/api/kv_core.h"

#include <algorithm>
#include <cxxabi.h>
#include <exception>
#include <iterator>
#include <map>
#include <unistd.h>
#include <utility>

namespace farlift {
namespace {

using kv::client::KvCore;
using kv::client::Loop;

kv::Bytes to_bytes(std::string_view text) {
  kv::Bytes bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}
std::string to_text(const kv::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

KvStatus status_of(kv::Outcome outcome) {
  return static_cast<KvStatus>(static_cast<std::uint32_t>(outcome));
}
static_assert(static_cast<std::uint32_t>(KvStatus::control_down) ==
              static_cast<std::uint32_t>(kv::Outcome::control_down));

KvResult result_of(const kv::GetResult& got) {
  return {status_of(got.outcome), got.length.raw(), got.version.raw(), got.why};
}
KvResult result_of(const kv::PutResult& put, std::size_t length) {
  return {status_of(put.outcome), put.outcome == kv::Outcome::ok ? length : 0, put.version.raw(),
          put.why};
}

kv::GetRequest request_of(const KvGet& get) {
  return {to_bytes(get.key), get.dest,
          get.mode == KvReadMode::framed ? kv::ReadMode::framed : kv::ReadMode::payload_only,
          get.min_revision};
}
kv::PutRequest request_of(const KvPut& put) {
  const kv::PutMode mode = put.mode == KvPutMode::if_absent    ? kv::PutMode::if_absent
                           : put.mode == KvPutMode::if_version ? kv::PutMode::if_version
                                                               : kv::PutMode::replace;
  return {to_bytes(put.key), put.source, mode, kv::Version(put.expected_version), put.push};
}

const char* unfit(const KvCore& core) {
  return !core.owned() ? "this client belongs to the parent process" : nullptr;
}

// Memory of one call that was not registered, borrowed for its duration. Other calls, and other
// requests of this one, may use the same bytes.
class Borrowed {
 public:
  explicit Borrowed(KvCore& core) : core_(core) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    if (!memories_.empty()) core_.loop->exclude([this] { memories_.clear(); });
  }
  // Null where none is needed, or none to be had: then the client says BAD_ARG.
  const kv::LandingMemory* cover(kv::Client& client, std::span<const std::byte> part) {
    if (!core_.options.register_on_demand || part.empty() || client.registered(part)) {
      return nullptr;
    }
    if (const auto* borrowed = find(part)) return borrowed;
    // Sources are read only; the registration's span is not const because landings share it.
    auto made = client.borrow_memory({const_cast<std::byte*>(part.data()), part.size()});
    if (!made.ok()) return nullptr;
    memories_.push_back(std::move(made).value());
    by_start_[part.data()] = memories_.back().get();
    return memories_.back().get();
  }

 private:
  // One that covers `part`, if the nearest before it does.
  const kv::LandingMemory* find(std::span<const std::byte> part) const {
    auto at = by_start_.upper_bound(part.data());
    if (at == by_start_.begin()) return nullptr;
    const kv::LandingMemory* const near = std::prev(at)->second;
    const auto before = static_cast<std::size_t>(part.data() - near->bytes().data());
    const std::size_t size = near->bytes().size();
    return before <= size && part.size() <= size - before ? near : nullptr;
  }

  KvCore& core_;
  std::vector<std::unique_ptr<kv::LandingMemory>> memories_;
  std::map<const std::byte*, const kv::LandingMemory*> by_start_;
};

// A caller's progress callback. What it throws would leave operations behind that still use the
// call's memory: it is kept until the batch is over.
class Guarded {
 public:
  explicit Guarded(const KvProgress& progress) : progress_(progress) {}
  KvProgress function() {
    if (!progress_) return {};
    return [this](std::size_t done, std::size_t total) {
      if (thrown_ != nullptr) return;
      try {
        progress_(done, total);
      } catch (abi::__forced_unwind&) {
        throw;  // tidy: allow throw the thread is being cancelled: nothing may stop that
      } catch (...) {
        thrown_ = std::current_exception();
      }
    };
  }
  void rethrow() const {
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  }

 private:
  const KvProgress& progress_;
  std::exception_ptr thrown_;
};

// Runs `total` parts; what could not begin ends as timeout (closed) or bad_arg (forked).
std::vector<KvResult> batch(KvCore& core, std::size_t total, const KvProgress& progress,
                            const std::function<void(kv::Client&, Borrowed&, std::size_t,
                                                     std::function<void(KvResult)>)>& start) {
  std::vector<KvResult> results(total);
  if (const char* why = unfit(core)) {
    for (KvResult& one : results) one = {KvStatus::bad_arg, 0, 0, why};
    return results;
  }
  Borrowed borrowed(core);
  Guarded guarded(progress);
  Loop::Call call(total);
  const bool ran = core.loop->run(
      call,
      [&](kv::Client& client) {
        for (std::size_t i = 0; i < total; ++i) {
          start(client, borrowed, i, [&results, &call, i](KvResult result) {
            results[i] = std::move(result);
            call.part_done();
          });
        }
      },
      guarded.function());
  if (!ran) {
    for (KvResult& one : results) one = {KvStatus::timeout, 0, 0, "the client is closed"};
  }
  guarded.rethrow();
  return results;
}

KvGroup group_of(const kv::Client::Group& group) {
  KvGroup out;
  out.status = status_of(group.outcome);
  out.version = group.version;
  for (const auto& entry : group.entries) {
    out.entries.push_back({to_text(entry.key), status_of(entry.outcome), entry.length.raw()});
  }
  return out;
}

KvGroup run_group(
    KvCore& core,
    const std::function<void(kv::Client&, std::function<void(kv::Client::Group)>)>& start) {
  KvGroup out;
  if (unfit(core) != nullptr) return {KvStatus::bad_arg, 0, {}};
  Loop::Call call(1);
  const bool ran = core.loop->run(call, [&](kv::Client& client) {
    start(client, [&](const kv::Client::Group& group) {
      out = group_of(group);
      call.part_done();
    });
  });
  if (!ran) out.status = KvStatus::timeout;
  return out;
}

kv::Client::Answer command(KvCore& core, std::uint64_t node, kv::FrameType type, kv::Bytes body) {
  kv::Client::Answer answer;
  if (unfit(core) != nullptr) return {kv::Outcome::bad_arg, {}};
  Loop::Call call(1);
  const bool ran = core.loop->run(call, [&](kv::Client& client) {
    client.command(kv::NodeId(node), type, std::move(body), [&](kv::Client::Answer told) {
      answer = std::move(told);
      call.part_done();
    });
  });
  if (!ran) answer.outcome = kv::Outcome::timeout;
  return answer;
}

KvStatus outcome_of(const kv::Client::Answer& answer) {
  if (answer.outcome != kv::Outcome::ok) return status_of(answer.outcome);
  const auto reply = kv::decode_outcome(answer.body);
  return reply.ok() ? status_of(reply->outcome) : KvStatus::unreachable;
}

KvNode node_of(const kv::NodeRecord& record) {
  KvNode node;
  node.id = record.node.raw();
  node.incarnation = record.incarnation.raw();
  node.host = record.host;
  node.port = record.port;
  node.draining = record.state == kv::NodeRecord::State::draining;
  node.free_bytes = record.free_bytes;
  node.up_seconds = record.up_seconds;
  for (const kv::RailRecord& rail : record.rails) node.providers.push_back(rail.provider);
  return node;
}

}  // namespace

const char* to_string(KvStatus status) noexcept {
  return kv::outcome_name(static_cast<kv::Outcome>(static_cast<std::uint32_t>(status))).data();
}

std::span<std::byte> KvMemory::bytes() const noexcept { return state_->bytes(); }

KvClient::KvClient(std::shared_ptr<KvCore> core) noexcept : core_(std::move(core)) {}
KvClient::KvClient(KvClient&&) noexcept = default;
KvClient& KvClient::operator=(KvClient&& other) noexcept {
  if (this != &other) {
    if (core_ != nullptr) close();
    core_ = std::move(other.core_);
  }
  return *this;
}
KvClient::~KvClient() {
  if (core_ != nullptr) close();
}

Expected<KvClient> KvClient::create(KvOptions options) {
  auto keys = kv::client::read_keys(options);
  if (!keys) return keys.error();
  auto setup = kv::client::make_setup(options);
  if (!setup) return setup.error();
  auto core = std::make_shared<KvCore>();
  core->owner = ::getpid();
  core->setup = std::move(*setup);
  std::string why;
  auto client = kv::Client::create(*core->setup->environment,
                                   kv::client::client_options(options, std::move(*keys)), &why);
  if (!client.ok()) {
    return ClientError{ErrorKind::configuration,
                       why.empty() ? client.error().describe() : std::move(why)};
  }
  auto loop = Loop::make(std::move(client).value(), core->setup->clock,
                         std::chrono::microseconds(options.spin_us));
  if (!loop.ok()) return ClientError{ErrorKind::configuration, loop.error().describe()};
  core->loop = std::move(loop).value();
  core->options = std::move(options);
  return KvClient(std::move(core));
}

Expected<KvMemory> KvClient::register_memory(std::span<std::byte> memory) {
  if (const char* why = unfit(*core_)) return ClientError{ErrorKind::closing, why};
  Result<std::unique_ptr<kv::LandingMemory>> made = Error::make(Errc::closed, "kv client");
  core_->loop->with([&](kv::Client& client) { made = client.register_memory(memory); });
  if (!made.ok()) {
    if (made.code() == Errc::closed) return ClientError{ErrorKind::closing, "the client is closed"};
    return ClientError{ErrorKind::rdma,
                       "this memory cannot be registered: " + made.error().describe()};
  }
  return KvMemory(std::make_shared<kv::client::KvRegistration>(core_, std::move(made).value()));
}

KvResult KvClient::get(std::string_view key, std::span<std::byte> dest, KvReadMode mode,
                       std::uint32_t min_revision) {
  const KvGet one{key, dest, mode, min_revision};
  return mget({&one, 1}).front();
}

KvResult KvClient::put(std::string_view key, std::span<const std::byte> source, KvPutMode mode,
                       std::uint64_t expected_version) {
  const KvPut one{key, source, mode, expected_version, false};
  return mput({&one, 1}).front();
}

std::vector<KvResult> KvClient::mget(std::span<const KvGet> requests, const KvProgress& progress) {
  return batch(*core_, requests.size(), progress,
               [&](kv::Client& client, Borrowed& borrowed, std::size_t i, auto done) {
                 kv::GetRequest request = request_of(requests[i]);
                 request.memory = borrowed.cover(client, requests[i].dest);
                 client.get(std::move(request),
                            [done](const kv::GetResult& got) { done(result_of(got)); });
               });
}

std::vector<KvResult> KvClient::mput(std::span<const KvPut> requests, const KvProgress& progress) {
  return batch(*core_, requests.size(), progress,
               [&](kv::Client& client, Borrowed& borrowed, std::size_t i, auto done) {
                 kv::PutRequest request = request_of(requests[i]);
                 request.memory = borrowed.cover(client, requests[i].source);
                 client.put(std::move(request),
                            [done, length = requests[i].source.size()](const kv::PutResult& put) {
                              done(result_of(put, length));
                            });
               });
}

std::vector<bool> KvClient::exists(std::span<const std::string_view> keys,
                                   const KvProgress& progress) {
  const auto results = batch(
      *core_, keys.size(), progress, [&](kv::Client& client, Borrowed&, std::size_t i, auto done) {
        client.stat(to_bytes(keys[i]), [done](const kv::GetResult& got) { done(result_of(got)); });
      });
  std::vector<bool> found;
  found.reserve(results.size());
  for (const KvResult& one : results) found.push_back(one.ok());
  return found;
}

bool KvClient::exists(std::string_view key) { return stat(key).ok(); }

KvResult KvClient::stat(std::string_view key) {
  return batch(*core_, 1, {},
               [&](kv::Client& client, Borrowed&, std::size_t, auto done) {
                 client.stat(to_bytes(key),
                             [done](const kv::GetResult& got) { done(result_of(got)); });
               })
      .front();
}

KvResult KvClient::remove(std::string_view key, std::optional<std::uint64_t> version) {
  return batch(*core_, 1, {},
               [&](kv::Client& client, Borrowed&, std::size_t, auto done) {
                 std::optional<kv::Version> which;
                 if (version) which = kv::Version(*version);
                 client.remove(to_bytes(key), which, [done](const kv::Client::Removed& removed) {
                   done({status_of(removed.outcome), 0, 0, {}});
                 });
               })
      .front();
}

KvGroup KvClient::write_group(std::string_view group, std::span<const std::string_view> keys,
                              std::uint64_t version) {
  std::vector<kv::Bytes> list;
  for (const std::string_view key : keys) list.push_back(to_bytes(key));
  return run_group(*core_, [&](kv::Client& client, auto done) {
    client.write_group(std::string(group), version, std::move(list), std::move(done));
  });
}

KvGroup KvClient::read_group(std::string_view group) {
  return run_group(*core_, [&](kv::Client& client, auto done) {
    client.read_group(std::string(group), std::move(done));
  });
}

Expected<std::vector<KvNode>> KvClient::nodes() {
  if (const char* why = unfit(*core_)) return ClientError{ErrorKind::closing, why};
  Result<std::vector<kv::NodeRecord>> list = Error::make(Errc::closed, "kv client");
  Loop::Call call(1);
  core_->loop->run(call, [&](kv::Client& client) {
    client.list_nodes([&](const Result<std::vector<kv::NodeRecord>>& told) {
      list = told;
      call.part_done();
    });
  });
  if (!list.ok()) {
    if (list.code() == Errc::closed) return ClientError{ErrorKind::closing, "the client is closed"};
    return ClientError{ErrorKind::connection,
                       "the directory does not answer: " + list.error().describe()};
  }
  std::vector<KvNode> nodes;
  for (const kv::NodeRecord& record : *list) nodes.push_back(node_of(record));
  return nodes;
}

KvNodeStatistics KvClient::node_statistics(std::uint64_t node) {
  const auto answer = command(*core_, node, kv::FrameType::stat, {});
  if (answer.outcome != kv::Outcome::ok) return {status_of(answer.outcome), {}};
  auto reply = kv::decode_stat_reply(answer.body);
  if (!reply.ok()) return {KvStatus::unreachable, {}};
  return {KvStatus::ok, std::move(reply->counters)};
}

KvStatus KvClient::rotate(std::uint64_t node, std::optional<std::uint32_t> arena) {
  const kv::RotateRequest request{kv::ArenaId(arena.value_or(0)), !arena.has_value()};
  return outcome_of(command(*core_, node, kv::FrameType::rotate, encode(request)));
}

KvStatus KvClient::drain(std::uint64_t node) {
  return outcome_of(command(*core_, node, kv::FrameType::drain, {}));
}

Expected<void> KvClient::reload_keys() {
  if (const char* why = unfit(*core_)) return ClientError{ErrorKind::closing, why};
  if (core_->options.development) return {};
  auto keys = kv::client::read_keys(core_->options);
  if (!keys) return keys.error();
  const bool open =
      core_->loop->with([&](kv::Client& client) { client.replace_keys(std::move(*keys)); });
  if (!open) return ClientError{ErrorKind::closing, "the client is closed"};
  return {};
}

std::vector<std::pair<std::string, std::uint64_t>> KvClient::statistics() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  if (unfit(*core_) != nullptr) return all;
  core_->loop->with([&](kv::Client& client) { all = client.counters(); });
  return all;
}

void KvClient::close() {
  if (core_->owned()) core_->loop->close();
}

bool KvClient::closed() const noexcept { return core_->loop->closed(); }

}  // namespace farlift
