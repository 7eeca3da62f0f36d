#include "kvcache/client/testing/fake_node.h"

#include "core/base/assert.h"
#include "core/digest/crc32c.h"
#include "kvcache/wire/names.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farlift::kv::client::testing {

FakeNode::FakeNode(Options options, Transport& transport, sim::SimValkey& valkey)
    : options_(std::move(options)),
      transport_(transport),
      valkey_(valkey),
      prng_(options_.seed),
      arena_(memory::Mapping::create(options_.arena, {.huge_pages = false}).value()),
      directory_(valkey.open_directory(options_.host)) {
  for (std::size_t i = 0; i < options_.rails; ++i) domains_.push_back(options_.open_domain());
  open();
}

FakeNode::~FakeNode() = default;

std::uint64_t FakeNode::draw() { return prng_.next() | 1; }

void FakeNode::open() {
  incarnation_ = Incarnation(draw());
  register_arena();
  for (auto& domain : domains_) {
    fabric::TargetOptions target;
    targets_.push_back(domain->open_target(target).value());
  }
  transfer::EngineOptions engine;
  puller_ = transfer::Engine::create(*domains_[0], *options_.clock, engine).value();
  const std::uint16_t port = static_cast<std::uint16_t>(20000 + prng_.below(20000));
  listener_ = transport_.listen(options_.host, port).value();
}

void FakeNode::register_arena() {
  registrations_.clear();
  for (auto& domain : domains_) {
    registrations_.push_back(
        domain->register_memory({arena_.bytes(), arena_.memfd(), 0}, fabric::Access::remote_read)
            .value());
  }
}

NodeRecord FakeNode::record() const {
  NodeRecord record;
  record.node = options_.id;
  record.incarnation = incarnation_;
  record.host = options_.host;
  record.port = listener_->port();
  for (std::size_t i = 0; i < options_.rails; ++i) record.rails.push_back({options_.provider});
  record.free_bytes = options_.free_bytes;
  record.last_port = last_port_;
  record.up_seconds = 1000;
  return record;
}

void FakeNode::announce() {
  announced_once_ = true;
  announced_ = options_.clock->now();
  directory_->announce(record(), [](const Status&) {});
}

std::uint64_t FakeNode::reserve(Length length) {
  const std::uint64_t align = length.raw() >= kLargePayload ? 4096 : 64;
  const std::uint64_t payload = (used_ + kHeaderBytes + align - 1) / align * align;
  ASSERT(payload + length.raw() <= arena_.bytes().size());
  used_ = payload + length.raw();
  return payload - kHeaderBytes;
}

Stored FakeNode::sign(const Bytes& key, Descriptor descriptor) const {
  const Keyring& keys = *options_.keys;
  descriptor.key_id = keys.signing_id();
  descriptor.key_hash = keys.signing().key_hash(key);
  Stored stored;
  stored.descriptor = descriptor;
  stored.bytes = encode_descriptor(descriptor);
  if (!keys.is_development()) {
    const Tag tag = make_tag(keys.signing(), options_.tenant, key, stored.bytes);
    stored.tag.assign(tag.begin(), tag.end());
  }
  return stored;
}

Stored FakeNode::store(const Bytes& key, std::span<const std::byte> payload, Version version) {
  const std::uint64_t slot = reserve(Length(payload.size()));
  std::copy(payload.begin(), payload.end(),
            arena_.bytes().begin() + static_cast<std::ptrdiff_t>(slot + kHeaderBytes));
  Descriptor descriptor;
  descriptor.virtual_address = domains_[0]->info().virtual_addressing;
  descriptor.location = {options_.id, incarnation_, ArenaId(7), gen_,
                         registrations_[0]->addr() + Offset(slot)};
  descriptor.length = Length(payload.size());
  descriptor.version = version;
  descriptor.crc = digest::crc32c(payload);
  for (const auto& registration : registrations_) descriptor.rkeys.push_back(registration->key());
  Stored stored = sign(key, descriptor);
  const auto header = encode_header(
      {stored.descriptor.crc, stored.descriptor.key_hash, version, stored.descriptor.length});
  std::copy(header.begin(), header.end(),
            arena_.bytes().begin() + static_cast<std::ptrdiff_t>(slot));
  return stored;
}

