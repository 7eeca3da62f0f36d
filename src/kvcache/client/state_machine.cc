#include "kvcache/client/state_machine.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::client {
namespace {

class Handle final : public LandingMemory {
 public:
  Handle(std::shared_ptr<Landing> landing, const std::shared_ptr<LandingSet>& set)
      : landing_(std::move(landing)), set_(set) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() override {
    if (const auto set = set_.lock()) set->remove(*landing_);
  }
  std::span<std::byte> bytes() const noexcept override { return landing_->bytes(); }
  const std::shared_ptr<Landing>& landing() const noexcept { return landing_; }

 private:
  const std::shared_ptr<Landing> landing_;
  const std::weak_ptr<LandingSet> set_;
};

std::uint64_t draw(const Environment& environment) {
  std::array<std::byte, 8> bytes{};
  environment.random(bytes);
  std::uint64_t number = 0;
  for (const std::byte b : bytes) number = number << 8 | std::to_integer<std::uint64_t>(b);
  return number;
}

// Gathers the results of a batch; told when the last one is in.
template <class T>
struct Batch {
  std::vector<T> results;
  std::size_t left = 0;
  std::function<void(std::vector<T>)> done;

  void put(std::size_t index, T result) {
    results[index] = std::move(result);
    if (--left == 0) done(std::move(results));
  }
};
template <class T>
std::shared_ptr<Batch<T>> batch_of(std::size_t count, std::function<void(std::vector<T>)> done) {
  auto batch = std::make_shared<Batch<T>>();
  batch->results.resize(count);
  batch->left = count;
  batch->done = std::move(done);
  return batch;
}

}  // namespace

StateMachine::StateMachine(const Environment& environment, ClientOptions options, Domains domains,
                           std::unique_ptr<HeaderPool> headers)
    : environment_(environment),
      options_(std::move(options)),
      keys_(std::move(options_.keys)),
      domains_(std::move(domains)),
      headers_(std::move(headers)),
      cache_(options_.cache_entries_max, options_.lease),
      link_context_{environment_, options_, keys_, domains_, counters_, {}, nullptr},
      links_(link_context_),
      resolver_(environment_, options_.tenant, cache_, counters_),
      core_{environment_, options_, keys_,  domains_, *headers_,
            counters_,    cache_,   links_, resolver_},
      nodes_(environment_),
      reader_(core_, draw(environment_)),
      writer_(core_, nodes_),
      remover_(core_, nodes_),
      groups_(core_),
      commander_(core_) {
  environment_.random(link_context_.client_id);
  core_.client_id = link_context_.client_id;
  if (options_.hash_threads > 0) {
    crc_pool_ = std::make_unique<transfer::CrcPool>(options_.hash_threads);
    link_context_.crc_pool = crc_pool_.get();
  }
}

StateMachine::~StateMachine() {
  links_.close_all();
  reader_.end_all();
  writer_.end_all();
  remover_.end_all();
  groups_.end_all();
  commander_.end_all();
  while (report()) {
  }
  landings_->close_all();
}

Result<std::shared_ptr<Landing>> StateMachine::make_landing(std::span<std::byte> bytes) {
  fabric::MemoryRef memory;
  memory.bytes = bytes;
  TRY_ASSIGN(auto landing, Landing::create(domains_, memory));
  counters_.landing_registrations += landing->rails();
  return landing;
}

Result<std::unique_ptr<LandingMemory>> StateMachine::register_memory(std::span<std::byte> bytes) {
  TRY_ASSIGN(auto landing, make_landing(bytes));
  TRY(landings_->add(landing));
  return std::unique_ptr<LandingMemory>(std::make_unique<Handle>(std::move(landing), landings_));
}

Result<std::unique_ptr<LandingMemory>> StateMachine::borrow_memory(std::span<std::byte> bytes) {
  TRY_ASSIGN(auto landing, make_landing(bytes));
  landings_->add_borrowed(landing);
  return std::unique_ptr<LandingMemory>(std::make_unique<Handle>(std::move(landing), landings_));
}

