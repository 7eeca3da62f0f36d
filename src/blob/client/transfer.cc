#include "blob/client/transfer.h"

#include "blob/client/client_core.h"
#include "blob/client/link.h"
#include "blob/wire/names.h"
#include "core/digest/crc32c.h"
#include "core/net/resp/reply_error.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace farlift::client {
namespace {

// Ends Router::run() without another try; what happened is in the Transfer.
resp::Attempt decided() { return {Error::make(Errc::aborted, "transfer"), true}; }

}  // namespace

Transfer::Transfer(ClientCore& core, Kind kind, std::string_view key, std::vector<Target> targets,
                   std::optional<std::uint32_t> checksum)
    : core_(core), kind_(kind), key_(key), targets_(std::move(targets)), checksum_(checksum) {}

Expected<std::optional<RdmaReadReceipt>> Transfer::run() {
  if (Expected<void> ok = begin(); !ok) return ok.error();
  build_command();
  std::string reason;
  const Result<resp::Value> last = send(&reason);
  if (core_.closing()) core_.await_quiet();
  if (!failure_ && !answered_) {
    if (!last.ok()) {
      const ClientError error = core_.to_client_error(last.error(), reason);
      fail(error.kind == ErrorKind::request ? ErrorKind::rdma : error.kind, error.text);
    } else {
      // The server refused, or redirections did not end: nothing is in flight (spec blob 1 rule 4).
      fail(ErrorKind::rdma, last->is_error() ? std::string(last->text()) : "no usable reply");
    }
  }
  if (!failure_ && receipt_ && kind_ == Kind::get) {
    if (Expected<void> ok = verify(); !ok) failure_ = ok.error();
  }
  end_regions();
  if (failure_) return *failure_;
  if (kind_ == Kind::set) return std::optional<RdmaReadReceipt>(RdmaReadReceipt{});
  return receipt_;
}

// The request timeout bounds how long an ordinary command waits for the connection, not a transfer
// (spec blob 10.2 rule 9): `busy` says that nothing was sent, so it waits again.
Result<resp::Value> Transfer::send(std::string* reason) {
  for (;;) {
    Result<resp::Value> last = core_.transfer_router().run(
        key_, [this](resp::Connection& connection) { return attempt(connection); }, reason);
    if (last.ok() || last.code() != Errc::busy || failure_ || core_.closing()) return last;
  }
}

// Spec blob 10.2 rule 5, in its order; everything refused here leaves the regions as they were.
Expected<void> Transfer::begin() {
  if (Expected<void> ok = core_.check_open(); !ok) return ok;
  if (core_.fabric() == nullptr) return rdma_error("this client was created without 'rdma'");
  if (targets_.empty()) return rdma_error("a transfer needs at least one window");
  if (targets_.size() > blob::wire::kRegionsMax) {
    return rdma_error("a transfer takes at most " + std::to_string(blob::wire::kRegionsMax) +
                      " windows");
  }
  for (const Target& target : targets_) {
    if (!target.region) return ClientError{ErrorKind::type, "not a window of a registered region"};
  }
  for (const Target& target : targets_) {
    if (target.region->fabric() != core_.fabric()) {
      return rdma_error("the region belongs to another client");
    }
  }
  if (core_.hooks().before_regions) core_.hooks().before_regions();
  if (Expected<void> ok = begin_regions(); !ok) {
    end_regions();
    return ok;
  }
  const auto refuse = [this](std::string text) -> Expected<void> {
    end_regions();
    return rdma_error(std::move(text));
  };
  if (core_.counters().multis_open.load(std::memory_order_acquire) > 0) {
    return refuse("a transaction is open on this client; send EXEC or DISCARD first");
  }
  for (const Target& target : targets_) {
    if (target.length == 0) return refuse("a window of length 0 cannot be transferred");
    length_ += target.length;  // windows lie in our address space, at most 256 of them
    if (length_ < target.length) return refuse("the windows are longer than 2^64 bytes together");
  }
  if (kind_ == Kind::get) {
    for (const Exposure& one : exposures_) {
      if (overlapping(one.extents)) return refuse("the windows of one read must not overlap");
    }
  }
  return {};
}