void FakeNode::write(const Bytes& key, const Stored& stored) {
  valkey_.write(descriptor_name(options_.tenant, key), stored.bytes);
  if (!stored.tag.empty()) valkey_.write(tag_name(options_.tenant, key), stored.tag);
}

Stored FakeNode::publish(const Bytes& key, std::span<const std::byte> payload, Version version) {
  Stored stored = store(key, payload, version);
  write(key, stored);
  return stored;
}

std::span<std::byte> FakeNode::slot(const Descriptor& descriptor) {
  const std::uint64_t at = descriptor.location.addr.raw() - registrations_[0]->addr().raw();
  return arena_.bytes().subspan(at, kHeaderBytes + descriptor.length.raw());
}

void FakeNode::rotate() {
  for (auto& registration : registrations_) ASSERT(registration->close().ok());
  std::memset(arena_.bytes().data(), 0xEE, arena_.bytes().size());
  used_ = 4096;
  gen_ = ArenaGen(gen_.raw() + 1);
  register_arena();
}

void FakeNode::fence() {
  targets_.clear();
  for (auto& domain : domains_) targets_.push_back(domain->open_target({}).value());
}

void FakeNode::restart(bool announced) {
  last_port_ = listener_->port();
  links_.clear();
  grants_.clear();
  outcomes_.clear();
  puller_.reset();
  targets_.clear();
  listener_.reset();
  gen_ = ArenaGen(1);
  open();
  if (announced) announce();
}

bool FakeNode::step() {
  const Instant now = options_.clock->now();
  if (announcing && (!announced_once_ || now - announced_ >= kNodeRenew)) announce();
  bool moved = directory_->step();
  moved = transport_.step() || moved;
  moved = puller_->step() || moved;
  while (auto link = listener_->accept()) {
    auto peer = std::make_unique<Peer>();
    peer->link = std::move(link);
    links_.push_back(std::move(peer));
    moved = true;
  }
  for (std::size_t i = 0; i < links_.size(); ++i) moved = step_peer(*links_[i]) || moved;
  std::erase_if(links_, [](const auto& peer) { return peer->link->lost(); });
  return moved;
}

bool FakeNode::step_peer(Peer& peer) {
  bool moved = false;
  for (;;) {
    auto frame = peer.link->receive();
    if (!frame.ok()) {
      if (frame.code() != Errc::again) peer.link->close();
      return moved;
    }
    moved = true;
    if (!mischief.mute) serve(peer, *frame);
  }
}

void FakeNode::answer(Peer& peer, const Frame& to, Bytes body) {
  Frame frame;
  frame.type = to.type;
  frame.reply = true;
  frame.req_id = mischief.garbage ? to.req_id + 1000 : to.req_id;
  frame.body = std::move(body);
  peer.link->send(frame).ignore();  // a lost link shows in step()
}

// Replies of puts come when their pull is done; the peer may have gone by then.
void FakeNode::answer_later(const HelloRequest& who, const Frame& to, Bytes body) {
  for (auto& peer : links_) {
    if (peer->hello.nonce == who.nonce) return answer(*peer, to, std::move(body));
  }
}

void FakeNode::serve(Peer& peer, const Frame& frame) {
  if (frame.type == FrameType::hello) return on_hello(peer, frame);
  if (frame.type == FrameType::hello2) {
    const Keyring& keys = *options_.keys;
    const auto proof = decode_hello2(frame.body);
    peer.proven = proof.ok() && !mischief.deaf_to_hello2 &&
                  (keys.is_development() ||
                   proof->proof == hello_proof(keys.signing(), 'c', peer.hello, peer.reply));
    return answer(peer, frame,
                  encode(OutcomeReply{peer.proven ? Outcome::ok : Outcome::reject_sig}));
  }
  if (!peer.proven) return peer.link->close();
  switch (frame.type) {
    case FrameType::put_pull:
      return on_pull(peer, frame);
    case FrameType::alloc:
      return on_alloc(peer, frame);
    case FrameType::seal:
      return on_seal(peer, frame);
    case FrameType::abort:
      ++seen.aborts;
      return answer(peer, frame, encode(OutcomeReply{}));
    case FrameType::remove:
      return on_remove(peer, frame);
    case FrameType::stale_seen:
      seen.stale.push_back(decode_stale_seen(frame.body).value());
      return answer(peer, frame, encode(OutcomeReply{}));
    case FrameType::touch: {
      const auto touch = decode_touch(frame.body).value();
      seen.touched.insert(seen.touched.end(), touch.key_hashes.begin(), touch.key_hashes.end());
      seen.touch_times.push_back(options_.clock->now());
      return;
    }
    default:
      return;
  }
}