// Looked up when the operation starts, which holds it from then on: registrations of others may end
// before the operation begins.
std::shared_ptr<Landing> StateMachine::landing_of(const LandingMemory* named,
                                                  std::span<const std::byte> part) const {
  if (part.empty()) return nullptr;
  if (named == nullptr) return landings_->find(part);
  const auto& landing = static_cast<const Handle*>(named)->landing();  // we make no others
  return landing->covers(part) ? landing : nullptr;
}

void StateMachine::get(GetRequest request, std::function<void(GetResult)> done) {
  auto memory = landing_of(request.memory, request.dest);
  reader_.start(ReadPurpose::get, std::move(request), std::move(memory), std::move(done));
}

void StateMachine::mget(std::vector<GetRequest> requests,
                        std::function<void(std::vector<GetResult>)> done) {
  if (requests.empty()) return core_.report([done = std::move(done)] { done({}); });
  auto batch = batch_of<GetResult>(requests.size(), std::move(done));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    get(std::move(requests[i]), [batch, i](GetResult r) { batch->put(i, std::move(r)); });
  }
}

void StateMachine::put(PutRequest request, std::function<void(PutResult)> done) {
  auto memory = landing_of(request.memory, request.source);
  writer_.start(std::move(request), std::move(memory), std::move(done));
}

void StateMachine::mput(std::vector<PutRequest> requests,
                        std::function<void(std::vector<PutResult>)> done) {
  if (requests.empty()) return core_.report([done = std::move(done)] { done({}); });
  auto batch = batch_of<PutResult>(requests.size(), std::move(done));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    put(std::move(requests[i]), [batch, i](PutResult r) { batch->put(i, std::move(r)); });
  }
}

void StateMachine::exists(std::vector<Bytes> keys, std::function<void(std::vector<bool>)> done) {
  if (keys.empty()) return core_.report([done = std::move(done)] { done({}); });
  auto batch = batch_of<bool>(keys.size(), std::move(done));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    reader_.start(ReadPurpose::look, GetRequest{std::move(keys[i]), {}, ReadMode::framed, 0},
                  nullptr,
                  [batch, i](const GetResult& r) { batch->put(i, r.outcome == Outcome::ok); });
  }
}

void StateMachine::remove(Bytes key, std::optional<Version> version,
                          std::function<void(Removed)> done) {
  remover_.start(std::move(key), version, std::move(done));
}

void StateMachine::stat(Bytes key, std::function<void(GetResult)> done) {
  reader_.start(ReadPurpose::look, GetRequest{std::move(key), {}, ReadMode::framed, 0}, nullptr,
                std::move(done));
}

void StateMachine::write_group(std::string group, std::uint64_t version, std::vector<Bytes> keys,
                               std::function<void(Group)> done) {
  groups_.write(std::move(group), version, std::move(keys), std::move(done));
}

void StateMachine::read_group(const std::string& group, std::function<void(Group)> done) {
  groups_.read(group, std::move(done));
}

void StateMachine::command(NodeId node, FrameType type, Bytes body,
                           std::function<void(Answer)> done) {
  commander_.start(node, type, std::move(body), std::move(done));
}

void StateMachine::list_nodes(std::function<void(Result<std::vector<NodeRecord>>)> done) {
  nodes_.forget();
  nodes_.ask([this, done = std::move(done)](const Result<std::vector<NodeRecord>>& nodes) {
    core_.report([done, nodes] { done(nodes); });
  });
}

Status StateMachine::add_key(KeyId id, ByteView secret) {
  const bool development = keys_.is_development();
  TRY(keys_.add(id, secret));
  if (development) cache_.clear();  // what was believed without a tag is believed no more
  return {};
}

Status StateMachine::drop_key(KeyId id) {
  TRY(keys_.drop(id));
  cache_.clear();
  return {};
}