Expected<void> Transfer::begin_regions() {
  for (const Target& target : targets_) {
    auto known = std::find_if(exposures_.begin(), exposures_.end(),
                              [&](const Exposure& one) { return one.region == target.region; });
    if (known == exposures_.end()) {
      auto owner = target.region->try_begin();
      if (!owner) {
        // Closed since begin() looked? Then it is the client that is closed, and that goes first.
        if (Expected<void> open = core_.check_open(); !open) return open;
        return owner.error();
      }
      exposures_.push_back({target.region, std::move(owner).value(), {}, std::nullopt});
      known = std::prev(exposures_.end());
    }
    known->extents.push_back({Offset(target.offset), Length(target.length)});
  }
  return {};
}

void Transfer::end_regions() noexcept {
  for (Exposure& one : exposures_) {
    if (watching()) one.region->registration().watch(false);
    one.region->finish();
  }
}

bool Transfer::watching() const noexcept {
  return kind_ == Kind::get && core_.options().rdma->verify &&
         core_.fabric()->domain->info().reports_landed_crc;
}

void Transfer::build_command() {
  numbers_.reserve(2 + 3 * targets_.size());  // views point into it
  words_ = {kind_ == Kind::get ? blob::wire::kRdmaGet : blob::wire::kRdmaSet, key_};
  const auto add = [this](std::uint64_t number) {
    words_.push_back(numbers_.emplace_back(std::to_string(number)));
  };
  if (kind_ == Kind::set) {
    add(length_);
    if (checksum_) {
      words_.push_back(blob::wire::kKeywordCrc);
      add(*checksum_);
    }
  }
  for (const Target& target : targets_) {
    const fabric::Registration& registration = target.region->registration();
    add(registration.key().raw());
    add((registration.addr() + Offset(target.offset)).raw());
    add(target.length);
  }
}

resp::Attempt Transfer::attempt(resp::Connection& connection) {
  Link& link = Link::of(core_, connection);
  if (std::optional<resp::Attempt> stop = prepare(connection, link)) return *std::move(stop);
  if (core_.hooks().before_send) core_.hooks().before_send(connection);
  if (watching()) {
    for (Exposure& one : exposures_) one.region->registration().watch(true);
  }
  if (const Status sent = connection.send(words_); !sent.ok()) {
    return {sent.error(), false};  // the server has no whole command and runs nothing
  }
  core_.counters().transfers.fetch_add(1, std::memory_order_relaxed);
  Result<resp::Value> reply = link.await_reply(connection, length_);
  if (!reply.ok()) {
    if (core_.closing()) {
      core_.await_quiet();
      fail(ErrorKind::closing, "the client was closed during the transfer");
      connection.cut_off();
    } else {
      cut_off(link, connection);
      fail(ErrorKind::connection,
           "the connection was lost during the transfer, its outcome is unknown: " +
               reply.error().describe());
    }
    return decided();
  }
  if (reply->is_error()) {
    // A refusal that arrives while we close is most likely our own cut-off, seen by the server.
    if (core_.closing()) fail(ErrorKind::closing, "the client was closed during the transfer");
    asking_ = resp::ReplyError::parse(reply->text()).kind == resp::ReplyError::Kind::ask;
  } else {
    take_reply(*reply, link, connection);
  }
  return {std::move(reply), true};
}

// Everything before the command itself. An Attempt: stop here, nothing was exposed.
std::optional<resp::Attempt> Transfer::prepare(resp::Connection& connection, Link& link) {
  // A connection that the server closed while it was idle is found out before anything is exposed.
  if (Result<std::optional<resp::Value>> stray = connection.try_receive(); !stray.ok()) {
    return resp::Attempt{stray.error(), false};
  } else if (stray->has_value()) {
    connection.cut_off();
    return resp::Attempt{Error::make(Errc::protocol, "a reply that nobody asked for"), false};
  }
  if (link.multi_open()) {  // opened by another thread since the first check
    fail(ErrorKind::rdma, "a transaction is open on this client; send EXEC or DISCARD first");
    return decided();
  }
  const bool asking = std::exchange(asking_, false);
  const bool was_bound = link.bound();
  Link::Handshake handshake = link.ensure_bound(connection);
  switch (handshake.outcome) {
    case Link::Handshake::Outcome::bound:
      if (asking && !was_bound) {  // the handshake used up the ASKING that was sent ahead of us
        if (const Result<resp::Value> asked = connection.request({"ASKING"}); !asked.ok()) {
          return resp::Attempt{asked.error(), false};
        }
      }
      return std::nullopt;
    case Link::Handshake::Outcome::refused:
      fail(ErrorKind::rdma, std::move(handshake.text));
      return decided();
    case Link::Handshake::Outcome::lost:
      break;
  }
  connection.cut_off();
  // Spec blob 10.2 rule 8: the cluster client tries again on a new connection.
  if (core_.command_router().is_cluster()) return resp::Attempt{handshake.error, false};
  if (core_.closing()) {
    fail(ErrorKind::closing, "the client was closed");
  } else {
    fail(ErrorKind::connection,
         "the connection was lost during the RDMA handshake: " + handshake.error.describe());
  }
  return decided();
}