void FakeNode::on_hello(Peer& peer, const Frame& frame) {
  ++seen.hellos;
  peer.hello = decode_hello(frame.body).value();
  if (const auto target = fabric::Address::from_bytes(peer.hello.rails.at(0).address);
      target.ok()) {
    client_target_ = *target;
  }
  HelloReply& reply = peer.reply;
  reply.node = mischief.another_node ? NodeId(options_.id.raw() + 100) : options_.id;
  reply.incarnation = incarnation_;
  for (auto& b : reply.nonce) b = static_cast<std::byte>(prng_.next());
  reply.fence_mode = mischief.fence_mode;
  reply.virtual_address = domains_[0]->info().virtual_addressing;
  reply.max_read = mischief.max_read;
  for (const auto& target : targets_) {
    const auto bytes = target->address().bytes();
    reply.rails.push_back({options_.provider, Bytes(bytes.begin(), bytes.end())});
  }
  const Keyring& keys = *options_.keys;
  if (!keys.is_development()) {
    const Subkeys* own = keys.find(peer.hello.key_id);
    if (own == nullptr || peer.hello.tenant != options_.tenant) {
      reply.outcome = Outcome::reject_sig;
    } else {
      reply.proof = hello_proof(*own, 'n', peer.hello, reply);
    }
  }
  if (mischief.wrong_proof) reply.proof[0] ^= std::byte{1};
  answer(peer, frame, encode(reply));
}

void FakeNode::finish_put(const Bytes& key, std::uint64_t slot, Length length, Crc32c crc,
                          PutMode mode, Version expected, const PutId& put_id,
                          const std::function<void(PutReply)>& reply) {
  const auto payload = arena_.bytes().subspan(slot + kHeaderBytes, length.raw());
  PutReply result;
  const auto current = valkey_.state().get(descriptor_name(options_.tenant, key));
  Version now;
  if (current) now = decode_descriptor(*current).value().version;
  if (digest::crc32c(payload) != crc) {
    result.outcome = Outcome::bad_crc;
  } else if (mode == PutMode::if_absent && current) {
    result.outcome = Outcome::exists;
    result.version = now;
  } else if (mode == PutMode::if_version && now != expected) {
    result.outcome = Outcome::conflict;
    result.version = now;
  } else {
    result.version = Version(now.rev() + 1, uid_++);
    Descriptor descriptor;
    descriptor.virtual_address = domains_[0]->info().virtual_addressing;
    descriptor.location = {options_.id, incarnation_, ArenaId(7), gen_,
                           registrations_[0]->addr() + Offset(slot)};
    descriptor.length = length;
    descriptor.version = result.version;
    descriptor.crc = crc;
    for (const auto& one : registrations_) descriptor.rkeys.push_back(one->key());
    const Stored stored = sign(key, descriptor);
    const auto header = encode_header({crc, stored.descriptor.key_hash, result.version, length});
    std::copy(header.begin(), header.end(),
              arena_.bytes().begin() + static_cast<std::ptrdiff_t>(slot));
    write(key, stored);
    result.descriptor = stored.bytes;
    result.tag = stored.tag;
  }
  outcomes_[put_id] = result;
  reply(result);
}

