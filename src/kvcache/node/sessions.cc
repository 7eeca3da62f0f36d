#include "kvcache/node/sessions.h"

#include "core/base/log.h"
#include "core/digest/hash.h"
#include "kvcache/node/capability.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace farlift::kv::node {

Sessions::~Sessions() {
  for (auto& [id, session] : sessions_) end(session);
}

bool Sessions::step() {
  if (listener_ != nullptr) accept();
  bool any = false;
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    Session& session = at->second;
    any = serve(session) || any;
    if (session.state == State::ready && readers_changed(session)) session.ending = true;
    if (!session.ending) {
      ++at;
      continue;
    }
    end(session);
    at = sessions_.erase(at);
    any = true;
  }
  return any;
}

void Sessions::accept() {
  while (std::unique_ptr<Link> link = listener_->accept()) {
    if (sessions_.size() >= core_.options.links_max) {
      core_.counters.add(Count::links_refused);
      continue;  // closes
    }
    core_.counters.add(Count::links_accepted);
    const std::uint64_t id = next_id_++;
    Session& session = sessions_[id];
    session.id = id;
    session.link = std::move(link);
    core_.after(kHandshakeMax, [this, id] {
      const auto at = sessions_.find(id);
      if (at != sessions_.end() && at->second.state != State::ready) at->second.ending = true;
    });
  }
}

bool Sessions::serve(Session& session) {
  bool any = false;
  for (int i = 0; i < kFramesPerTurn && !session.ending && session.open < kOpenMax; ++i) {
    auto frame = session.link->receive();
    if (!frame.ok()) {
      if (frame.code() == Errc::protocol) core_.counters.add(Count::protocol_errors);
      if (frame.code() != Errc::again) session.ending = true;
      return any;
    }
    any = true;
    handle(session, *frame);
  }
  return any;
}

void Sessions::handle(Session& session, const Frame& frame) {
  if (frame.reply) return protocol_error(session);
  switch (session.state) {
    case State::fresh:
      return frame.type == FrameType::hello ? hello(session, frame) : protocol_error(session);
    case State::greeted:
      return frame.type == FrameType::hello2 ? hello2(session, frame) : protocol_error(session);
    case State::ready:
      return request(session, frame);
  }
}

void Sessions::protocol_error(Session& session) {
  core_.counters.add(Count::protocol_errors);
  session.ending = true;
}

template <class Body>
void Sessions::answer(std::uint64_t id, const Frame& to, const Body& body) {
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return;
  const Status sent = at->second.link->send({to.type, true, to.req_id, encode(body)});
  if (!sent.ok()) at->second.ending = true;  // it does not read, or is gone
}

void Sessions::hello(Session& session, const Frame& frame) {
  HelloReply reply;
  auto request = decode_hello(frame.body);
  if (request.ok()) {
    session.hello = std::move(request).value();
    reply.outcome = welcome(session, reply);
  } else {
    reply.outcome = Outcome::bad_arg;
  }
  if (reply.outcome != Outcome::ok) {
    const Outcome outcome = reply.outcome;
    reply = HelloReply();  // nothing is told to whom we do not know
    reply.outcome = outcome;
    core_.counters.add(Count::hellos_refused);
    session.ending = true;
  } else {
    session.welcome = reply;
    session.state = State::greeted;
  }
  answer(session.id, frame, reply);
}

Outcome Sessions::welcome(Session& session, HelloReply& reply) {
  session.tenant = core_.tenant(session.hello.tenant);
  const Subkeys* const keys =
      session.tenant == nullptr ? nullptr : session.tenant->keys().find(session.hello.key_id);
  if (keys == nullptr) return Outcome::reject_sig;  // which of the two is nobody's business
  Tenant& tenant = *session.tenant;
  if (!tenant.targets_open()) return Outcome::unreachable;
  if (!rails_fit(session.hello)) return Outcome::bad_arg;
  reply.node = core_.options.id;
  reply.incarnation = core_.incarnation;
  core_.environment.random(reply.nonce);
  reply.fence_mode = core_.fence_mode == fabric::FenceMode::mr         ? FenceWord::mr
                     : core_.fence_mode == fabric::FenceMode::endpoint ? FenceWord::endpoint
                                                                       : FenceWord::drain;
  reply.virtual_address = core_.virtual_address;
  reply.max_read = core_.read_max;
  for (std::size_t rail = 0; rail < tenant.rails(); ++rail) {
    reply.rails.push_back(
        {core_.environment.rails[rail].provider, to_bytes(tenant.target(rail)->address().bytes())});
  }
  for (RailAddress& reader : readers(tenant)) reply.rails.push_back(std::move(reader));
  if (!tenant.keys().is_development()) reply.proof = hello_proof(*keys, 'n', session.hello, reply);
  return Outcome::ok;
}