void Transfer::take_reply(const resp::Value& reply, Link& link, resp::Connection& connection) {
  if (kind_ == Kind::get) {
    take_get_reply(reply, link, connection);
  } else if (reply.type() == resp::Type::simple && reply.text() == "OK") {
    answered_ = true;
  } else {
    cut_off(link, connection);
    fail(ErrorKind::rdma, "the server answered BLOB.RDMA_SET with neither OK nor an error");
  }
}

void Transfer::take_get_reply(const resp::Value& reply, Link& link, resp::Connection& connection) {
  if (reply.is_null()) {
    answered_ = true;
    return;
  }
  const bool shaped = reply.type() == resp::Type::array && reply.items().size() == 2 &&
                      reply.items()[0].type() == resp::Type::integer &&
                      reply.items()[1].type() == resp::Type::integer &&
                      reply.items()[0].integer() > 0 && reply.items()[1].integer() >= 0 &&
                      reply.items()[1].integer() <= std::numeric_limits<std::uint32_t>::max();
  if (!shaped) {
    cut_off(link, connection);
    fail(ErrorKind::rdma, "the server answered BLOB.RDMA_GET with neither a result nor an error");
    return;
  }
  const auto length = static_cast<std::uint64_t>(reply.items()[0].integer());
  if (length > length_) {  // memory beyond the windows may be dirty
    cut_off(link, connection);
    fail(ErrorKind::rdma, "the server claims to have written " + std::to_string(length) +
                              " bytes where " + std::to_string(length_) + " were offered");
    return;
  }
  answered_ = true;
  receipt_ = RdmaReadReceipt{length, static_cast<std::uint32_t>(reply.items()[1].integer())};
  take_landed(link, connection);
}

void Transfer::take_landed(Link& link, resp::Connection& connection) {
  if (!watching()) return;
  for (Exposure& one : exposures_) {
    one.landed = one.region->registration().landed();
    if (one.landed && !within_extents(*one.landed, one.extents)) {
      cut_off(link, connection);
      fail(ErrorKind::rdma, "the server wrote outside the window");
    }
  }
}

// Spec blob 10.3: the endpoint, then the registrations, then the RESP connection.
void Transfer::cut_off(Link& link, resp::Connection& connection) noexcept {
  link.cut_off();
  for (Exposure& one : exposures_) one.region->cut_off();
  connection.cut_off();
}

void Transfer::fail(ErrorKind kind, std::string text) {
  if (!failure_) failure_ = ClientError{kind, std::move(text)};
}

Expected<void> Transfer::verify() {
  if (!core_.options().rdma->verify) return {};
  const Crc32c found = landed_crc(receipt_->bytes_written);
  if (found.raw() == receipt_->checksum) return {};
  return rdma_error("CRC-32C mismatch: the server stored " + std::to_string(receipt_->checksum) +
                    ", what landed has " + std::to_string(found.raw()));
}

// The value fills the windows in order (spec blob 3.2).
Crc32c Transfer::landed_crc(std::uint64_t length) {
  Crc32c crc{};
  bool read_memory = false;
  std::uint64_t left = length;
  for (const Target& target : targets_) {
    if (left == 0) break;
    const Extent extent{Offset(target.offset),
                        Length(std::min<std::uint64_t>(left, target.length))};
    left -= extent.length.raw();
    const std::span<std::byte> bytes =
        target.region->memory().subspan(target.offset, extent.length.raw());
    std::optional<Crc32c> part;
    if (core_.hooks().before_verify) {
      core_.hooks().before_verify(bytes);
    } else {
      for (const Exposure& one : exposures_) {
        if (one.region == target.region && one.landed) part = combine_landed(*one.landed, extent);
      }
    }
    if (!part) {
      part = hash_memory(bytes);
      read_memory = true;
    }
    crc = digest::crc32c_combine(crc, *part, extent.length);
  }
  auto& counters = core_.counters();
  (read_memory ? counters.verified_afterwards : counters.verified_on_landing)
      .fetch_add(1, std::memory_order_relaxed);
  return crc;
}

}  // namespace farlift::client