void FakeNode::on_pull(Peer& peer, const Frame& frame) {
  ++seen.pulls;
  const auto request = decode_put_pull(frame.body).value();
  if (const auto at = outcomes_.find(request.put_id); at != outcomes_.end()) {
    return answer(peer, frame, encode(at->second));
  }
  if (mischief.full) return answer(peer, frame, encode(PutReply{Outcome::full, {}, {}, {}}));
  if (mischief.answer) {
    return answer(peer, frame, encode(PutReply{*mischief.answer, {}, {}, {}}));
  }
  if (mischief.never_answer_puts) return;
  const bool lose = std::exchange(mischief.lose_next_put, false);
  const std::uint64_t slot = reserve(request.length);
  const auto seal = [this, request, slot, frame, lose, hello = peer.hello](const Status& pulled) {
    if (!pulled.ok()) {
      return answer_later(hello, frame, encode(PutReply{Outcome::timeout, {}, {}, {}}));
    }
    finish_put(request.key, slot, request.length, request.crc, request.mode, request.expected,
               request.put_id, [this, frame, hello, lose](const PutReply& reply) {
                 if (lose) {
                   for (auto& one : links_) one->link->close();
                   return;
                 }
                 answer_later(hello, frame, encode(reply));
               });
  };
  if (request.length.raw() == 0) return seal({});
  transfer::Job job;
  job.kind = fabric::OpKind::read;
  job.peer = fabric::Address::from_bytes(peer.hello.rails.at(0).address).value();
  job.local.push_back(
      {arena_.bytes().subspan(slot + kHeaderBytes, request.length.raw()), registrations_[0].get()});
  job.remote.push_back({request.source_rkeys.at(0), request.source, request.length});
  puller_->submit(std::move(job), transfer::lend([seal](const transfer::TransferOutcome& outcome) {
                    seal(outcome.status);
                  }));
}

void FakeNode::on_alloc(Peer& peer, const Frame& frame) {
  ++seen.allocs;
  const auto request = decode_alloc(frame.body).value();
  if (mischief.full) return answer(peer, frame, encode(AllocReply{Outcome::full, 0, {}, {}, 0}));
  const std::uint64_t slot = reserve(request.length);
  const auto payload = arena_.bytes().subspan(slot + kHeaderBytes, request.length.raw());
  AllocReply reply;
  reply.slot_id = slot;
  reply.grant_ms = 2000;
  std::unique_ptr<fabric::Registration> grant;  // none for an empty value
  if (!payload.empty()) {
    grant = domains_[0]
                ->register_memory({payload, arena_.memfd(), slot + kHeaderBytes},
                                  fabric::Access::remote_write)
                .value();
    reply.payload = grant->addr();
    reply.grant_rkeys = {grant->key()};
  }
  grants_[slot] = {std::move(grant), request};
  answer(peer, frame, encode(reply));
}

void FakeNode::on_seal(Peer& peer, const Frame& frame) {
  ++seen.seals;
  const auto request = decode_seal(frame.body).value();
  const auto at = grants_.find(request.slot_id);
  if (at == grants_.end()) {
    return answer(peer, frame, encode(PutReply{Outcome::bad_arg, {}, {}, {}}));
  }
  if (at->second.first != nullptr) ASSERT(at->second.first->close().ok());
  const AllocRequest what = at->second.second;
  grants_.erase(at);
  finish_put(what.key, request.slot_id, what.length, request.crc, request.mode, request.expected,
             request.put_id, [&](const PutReply& reply) { answer(peer, frame, encode(reply)); });
}

void FakeNode::on_remove(Peer& peer, const Frame& frame) {
  ++seen.removes;
  const auto request = decode_remove(frame.body).value();
  UnpublishRequest unpublish;
  unpublish.tenant = options_.tenant;
  unpublish.key = request.key;
  unpublish.how =
      request.version.none() ? UnpublishRequest::How::any : UnpublishRequest::How::version;
  unpublish.version = request.version;
  const auto kind = valkey_.state().unpublish(unpublish);
  answer(peer, frame,
         encode(OutcomeReply{kind == UnpublishReply::Kind::removed  ? Outcome::ok
                             : kind == UnpublishReply::Kind::absent ? Outcome::miss
                                                                    : Outcome::conflict}));
}

}  // namespace farlift::kv::client::testing