// Our rails in our order, each with the client's target; behind them who will read, or nobody.
bool Sessions::rails_fit(const HelloRequest& hello) const {
  const auto& own = core_.environment.rails;
  std::vector<std::string> named;
  for (const Rail& rail : own) named.push_back(rail.provider);
  if (hello.rails.size() > own.size()) {
    std::copy_if(named.begin(), named.begin() + static_cast<std::ptrdiff_t>(own.size()),
                 std::back_inserter(named), introduces_readers);
  }
  return std::equal(
      hello.rails.begin(), hello.rails.end(), named.begin(), named.end(),
      [](const RailAddress& theirs, const std::string& name) { return theirs.provider == name; });
}

// Our endpoints that pull, on rails whose targets must know them.
std::vector<RailAddress> Sessions::readers(Tenant& tenant) const {
  std::vector<RailAddress> found;
  for (std::size_t rail = 0; rail < tenant.rails(); ++rail) {
    const std::string& provider = core_.environment.rails[rail].provider;
    if (!introduces_readers(provider)) continue;
    const transfer::Engine* const engine = tenant.engine(rail);
    found.push_back({provider, engine != nullptr ? to_bytes(engine->address().bytes()) : Bytes()});
  }
  return found;
}

// A fence of pulls gave the tenant another endpoint, which the client's targets do not know.
bool Sessions::readers_changed(Session& session) const {
  const auto& told = session.welcome.rails;
  if (told.size() == session.tenant->rails()) return false;
  const auto now = readers(*session.tenant);
  return !std::equal(told.begin() + static_cast<std::ptrdiff_t>(session.tenant->rails()),
                     told.end(), now.begin(), now.end());
}

void Sessions::hello2(Session& session, const Frame& frame) {
  const auto request = decode_hello2(frame.body);
  OutcomeReply reply;
  if (!request.ok()) {
    reply.outcome = Outcome::bad_arg;
  } else if (!proven(session, request->proof)) {
    core_.counters.add(Count::proofs_refused);
    reply.outcome = Outcome::reject_sig;
  } else {
    reply.outcome = admit(session);
  }
  if (reply.outcome == Outcome::ok) {
    session.state = State::ready;
  } else {
    session.ending = true;
  }
  answer(session.id, frame, reply);
}

bool Sessions::proven(const Session& session, const Tag& proof) const {
  const Keyring& ring = session.tenant->keys();
  if (ring.is_development()) return true;
  const Subkeys* const keys = ring.find(session.hello.key_id);
  if (keys == nullptr) return false;  // dropped since
  return digest::equal(hello_proof(*keys, 'c', session.hello, session.welcome), proof);
}

// Only now do the client's addresses reach a domain (spec kv 5, HELLO2).
Outcome Sessions::admit(Session& session) {
  Tenant& tenant = *session.tenant;
  if (!tenant.targets_open()) return Outcome::unreachable;
  session.addresses.resize(tenant.rails());
  session.admitted = true;
  for (std::size_t rail = 0; rail < tenant.rails(); ++rail) {
    const Bytes& bytes = session.hello.rails[rail].address;
    if (bytes.empty()) continue;  // a client that only reads
    const auto address = fabric::Address::from_bytes(bytes);
    if (!address.ok() || !tenant.domain(rail).admit_peer(*address).ok()) return Outcome::bad_arg;
    session.addresses[rail] = *address;
    tenant.bind(rail, *address);
    if (!tenant.target(rail)->add_peer(*address).ok()) return Outcome::bad_arg;
  }
  for (std::size_t rail = 0, at = tenant.rails();
       rail < tenant.rails() && at < session.hello.rails.size(); ++rail) {
    if (!introduces_readers(core_.environment.rails[rail].provider)) continue;
    const auto reader = fabric::Address::from_bytes(session.hello.rails[at++].address);
    if (!reader.ok() || !tenant.target(rail)->add_peer(*reader).ok()) return Outcome::bad_arg;
  }
  return Outcome::ok;
}

void Sessions::end(Session& session) {
  if (!session.admitted) return;
  session.admitted = false;
  for (std::size_t rail = 0; rail < session.addresses.size(); ++rail) {
    if (!session.addresses[rail]) continue;
    session.tenant->unbind(rail, *session.addresses[rail]);
    session.tenant->domain(rail).release_peer(*session.addresses[rail]);
  }
}

