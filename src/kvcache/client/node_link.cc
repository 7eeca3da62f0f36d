#include "kvcache/client/node_link.h"

#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/digest/hash.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::client {
namespace {

// soft, efa and the simulation refuse one operation; on the others the connection goes with it and
// the provider makes another by itself, which nobody has greeted (spec kv 3, 9.4).
bool ends_link_on_refusal(const std::string& provider) noexcept {
  return provider != "soft" && provider != "sim" && !introduces_readers(provider);
}

Bytes to_bytes(const fabric::Address& address) {
  return {address.bytes().begin(), address.bytes().end()};
}

}  // namespace

NodeLink::NodeLink(const LinkContext& context, const NodeRecord& record, bool as_target)
    : context_(context), record_(record), as_target_(as_target) {
  engines_.resize(context.domains.size());
}

Result<std::unique_ptr<NodeLink>> NodeLink::connect(const LinkContext& context,
                                                    const NodeRecord& record, bool as_target) {
  std::unique_ptr<NodeLink> link(new NodeLink(context, record, as_target));
  link->greet_until_ = context.environment.clock.now() + context.options.control_timeout;
  if (as_target) TRY(link->open_targets());
  TRY_ASSIGN(link->control_, context.environment.transport.connect(record.host, record.port));
  TRY(link->greet());
  return link;
}

NodeLink::~NodeLink() {
  close("link dropped");
  // Nobody is left to hear of requests: their owners went before.
  requests_.clear();
  replies_.clear();
}

Status NodeLink::open_targets() {
  for (std::size_t i = 0; i < context_.domains.size(); ++i) {
    fabric::TargetOptions options;
    options.listen_ip = context_.environment.rails[i].listen_ip;
    TRY_ASSIGN(auto target, context_.domains[i]->open_target(options));
    targets_.push_back(std::move(target));
  }
  return {};
}

Status NodeLink::open_engine(std::size_t own) {
  if (engines_[own] != nullptr) return {};
  transfer::EngineOptions options;
  options.in_flight_max = context_.options.in_flight_max;
  options.piece_max = context_.options.piece_max;
  options.crc_pool = context_.crc_pool;
  TRY_ASSIGN(engines_[own],
             transfer::Engine::create(*context_.domains[own], context_.environment.clock, options));
  return {};
}

// Our target endpoints in rail order, for pulls; after them, where providers' targets must know
// who reads from them (EFA), the endpoints that will read.
Status NodeLink::greet() {
  const auto& rails = context_.environment.rails;
  hello_.tenant = context_.options.tenant;
  hello_.key_id = context_.keys.signing_id();
  hello_.client_id = context_.client_id;
  context_.environment.random(hello_.nonce);
  for (std::size_t i = 0; i < rails.size(); ++i) {
    hello_.rails.push_back(
        {rails[i].provider, as_target_ ? to_bytes(targets_[i]->address()) : Bytes()});
  }
  for (std::size_t i = 0; i < rails.size(); ++i) {
    if (!introduces_readers(rails[i].provider)) continue;
    TRY(open_engine(i));
    hello_.rails.push_back({rails[i].provider, to_bytes(engines_[i]->address())});
  }
  request(FrameType::hello, encode(hello_), [this](const Result<Bytes>& body) { on_hello(body); });
  return {};
}

void NodeLink::refuse(const char* why) {
  ++context_.counters.links_refused;
  logf(LogLevel::warning, "kv client: node %llu at %s:%u: %s",
       static_cast<unsigned long long>(record_.node.raw()), record_.host.c_str(), record_.port,
       why);
  close(why);
}

// The proof is over both nonces, the node's id, its incarnation and all addresses, so that nobody
// can stand in for the node without the tenant's secret (spec kv 5).
bool NodeLink::proof_holds() const {
  if (context_.keys.is_development()) return true;
  const Subkeys* keys = context_.keys.find(hello_.key_id);
  return keys != nullptr && digest::equal(hello_proof(*keys, 'n', hello_, reply_), reply_.proof);
}

void NodeLink::on_hello(const Result<Bytes>& body) {
  if (state_ != State::greeting) return;
  if (!body.ok()) return refuse("cannot be reached");
  auto reply = decode_hello_reply(*body);
  if (!reply.ok()) return refuse("its HELLO is not one");
  reply_ = std::move(reply).value();
  if (reply_.outcome != Outcome::ok) return refuse("it refuses this tenant");
  if (!proof_holds()) return refuse("its proof does not hold");
  if (reply_.node != record_.node || reply_.incarnation.raw() == 0) {
    return refuse("it is another node than its record says");
  }
  if (const Status joined = join_rails(); !joined.ok()) return refuse("no rail in common");
  Hello2Request second;
  if (!context_.keys.is_development()) {
    const Subkeys* keys = context_.keys.find(hello_.key_id);
    if (keys == nullptr) return refuse("the key went while greeting");
    second.proof = hello_proof(*keys, 'c', hello_, reply_);
  }
  request(FrameType::hello2, encode(second),
          [this](const Result<Bytes>& answer) { on_hello2(answer); });
}

void NodeLink::on_hello2(const Result<Bytes>& body) {
  if (state_ != State::greeting) return;
  if (!body.ok()) return refuse("cannot be reached");
  const auto reply = decode_outcome(*body);
  if (!reply.ok() || reply->outcome != Outcome::ok) return refuse("it does not take our proof");
  state_ = State::up;
  ++context_.counters.links_opened;
}