void StateMachine::replace_keys(Keyring keys) {
  if (keys.is_development() && !keys_.is_development()) return;
  keys_ = std::move(keys);
  cache_.clear();
}

// Frames and replies first, so that a lost link is known before anything is posted over it; what
// was posted goes out, and what came in is reported, in the same step.
bool StateMachine::step() {
  const GatherSends together(environment_);
  bool moved = environment_.transport.step();
  moved = environment_.directory.step() || moved;
  moved = links_.step_frames() || moved;
  moved = remover_.step() || moved;
  moved = commander_.step() || moved;
  moved = writer_.step() || moved;
  moved = reader_.step() || moved;
  moved = resolver_.step() || moved;
  moved = links_.step_engines() || moved;
  moved = writer_.collect() || moved;
  moved = reader_.collect() || moved;
  return report() || moved;
}

bool StateMachine::report() {
  if (core_.reports.empty()) return false;
  const auto now = std::move(core_.reports);
  core_.reports.clear();
  for (const auto& call : now) call();
  return true;
}

std::vector<int> StateMachine::wait_fds() const {
  std::vector<int> fds = links_.wait_fds();
  for (const int fd : {environment_.transport.wait_fd(), environment_.directory.wait_fd()}) {
    if (fd >= 0) fds.push_back(fd);
  }
  return fds;
}

Instant StateMachine::next_deadline() const {
  constexpr Duration kPollEvery = std::chrono::milliseconds(1);  // where there is no descriptor
  Instant next = std::min({links_.next_deadline(), reader_.next_deadline(), writer_.next_deadline(),
                           remover_.next_deadline(), commander_.next_deadline()});
  if (links_.must_poll()) next = std::min(next, environment_.clock.now() + kPollEvery);
  if (writer_.hashing()) next = environment_.clock.now();
  return next;
}

std::vector<std::pair<std::string, std::uint64_t>> StateMachine::counters() const {
  return counters_.list();
}

}  // namespace farlift::kv::client

namespace farlift::kv {
namespace {

const char* fault_of(const Environment& environment, const ClientOptions& options) {
  if (!valid_tenant(options.tenant)) return "a tenant's name has 1 to 64 of [A-Za-z0-9_.-]";
  if (!options.keys.is_development() && options.keys.signing_id() == KeyId(0)) {
    return "the key ring is empty: give it a key, or choose development mode";
  }
  if (environment.rails.empty() || environment.rails.size() > kRailsMax) {
    return "a client has 1 to 16 rails";
  }
  if (options.in_flight_max == 0 || options.piece_max.raw() == 0 || options.nodes_tried_max == 0 ||
      options.puts_active_max == 0 || options.hash_threads > transfer::CrcPool::kThreadsMax) {
    return "a limit is zero or too large";
  }
  if (options.lease.count() <= 0 || options.operation_limit.count() <= 0 ||
      options.control_timeout.count() <= 0 || options.touch_every < std::chrono::seconds(1)) {
    return "a duration is too short";
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Client>> Client::create(const Environment& environment,
                                               ClientOptions options, std::string* why) {
  const auto tell = [why](std::string text, Error error) {
    if (why != nullptr) *why = std::move(text);
    return error;
  };
  if (const char* fault = fault_of(environment, options)) {
    return tell(fault, Error::make(Errc::invalid_argument, "kv client"));
  }
  client::Domains domains;
  for (const Rail& rail : environment.rails) {
    auto domain = rail.open_domain();
    if (!domain.ok()) {
      return tell("rail " + rail.provider + " cannot be opened: " + domain.error().describe(),
                  domain.error());
    }
    domains.push_back(std::move(domain).value());
  }
  auto headers = client::HeaderPool::create(domains);
  if (!headers.ok()) {
    return tell("memory for value headers cannot be registered: " + headers.error().describe(),
                headers.error());
  }
  return std::unique_ptr<Client>(std::make_unique<client::StateMachine>(
      environment, std::move(options), std::move(domains), std::move(headers).value()));
}

}  // namespace farlift::kv