void Sessions::request(Session& session, const Frame& frame) {
  switch (frame.type) {
    case FrameType::put_pull:
      return put_pull(session, frame);
    case FrameType::alloc:
      return alloc(session, frame);
    case FrameType::seal:
      return seal(session, frame);
    case FrameType::touch:
      return touch(session, frame);
    case FrameType::stat:
      return answer(session.id, frame, services_.stat(*session.tenant));
    case FrameType::abort:
    case FrameType::remove:
    case FrameType::superseded:
    case FrameType::stale_seen:
    case FrameType::drain:
    case FrameType::rotate:
      return simple(session, frame);
    case FrameType::hello:
    case FrameType::hello2:
      return protocol_error(session);
  }
}

namespace {

Frame head_of(const Frame& frame) { return {frame.type, false, frame.req_id, {}}; }

}  // namespace

std::function<void(Outcome)> Sessions::outcome_later(Session& session, const Frame& frame) {
  ++session.open;
  return core_.guarded([this, id = session.id, head = head_of(frame)](Outcome outcome) {
    if (const auto at = sessions_.find(id); at != sessions_.end()) --at->second.open;
    answer(id, head, OutcomeReply{outcome});
  });
}

Outcomes::Reply Sessions::put_later(Session& session, const Frame& frame) {
  ++session.open;
  return core_.guarded([this, id = session.id, head = head_of(frame)](const PutReply& reply) {
    if (const auto at = sessions_.find(id); at != sessions_.end()) --at->second.open;
    answer(id, head, reply);
  });
}

void Sessions::put_pull(Session& session, const Frame& frame) {
  auto request = decode_put_pull(frame.body);
  if (!request.ok()) {
    PutReply refused;
    refused.outcome = Outcome::bad_arg;
    return answer(session.id, frame, refused);
  }
  services_.pulls.start(*session.tenant, std::move(request).value(), session.addresses,
                        put_later(session, frame));
}

void Sessions::alloc(Session& session, const Frame& frame) {
  const auto request = decode_alloc(frame.body);
  AllocReply reply;
  reply.outcome = Outcome::bad_arg;
  if (request.ok()) reply = services_.grants.alloc(*session.tenant, *request);
  answer(session.id, frame, reply);
}

void Sessions::seal(Session& session, const Frame& frame) {
  const auto request = decode_seal(frame.body);
  if (!request.ok()) {
    PutReply refused;
    refused.outcome = Outcome::bad_arg;
    return answer(session.id, frame, refused);
  }
  services_.grants.seal(*session.tenant, *request, put_later(session, frame));
}

void Sessions::simple(Session& session, const Frame& frame) {
  Tenant& tenant = *session.tenant;
  Outcome outcome = Outcome::bad_arg;
  if (frame.type == FrameType::abort) {
    const auto request = decode_abort(frame.body);
    if (request.ok()) outcome = services_.grants.abort(tenant, *request);
  } else if (frame.type == FrameType::remove) {
    auto request = decode_remove(frame.body);
    if (request.ok()) {
      return services_.remover.remove(tenant, std::move(request).value(),
                                      outcome_later(session, frame));
    }
  } else if (frame.type == FrameType::superseded) {
    const auto request = decode_superseded(frame.body);
    if (request.ok()) {
      return services_.remover.superseded(tenant, *request, outcome_later(session, frame));
    }
  } else if (frame.type == FrameType::stale_seen) {
    auto request = decode_stale_seen(frame.body);
    if (request.ok()) {
      return services_.remover.stale_seen(tenant, std::move(request).value(),
                                          outcome_later(session, frame));
    }
  } else if (frame.type == FrameType::rotate) {
    const auto request = decode_rotate(frame.body);
    if (request.ok()) outcome = services_.rotate(tenant, *request);
  } else if (frame.type == FrameType::drain && frame.body.empty()) {
    // A tenant may empty what is its own; where others live on the node it is the operator's.
    if (core_.tenants.size() == 1) {
      services_.drain();
      outcome = Outcome::ok;
    }
  }
  answer(session.id, frame, OutcomeReply{outcome});
}

void Sessions::touch(Session& session, const Frame& frame) {
  const auto request = decode_touch(frame.body);
  if (!request.ok()) return protocol_error(session);  // there is no reply to say it in
  for (const KeyHash hash : request->key_hashes) session.tenant->touch(hash);
}

void Sessions::drop(const Tenant& tenant) {
  for (auto& [id, session] : sessions_) {
    if (session.tenant == &tenant) session.ending = true;
  }
}

}  // namespace farlift::kv::node