// Joins the node's rails with ours by provider, in order.
Status NodeLink::join_rails() {
  const auto& own = context_.environment.rails;
  if (reply_.rails.size() > own.size()) TRY(meet_readers());
  std::vector<bool> taken(own.size());
  bool any = false;
  for (std::size_t at = 0; at < std::min(reply_.rails.size(), own.size()); ++at) {
    const RailAddress& theirs = reply_.rails[at];
    LinkRail rail;
    auto address = fabric::Address::from_bytes(theirs.address);
    for (std::size_t i = 0; address.ok() && i < own.size(); ++i) {
      if (own[i].provider != theirs.provider || taken[i] || rail.engine != nullptr) continue;
      // Only asked whether it may be a target at all; the Engine enters it where it must be.
      if (!context_.domains[i]->admit_peer(*address).ok()) continue;
      context_.domains[i]->release_peer(*address);
      TRY(open_engine(i));
      taken[i] = any = true;
      rail = {i, *address, engines_[i].get()};
      engines_[i]->bind(*address);
      refusal_ends_link_ = refusal_ends_link_ || ends_link_on_refusal(theirs.provider);
    }
    rails_.push_back(rail);
  }
  if (!any) return Error::make(Errc::unreachable, "no rail in common");
  return {};
}

// Behind the node's targets are its endpoints that will pull from ours, where those must know them.
Status NodeLink::meet_readers() {
  const auto& own = context_.environment.rails;
  for (std::size_t i = 0, at = own.size(); i < own.size() && at < reply_.rails.size(); ++i) {
    if (!introduces_readers(own[i].provider)) continue;
    const auto reader = fabric::Address::from_bytes(reply_.rails[at++].address);
    if (as_target_ && reader.ok()) TRY(targets_[i]->add_peer(*reader));
  }
  return {};
}

void NodeLink::request(FrameType type, Bytes body, OnReply done) {
  const std::uint64_t id = next_request_++;
  if (state_ == State::down) {
    replies_.emplace_back(std::move(done), Error::make(Errc::connection_lost, "kv link"));
    return;
  }
  requests_.emplace(id, std::pair(type, std::move(done)));
  Frame frame;
  frame.type = type;
  frame.req_id = id;
  frame.body = std::move(body);
  if (!control_->send(frame).ok()) cut("its control connection takes nothing");
}

void NodeLink::tell(FrameType type, Bytes body) {
  if (state_ != State::up) return;
  Frame frame;
  frame.type = type;
  frame.req_id = next_request_++;
  frame.body = std::move(body);
  if (!control_->send(frame).ok()) cut("its control connection takes nothing");
}

Status NodeLink::move(Movement movement, OnMoved done) {
  ASSERT(state_ == State::up);
  return start_movement(rails_, {context_.options.piece_max, reply_.max_read}, std::move(movement),
                        std::move(done));
}

void NodeLink::on_frame(const Frame& frame) {
  const auto at = requests_.find(frame.req_id);
  if (!frame.reply || at == requests_.end() || at->second.first != frame.type) {
    return cut("it answers what was not asked");
  }
  replies_.emplace_back(std::move(at->second.second), frame.body);
  requests_.erase(at);
}

bool NodeLink::deliver() {
  if (replies_.empty()) return false;
  auto now = std::move(replies_);
  replies_.clear();
  for (auto& [done, body] : now) done(std::move(body));
  return true;
}

bool NodeLink::step_frames() {
  bool moved = deliver();
  while (state_ != State::down) {
    Result<Frame> frame = control_->receive();
    if (!frame.ok()) {
      if (frame.code() != Errc::again) cut("its control connection is lost");
      break;
    }
    on_frame(*frame);
    moved = deliver() || moved;
  }
  if (state_ == State::greeting && context_.environment.clock.now() >= greet_until_) {
    refuse("it does not answer");
    moved = true;
  }
  return deliver() || moved;
}

bool NodeLink::step_engines() {
  bool moved = false;
  for (const auto& engine : engines_) {
    if (engine != nullptr) moved = engine->step() || moved;
  }
  return moved;
}

std::vector<int> NodeLink::wait_fds() const {
  std::vector<int> fds;
  for (const auto& engine : engines_) {
    if (engine != nullptr && engine->wait_fd() >= 0) fds.push_back(engine->wait_fd());
  }
  return fds;
}

bool NodeLink::must_poll() const noexcept {
  return std::any_of(engines_.begin(), engines_.end(), [](const auto& engine) {
    return engine != nullptr && engine->wait_fd() < 0 && engine->live() > 0;
  });
}

void NodeLink::fail_requests() {
  for (auto& [id, request] : requests_) {
    replies_.emplace_back(std::move(request.second), Error::make(Errc::connection_lost, "kv link"));
  }
  requests_.clear();
}

void NodeLink::cut(const char* why) {
  if (state_ == State::down) return;
  if (state_ == State::up) {
    ++context_.counters.links_lost;
    if (why != nullptr) {
      logf(LogLevel::info, "kv client: link to node %llu ends: %s",
           static_cast<unsigned long long>(record_.node.raw()), why);
    }
  }
  state_ = State::down;
  // Before anybody hears that a pull is over: what could still read the source is gone (7.2a).
  for (const auto& target : targets_) target->close().ignore();  // closed for certain on return
  if (control_ != nullptr) control_->close();
  fail_requests();
  for (const auto& engine : engines_) {
    if (engine != nullptr) engine->cancel_all();
  }
}

void NodeLink::close(const char* why) {
  cut(why);
  for (const auto& engine : engines_) {
    if (engine != nullptr) engine->close();
  }
}

bool NodeLink::unused() const noexcept {
  if (!requests_.empty() || !replies_.empty() || !window_.waiting.empty()) return false;
  return std::all_of(engines_.begin(), engines_.end(),
                     [](const auto& engine) { return engine == nullptr || engine->live() == 0; });
}

}  // namespace farlift::kv::client
